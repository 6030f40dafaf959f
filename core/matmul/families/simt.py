"""Plain f32 multiply-adds on Hopper, fed by the copy engine: what the unit candidates run there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import KernelCall, LaunchPlan, Slot
from ..nvidia.operands import Steps, lhs_lines, out_args, rhs_lines, wide_stores
from ..nvidia.tensormap import MapType, Swizzle
from ..nvidia.tiles import HOPPER, Extents, Tile, choose, shared_limit, stages_that_fit
from ..problem import Elem, Problem
from .common import ceil_div, check, defines, kernel_text

DEPTH = 32
TILE_BAND = 16
KERNELS = ("nvidia_common.cl", "nvidia_simt.cl", "nvidia_pack.cl")


@dataclass(frozen=True)
class SimtTile(Tile):
    """A tile and the rows and columns each work-item owns; parts are work-items."""

    @property
    def rows(self) -> int:
        return self.bm // self.parts_m

    @property
    def cols(self) -> int:
        return self.bn // self.parts_n


TILES = {
    "max": (SimtTile(256, 128, 16, 16), SimtTile(128, 128, 16, 16, 0.95)),
    "min": (SimtTile(128, 128, 16, 16), SimtTile(128, 64, 16, 16, 0.8), SimtTile(64, 64, 8, 16, 0.7)),
}


def usable(problem: Problem, profile: DeviceProfile) -> bool:
    """Whether these kernels serve this element type on this device."""
    return profile.capability == HOPPER and problem.elem is Elem.F32 and problem.out.elem is Elem.F32


def plan(
    problem: Problem, profile: DeviceProfile, *, size: str, stages: int, tile: SimtTile | None = None
) -> LaunchPlan:
    """One launch, or more where operands are repacked first.

    `size` "max" or "min": many results to a work-item, or many work-groups. `stages` 1 (simple): the next
    stage is brought in while one is used; 2 (double): the next two are. Raises UnsupportedError.
    """
    if not usable(problem, profile):
        raise UnsupportedError("plain f32 through the copy engine needs f32 and compute capability 9.0")
    walk = check(problem, profile)
    steps = Steps()
    lhs = lhs_lines(problem, walk, steps, k_contiguous=True)
    rhs = rhs_lines(problem, walk, steps, k_contiguous=False)
    extents = Extents(problem.m, problem.n, problem.k, walk.count)
    chosen = tile or choose(TILES[size], extents, profile.compute_units, DEPTH)
    assert isinstance(chosen, SimtTile)
    stage_bytes = (chosen.bm + chosen.bn) * DEPTH * 4
    ring = stages_that_fit(stage_bytes, 2 + stages, shared_limit(profile))
    tiles = (ceil_div(problem.m, chosen.bm), ceil_div(problem.n, chosen.bn))
    sizes = (problem.m, problem.n, problem.k, *tiles, walk.extents[1])
    threads = chosen.parts
    steps.calls.append(
        KernelCall(
            kernel_text("nvidia_common.cl", "nvidia_simt.cl"), "matmul",
            defines(
                BM=chosen.bm, BN=chosen.bn, TM=chosen.rows, TN=chosen.cols, STAGES=ring,
                AHEAD=min(stages, ring - 1), TILE_BAND=TILE_BAND,
            ),
            (tiles[0] * tiles[1] * walk.count * threads,), (threads,),
            (
                lhs.tensor_map(MapType.F32, (DEPTH, chosen.bm)), *lhs.batch_factors,
                rhs.tensor_map(MapType.F32, (chosen.bn, DEPTH), Swizzle.NONE), *rhs.batch_factors,
                Slot.OUT, *out_args(problem, walk), *(np.uint32(x) for x in sizes),
                wide_stores(problem, walk),
            ),
        )
    )
    return steps.plan()
