"""Expressions in specifications: arithmetic, comparisons and a few functions. Never Python's own eval.

The text is parsed, each of its nodes must be one of those listed here, and the tree is then walked. There
is no attribute access, no name but those given, and no result of unbounded size.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import ceil, floor, log2, sqrt
from typing import Any

from ..errors import UsageError

MOST_CHARACTERS = 2000
LARGEST = 1 << 63
"""Whole numbers in between stay below this, so that no power takes for ever."""


class ExpressionError(UsageError):
    """An expression that is not allowed, or has no value for these names."""

    code = "expression"


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": ceil,
    "ceil_div": ceil_div,
    "float": float,
    "floor": floor,
    "int": int,
    "log2": log2,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": sqrt,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Expression:
    """A parsed expression. Raises ExpressionError for a text that is not one."""

    def __init__(
        self, text: str | int | float, functions: Mapping[str, Callable[..., Any]] = FUNCTIONS
    ) -> None:
        self.text = str(text)
        self._functions = functions
        self._tree = _parse(self.text)
        self._allowed(self._tree)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    @property
    def names(self) -> frozenset[str]:
        """The names it needs values for."""
        found = (node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name))
        return frozenset(name for name in found if name not in self._functions)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Its value. Raises ExpressionError when a name is missing or it can't be computed."""
        try:
            return self._value(self._tree, values)
        except ExpressionError:
            raise
        except (ArithmeticError, TypeError, ValueError, LookupError, MemoryError, RecursionError) as error:
            what = f"the expression '{self.text}' can't be computed: {str(error).strip()}"
            raise ExpressionError(what, hint=self._described(values)) from error

    def _described(self, values: Mapping[str, Any]) -> str:
        """What its names stand for."""
        said = (f"{name} is {_described(values[name])}" for name in sorted(self.names) if name in values)
        names = ", ".join(said)
        return f"Here {names}." if names else "Give an expression that has a value."

    def _error(self, what: str) -> ExpressionError:
        return ExpressionError(
            f"the expression '{self.text}' {what}",
            hint=f"Allowed are numbers, names, + - * / // % ** @, comparisons, and, or, not, "
            f"x if c else y, slices, and the functions {', '.join(sorted(self._functions))}.",
        )

    def _allowed(self, tree: ast.expr) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, str)):
                raise self._error(f"has {node.value!r} in it")
            if isinstance(node, ast.Call) and not self._is_known_call(node):
                raise self._error("calls something that is not a known function")
            if not isinstance(node, _NODES):
                raise self._error(f"has a {type(node).__name__} in it")

    def _is_known_call(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in self._functions and not node.keywords

    def _value(self, node: ast.AST, values: Mapping[str, Any]) -> Any:
        evaluate = _EVALUATORS.get(type(node))
        if evaluate is None:
            raise self._error(f"has a {type(node).__name__} in it")
        return evaluate(self, node, values)

    def _name(self, node: ast.Name, values: Mapping[str, Any]) -> Any:
        if node.id not in values:
            raise self._error(f"uses '{node.id}', which has no value; there are {', '.join(sorted(values))}")
        return values[node.id]

    def _binary(self, node: ast.BinOp, values: Mapping[str, Any]) -> Any:
        left, right = self._value(node.left, values), self._value(node.right, values)
        if isinstance(node.op, (ast.Pow, ast.LShift)) and isinstance(left, int) and isinstance(right, int):
            bits = right * max(abs(left).bit_length(), 1) if isinstance(node.op, ast.Pow) else right
            if bits > 1024:
                raise self._error("makes a number too large")
        if isinstance(left, (str, list, tuple)) or isinstance(right, (str, list, tuple)):
            raise self._error("computes with something that is not a number")
        result = _BINARY[type(node.op)](left, right)
        if isinstance(result, int) and abs(result) >= LARGEST:
            raise self._error("makes a number too large")
        return result

    def _compare(self, node: ast.Compare, values: Mapping[str, Any]) -> Any:
        left = self._value(node.left, values)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node, values)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _boolean(self, node: ast.BoolOp, values: Mapping[str, Any]) -> Any:
        result: Any = None
        for part in node.values:
            result = self._value(part, values)
            if bool(result) is isinstance(node.op, ast.Or):
                return result
        return result

    def _choice(self, node: ast.IfExp, values: Mapping[str, Any]) -> Any:
        return self._value(node.body if self._value(node.test, values) else node.orelse, values)

    def _call(self, node: ast.Call, values: Mapping[str, Any]) -> Any:
        assert isinstance(node.func, ast.Name)
        return self._functions[node.func.id](*(self._value(arg, values) for arg in node.args))

    def _slice(self, node: ast.Slice, values: Mapping[str, Any]) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self._value(part, values) for part in parts))


_EVALUATORS: dict[type[ast.AST], Callable[[Expression, Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda self, node, values: node.value,
    ast.Name: Expression._name,
    ast.BinOp: Expression._binary,
    ast.UnaryOp: lambda self, node, values: _UNARY[type(node.op)](self._value(node.operand, values)),
    ast.Compare: Expression._compare,
    ast.BoolOp: Expression._boolean,
    ast.IfExp: Expression._choice,
    ast.Call: Expression._call,
    ast.Tuple: lambda self, node, values: tuple(self._value(part, values) for part in node.elts),
    ast.List: lambda self, node, values: tuple(self._value(part, values) for part in node.elts),
    ast.Subscript: lambda self, node, values: self._value(node.value, values)[
        self._value(node.slice, values)
    ],
    ast.Slice: Expression._slice,
}
_NODES = (*_EVALUATORS, *_BINARY, *_UNARY, *_COMPARE, ast.And, ast.Or, ast.Load)


def _described(value: Any) -> str:
    """An array by its shape and type, a number as it is."""
    shape = getattr(value, "shape", ())
    return f"an array of {'x'.join(map(str, shape))} {value.dtype}" if shape else f"{value}"


@lru_cache(maxsize=1024)
def _parse(text: str) -> ast.expr:
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"an expression of {len(text)} characters", hint=f"At most {MOST_CHARACTERS}.")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = getattr(error, "msg", None) or str(error)
        raise ExpressionError(f"'{text}' is not an expression: {what}") from error
