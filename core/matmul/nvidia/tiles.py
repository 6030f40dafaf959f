"""Tile sizes for NVIDIA's kernels: a pure function of the problem's extents and the device.

A tile is chosen by an estimate of the time: rounds of tiles over the multiprocessors, times what one tile
takes. What one tile takes is the larger of multiplying and of bringing its operands in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..families.common import ceil_div

HOPPER = (9, 0)
HOPPER_SHARED_BYTES = 231424
"""What one work-group's static arrays may take there, whatever the device reports."""
FIXED_STEPS = 6
"""What starting and finishing a tile costs, in steps along k."""


@dataclass(frozen=True)
class Tile:
    """Rows and columns a work-group makes, and how they are shared: parts along m and along n.

    `rate` is the share of the full multiplication rate that the tile's shape allows.
    """

    bm: int
    bn: int
    parts_m: int
    parts_n: int
    rate: float = 1.0

    @property
    def parts(self) -> int:
        return self.parts_m * self.parts_n


@dataclass(frozen=True)
class Extents:
    """What the choice of a tile depends on."""

    m: int
    n: int
    k: int
    batch: int

    def tiles(self, tile: Tile) -> int:
        return ceil_div(self.m, tile.bm) * ceil_div(self.n, tile.bn) * self.batch


def shared_limit(profile: DeviceProfile) -> int:
    """Bytes of shared memory one work-group may have."""
    return HOPPER_SHARED_BYTES if profile.capability == HOPPER else profile.local_bytes


def stages_that_fit(stage_bytes: int, wanted: int, limit: int) -> int:
    """Stages of this size, at most `wanted`. Raises UnsupportedError if there is no room for two."""
    fit = min(wanted, (limit - 256) // (stage_bytes + 16))
    if fit < 2:
        raise UnsupportedError(f"two stages of {stage_bytes} bytes exceed {limit} bytes of shared memory")
    return fit


def estimate(tile: Tile, extents: Extents, units: int, depth: int) -> float:
    """Time of the whole product, in multiply-adds of one multiprocessor at full rate."""
    steps = ceil_div(extents.k, depth) + FIXED_STEPS
    multiply = tile.bm * tile.bn * depth / tile.rate
    return ceil_div(extents.tiles(tile), units) * steps * multiply


def choose(tiles: Sequence[Tile], extents: Extents, units: int, depth: int) -> Tile:
    """The tile with the smallest estimate; of equal ones the first."""
    return min(tiles, key=lambda tile: estimate(tile, extents, units, depth))
