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
from ..nvidia.operands import Lines, Steps, operand_lines, out_args, plain_lines, wide_stores
from ..nvidia.tensormap import MapType, Swizzle
from ..nvidia.tiles import HOPPER, Extents, Tile, choose, shared_limit, stages_that_fit
from ..problem import BatchWalk, Elem, Problem
from .common import ceil_div, check, defines, kernel_text

DEPTH = 32
TILE_BAND = 16
KERNELS = ("nvidia_common.cl", "nvidia_simt.cl", "nvidia_pack.cl")
COPY_BELOW = 1 << 32
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
    "min": (SimtTile(128, 128, 16, 16), SimtTile(64, 64, 8, 8, 0.85, k_groups=2)),
}


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
    chosen = tile or choose(TILES[size], extents, profile.compute_units, DEPTH)
    assert isinstance(chosen, SimtTile)
    steps = Steps()
    plain = plain_lines(problem, walk)
    work = problem.m * problem.n * problem.k * walk.count
    if plain is not None and work < COPY_BELOW and not all(lines.aligned for lines in plain):
        steps.calls.append(_multiply(problem, profile, walk, chosen, stages, *plain, bulk=False))
        return steps.plan()
    lhs, rhs = operand_lines(problem, walk, steps, lhs_along_k=True, rhs_along_k=False)
    steps.calls.append(_multiply(problem, profile, walk, chosen, stages, lhs, rhs, bulk=True))
    return steps.plan()


def _multiply(
    problem: Problem,
    profile: DeviceProfile,
    walk: BatchWalk,
    tile: SimtTile,
    stages: int,
    lhs: Lines,
    rhs: Lines,
    *,
    bulk: bool,
) -> KernelCall:
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
            TILE_BAND=TILE_BAND,
        ),
        (tiles[0] * tiles[1] * walk.count * threads,),
        (threads,),
        (
            *_operand_args(lhs, bulk, (DEPTH, tile.bm), Swizzle.B128),
            *_operand_args(rhs, bulk, (tile.bn, DEPTH), Swizzle.NONE),
            Slot.OUT,
            *out_args(problem, walk),
            *(np.uint32(x) for x in sizes),
            wide_stores(problem, walk),
        ),
    )


def _operand_args(lines: Lines, bulk: bool, box: tuple[int, int], swizzle: Swizzle) -> tuple[Arg, ...]:
    if not bulk:
        return (lines.source, *lines.stride_args())
    factors = (np.int64(x) for x in lines.batch_factors)
    return (lines.tensor_map(MapType.F32, box, swizzle), np.int64(0), np.int64(0), *factors)
