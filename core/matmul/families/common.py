"""What the plain families share: kernel texts, build options, the problem as kernel arguments."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, Slot
from ..problem import BatchWalk, Elem, Operand, Problem

MAX_EXTENT = (1 << 31) - (1 << 20)  # kernels step past the end by less than a block, in 32 bits


@cache
def kernel_text(*names: str) -> str:
    """The named `.cl` files one after another: what a program is built from, and what a digest covers."""
    folder = files("rooftune.matmul") / "kernels"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


def check(problem: Problem, profile: DeviceProfile) -> BatchWalk:
    """Refuse what no plain kernel here can do; otherwise how the batch is walked.

    Raises UnsupportedError: mixed operand types, f64 on a device without it, a byte offset that is no
    multiple of the element size, extents near 31 bits, batch strides that do not collapse to two axes.
    """
    elem = problem.elem
    if problem.rhs.elem is not elem:
        raise UnsupportedError(f"operands of different types ({elem} and {problem.rhs.elem})")
    if Elem.F64 in (elem, problem.out.elem) and not profile.has_f64:
        raise UnsupportedError("the device has no f64")
    for operand in (problem.lhs, problem.rhs, problem.out):
        if operand.offset_bytes % operand.elem.size_bytes:
            raise UnsupportedError(f"byte offset {operand.offset_bytes} splits an element")
        if max(operand.shape) > MAX_EXTENT:
            raise UnsupportedError(f"an extent above {MAX_EXTENT}")
    if problem.out.canonical().col_stride != 1:
        raise UnsupportedError("the result's columns are not contiguous")
    if min(problem.m, problem.n, problem.k) < 1:
        raise UnsupportedError("an empty product")
    return problem.batch_walk()


def type_options(problem: Problem) -> tuple[str, ...]:
    """-D options for the element types, and the one option that lets a*b+c become one instruction."""
    return (f"-DIN={problem.elem.name}", f"-DOUT={problem.out.elem.name}", "-cl-mad-enable")


def stride_options(problem: Problem) -> tuple[str, ...]:
    """-D options naming the operand strides known to be 1, so that kernels see consecutive elements."""
    options = []
    for name, operand in (("LHS", problem.lhs.canonical()), ("RHS", problem.rhs.canonical())):
        if operand.col_stride == 1:
            options.append(f"-D{name}_COL_1")
        elif operand.row_stride == 1:
            options.append(f"-D{name}_ROW_1")
    return tuple(options)


def defines(**values: int) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in values.items())


def operand_args(operand: Operand, batch: tuple[int, int]) -> tuple[np.generic, ...]:
    """Offset, row and column stride, outer and inner batch stride, in elements (64-bit)."""
    natural = operand.canonical()
    numbers = (operand.offset_elems, natural.row_stride, natural.col_stride, *batch)
    return tuple(np.int64(number) for number in numbers)


def problem_args(problem: Problem, walk: BatchWalk) -> tuple[Arg, ...]:
    """The arguments every matrix kernel begins with (PROBLEM_ARGS in prelude.cl)."""
    return (
        Slot.LHS,
        Slot.RHS,
        Slot.OUT,
        *operand_args(problem.lhs, walk.lhs),
        *operand_args(problem.rhs, walk.rhs),
        *operand_args(problem.out, walk.out),
        np.int32(problem.m),
        np.int32(problem.n),
        np.int32(problem.k),
        np.int32(walk.extents[1]),
    )


def accumulator_bytes(problem: Problem) -> int:
    return 8 if problem.elem is Elem.F64 else 4


def lower_pow2(value: int) -> int:
    """Largest power of two not above `value` (at least 1)."""
    return 1 << max(value.bit_length() - 1, 0)


def upper_pow2(value: int) -> int:
    """Smallest power of two not below `value` (at least 1)."""
    return 1 << max(value - 1, 0).bit_length()


def vector_floats(profile: DeviceProfile) -> int:
    """Floats in the device's widest vector, from 4 to 16."""
    return min(16, max(4, lower_pow2(profile.vector_width_f32)))


def surely(extent: int) -> int:
    """A power of two that no extent of this one's bucket is below: problems of one key share a program."""
    return max(1, upper_pow2(extent) // 2)
