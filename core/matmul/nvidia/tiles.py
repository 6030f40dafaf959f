"""Tile sizes for NVIDIA's kernels: a pure function of the problem's extents and the device.

A tile is chosen by an estimate of the time: rounds of tiles over the multiprocessors, times what one tile
takes. What one tile takes is the larger of multiplying and of bringing its operands in. Where tiles are
fewer than multiprocessors, k may be cut in slices that are added up by a launch of their own.
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
LEAST_SLICE_STEPS = 2


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
    """What the choice of a tile depends on; lines of odd operands start at odd multiples of 16 bytes."""

    m: int
    n: int
    k: int
    batch: int
    lhs_odd: bool = False
    rhs_odd: bool = False

    def tiles(self, tile: Tile) -> int:
        return ceil_div(self.m, tile.bm) * ceil_div(self.n, tile.bn) * self.batch


@dataclass(frozen=True)
class Costs:
    """What the estimate counts besides multiplying, in multiply-adds of one multiprocessor at full rate."""

    finish_steps: float = 6
    """Starting and finishing a tile, in steps along k."""
    line: float = 0
    """Bringing in a line (128 bytes), for each multiprocessor that is busy: they share the cache's rate."""
    odd_line: float = 0
    """Bringing in a line that starts at an odd multiple of 16 bytes: the copy engine halves its pieces."""
    adding: float = 0
    """The launch that adds up slices."""
    slice_element: float = 0
    """Writing an element of a slice's sums and reading it again."""
    per_s: float = 1
    """Multiply-adds that one multiprocessor makes in a second at full rate."""
    start_s: float = 0
    """Seconds that the window of a plan lasts whatever it multiplies."""


@dataclass(frozen=True)
class Cut:
    """A tile, and the number of slices of k."""

    tile: Tile
    slices: int = 1


def shared_limit(profile: DeviceProfile) -> int:
    """Bytes of shared memory one work-group may have."""
    return HOPPER_SHARED_BYTES if profile.capability == HOPPER else profile.local_bytes


def stages_that_fit(stage_bytes: int, wanted: int, limit: int) -> int:
    """Stages of this size, at most `wanted`. Raises UnsupportedError if there is no room for two."""
    fit = min(wanted, (limit - 256) // (stage_bytes + 16))
    if fit < 2:
        raise UnsupportedError(f"two stages of {stage_bytes} bytes exceed {limit} bytes of shared memory")
    return fit


def estimate(
    tile: Tile, extents: Extents, units: int, depth: int, costs: Costs = Costs(), slices: int = 1
) -> float:
    """Time of the whole product, in multiply-adds of one multiprocessor at full rate."""
    tiles = extents.tiles(tile) * slices
    busy = min(tiles, units)
    even = costs.line * busy
    odd = max(even, costs.odd_line)
    lines = tile.bm * (odd if extents.lhs_odd else even) + tile.bn * (odd if extents.rhs_odd else even)
    step = max(tile.bm * tile.bn * depth / tile.rate, lines)
    steps = ceil_div(ceil_div(extents.k, depth), slices)
    time = ceil_div(tiles, units) * (steps + costs.finish_steps) * step
    if slices == 1:
        return time
    return time + costs.adding + tiles * tile.bm * tile.bn * costs.slice_element


def expected_s(
    cut: Cut, extents: Extents, profile: DeviceProfile, depth: int, costs: Costs, detour: float = 1.0
) -> float | None:
    """Seconds that the whole product takes on Hopper, where costs were fitted; None elsewhere.

    `detour` is how many times as long as estimated its form of the kernel works.
    """
    if profile.capability != HOPPER:
        return None
    work = estimate(cut.tile, extents, profile.compute_units, depth, costs, cut.slices)
    return costs.start_s + detour * work / costs.per_s


def choose(tiles: Sequence[Tile], extents: Extents, units: int, depth: int, costs: Costs = Costs()) -> Tile:
    """The tile with the smallest estimate; of equal ones the first."""
    return min(tiles, key=lambda tile: estimate(tile, extents, units, depth, costs))


def choose_cut(
    tiles: Sequence[Tile], extents: Extents, units: int, depth: int, costs: Costs, *, least: int = 1
) -> Cut:
    """The tile and number of slices with the smallest estimate; of equal ones the fewest slices.

    At `least` so many slices, if one round has room for them with any tile.
    """
    cuts = [Cut(tile, slices) for tile in tiles for slices in slice_counts(tile, extents, units, depth)]
    return min(
        [cut for cut in cuts if cut.slices >= least] or cuts,
        key=lambda cut: (estimate(cut.tile, extents, units, depth, costs, cut.slices), cut.slices),
    )


def slice_counts(tile: Tile, extents: Extents, units: int, depth: int) -> list[int]:
    """1, and the numbers of slices that one round has room for; no slice is empty, or short."""
    steps = ceil_div(extents.k, depth)
    most = min(units // extents.tiles(tile), steps // LEAST_SLICE_STEPS)
    return sorted({whole_slices(steps, wanted) for wanted in range(1, most + 1)} | {1})


def whole_slices(steps: int, wanted: int) -> int:
    """At most as many slices as wanted, none empty when each but the last has as many steps."""
    return ceil_div(steps, ceil_div(steps, wanted))
