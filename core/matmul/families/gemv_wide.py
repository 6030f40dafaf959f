"""Matrix times vector on GPUs, reading the matrix 16 bytes at a time; where alignment allows it.

Three forms. Rows: the matrix is contiguous along the summed axis. Strips, for NVIDIA devices: along the
results, and so large that the summed axis is cut in chunks. Wide: as strips, but uncut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...device.profile import DeviceProfile
from ..launch import Arg, Counter, KernelCall, LaunchPlan, Slot
from ..problem import BatchWalk, Elem, Problem
from .common import ceil_div, defines, kernel_text, lower_pow2, upper_pow2

if TYPE_CHECKING:
    from .gemv import GemvView

PIECE_TEXT = "gemv_piece.cl"
ROWS_TEXTS = (PIECE_TEXT, "gemv_rows.cl")
STRIPS_TEXTS = (PIECE_TEXT, "gemv_strips.cl")
WIDE_TEXTS = (PIECE_TEXT, "gemv_wide.cl")
KERNELS = tuple(dict.fromkeys((*ROWS_TEXTS, *STRIPS_TEXTS, *WIDE_TEXTS)))
PIECE_BYTES = 16
FILLED = 0.9  # of the multiprocessors with a work-group: enough
ROW_GROUP, WARP = 256, 32
SHORT_ROW = 128  # pieces: up to here a warp walks a row alone
MEDIUM_ROW = range(512, 1024)  # pieces
STRIP_LANES, STRIP_PLANES, STRIP_UNROLL, GROUPS_A_UNIT, CUT_BYTES = 16, 16, 16, 2, 2 << 20
STAGED_PLANES, STAGED_UNROLL, STAGED_ROUNDS = 8, 16, 4
STAGED_LEAST_CHUNKS, STAGED_BYTES = 4, 16 << 20
STAGED_DETOUR = 1.02  # foreseen: on an H200 3 to 15 % slower than the other strips, so tried after these


@dataclass(frozen=True)
class RowsTile:
    """Lanes along a row, planes of them in a work-group, loads of a row in flight, rows a plane walks."""

    lanes: int
    planes: int
    unroll: int
    each: int


@dataclass(frozen=True)
class StripsTile:
    """Planes of lanes in a work-group, lines each has in flight, rounds of all planes' in a chunk.

    `staged`: the chunk's piece of the vector is in local memory.
    """

    planes: int
    unroll: int
    rounds: int
    staged: bool = False
    lanes: int = WARP

    @property
    def round(self) -> int:
        """How much of the summed axis a work-group has in flight."""
        return self.planes * self.unroll

    @property
    def chunk(self) -> int:
        return self.round * self.rounds


@dataclass(frozen=True)
class WideTile:
    """Lanes side by side, planes of them in a work-group, loads in flight."""

    lanes: int
    planes: int
    unroll: int


def usable(v: GemvView, problem: Problem, profile: DeviceProfile) -> bool:
    """Whether every line of the matrix (and the vector, where lines run along it) starts at 16 bytes."""
    if profile.is_cpu or problem.elem is Elem.F64 or problem.out.elem is not problem.elem:
        return False
    piece = piece_of(problem)
    along_results = v.mat_i == 1 and v.mat_p != 1
    if not along_results and (v.mat_p != 1 or v.vec_p != 1):
        return False
    length = v.results if along_results else problem.k
    pitch = v.mat_p if along_results else v.mat_i
    mat_at, _, _, *mat_batch = (int(x) for x in v.numbers[:5])
    steps = [mat_at, *mat_batch, length, pitch]
    if not along_results:
        vec_at, _, *vec_batch = (int(x) for x in v.numbers[5:9])
        steps += [vec_at, *vec_batch]
    return all(step % piece == 0 for step in steps)


def piece_of(problem: Problem) -> int:
    """Elements in 16 bytes."""
    return PIECE_BYTES // problem.elem.size_bytes


def plan(v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile) -> LaunchPlan:
    """One launch; `usable` must hold."""
    if v.mat_p == 1:
        return rows_plan(v, problem, walk, profile)
    tile = strips_tile(v, problem, profile, walk.count)
    return strips_plan(v, problem, walk, tile) if tile else wide_plan(v, problem, walk, profile)


def staged_plan(
    v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile, stages: int
) -> LaunchPlan | None:
    """Strips with so many stages of the vector in local memory; None where they would be too few."""
    tile = StripsTile(STAGED_PLANES * stages, STAGED_UNROLL, STAGED_ROUNDS, staged=True)
    if not usable(v, problem, profile) or not can_cut(v, profile):
        return None
    if problem.k < STAGED_LEAST_CHUNKS * tile.chunk or matrix_bytes(v, problem) < STAGED_BYTES:
        return None
    return strips_plan(v, problem, walk, tile)


def matrix_bytes(v: GemvView, problem: Problem) -> int:
    return v.results * problem.k * problem.elem.size_bytes


def can_cut(v: GemvView, profile: DeviceProfile) -> bool:
    """Whether the strips' instructions exist, and the matrix is contiguous along the results."""
    return v.mat_p != 1 and profile.has_cache_policies


# ---- rows


def rows_tile(k: int, piece: int, profile: DeviceProfile) -> RowsTile:
    """A row to a work-group, half of one, or a warp or less where it is short; 4 to 8 loads in flight."""
    most = min(ROW_GROUP, lower_pow2(profile.max_work_group))
    pieces = ceil_div(k, piece)
    if pieces in MEDIUM_ROW and most == ROW_GROUP:
        return RowsTile(ROW_GROUP // 2, 2, 2, 4)
    lanes = min(most, WARP, upper_pow2(pieces)) if pieces <= SHORT_ROW else most
    unroll = min(8, lower_pow2(pieces // lanes))
    return RowsTile(lanes, most // lanes, unroll, max(1, 4 // unroll))


def rows_plan(
    v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile, tile: RowsTile | None = None
) -> LaunchPlan:
    """For a matrix contiguous along the summed axis."""
    t = tile or rows_tile(problem.k, piece_of(problem), profile)
    streamed = int(profile.has_cache_policies)
    options = defines(STREAMED=streamed, LANES=t.lanes, PLANES=t.planes, UNROLL=t.unroll, EACH=t.each)
    groups = ceil_div(v.results, t.planes * t.each)
    return _launch(v, problem, ROWS_TEXTS, options, (groups, walk.count, 1), t.lanes * t.planes)


# ---- strips


def strips_tile(v: GemvView, problem: Problem, profile: DeviceProfile, products: int) -> StripsTile | None:
    """Chunks so few that all work-groups run at once, two to a multiprocessor; None for a small matrix."""
    if not can_cut(v, profile) or matrix_bytes(v, problem) < CUT_BYTES:
        return None
    strips = ceil_div(v.results, STRIP_LANES * piece_of(problem)) * products
    chunks = max(1, GROUPS_A_UNIT * profile.compute_units // strips)
    rounds = ceil_div(problem.k, STRIP_PLANES * STRIP_UNROLL * chunks)
    return StripsTile(STRIP_PLANES, STRIP_UNROLL, rounds, lanes=STRIP_LANES)


def strips_plan(v: GemvView, problem: Problem, walk: BatchWalk, tile: StripsTile) -> LaunchPlan:
    """For a matrix contiguous along the results, cut in chunks of the summed axis."""
    width = tile.lanes * piece_of(problem)
    strips, chunks = ceil_div(v.results, width), ceil_div(problem.k, tile.chunk)
    options = defines(
        STREAMED=1,
        LANES=tile.lanes,
        PLANES=tile.planes,
        UNROLL=tile.unroll,
        STAGED=tile.chunk if tile.staged else 0,
    )
    places = strips * walk.count
    kept = (Counter(places * chunks * width), Counter(places)) if chunks > 1 else (None, None)
    groups = (strips, walk.count, chunks)
    detour = STAGED_DETOUR if tile.staged else 1.0
    return _launch(v, problem, STRIPS_TEXTS, options, groups, tile.lanes * tile.planes, kept, detour)


# ---- wide


def wide_tile(v: GemvView, piece: int, profile: DeviceProfile, products: int) -> WideTile:
    """Enough work-groups for the device first, then lines as long as they can be."""
    lanes = 8
    while lanes > 2 and _groups(v, lanes * piece, products) < FILLED * profile.compute_units:
        lanes //= 2
    # One group to a multiprocessor needs all its work-items; several share it better with fewer each.
    planes = 128 if piece == 8 or _groups(v, lanes * piece, products) < 1.5 * profile.compute_units else 64
    return WideTile(lanes, min(planes, profile.max_work_group // lanes), 16)


def _groups(v: GemvView, share: int, products: int) -> int:
    return ceil_div(v.results, share) * products


def wide_plan(v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile) -> LaunchPlan:
    """For a matrix contiguous along the results."""
    piece = piece_of(problem)
    t = wide_tile(v, piece, profile, walk.count)
    options = defines(STREAMED=0, LANES=t.lanes, PLANES=t.planes, UNROLL=t.unroll)
    groups = ceil_div(v.results, t.lanes * piece)
    return _launch(v, problem, WIDE_TEXTS, options, (groups, walk.count, 1), t.lanes * t.planes)


def _launch(
    v: GemvView,
    problem: Problem,
    texts: tuple[str, ...],
    options: tuple[str, ...],
    groups: tuple[int, int, int],
    threads: int,
    more: tuple[Arg, ...] = (),
    detour: float = 1.0,
) -> LaunchPlan:
    size = (groups[0] * threads, groups[1], groups[2])
    args: tuple[Arg, ...] = (v.mat, v.vec, Slot.OUT, *v.numbers, *more)
    options = (f"-DIN_{problem.elem.name}", *options)
    call = KernelCall(kernel_text(*texts), "gemv", options, size, (threads, 1, 1), args, detour=detour)
    return LaunchPlan((call,))
