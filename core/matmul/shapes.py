"""The shape rules of numpy.matmul, on plain tuples: 1-D operands, batch broadcasting, result shape."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .problem import Elem, Operand, Problem, row_major


@dataclass(frozen=True)
class View:
    """Shape, strides in elements and byte offset of an array as the caller gave it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset_bytes: int = 0


@dataclass(frozen=True)
class Product:
    """How two views multiply: the broadcast operands and the shapes of the result.

    `full_shape` is (batch…, m, n); `result_shape` is what numpy.matmul returns (1-D operands drop axes).
    """

    lhs: View
    rhs: View
    full_shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    drops_rows: bool = False
    drops_columns: bool = False

    @property
    def k(self) -> int:
        return self.lhs.shape[-1]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to multiply: the result is empty, or zeros because k is 0."""
        return self.k == 0 or 0 in self.full_shape

    def full_view(self, result: View) -> View:
        """A view of the result with the axes put back that 1-D operands took away."""
        strides = list(result.strides)
        if self.drops_columns:
            strides.append(1)
        if self.drops_rows:
            strides.insert(len(strides) - 1, 1)
        return View(self.full_shape, tuple(strides), result.offset_bytes)

    def problem(self, elem: Elem, precision: str, out: View | None = None) -> Problem:
        """The problem, with `out` (broadcast-free, of `full_shape`) row-major unless given."""
        if out is None:
            out = View(self.full_shape, row_major(self.full_shape))
        operands = [
            Operand(view.shape, view.strides, elem, view.offset_bytes).canonical()
            for view in (self.lhs, self.rhs, out)
        ]
        return Problem(operands[0], operands[1], operands[2], precision)


def multiply(a: View, b: View) -> Product:
    """Applies numpy.matmul's shape rules. Raises UsageError (a ValueError) with both shapes."""
    if not a.shape or not b.shape:
        raise UsageError(
            f"matmul of shapes {a.shape} and {b.shape}: scalars have no matrix product",
            hint="Give arrays of one or more axes, or multiply by a scalar with *.",
        )
    lhs = _row(a) if len(a.shape) == 1 else a
    rhs = _column(b) if len(b.shape) == 1 else b
    if lhs.shape[-1] != rhs.shape[-2]:
        raise UsageError(
            f"matmul of shapes {a.shape} and {b.shape}: "
            f"inner extents {lhs.shape[-1]} and {rhs.shape[-2]} differ",
            hint="The last axis of the first operand must be as long as the last but one of the second.",
        )
    batch = _broadcast(a.shape[:-2], b.shape[:-2], a.shape, b.shape)
    drops_rows, drops_columns = len(a.shape) == 1, len(b.shape) == 1
    rows, columns = lhs.shape[-2], rhs.shape[-1]
    result = batch + (() if drops_rows else (rows,)) + (() if drops_columns else (columns,))
    return Product(
        _expand(lhs, batch), _expand(rhs, batch), (*batch, rows, columns), result, drops_rows, drops_columns
    )


def _row(a: View) -> View:
    (k,), (s,) = a.shape, a.strides
    return View((1, k), (k, s), a.offset_bytes)


def _column(b: View) -> View:
    (k,), (s,) = b.shape, b.strides
    return View((k, 1), (s, 1), b.offset_bytes)


def _broadcast(
    left: tuple[int, ...], right: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[int, ...]:
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    extents = []
    for x, y in pairs:
        if x != y and 1 not in (x, y):
            raise UsageError(
                f"matmul of shapes {a} and {b}: batch axes {left} and {right} do not broadcast",
                hint="Batch extents must be equal, or one of them 1.",
            )
        extents.append(y if x == 1 else x)
    return tuple(extents)


def _expand(view: View, batch: tuple[int, ...]) -> View:
    own = view.shape[:-2]
    lead = len(batch) - len(own)
    strides = [0] * lead
    for extent, target, stride in zip(own, batch[lead:], view.strides, strict=False):
        strides.append(0 if extent == 1 and target != 1 else stride)
    return View((*batch, *view.shape[-2:]), (*strides, *view.strides[-2:]), view.offset_bytes)
