"""The accelerated families on NVIDIA devices: matrix instructions fed by copies or by the copy engine.

`mma` is the warp-group product on Hopper and hand-laid warp products elsewhere, `cmma` the warp product. A
variant's name says how tiles are brought in and multiplied:

* simple: the multiplying warps fill the stages too, and await each stage's products before the next;
* double: the same with exactly two stages;
* ordered_double: two stages, a stage multiplied in two ordered parts of k with the refill between them;
  row_count is the rows of matrix instructions in a tile, two of them to each warp (group);
* specialized: warps of their own fill the stages, products of neighbouring stages overlap;
* multi_rows: each warp (group) owns twice the rows;
* cyclic: 16-byte copies, work-items taking turns; tma: the bulk copy engine.

f16 and bf16 are read in all storage orders. f32 runs on mma with tma only: in TF32 at precision "tf32",
and at "full" by three TF32 products of split operands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from math import gcd

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Slot
from ..nvidia.operands import Lines, Steps, operand_lines, out_args, wide_stores
from ..nvidia.ptx import PtxRewrite
from ..nvidia.registers import pin, wgmma_16bit
from ..nvidia.tensormap import MapType
from ..nvidia.tiles import (
    HOPPER,
    Costs,
    Cut,
    Extents,
    Tile,
    choose,
    choose_cut,
    estimate,
    expected_s,
    shared_limit,
    stages_that_fit,
    whole_slices,
)
from ..problem import BatchWalk, Elem, Operand, Problem
from .common import ceil_div, check, defines, kernel_text, round_up
from .tf32 import plan_f32

DEPTH = 64
"""Elements of k in one stage: 128 bytes."""
LINE_BYTES = 128
TILE_BAND = 16
TEXTS_16BIT = ("nvidia_common.cl", "nvidia_16bit.cl")
KERNELS = (*TEXTS_16BIT, "nvidia_wgmma16.cl", "nvidia_mma16.cl", "nvidia_pack.cl")


class Feed(IntEnum):
    """Who fills the stages; the numbers are the kernels' own."""

    BULK_PRODUCER = 1
    COPY_PRODUCER = 2
    BULK_INLINE = 3
    COPY_INLINE = 4

    @property
    def is_bulk(self) -> bool:
        return self in (Feed.BULK_PRODUCER, Feed.BULK_INLINE)

    @property
    def producers(self) -> int:
        """Work-items that only fill stages."""
        return {Feed.BULK_PRODUCER: 32, Feed.COPY_PRODUCER: 128}.get(self, 0)


@dataclass(frozen=True)
class Variant:
    """A form of the kernels: who feeds, how many stages at most, parts of k in a stage, rows to a warp.

    `detours` are how many times as long as the estimate for warp groups it multiplies, on warps and on warp
    groups: medians of what 15 products of f16 and bf16 took on an H200.
    """

    feed: Feed
    detours: tuple[float, float]
    stages: int = 8
    k_parts: int = 1
    rows: str = "one"  # "one" | "multi" | "ordered_4" | "ordered_8"


VARIANTS = {
    "simple_cyclic": Variant(Feed.COPY_INLINE, (2.0, 2.8)),
    "simple_cyclic_multi_rows": Variant(Feed.COPY_INLINE, (2.0, 1.5), rows="multi"),
    "ordered_double_4": Variant(Feed.COPY_INLINE, (2.5, 1.6), stages=2, k_parts=2, rows="ordered_4"),
    "ordered_double_8": Variant(Feed.COPY_INLINE, (1.9, 2.1), stages=2, k_parts=2, rows="ordered_8"),
    "double_cyclic": Variant(Feed.COPY_INLINE, (2.3, 3.8), stages=2),
    "double_cyclic_specialized": Variant(Feed.COPY_PRODUCER, (2.6, 3.8), stages=2),
    "specialized_cyclic": Variant(Feed.COPY_PRODUCER, (2.3, 2.5)),
    "simple_tma": Variant(Feed.BULK_INLINE, (1.7, 1.4)),
    "simple_tma_multi_rows": Variant(Feed.BULK_INLINE, (1.6, 1.05), rows="multi"),
    "specialized_tma": Variant(Feed.BULK_PRODUCER, (1.4, 1.0)),
}

# Parts are warp groups of 128 work-items; each multiplies 64 rows at a time.
WARP_GROUP_TILES = {
    "one": (
        Tile(128, 256, 2, 1),
        Tile(192, 192, 3, 1),
        Tile(128, 192, 2, 1, 0.96),
        Tile(192, 96, 3, 1, 0.75),
        Tile(128, 128, 2, 1, 0.92),
        Tile(64, 256, 1, 2, 0.88),
        Tile(64, 192, 1, 1, 0.9),
        Tile(128, 64, 2, 1, 0.9),
        Tile(64, 128, 1, 1, 0.88),
        Tile(64, 64, 1, 1, 0.6),
    ),
    "multi": (
        Tile(256, 128, 2, 1),
        Tile(256, 64, 2, 1, 0.6),
        Tile(128, 128, 1, 1, 0.6),
        Tile(128, 64, 1, 1, 0.4),
    ),
    "ordered_4": (Tile(256, 128, 2, 1), Tile(256, 64, 2, 1, 0.6)),
    "ordered_8": (Tile(512, 64, 4, 1),),
}

# Fitted to times of f16 products on an H200, where one multiprocessor makes 3.2 million multiply-adds in a
# microsecond: the cache gives all of them 15 TB/s, the copy engine an odd line every 4 clocks.
WARP_GROUP_COSTS = Costs(
    finish_steps=1.5, line=28, odd_line=7300, adding=8e6, slice_element=5.8, per_s=3.2e12, start_s=6.2e-6
)
WARP_COSTS = Costs(per_s=3.2e12, start_s=6.2e-6)

# Parts are warps; each multiplies bm / parts_m by bn / parts_n. The last fit small shared memories.
WARP_TILES = {
    "one": (
        Tile(128, 256, 2, 4),
        Tile(128, 128, 2, 4, 0.9),
        Tile(128, 64, 4, 2, 0.7),
        Tile(64, 64, 2, 2, 0.5),
    ),
    "multi": (
        Tile(256, 128, 2, 4),
        Tile(128, 128, 1, 4, 0.9),
        Tile(128, 64, 1, 2, 0.6),
        Tile(64, 64, 1, 4, 0.4),
    ),
    "ordered_4": (Tile(64, 256, 2, 4), Tile(64, 128, 2, 4, 0.8), Tile(64, 64, 2, 2, 0.5)),
    "ordered_8": (Tile(128, 256, 4, 2), Tile(128, 128, 4, 2, 0.9), Tile(128, 64, 4, 2, 0.6)),
}
SKINNY = (Tile(16, 64, 1, 4), Tile(32, 64, 1, 4))
SKINNY_STAGES = 12
SKINNY_DETOUR = 2.5
"""Products of few rows wait for memory: times as long as estimated."""


def plan(
    problem: Problem,
    profile: DeviceProfile,
    *,
    unit: str,
    variant: str,
    tile: Tile | None = None,
    slices: int | None = None,
    row_sets: bool | None = None,
) -> LaunchPlan:
    """Launches of one accelerated candidate. `unit` is cmma or mma, `variant` a key of VARIANTS.

    `tile`, `slices` and `row_sets` instead of what is chosen are for experiments.

    Raises UnsupportedError, before anything is compiled, for devices without the instructions, element
    types they do not serve, batches of more than two unrelated axes, and sizes beyond 31 bits.
    """
    if profile.capability is None or profile.capability < (8, 0):
        raise UnsupportedError("needs an NVIDIA device of compute capability 8.0 or later")
    form = VARIANTS[variant]
    if form.feed != Feed.COPY_INLINE and profile.capability < HOPPER:
        raise UnsupportedError("transaction barriers need compute capability 9.0")
    walk = check(problem, profile)
    if problem.out.elem is not problem.elem:
        raise UnsupportedError(f"{problem.elem} operands with a {problem.out.elem} result")
    if problem.elem is Elem.F32:
        return plan_f32(problem, profile, walk, unit=unit, variant=variant, tile=tile, slices=slices)
    if problem.elem not in (Elem.F16, Elem.BF16):
        raise UnsupportedError(f"no matrix instruction for {problem.elem}")
    warp_groups = unit == "mma" and profile.capability == HOPPER
    steps = Steps()
    # Blocks of lines along m or n are 64 wide; a narrower tile reads its operand along k.
    skinny = is_skinny(problem, form, warp_groups=warp_groups) if tile is None else tile.bm < DEPTH
    lhs, rhs = operand_lines(problem, walk, steps, lhs_along_k=True if skinny else None)
    if tile is not None:
        cut = Cut(tile, whole_slices(ceil_div(problem.k, DEPTH), slices or 1))
    else:
        cut = cut_for(problem, profile, form, warp_groups=warp_groups, odd=(lhs.odd, rhs.odd))
    job = _Job(problem, walk, form, cut, lhs, rhs, warp_groups)
    if form.feed == Feed.BULK_PRODUCER and warp_groups and row_sets is not False:
        job = _in_row_sets(job, profile, tile, wanted=bool(row_sets))
    _multiply(job, profile, steps)
    return steps.plan(_expected_s(job, profile))


@dataclass(frozen=True)
class _Job:
    """What the launch that multiplies has to do.

    `early_k`: each product starts as far before k = 0 as makes the lines of lhs's boxes start at multiples
    of 128 bytes.
    """

    problem: Problem
    walk: BatchWalk
    form: Variant
    cut: Cut
    lhs: Lines
    rhs: Lines
    warp_groups: bool
    early_k: bool = False


def _in_row_sets(job: _Job, profile: DeviceProfile, tile: Tile | None, *, wanted: bool) -> _Job:
    """The product as a batch over sets of rows, where that is faster (or `wanted`); else as it is.

    Where lines of lhs start at odd multiples of 16 bytes, every so many-th line starts at the same place in
    128 bytes: a tile of such lines can be brought in whole lines of the cache, from a k a little before 0.
    """
    problem, lhs = job.problem, job.lhs
    sets = sets_of(lhs)
    if not (lhs.odd and lhs.k_contiguous and job.walk.count == 1 and problem.m % sets == 0):
        return job
    odd = (False, job.rhs.odd)
    split = problem_in_row_sets(problem, sets)
    cut = Cut(tile) if tile else cut_for(split, profile, job.form, warp_groups=True, odd=odd, sliced=False)
    if not wanted:
        if problem.m < sets * DEPTH:  # tiles of too few rows
            return job
        before = _estimate(problem, job.cut, profile, (lhs.odd, job.rhs.odd))
        if _estimate(split, cut, profile, odd) >= before:
            return job
    walk = split.batch_walk()
    rhs = replace(job.rhs, outer=0, inner=0, extents=walk.extents)
    return replace(job, problem=split, walk=walk, cut=cut, lhs=lhs.in_sets(sets), rhs=rhs, early_k=True)


def sets_of(lhs: Lines) -> int:
    """After how many lines one starts at the same place in 128 bytes again."""
    return LINE_BYTES // gcd(lhs.pitch * lhs.elem.size_bytes, LINE_BYTES)


def problem_in_row_sets(problem: Problem, sets: int) -> Problem:
    """A single product as a batch: the i-th has every `sets`-th row of lhs and of the result, from i on."""
    m, n, k = problem.m, problem.n, problem.k
    lhs, rhs, out = problem.lhs.canonical(), problem.rhs.canonical(), problem.out.canonical()

    def every(operand: Operand, cols: int) -> Operand:
        row, col = operand.strides[-2:]
        return Operand((sets, m // sets, cols), (row, sets * row, col), operand.elem, operand.offset_bytes)

    shared = Operand((sets, k, n), (0, *rhs.strides[-2:]), rhs.elem, rhs.offset_bytes)
    return Problem(every(lhs, k), shared, every(out, n), problem.precision)


def _estimate(problem: Problem, cut: Cut, profile: DeviceProfile, odd: tuple[bool, bool]) -> float:
    extents = Extents(problem.m, problem.n, problem.k, problem.batch, *odd)
    return estimate(cut.tile, extents, profile.compute_units, DEPTH, WARP_GROUP_COSTS, cut.slices)


def _detour(job: _Job) -> float:
    detour = job.form.detours[job.warp_groups]
    return detour * SKINNY_DETOUR if job.cut.tile in SKINNY else detour


def _expected_s(job: _Job, profile: DeviceProfile) -> float | None:
    problem = job.problem
    odd = (job.lhs.odd and not job.early_k, job.rhs.odd) if job.form.feed.is_bulk else (False, False)
    extents = Extents(problem.m, problem.n, problem.k, problem.batch, *odd)
    costs = WARP_GROUP_COSTS if job.warp_groups else WARP_COSTS
    return expected_s(job.cut, extents, profile, DEPTH, costs, _detour(job))


def is_skinny(problem: Problem, form: Variant, *, warp_groups: bool) -> bool:
    """Whether the few rows of the result get tiles of their own."""
    return not warp_groups and form.rows == "one" and problem.m <= SKINNY[-1].bm


def cut_for(
    problem: Problem,
    profile: DeviceProfile,
    form: Variant,
    *,
    warp_groups: bool,
    odd: tuple[bool, bool] = (False, False),
    sliced: bool = True,
) -> Cut:
    """The tile of this form for this problem and device, and the slices of k where a producer allows them.

    `odd` says of lhs and rhs whether the copy engine meets lines at odd multiples of 16 bytes.
    """
    odd = odd if form.feed.is_bulk else (False, False)
    extents = Extents(problem.m, problem.n, problem.k, problem.batch, *odd)
    costs = WARP_GROUP_COSTS if warp_groups else WARP_COSTS
    if is_skinny(problem, form, warp_groups=warp_groups):
        return Cut(next(tile for tile in SKINNY if problem.m <= tile.bm))
    table = (WARP_GROUP_TILES if warp_groups else WARP_TILES)[form.rows]
    room = shared_limit(profile) - 256
    even = [tile for tile in table if fills_evenly(tile, form, 128 if warp_groups else 32)]
    fitting = [tile for tile in even if 2 * (_stage_bytes(tile) + 16) <= room] or [table[-1]]
    if form.feed.producers and warp_groups and sliced:
        return choose_cut(fitting, extents, profile.compute_units, DEPTH, costs)
    return Cut(choose(fitting, extents, profile.compute_units, DEPTH, costs))


def fills_evenly(tile: Tile, form: Variant, part: int) -> bool:
    """Whether work-items that copy 16 bytes each come out even, `part` of them to a part of the tile."""
    feeders = form.feed.producers or part * tile.parts
    blocks = (DEPTH, tile.bm, tile.bn)
    return form.feed.is_bulk or all(lines * 8 % feeders == 0 for lines in blocks)


def _stages(tile: Tile, form: Variant, profile: DeviceProfile) -> int:
    """Stages in the ring. Raises UnsupportedError if the tile is too large for the device."""
    wanted = SKINNY_STAGES if tile in SKINNY and form.stages > 2 else form.stages
    return stages_that_fit(_stage_bytes(tile), wanted, shared_limit(profile))


def _stage_bytes(tile: Tile) -> int:
    return (tile.bm + round_up(tile.bn, DEPTH)) * DEPTH * 2


def _multiply(job: _Job, profile: DeviceProfile, steps: Steps) -> None:
    """The launch that multiplies, and the one that adds up slices."""
    problem, walk, form, cut, lhs, rhs = job.problem, job.walk, job.form, job.cut, job.lhs, job.rhs
    tile, warp_groups = cut.tile, job.warp_groups
    stages = _stages(tile, form, profile)
    tiles = (ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn))
    total = tiles[0] * tiles[1] * walk.count * cut.slices
    workers = tile.parts * (128 if warp_groups else 32)
    threads = workers + form.feed.producers
    groups = min(total, profile.compute_units) if form.feed.producers else total
    sizes = tuple(np.uint32(x) for x in (*tiles, walk.count, walk.extents[1]))
    text = kernel_text(*TEXTS_16BIT, "nvidia_wgmma16.cl" if warp_groups else "nvidia_mma16.cl")
    source = _prologue(problem, tile, lhs, rhs) + text if warp_groups else text
    options = _options(job, stages)
    rewrite = PtxRewrite() if warp_groups else None
    out: tuple[Arg, ...] = (Slot.OUT, *out_args(problem, walk))
    to = out
    if cut.slices > 1:
        to = (steps.scratch(total * tile.bm * tile.bn * 4), *(np.int64(0),) * 4)
    extents = tuple(np.uint32(x) for x in (problem.m, problem.n, problem.k))
    wide = wide_stores(problem, walk)
    start = (lhs.offset % DEPTH, lhs.inner % DEPTH) if job.early_k else (0, 0)
    operands = (*_operand_args(lhs, form.feed, tile.bm, start), *_operand_args(rhs, form.feed, tile.bn))
    args = (*operands, *to, *extents, *sizes, wide)
    group_ops = 2.0 * tile.bm * tile.bn * problem.k * tiles[0] * tiles[1] * walk.count / groups
    steps.calls.append(
        KernelCall(
            source,
            "matmul",
            options,
            (groups * threads,),
            (threads,),
            args,
            rewrite,
            group_ops,
            matrix=True,
            detour=_detour(job),
        )
    )
    if cut.slices > 1:
        chunks = total // cut.slices * (tile.bm // tile.parts_m // 64) * (tile.bn // tile.parts_n // 32)
        args = (to[0], *out, *extents[:2], *sizes, wide)
        steps.calls.append(
            KernelCall(source, "add_slices", options, (chunks * workers,), (workers,), args, rewrite)
        )


def _prologue(problem: Problem, tile: Tile, lhs: Lines, rhs: Lines) -> str:
    """The macros that name whole register lists."""
    columns = tile.bn // tile.parts_n
    product = wgmma_16bit(
        "PRODUCT",
        columns,
        problem.elem.value,
        a_transposed=not lhs.k_contiguous,
        b_transposed=not rhs.k_contiguous,
    )
    return product + pin("PIN", columns // 2)


def _options(job: _Job, stages: int) -> tuple[str, ...]:
    elem, tile, form = job.problem.elem.value, job.cut.tile, job.form
    parts = (
        defines(GROUPS_M=tile.parts_m, GROUPS_N=tile.parts_n, WORKERS=128 * tile.parts)
        if job.warp_groups
        else (
            *defines(WARP_M=tile.bm // tile.parts_m, WARP_N=tile.bn // tile.parts_n, WORKERS=32 * tile.parts),
            f"-DMMA=mma.sync.aligned.m16n8k16.row.col.f32.{elem}.{elem}.f32",
        )
    )
    return (
        *defines(**{f"FEED_{feed.name}": feed.value for feed in Feed}),
        *defines(
            FEED=form.feed.value,
            BM=tile.bm,
            BN=tile.bn,
            STAGES=stages,
            SLICES=job.cut.slices,
            EARLY_K=int(job.early_k),
            K_PARTS=form.k_parts,
            TILE_BAND=TILE_BAND,
            LAG=max(stages - 2, 0),
            LHS_K_CONTIGUOUS=int(job.lhs.k_contiguous),
            RHS_K_CONTIGUOUS=int(job.rhs.k_contiguous),
        ),
        *parts,
        f"-DPACK_PAIR=cvt.rn.{elem}x2.f32",
    )


def _operand_args(lines: Lines, feed: Feed, extent: int, start: tuple[int, int] = (0, 0)) -> tuple[Arg, ...]:
    """The operand, its strides and batch strides; `start` takes two places that a map leaves unused."""
    if not feed.is_bulk:
        return (lines.source, *lines.stride_args())
    elem = MapType.F16 if lines.elem is Elem.F16 else MapType.BF16
    box = (DEPTH, extent) if lines.k_contiguous else (DEPTH, DEPTH)
    numbers = (*start, *lines.batch_factors)
    return (lines.tensor_map(elem, box), *(np.int64(x) for x in numbers))
