"""Products so small that one core computes them before another is awake."""

from __future__ import annotations

import numpy as np

from ...device.profile import DeviceProfile
from ..launch import KernelCall, LaunchPlan, Slot
from ..problem import Elem, Problem
from .common import accumulator_bytes, defines, kernel_text, surely, type_options, upper_pow2

KERNELS = ("prelude.cl", "cpu_common.cl", "cpu_small.cl")
NO_CHOICE_MADS = 1 << 18  # 64 x 64 x 64 of f32, half of it of f64: up to here more cores never pay
MOST_MADS = 1 << 21  # 128 x 128 x 128: from here on they always do; between, it depends on the runtime
MOST_PITCH = (1 << 31) - 1
WIDE_TILE = (8, 2)  # rows and vectors for 32 registers of 16 floats, all of them used at 64 columns

ARGS = np.dtype([("at", np.int64, 3), ("numbers", np.int32, 6)], align=True)
"""`args_t` of cpu_small.cl."""


def tile(problem: Problem, floats: int) -> tuple[int, int, int]:
    """Vector width, vectors and rows of the register tile: no larger than any result of the key."""
    width = min(floats * 4 // accumulator_bytes(problem), surely(problem.n))
    rows, vectors = WIDE_TILE if floats == 16 else (6, 2)
    return width, max(1, min(vectors, surely(problem.n) // width)), min(rows, surely(problem.m))


def most_mads(problem: Problem) -> int:
    """Of all problems of its key; those of f64 count twice."""
    mads = upper_pow2(problem.m) * upper_pow2(problem.n) * upper_pow2(problem.k)
    return mads * accumulator_bytes(problem) // 4


def usable(problem: Problem, profile: DeviceProfile) -> bool:
    """One product of f32 or f64, as small in all problems of its key, rows contiguous in both operands."""
    lhs, rhs, out = (x.canonical() for x in (problem.lhs, problem.rhs, problem.out))
    mads = most_mads(problem)
    plain = problem.elem in (Elem.F32, Elem.F64) and problem.out.elem is problem.elem
    pitches = (lhs.row_stride, rhs.row_stride, out.row_stride)
    if not profile.is_cpu or not plain or problem.batch != 1 or mads > MOST_MADS:
        return False
    if lhs.col_stride != 1 or rhs.col_stride != 1 or max(abs(pitch) for pitch in pitches) > MOST_PITCH:
        return False
    return surely(problem.n) >= 8 and surely(problem.m) >= 8


def surely_fastest(problem: Problem) -> bool:
    """Whether there is nothing to measure against: between equals noise would choose."""
    return most_mads(problem) <= NO_CHOICE_MADS


def plan(problem: Problem, floats: int, sizes: tuple[int, int, int] | None = None) -> LaunchPlan:
    """One launch of one work-item; `floats` are in the device's widest vector, and `usable` must hold."""
    width, vectors, rows = sizes or tile(problem, floats)
    operands = (problem.lhs, problem.rhs, problem.out)
    at = tuple(x.offset_elems for x in operands)
    pitches = tuple(x.canonical().row_stride for x in operands)
    numbers: np.generic = np.array([(at, (*pitches, problem.m, problem.n, problem.k))], ARGS)[0]
    options = (*type_options(problem), *defines(VW=width, NV=vectors, MR=rows, ON_CPU=1))
    args = (Slot.LHS, Slot.RHS, Slot.OUT, numbers)
    call = KernelCall(kernel_text(*KERNELS), "cpu_small", options, (1, 1, 1), (1, 1, 1), args)
    return LaunchPlan((call,))
