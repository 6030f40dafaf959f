"""Matrix times vector on CPUs, for matrices their caches don't hold: several long streams a core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...device.profile import DeviceProfile
from ..cost import compute_ops
from ..launch import Counter, KernelCall, LaunchPlan, Scratch, Slot
from ..problem import BatchWalk, Elem, Problem
from .common import (
    accumulator_bytes,
    ceil_div,
    defines,
    kernel_text,
    lower_pow2,
    round_up,
    surely,
    type_options,
    vector_floats,
)
from .gemv_wide import matrix_bytes

if TYPE_CHECKING:
    from .gemv import GemvView

KERNELS = ("prelude.cl", "cpu_common.cl", "gemv_streams.cl")
STREAMS, AHEAD_BYTES = 4, 4096
MOST_WIDTH = 16
SUMS_BYTES = 32 * 1024  # of the level 1 cache, for the sums of one block
MOST_STRETCH = 8  # lines of a stream in a block of rows
BLOCKS_A_CORE = 8  # of rows: so many even out cores of different speed
PIECES_A_CORE, MOST_ROUNDS = 8, 6  # of columns: with fewer the summed axis is cut, each round by half
LEAST_STRETCH = 8  # lines of a stream in a slice, so that its sums are a small part of what is read
ADDED = 256  # results that a work-item of gemv_add makes
NO_CHOICE_BYTES = 1 << 26  # from here on streams are faster where memory is at rest, and no slower elsewhere
LEAST_BYTES = 1 << 24  # the matrix of any problem of the key: smaller ones lie in a cache

ARGS = np.dtype([("matrices", np.int64, 13), ("extents", np.int32, 3), ("division", np.int32, 5)], align=True)
"""`args_t` of gemv_streams.cl."""


@dataclass(frozen=True)
class Division:
    """`stretch` lines a stream in a block of rows; parts of `cols` results, and slices, for columns.

    Slices come in `rounds` of `lanes` each (gemv_streams.cl).
    """

    stretch: int = 1
    cols: int = 1
    lanes: int = 1
    rounds: int = 1


def usable(v: GemvView, problem: Problem, profile: DeviceProfile, axis: str) -> bool:
    """Whether the matrix is contiguous along `axis`, and this large in all problems of its key."""
    contiguous = v.mat_p == 1 if axis == "parallel" else v.mat_i == 1
    results, k = surely(v.results), surely(problem.k)
    if not profile.is_cpu or not contiguous or min(results, k) < STREAMS:
        return False
    return results * k * problem.elem.size_bytes >= LEAST_BYTES


def surely_fastest(v: GemvView, problem: Problem) -> bool:
    """Whether there is nothing to measure against: a busy minute would decide for a kernel that is slower."""
    return surely(v.results) * surely(problem.k) * problem.elem.size_bytes >= NO_CHOICE_BYTES


def plan(
    v: GemvView,
    problem: Problem,
    walk: BatchWalk,
    profile: DeviceProfile,
    axis: str,
    division: Division | None = None,
) -> LaunchPlan:
    """One launch, or two where the summed axis is cut; `usable` must hold."""
    rows = axis == "parallel"
    width = vector_width(surely(problem.k if rows else v.results), problem, profile)
    most_cols = SUMS_BYTES // accumulator_bytes(problem)
    d = division
    if d is None:
        d = for_rows(v, walk, profile) if rows else for_columns(v, problem, walk, profile, most_cols)
    slices = 1 if rows else d.lanes * d.rounds
    pieces = ceil_div(v.results, STREAMS * d.stretch if rows else d.cols)
    count = pieces * slices * walk.count
    numbers = call_numbers(v, (count, d.stretch, d.cols, d.lanes, d.rounds))
    options = (
        type_options(problem)
        + layout_options(v, rows)
        + defines(VW=width, STREAMS=STREAMS, AHEAD=AHEAD_BYTES, COLS=most_cols, ADDED=ADDED)
        + defines(ON_CPU=int(profile.is_cpu))
    )
    source, items = kernel_text(*KERNELS), min(count, profile.compute_units)
    name = "gemv_rows" if rows else "gemv_columns"
    args = (v.mat, v.vec, Slot.OUT, numbers, Counter())
    parts = () if rows else (Scratch(0) if slices > 1 else None,)
    ops = compute_ops(problem) / items
    product = KernelCall(source, name, options, (items, 1, 1), (1, 1, 1), (*args, *parts), group_ops=ops)
    if slices == 1:
        return LaunchPlan((product,))
    groups = (ceil_div(v.results, ADDED), walk.count, 1)
    add = KernelCall(source, "gemv_add", options, groups, (1, 1, 1), (Slot.OUT, numbers, Scratch(0)))
    return LaunchPlan((product, add), (walk.count * slices * v.results * accumulator_bytes(problem),))


def vector_width(extent: int, problem: Problem, profile: DeviceProfile) -> int:
    """Elements of a vector: the widest of the device, and no more than there certainly are."""
    return min(vector_floats(profile) // (2 if problem.elem is Elem.F64 else 1), extent)


def for_rows(v: GemvView, walk: BatchWalk, profile: DeviceProfile) -> Division:
    share = v.results * walk.count // (STREAMS * BLOCKS_A_CORE * profile.compute_units)
    return Division(stretch=max(1, min(MOST_STRETCH, share)))


def for_columns(
    v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile, most_cols: int
) -> Division:
    """Pieces of rows as long as their sums allow, and slices of the summed axis where those are few.

    Matrices that the last cache may hold together are read so fast that adding slices up counts: there rows
    are cut in a piece a core instead, if these are long enough. Where more products share the cores, whole
    rows are the longer streams.
    """
    cached = walk.count * matrix_bytes(v, problem) <= NO_CHOICE_BYTES
    each = round_up(ceil_div(v.results, profile.compute_units), MOST_WIDTH)
    if cached and each * problem.elem.size_bytes >= AHEAD_BYTES and each <= most_cols:
        return Division(cols=each)
    pieces = ceil_div(v.results, most_cols)
    cols = min(most_cols, round_up(ceil_div(v.results, pieces), MOST_WIDTH))
    lanes = ceil_div(profile.compute_units, pieces * walk.count)
    lanes = max(1, min(lanes, problem.k // (STREAMS * LEAST_STRETCH)))
    shortest = problem.k // (lanes * STREAMS * LEAST_STRETCH)
    enough = pieces * walk.count >= PIECES_A_CORE * profile.compute_units
    rounds = 1 if enough else max(1, min(MOST_ROUNDS, lower_pow2(shortest).bit_length()))
    return Division(cols=cols, lanes=lanes, rounds=rounds)


def call_numbers(v: GemvView, division: tuple[int, ...]) -> np.generic:
    """The kernels' one argument of numbers: `args_t` of gemv_streams.cl, `division` its last fields."""
    filled: np.generic = np.array([(v.numbers[:13], v.numbers[13:], division)], ARGS)[0]
    return filled


def layout_options(v: GemvView, rows: bool) -> tuple[str, ...]:
    named = (("MAT_P_1", rows), ("MAT_I_1", not rows), ("VEC_1", v.vec_p == 1), ("OUT_1", v.out_i == 1))
    return tuple(f"-D{name}" for name, holds in named if holds)
