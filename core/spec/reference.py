"""What a kernel's outputs must be, and the comparison with what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import UsageError
from .expression import Expression
from .spec import Reference

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

BLOCK = 1 << 16
"""Elements compared at a time: what comes in between stays in the processor's caches."""


_NOWHERE: Array = np.empty(0, np.intp)


def _reshaped(array: Any, *shape: int) -> Any:
    return np.reshape(array, shape)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "cos": np.cos,
    "cumsum": np.cumsum,
    "dot": np.dot,
    "exp": np.exp,
    "float32": np.float32,
    "float64": np.float64,
    "log": np.log,
    "max": np.max,
    "maximum": np.maximum,
    "min": np.min,
    "minimum": np.minimum,
    "reshape": _reshaped,
    "roll": np.roll,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "sum": np.sum,
    "transpose": np.transpose,
    "where": np.where,
}
"""What the numpy expressions of a reference may call."""


class WrongOutput(Exception):
    """An output differs from the reference; the message says where and by how much."""


def expected_by_numpy(
    reference: Reference, values: Mapping[str, Any], counts: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs that the expressions give, as flat arrays. `values` are arguments and sizes by name.

    A single number is what each element must be. Raises UsageError where one gives no numbers, or fewer
    than the `counts` elements that the specification says the output has.
    """
    return {name: _flat(name, e, values, counts[name]) for name, e in reference.numpy.items()}


def _flat(name: str, expression: Expression, values: Mapping[str, Any], count: int) -> Array:
    given = expression(values)
    expected = _as_numbers(given)
    what = f"'{expression.text}', which {name} must be, gives"
    if expected is None:
        raise UsageError(f"{what} a {type(given).__name__}", hint=ALLOWED)
    if not expected.ndim:
        return np.broadcast_to(expected, (max(count, 1),))
    if expected.size < count:
        raise UsageError(f"{what} {expected.size} elements, and {name} has {count}", hint=ALLOWED)
    return np.ravel(expected)


ALLOWED = "It must give as many numbers as the output has elements, or one number that each must be."


def _as_numbers(given: Any) -> Array | None:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "biufc" else None


def compare(reference: Reference, expected: Arrays, outputs: Arrays) -> None:
    """Raises WrongOutput unless each output is what is expected, within atol + rtol · |expected|."""
    for name, wanted in expected.items():
        got = outputs[name].ravel()[: wanted.size]
        if got.size < wanted.size or (outputs[name].size and not wanted.size):
            raise WrongOutput(f"{name} has {outputs[name].size} elements, the reference {wanted.size}")
        wrong = [
            _wrong(reference, got[i : i + BLOCK], wanted[i : i + BLOCK]) for i in range(0, got.size, BLOCK)
        ]
        count = sum(block.size for block in wrong)
        if count:
            which = next(i for i, block in enumerate(wrong) if block.size)
            at = which * BLOCK + int(wrong[which][0])
            raise WrongOutput(
                f"{name}[{at}] is {got[at]:.6g}, the reference {wanted[at]:.6g}; {count} of {got.size} differ"
            )


def _wrong(reference: Reference, got: Array, wanted: Array) -> Array:
    """Where they differ. In single precision where both are: outputs are large, and this is in the way."""
    if np.array_equal(got, wanted):
        return _NOWHERE
    common = np.result_type(got, wanted, np.float32)
    got, wanted = got.astype(common, copy=False), wanted.astype(common, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(wanted)
        right = (np.abs(got - wanted) <= reference.atol + reference.rtol * np.abs(wanted)) & finite
        if not finite.all():
            right |= (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return np.flatnonzero(~right)
