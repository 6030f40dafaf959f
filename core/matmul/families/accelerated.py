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

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Slot
from ..nvidia.operands import Lines, Steps, operand_lines, out_args, wide_stores
from ..nvidia.ptx import PtxRewrite
from ..nvidia.registers import pin, wgmma_16bit
from ..nvidia.tensormap import MapType
from ..nvidia.tiles import HOPPER, Extents, Tile, choose, shared_limit, stages_that_fit
from ..problem import BatchWalk, Elem, Problem
from .common import ceil_div, check, defines, kernel_text
from .tf32 import plan_f32

DEPTH = 64
"""Elements of k in one stage: 128 bytes."""
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
    """A form of the kernels: who feeds, how many stages at most, parts of k in a stage, rows to a warp."""

    feed: Feed
    stages: int = 8
    k_parts: int = 1
    rows: str = "one"  # "one" | "multi" | "ordered_4" | "ordered_8"


VARIANTS = {
    "simple_cyclic": Variant(Feed.COPY_INLINE),
    "simple_cyclic_multi_rows": Variant(Feed.COPY_INLINE, rows="multi"),
    "ordered_double_4": Variant(Feed.COPY_INLINE, stages=2, k_parts=2, rows="ordered_4"),
    "ordered_double_8": Variant(Feed.COPY_INLINE, stages=2, k_parts=2, rows="ordered_8"),
    "double_cyclic": Variant(Feed.COPY_INLINE, stages=2),
    "double_cyclic_specialized": Variant(Feed.COPY_PRODUCER, stages=2),
    "specialized_cyclic": Variant(Feed.COPY_PRODUCER),
    "simple_tma": Variant(Feed.BULK_INLINE),
    "simple_tma_multi_rows": Variant(Feed.BULK_INLINE, rows="multi"),
    "specialized_tma": Variant(Feed.BULK_PRODUCER),
}

# Parts are warp groups of 128 work-items; each multiplies 64 rows at a time.
WARP_GROUP_TILES = {
    "one": (
        Tile(128, 256, 2, 1),
        Tile(128, 192, 2, 1, 0.95),
        Tile(128, 128, 2, 1, 0.9),
        Tile(64, 256, 1, 2, 0.8),
        Tile(128, 64, 2, 1, 0.6),
        Tile(64, 128, 1, 2, 0.6),
        Tile(64, 64, 1, 1, 0.4),
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
SKINNY = Tile(16, 64, 1, 4)
SKINNY_STAGES = 12


def plan(
    problem: Problem, profile: DeviceProfile, *, unit: str, variant: str, tile: Tile | None = None
) -> LaunchPlan:
    """Launches of one accelerated candidate. `unit` is cmma or mma, `variant` a key of VARIANTS.

    `tile` instead of the chosen one is for experiments.

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
        return plan_f32(problem, profile, walk, unit=unit, variant=variant, tile=tile)
    if problem.elem not in (Elem.F16, Elem.BF16):
        raise UnsupportedError(f"no matrix instruction for {problem.elem}")
    warp_groups = unit == "mma" and profile.capability == HOPPER
    if tile is None:
        tile = tile_for(problem, profile, form, warp_groups=warp_groups)
    return _plan_16bit(problem, profile, walk, form, tile, warp_groups=warp_groups)


def tile_for(problem: Problem, profile: DeviceProfile, form: Variant, *, warp_groups: bool) -> Tile:
    """The tile of this form for this problem and device."""
    if not warp_groups and form.rows == "one" and problem.m <= SKINNY.bm:
        return SKINNY
    table = (WARP_GROUP_TILES if warp_groups else WARP_TILES)[form.rows]
    room = shared_limit(profile) - 256
    fitting = [tile for tile in table if 2 * (_stage_bytes(tile) + 16) <= room] or [table[-1]]
    extents = Extents(problem.m, problem.n, problem.k, problem.batch)
    return choose(fitting, extents, profile.compute_units, DEPTH)


def _stages(tile: Tile, form: Variant, profile: DeviceProfile) -> int:
    """Stages in the ring. Raises UnsupportedError if the tile is too large for the device."""
    wanted = SKINNY_STAGES if tile == SKINNY and form.stages > 2 else form.stages
    return stages_that_fit(_stage_bytes(tile), wanted, shared_limit(profile))


def _stage_bytes(tile: Tile) -> int:
    return (tile.bm + tile.bn) * DEPTH * 2


def _plan_16bit(
    problem: Problem, profile: DeviceProfile, walk: BatchWalk, form: Variant, tile: Tile, *, warp_groups: bool
) -> LaunchPlan:
    stages = _stages(tile, form, profile)
    steps = Steps()
    # Blocks of lines along m or n are 64 wide; a narrower tile reads its operand along k.
    lhs, rhs = operand_lines(problem, walk, steps, lhs_along_k=True if tile.bm < DEPTH else None)
    tiles = (ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn))
    total = tiles[0] * tiles[1] * walk.count
    threads = tile.parts * (128 if warp_groups else 32) + form.feed.producers
    groups = min(total, profile.compute_units) if form.feed.producers else total
    sizes = (problem.m, problem.n, problem.k, *tiles, walk.count, walk.extents[1])
    text = kernel_text(*TEXTS_16BIT, "nvidia_wgmma16.cl" if warp_groups else "nvidia_mma16.cl")
    steps.calls.append(
        KernelCall(
            _prologue(problem, tile, lhs, rhs) + text if warp_groups else text,
            "matmul",
            _options(problem, tile, stages, form, lhs, rhs, warp_groups),
            (groups * threads,),
            (threads,),
            (
                *_operand_args(lhs, form.feed, tile.bm),
                *_operand_args(rhs, form.feed, tile.bn),
                Slot.OUT,
                *out_args(problem, walk),
                *(np.uint32(x) for x in sizes),
                wide_stores(problem, walk),
            ),
            PtxRewrite() if warp_groups else None,
        )
    )
    return steps.plan()


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


def _options(
    problem: Problem, tile: Tile, stages: int, form: Variant, lhs: Lines, rhs: Lines, warp_groups: bool
) -> tuple[str, ...]:
    elem = problem.elem.value
    parts = (
        defines(GROUPS_M=tile.parts_m, GROUPS_N=tile.parts_n, WORKERS=128 * tile.parts)
        if warp_groups
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
            K_PARTS=form.k_parts,
            TILE_BAND=TILE_BAND,
            LAG=max(stages - 2, 0),
            LHS_K_CONTIGUOUS=int(lhs.k_contiguous),
            RHS_K_CONTIGUOUS=int(rhs.k_contiguous),
        ),
        *parts,
        f"-DPACK_PAIR=cvt.rn.{elem}x2.f32",
    )


def _operand_args(lines: Lines, feed: Feed, extent: int) -> tuple[Arg, ...]:
    if not feed.is_bulk:
        return (lines.source, *lines.stride_args())
    elem = MapType.F16 if lines.elem is Elem.F16 else MapType.BF16
    box = (DEPTH, extent) if lines.k_contiguous else (DEPTH, DEPTH)
    factors = (np.int64(x) for x in lines.batch_factors)
    return (lines.tensor_map(elem, box), np.int64(0), np.int64(0), *factors)
