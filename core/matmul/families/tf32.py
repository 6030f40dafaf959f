"""f32 on Hopper's warp-group products: TF32, and f32 accuracy by three TF32 products of split operands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Scratch, Slot
from ..nvidia.operands import (
    Lines,
    Steps,
    operand_lines,
    out_args,
    packed_pitch,
    slice_args,
    wide_stores,
)
from ..nvidia.ptx import PtxRewrite
from ..nvidia.registers import pin, wgmma_tf32
from ..nvidia.slices import add_parts
from ..nvidia.tensormap import MapType
from ..nvidia.tiles import (
    HOPPER,
    Costs,
    Cut,
    Extents,
    Tile,
    choose_cut,
    expected_s,
    shared_limit,
    stages_that_fit,
    whole_slices,
)
from ..problem import BatchWalk, Problem
from .common import ceil_div, defines, kernel_text

DEPTH = 32
TILE_BAND = 16
KERNELS = (
    "nvidia_common.cl",
    "nvidia_wgmma32.cl",
    "nvidia_split.cl",
    "nvidia_pack.cl",
    "nvidia_slices.cl",
)
SPLIT_K = range(64, 65536 + 1)
FEW_RESULTS = 256
DEEP_K = 1024
"""Where a product of split operands is at least as exact as plain f32, see `is_exact`."""
LARGE_TILE, MANY_RESULTS, IN_TURN_K = 128, 1 << 21, 8192
RHS_CHUNK = 256
REPAIR_SIDE = 64
PREPARE_GROUP = 256
RANGE_BYTES = 8

# Parts along n are warp groups: bn = 64 * parts_n * steps along n (1 or 2).
TF32_TILES = {
    "simple_tma": (
        Tile(256, 128, 1, 2),
        Tile(128, 128, 1, 2, 0.9),
        Tile(64, 128, 1, 2, 0.6),
        Tile(128, 64, 1, 1, 0.55),
        Tile(64, 64, 1, 1, 0.4),
    ),
    "simple_tma_multi_rows": (Tile(128, 256, 1, 2), Tile(64, 256, 1, 2, 0.5), Tile(64, 128, 1, 1, 0.3)),
    "specialized_tma": (
        Tile(256, 128, 1, 2),
        Tile(128, 128, 1, 2, 0.9),
        Tile(128, 64, 1, 1, 0.65),
        Tile(64, 128, 1, 2, 0.6),
        Tile(64, 64, 1, 1, 0.4),
    ),
}
SPLIT_TILES = {
    "simple_tma_multi_rows": (Tile(64, 256, 1, 2), Tile(64, 128, 1, 1, 0.5)),
    "specialized_tma": (Tile(128, 128, 1, 2), Tile(64, 128, 1, 2, 0.75), Tile(64, 64, 1, 1, 0.52)),
}
# Fitted to an H200, where one multiprocessor makes 1.5 million multiply-adds in a microsecond, or 0.5 of
# three products each.
TF32_COSTS = Costs(adding=9e6, slice_element=1.2, per_s=2e12, start_s=6.2e-6)
SPLIT_COSTS = Costs(adding=3.5e6, slice_element=0.4, per_s=5e11, start_s=11e-6)
PREPARED_BYTES_PER_S = 1.5e12
"""Operands' bytes a second in the launch before split products."""
DETOURS = {"specialized_tma": 1.0, "simple_tma": 1.15, "simple_tma_multi_rows": 1.3}
"""Foreseen of what holds products up: awaiting each stage's, twice the columns of rhs."""

UNROLL = {"simple_tma": 1, "simple_tma_multi_rows": 1, "specialized_tma": 2}


def plan_f32(
    problem: Problem,
    profile: DeviceProfile,
    walk: BatchWalk,
    *,
    unit: str,
    variant: str,
    tile: Tile | None = None,
    slices: int | None = None,
) -> LaunchPlan:
    """Launches for f32 at precision "tf32" or "full". Raises UnsupportedError where that is not offered.

    The producer warp fills the stages in every form; simple ones await each stage's products before the
    next, multi_rows gives each warp group twice the columns of rhs.
    """
    if unit != "mma" or profile.capability != HOPPER:
        raise UnsupportedError("f32 runs on warp-group products only (compute capability 9.0)")
    if variant not in UNROLL:
        raise UnsupportedError("f32 tiles for matrix units come through the copy engine only")
    split = problem.precision == "full"
    if split and variant not in SPLIT_TILES:
        raise UnsupportedError("split operands are added up after every stage; no other form exists")
    if split and not is_exact(problem.m, problem.n, problem.k):
        raise UnsupportedError(
            f"{problem.m} x {problem.n} results of k = {problem.k}: split operands are surely as exact as "
            f"f32 for {DEEP_K} <= k < {SPLIT_K.stop}, and from k = {SPLIT_K.start} on where both extents of "
            f"the result are at least {FEW_RESULTS}"
        )
    steps = Steps()
    # Only operands along k serve as the shared operand, and only operands along n as fragments.
    lhs, rhs = operand_lines(problem, walk, steps, lhs_along_k=True, rhs_along_k=False)
    extents = Extents(problem.m, problem.n, problem.k, walk.count)
    table = (SPLIT_TILES if split else TF32_TILES)[variant]
    unroll = 1 if split else UNROLL[variant]
    costs = SPLIT_COSTS if split else TF32_COSTS
    if tile is None:
        cut = choose_cut(table, extents, profile.compute_units, unroll * DEPTH, costs)
    else:
        cut = Cut(tile, whole_slices(ceil_div(problem.k, unroll * DEPTH), slices or 1))
    low, ranges = _prepare(problem, lhs, rhs, steps) if split else (lhs, None)
    _multiply(problem, profile, walk, cut, unroll, lhs, low, rhs, steps, split=split)
    if ranges is not None:
        steps.calls.append(_repair(problem, walk, lhs, rhs, ranges))
    costs = replace(costs, finish_steps=costs.finish_steps / unroll)
    takes_s = expected_s(cut, extents, profile, unroll * DEPTH, costs, DETOURS[variant])
    if split and takes_s is not None:
        takes_s += (problem.lhs.size_bytes + problem.rhs.size_bytes) / PREPARED_BYTES_PER_S
    return steps.plan(takes_s)


def is_exact(m: int, n: int, k: int) -> bool:
    """Whether split operands are at least as exact as f32 in a vendor's library, which adds up k in parts.

    Relative errors measured on an H200: split operands have 1.3e-7 at k = 64, 1.5e-7 at 1024 and 2.2e-7 at
    65536, a chain of multiply-adds 1.45e-7, 5.7e-7 and 4.6e-6. With 256 x 256 results and more cuBLAS is such
    a chain at first; where it cuts k it has 1.5e-7 at k = 256 and 1.6e-7 at 1024. With fewer it cuts finer:
    1.0e-7 for 16 x 16 x 128, 1.2e-7 for 64 x 64 x 256, 1.3e-7 for 16 x 4096 x 192. From k = 1024 on it is the
    less exact one everywhere.
    """
    return k in SPLIT_K and (k >= DEEP_K or min(m, n) >= FEW_RESULTS)


def adds_small_first(problem: Problem, tile: Tile) -> bool:
    """Whether a stage's small products are added before the large ones: nearly twice as exact.

    On large tiles that costs a tenth of the time. It is spared where plain f32 is far less exact anyway: with
    2^21 results or more cuBLAS has at least 3.5e-7 from k = 1024 on, and split operands added in turn have
    2.7e-7 at k = 1024 and 3.8e-7 at 8192, where cuBLAS has 1.6e-6.
    """
    many = problem.m * problem.n >= MANY_RESULTS and DEEP_K <= problem.k <= IN_TURN_K
    return tile.bm < LARGE_TILE or not many


def _multiply(
    problem: Problem,
    profile: DeviceProfile,
    walk: BatchWalk,
    cut: Cut,
    unroll: int,
    lhs: Lines,
    low: Lines,
    rhs: Lines,
    steps: Steps,
    *,
    split: bool,
) -> None:
    """The launch that multiplies, and the one that adds up slices."""
    tile = cut.tile
    stage_bytes = (tile.bm * (2 if split else 1) + tile.bn) * DEPTH * 4
    stages = stages_that_fit(stage_bytes, 8, shared_limit(profile))
    tiles = (ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn))
    groups = min(tiles[0] * tiles[1] * walk.count * cut.slices, profile.compute_units)
    threads = 128 * tile.parts_n + 128
    box = (DEPTH, tile.bm)
    sizes = (problem.m, problem.n, problem.k, *tiles, walk.count, walk.extents[1])
    prologue = (
        wgmma_tf32("PRODUCT", tile.bm)
        + wgmma_tf32("PRODUCT_FIRST", tile.bm, accumulate=False)
        + pin("PIN", tile.bm // 2)
    )
    out: tuple[Arg, ...] = (Slot.OUT, *out_args(problem, walk))
    wide = wide_stores(problem, walk)
    parts = None
    if cut.slices > 1:
        parts, out, wide = slice_args(problem, walk, steps, cut.slices)
    call = KernelCall(
        prologue + kernel_text("nvidia_common.cl", "nvidia_wgmma32.cl"),
        "matmul",
        defines(
            BM=tile.bm,
            STAGES=stages,
            WARP_GROUPS=tile.parts_n,
            N_STEPS=tile.bn // (64 * tile.parts_n),
            SPLIT=int(split),
            SMALL_FIRST=int(split and adds_small_first(problem, tile)),
            UNROLL=unroll,
            SLICES=cut.slices,
            TILE_BAND=TILE_BAND,
        ),
        (groups * threads,),
        (threads,),
        (
            lhs.tensor_map(MapType.TF32, box),
            low.tensor_map(MapType.TF32, box),
            *lhs.batch_factors,
            rhs.tensor_map(MapType.F32 if split else MapType.TF32, (DEPTH, DEPTH)),
            *rhs.batch_factors,
            *out,
            *(np.uint32(x) for x in sizes),
            wide,
        ),
        PtxRewrite(entry_directives=(".minnctapersm 1",)),
        group_ops=2.0 * tile.bm * tile.bn * problem.k * tiles[0] * tiles[1] * walk.count / groups,
        matrix=True,
    )
    steps.calls.append(call)
    if parts is not None:
        steps.calls.append(add_parts(problem, profile, walk, cut.slices, parts))


def _prepare(problem: Problem, lhs: Lines, rhs: Lines, steps: Steps) -> tuple[Lines, tuple[Scratch, Scratch]]:
    """The low parts of lhs, and the ranges of lhs's rows and rhs's columns."""
    m, n, k = problem.m, problem.n, problem.k
    (lhs_outer, lhs_inner), (rhs_outer, rhs_inner) = lhs.matrices, rhs.matrices
    pitch = packed_pitch(k, lhs.elem.size_bytes)
    rows, rhs_count, chunks = lhs_outer * lhs_inner * m, rhs_outer * rhs_inner, ceil_div(k, RHS_CHUNK)
    low = steps.scratch(rows * pitch * 4)
    ranges = (steps.scratch(rows * RANGE_BYTES), steps.scratch(rhs_count * chunks * n * RANGE_BYTES))
    column_groups = ceil_div(n, 64)
    groups = rows + column_groups * chunks * rhs_count
    steps.calls.append(
        KernelCall(
            kernel_text("nvidia_split.cl"),
            "prepare",
            defines(RHS_CHUNK=RHS_CHUNK),
            (groups * PREPARE_GROUP,),
            (PREPARE_GROUP,),
            (
                lhs.source,
                *lhs.stride_args(),
                np.uint32(lhs_inner),
                rhs.source,
                *rhs.stride_args(),
                np.uint32(rhs_inner),
                low,
                *ranges,
                *(np.uint32(x) for x in (m, n, k, pitch, rows, column_groups, chunks)),
            ),
        )
    )
    lines = Lines(
        low,
        lhs.elem,
        True,
        k,
        m,
        0,
        pitch,
        lhs_inner * m * pitch if lhs.outer else 0,
        m * pitch if lhs.inner else 0,
        lhs.extents,
    )
    return lines, ranges


def _repair(
    problem: Problem, walk: BatchWalk, lhs: Lines, rhs: Lines, ranges: tuple[Scratch, Scratch]
) -> KernelCall:
    chunks = ceil_div(problem.k, RHS_CHUNK)
    tiles = (ceil_div(problem.n, REPAIR_SIDE), ceil_div(problem.m, REPAIR_SIDE), walk.count)
    sizes = (problem.m, problem.n, problem.k, chunks, walk.extents[1])
    return KernelCall(
        kernel_text("nvidia_split.cl"),
        "repair",
        defines(RHS_CHUNK=RHS_CHUNK),
        (tiles[0] * PREPARE_GROUP, tiles[1], tiles[2]),
        (PREPARE_GROUP, 1, 1),
        (
            lhs.source,
            *lhs.stride_args(),
            *(np.uint32(x) for x in lhs.matrices),
            rhs.source,
            *rhs.stride_args(),
            *(np.uint32(x) for x in rhs.matrices),
            Slot.OUT,
            *out_args(problem, walk),
            *ranges,
            *(np.uint32(x) for x in sizes),
        ),
    )
