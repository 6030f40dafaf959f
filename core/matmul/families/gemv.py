"""The gemv family: matrix times vector (n = 1) and vector times matrix (m = 1), in both storage orders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Slot
from ..problem import BatchWalk, Problem
from . import gemv_streams, gemv_wide
from .common import (
    ceil_div,
    check,
    defines,
    kernel_text,
    lower_pow2,
    surely,
    type_options,
    upper_pow2,
    vector_floats,
)

TEXTS = ("prelude.cl", "gemv.cl")
KERNELS = tuple(dict.fromkeys((*TEXTS, *gemv_streams.KERNELS, *gemv_wide.KERNELS)))
STAGE = 1024  # elements of the vector in local memory
UNROLLED = 8  # up to so many vectors of results are a constant of the program (gemv.cl)
MOST_KEPT = 256
STRIDED = 4.0  # foreseen where reads leave out most of each line they touch
FEW_CORES = 4  # which can't read memory as fast as it goes, unless it is asked for ahead
NO_STREAMS = 1.1  # and where the same could be read as streams, from beyond the caches


@dataclass(frozen=True)
class GemvView:
    """The product seen as out[i] = Σₚ mat[i, p] · vec[p]. Strides and offsets in elements."""

    mat: Slot
    vec: Slot
    results: int
    mat_i: int
    mat_p: int
    vec_p: int
    out_i: int
    numbers: tuple[np.generic, ...]  # the kernel's arguments after the three buffers


def view(problem: Problem, walk: BatchWalk) -> GemvView:
    """Which operand is the matrix and along which of its axes the results lie."""
    lhs, rhs, out = problem.lhs.canonical(), problem.rhs.canonical(), problem.out.canonical()
    if problem.n == 1:
        mat, vec, mat_walk, vec_walk = lhs, rhs, walk.lhs, walk.rhs
        results, mat_i, mat_p = problem.m, lhs.row_stride, lhs.col_stride
        vec_p, out_i = rhs.row_stride, out.row_stride
        slots = (Slot.LHS, Slot.RHS)
    elif problem.m == 1:
        mat, vec, mat_walk, vec_walk = rhs, lhs, walk.rhs, walk.lhs
        results, mat_i, mat_p = problem.n, rhs.col_stride, rhs.row_stride
        vec_p, out_i = lhs.col_stride, 1
        slots = (Slot.RHS, Slot.LHS)
    else:
        raise UnsupportedError("neither operand is a vector")
    wide = (
        mat.offset_elems,
        mat_i,
        mat_p,
        *mat_walk,
        vec.offset_elems,
        vec_p,
        *vec_walk,
        out.offset_elems,
        out_i,
        *walk.out,
    )
    numbers = (*(np.int64(x) for x in wide), *(np.int32(x) for x in (results, problem.k, walk.extents[1])))
    return GemvView(*slots, results, mat_i, mat_p, vec_p, out_i, numbers)


@dataclass(frozen=True)
class GemvTile:
    """Vector width, lanes and planes of a work-group, what one work-item keeps, steps of the summed axis."""

    width: int
    lanes: int
    planes: int
    each: int
    step: int = 4


def parallel_tile(v: GemvView, problem: Problem, profile: DeviceProfile) -> GemvTile:
    """Lanes along the summed axis: 32 on a GPU, a single one with wide vectors on a CPU."""
    contiguous = v.mat_p == 1
    if profile.is_cpu:
        width = min(vector_floats(profile), surely(problem.k)) if contiguous else 1
        return GemvTile(width, 1, 1, min(8, surely(v.results)))
    width = 4 if contiguous and problem.k >= 256 else 1
    return GemvTile(width, 32, max(1, min(4, profile.max_work_group // 32)), 1)


def perpendicular_tile(v: GemvView, problem: Problem, profile: DeviceProfile) -> GemvTile:
    """Each work-item keeps its own results; planes cut the summed axis where results alone are too few."""
    contiguous = v.mat_i == 1
    if profile.is_cpu:
        width = min(vector_floats(profile), surely(v.results)) if contiguous else 1
        share = share_of(upper_pow2(v.results), problem, profile, width, items=1)
        if share <= UNROLLED:
            share = share_of(surely(v.results), problem, profile, width, items=2)
        return GemvTile(width, 1, 1, min(MOST_KEPT, share), step=8)
    width = 1
    planes = max(1, min(8, profile.max_work_group // 32))
    return GemvTile(width, 32, planes, 1)


def share_of(results: int, problem: Problem, profile: DeviceProfile, width: int, *, items: int) -> int:
    """Vectors of results of one work-item, with so many items a core, and none for more than one product."""
    share = results * lower_pow2(problem.batch) // (items * profile.compute_units * width)
    return max(1, lower_pow2(min(share, results // width)))


def kept(v: GemvView, problem: Problem, profile: DeviceProfile, t: GemvTile) -> int:
    """Vectors of results of one work-item, from the real extents: one item a core where they are many.

    The longer the piece of a row that is read at once, the better the core's prefetching works.
    """
    if t.each <= UNROLLED or not profile.is_cpu:
        return t.each
    span = t.lanes * t.width
    share = ceil_div(v.results * problem.batch, profile.compute_units * span)
    return min(t.each, share, ceil_div(v.results, span))


def read_in_streams(problem: Problem, walk: BatchWalk, profile: DeviceProfile) -> bool:
    """Whether one operand is a vector, a candidate here reads the other as streams (gemv_streams), and cores
    are so few that a cache-blocked product was never faster.
    """
    if 1 not in (problem.m, problem.n) or profile.compute_units > FEW_CORES:
        return False
    v = view(problem, walk)
    return any(gemv_streams.usable(v, problem, profile, axis) for axis in ("parallel", "perpendicular"))


def plan(
    problem: Problem, profile: DeviceProfile, *, axis: str, stages: int = 0, tiles: GemvTile | None = None
) -> LaunchPlan:
    """One launch.

    `axis` "parallel": lanes share a result; "perpendicular": each work-item owns results. `stages` (0, 1, 2;
    perpendicular only) is how many stages of the vector go through local memory; on NVIDIA devices, where the
    matrix is large, the summed axis is cut in chunks of so many stages. Raises UnsupportedError for a product
    of two matrices.
    """
    walk = check(problem, profile)
    v = view(problem, walk)
    parallel = axis == "parallel"
    reads_along_memory = v.mat_p == 1 if parallel else stages == 0 and v.mat_p != 1
    if tiles is None and reads_along_memory and gemv_wide.usable(v, problem, profile):
        return gemv_wide.plan(v, problem, walk, profile)
    if tiles is None and stages and (staged := gemv_wide.staged_plan(v, problem, walk, profile, stages)):
        return staged
    streams = gemv_streams.usable(v, problem, profile, axis)
    if tiles is None and not stages and streams:
        return gemv_streams.plan(v, problem, walk, profile, axis)
    if tiles is None and streams and gemv_streams.surely_fastest(v, problem):
        raise UnsupportedError("so large a matrix is read as streams, by the candidates without stages")
    t = tiles or (parallel_tile if parallel else perpendicular_tile)(v, problem, profile)
    options = (
        type_options(problem)
        + layout_options(v)
        + defines(
            VW=t.width, LANES=t.lanes, PLANES=t.planes, EACH=t.each, STEP=t.step, STAGES=stages, STAGE=STAGE
        )
    )
    args: tuple[Arg, ...] = (v.mat, v.vec, Slot.OUT, *v.numbers)
    if parallel:
        options += ("-DPARALLEL",)
        groups = (1, ceil_div(v.results, t.planes * t.each), walk.count)
    else:
        each = kept(v, problem, profile, t)
        groups = (ceil_div(v.results, t.lanes * t.width * each), 1, walk.count)
        args += (np.int32(each),)
    beyond_caches = gemv_wide.matrix_bytes(v, problem) > gemv_streams.NO_CHOICE_BYTES
    missed = NO_STREAMS if streams and beyond_caches else 1.0
    detour = STRIDED if (v.mat_p if parallel else v.mat_i) != 1 else missed
    call = KernelCall(
        kernel_text(*TEXTS),
        f"gemv_{axis}",
        options,
        (groups[0] * t.lanes, groups[1] * t.planes, groups[2]),
        (t.lanes, t.planes, 1),
        args,
        detour=detour,
    )
    return LaunchPlan((call,))


def layout_options(v: GemvView) -> tuple[str, ...]:
    named = (
        ("MAT_P_1", v.mat_p == 1),
        ("MAT_I_1", v.mat_i == 1),
        ("VEC_1", v.vec_p == 1),
        ("OUT_1", v.out_i == 1),
    )
    return tuple(f"-D{name}" for name, holds in named if holds)
