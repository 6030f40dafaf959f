"""Plain f32 multiply-adds on NVIDIA: what the unit candidates run there.

On Hopper tiles come through the copy engine, and operands it cannot read are repacked first; small products
with operands that are only misaligned are copied element by element instead, which saves a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Slot
from ..nvidia.operands import Lines, Steps, operand_lines, out_args, plain_lines, slice_args, wide_stores
from ..nvidia.slices import add_parts
from ..nvidia.tensormap import MapType, Swizzle
from ..nvidia.tiles import (
    HOPPER,
    Costs,
    Cut,
    Extents,
    Tile,
    choose,
    choose_cut,
    expected_s,
    shared_limit,
    stages_that_fit,
    whole_slices,
)
from ..problem import BatchWalk, Elem, Problem
from .common import ceil_div, check, defines, kernel_text

DEPTH = 32
TILE_BAND = 16
KERNELS = ("nvidia_common.cl", "nvidia_simt.cl", "nvidia_pack.cl", "nvidia_slices.cl")
COPY_BELOW = 1 << 27
"""Multiply-adds below which misaligned operands are copied by element: repacking would take longer."""


@dataclass(frozen=True)
class SimtTile(Tile):
    """A tile; parts are the work-items that own results. With k_groups 2 there are two sets of them."""

    k_groups: int = 1

    @property
    def rows(self) -> int:
        return self.bm // self.parts_m

    @property
    def cols(self) -> int:
        return self.bn // self.parts_n

    @property
    def stage_bytes(self) -> int:
        return (self.bm + self.bn) * DEPTH * 4


TILES = {
    "max": (SimtTile(256, 128, 16, 16), SimtTile(128, 128, 16, 16, 0.95)),
    "min": (
        SimtTile(128, 128, 16, 16),
        SimtTile(64, 64, 8, 8, 0.8, k_groups=2),
        SimtTile(96, 64, 8, 8, 0.8, k_groups=2),
        SimtTile(112, 64, 8, 8, 0.8, k_groups=2),
    ),
}


# Fitted to an H200, where one multiprocessor makes 0.2 million multiply-adds in a microsecond.
COSTS = Costs(finish_steps=1, per_s=2e11, start_s=6.2e-6)
SLICE_COSTS = Costs(finish_steps=0.5, adding=1.2e6, slice_element=0.1, per_s=2e11, start_s=6e-6)
AHEAD_DETOURS = {1: 1.05, 2: 1.0}
"""Foreseen of how many stages are brought in ahead."""


def usable(problem: Problem, profile: DeviceProfile) -> bool:
    """Whether these kernels serve this element type on this device."""
    return profile.capability == HOPPER and problem.elem is Elem.F32 and problem.out.elem is Elem.F32


def plan(
    problem: Problem, profile: DeviceProfile, *, size: str, stages: int, tile: SimtTile | None = None
) -> LaunchPlan:
    """One launch, or two where operands are repacked first.

    `size` "max" or "min": many results to a work-item, or many work-groups. `stages` 1 (simple): the next
    stage is brought in while one is used; 2 (double): the next two are. Raises UnsupportedError.
    """
    if not usable(problem, profile):
        raise UnsupportedError("needs f32 and compute capability 9.0")
    walk = check(problem, profile)
    extents = Extents(problem.m, problem.n, problem.k, walk.count)
    chosen = tile or choose(TILES[size], extents, profile.compute_units, DEPTH, COSTS)
    assert isinstance(chosen, SimtTile)
    steps = Steps()
    lhs, rhs, bulk = _read(problem, walk, steps)
    out: tuple[Arg, ...] = (Slot.OUT, *out_args(problem, walk))
    cut, wide = Cut(chosen), wide_stores(problem, walk)
    steps.calls.append(_multiply(problem, profile, walk, cut, stages, lhs, rhs, out, wide, bulk=bulk))
    return steps.plan(expected_s(cut, extents, profile, DEPTH, COSTS, AHEAD_DETOURS[stages]))


def slice_cut(problem: Problem, profile: DeviceProfile, slices: int | None = None) -> Cut:
    """The tile and the number of slices of k, 1 where tiles are too many. `slices` fixes their number."""
    walk = check(problem, profile)
    extents = Extents(problem.m, problem.n, problem.k, walk.count)
    tiles = (*TILES["max"], *TILES["min"])
    cut = choose_cut(tiles, extents, profile.compute_units, DEPTH, SLICE_COSTS, least=2)
    return cut if slices is None else Cut(cut.tile, whole_slices(ceil_div(problem.k, DEPTH), slices))


def sliced(problem: Problem, profile: DeviceProfile, cut: Cut) -> LaunchPlan:
    """A launch that makes the slices' sums and one that adds them up, perhaps one before that repacks."""
    walk, steps = check(problem, profile), Steps()
    extents = Extents(problem.m, problem.n, problem.k, walk.count)
    lhs, rhs, bulk = _read(problem, walk, steps)
    parts, out, wide = slice_args(problem, walk, steps, cut.slices)
    steps.calls.append(_multiply(problem, profile, walk, cut, 2, lhs, rhs, out, wide, bulk=bulk))
    steps.calls.append(add_parts(problem, profile, walk, cut.slices, parts))
    return steps.plan(expected_s(cut, extents, profile, DEPTH, SLICE_COSTS))


def _read(problem: Problem, walk: BatchWalk, steps: Steps) -> tuple[Lines, Lines, bool]:
    """The operands as they are read, and whether by the copy engine; may add a launch that repacks them."""
    plain = plain_lines(problem, walk)
    work = problem.m * problem.n * problem.k * walk.count
    if plain is not None and work < COPY_BELOW and not all(lines.aligned for lines in plain):
        return (*plain, False)
    return (*operand_lines(problem, walk, steps, lhs_along_k=True, rhs_along_k=False), True)


def _multiply(
    problem: Problem,
    profile: DeviceProfile,
    walk: BatchWalk,
    cut: Cut,
    stages: int,
    lhs: Lines,
    rhs: Lines,
    out: tuple[Arg, ...],
    wide: np.uint32,
    *,
    bulk: bool,
) -> KernelCall:
    tile = cut.tile
    assert isinstance(tile, SimtTile)
    ring = stages_that_fit(tile.stage_bytes, 2 + stages, shared_limit(profile))
    tiles = (ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn))
    sizes = (problem.m, problem.n, problem.k, *tiles, walk.extents[1])
    threads = tile.parts * tile.k_groups
    return KernelCall(
        kernel_text("nvidia_common.cl", "nvidia_simt.cl"),
        "matmul",
        defines(
            BM=tile.bm,
            BN=tile.bn,
            TM=tile.rows,
            TN=tile.cols,
            K_GROUPS=tile.k_groups,
            STAGES=ring,
            AHEAD=min(stages, ring - 1),
            BULK=int(bulk),
            SLICES=cut.slices,
            TILE_BAND=TILE_BAND,
        ),
        (tiles[0] * tiles[1] * walk.count * cut.slices * threads,),
        (threads,),
        (
            *_operand_args(lhs, bulk, (DEPTH, tile.bm), Swizzle.B128),
            *_operand_args(rhs, bulk, (tile.bn, DEPTH), Swizzle.NONE),
            *out,
            *(np.uint32(x) for x in sizes),
            wide,
        ),
        group_ops=2.0 * tile.bm * tile.bn * problem.k / cut.slices,
    )


def _operand_args(lines: Lines, bulk: bool, box: tuple[int, int], swizzle: Swizzle) -> tuple[Arg, ...]:
    if not bulk:
        return (lines.source, *lines.stride_args())
    factors = (np.int64(x) for x in lines.batch_factors)
    return (lines.tensor_map(MapType.F32, box, swizzle), np.int64(0), np.int64(0), *factors)
