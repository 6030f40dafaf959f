"""matmul_cpu_gemm and matmul_cpu_gemm_packed: cache-blocked, one work-item a block, wide vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, Counter, KernelCall, LaunchPlan, Scratch, Slot
from ..problem import BatchWalk, Elem, Problem
from . import cpu_small, gemv
from .common import (
    accumulator_bytes,
    ceil_div,
    check,
    defines,
    kernel_text,
    operand_args,
    round_up,
    stride_options,
    type_options,
    upper_pow2,
    vector_floats,
)

TEXTS = ("prelude.cl", "cpu_common.cl", "cpu.cl")
KERNELS = (*TEXTS, "cpu_small.cl")
LEVEL2_SHARE_BYTES = 512 * 1024  # of the level 2 cache, for the copied block of rhs: two threads may share it
MAX_DEPTH = 1024
MAX_DEPTH_IN_PLACE = 512  # where panels are not copied but parts of longer rows: these lie on as many pages
MAX_PANELS = 4
PACK_TILES, PACK_DEPTH = 8, 128  # what a work-item of pack_lhs takes: row tiles, elements of the summed axis
SMALL_MADS = 1 << 22  # up to here a second launch costs more than packing lhs can save
MIN_ITEM_MADS = 1 << 19  # below this, waking another core costs more than it saves
TURNS_MADS = 1 << 21  # from here on a product has several blocks
MAX_BLOCKS = (1 << 31) - (1 << 16)  # the counters go beyond, once a core
COUNTER_INTS = 16  # from a counter to the next: LINE_INTS of cpu_common.cl

NOT_IN_PLACE = "rhs can't be read in place: it is widened, or its columns are not contiguous"

ARGS = np.dtype([("matrices", np.int64, 15), ("extents", np.int32, 4), ("division", np.int32, 7)], align=True)
"""`args_t` of cpu.cl."""

# Costs relative to one row or column of arithmetic, from the traffic each causes: copying an element of
# rhs takes as long as the arithmetic of 13 rows with it, fetching one of lhs as that of 10 columns.
COPY_COST_ROWS = 13.0
FETCH_COST_COLS = 6.0
BLOCK_COST_MADS = 1 << 16  # of a block, whatever its size
IMBALANCE_COST = 0.11  # of an item's time, once for every doubling of the cores


@dataclass(frozen=True)
class CpuTile:
    """Register tile (width, vectors, rows), and the largest block of rhs that is copied (depth, panels)."""

    width: int
    vectors: int
    rows: int
    depth: int
    panels: int
    pack_rhs: bool
    lhs_from: str  # "in_place", "copied" tile by tile, or "packed" whole beforehand
    turns: bool = False  # a work-item a core, taking blocks in turns, and not a work-item a block
    room: tuple[int, int] = (0, 0)  # depth, and rows of copied panels, that the program is made for

    @property
    def panel(self) -> int:
        """Columns of the register tile."""
        return self.width * self.vectors

    @property
    def program_depth(self) -> int:
        return max(self.depth, self.room[0])

    @property
    def panel_rows(self) -> int:
        """Rows of so many elements as a panel is wide, for the copies of rhs."""
        return max(self.depth * (self.panels if self.pack_rhs else 1), self.room[1])

    def local_bytes(self, element_bytes: int) -> int:
        lhs = self.rows * ((self.program_depth + 31) // 16 * 16) if self.lhs_from == "copied" else 0
        return (self.panel_rows * self.panel + lhs) * element_bytes


@dataclass(frozen=True)
class CpuBlock:
    """What one work-item computes (columns, rows), and the depth it takes at a time: kernel arguments."""

    cols: int
    rows: int
    depth: int


def cautious_floats(profile: DeviceProfile) -> int:
    """Floats in a vector; PoCL 3.0-rc2's compiler stops the process on some kernels of 16: there 8."""
    floats = vector_floats(profile)
    return min(8, floats) if profile.driver.startswith("3.0-rc") else floats


def register_tile(vectors: int, floats: int) -> tuple[int, int]:
    """Vectors and rows of the register tile for a result so many vectors wide."""
    if floats < 16:
        return min(2, max(1, vectors)), 6
    return (4, 6) if vectors >= 4 else (max(1, vectors), 8)


def tile(problem: Problem, profile: DeviceProfile, packed: bool) -> CpuTile:
    """What is compiled, from device and *bucketed* extents, so that problems of one key share a program.

    `packed`: copy rhs always, else only where it can't be read in place. Whichever of the two is asked for,
    the program has room for both, so that it is compiled once, where both have the same register tile.
    """
    asked = _tile(problem, profile, packed)
    try:
        other = _tile(problem, profile, not packed)
    except UnsupportedError:
        return asked
    shared = max(asked.depth, other.depth), max(asked.panel_rows, other.panel_rows)
    both = replace(asked, room=shared)
    alike = (asked.width, asked.vectors, asked.rows) == (other.width, other.vectors, other.rows)
    return both if alike and both.local_bytes(accumulator_bytes(problem)) <= profile.local_bytes else asked


def _tile(problem: Problem, profile: DeviceProfile, packed: bool) -> CpuTile:
    """The tile of one of the two. Raises UnsupportedError.

    The register tile fills the 32 registers of 64-byte vectors, or the 16 of narrower ones, less what the
    operands need. Where local memory is short, blocks become narrow before they become shallow: every block
    of depth reads and writes the whole result once more.

    Products of several blocks have them taken in turns: PoCL hands each thread its whole share of the
    work-groups at first, and where cores differ in speed, as those of virtual machines do by half, it would
    wait for the slowest one's.
    """
    m, n, k = (upper_pow2(extent) for extent in (problem.m, problem.n, problem.k))
    size = accumulator_bytes(problem)
    floats = vector_floats(profile) if packed else cautious_floats(profile)
    width = max(2, floats * 4 // size)
    vectors, rows = register_tile(n // width, floats)
    rows = min(m, rows)
    pack = packed or not rhs_in_place(problem)
    lhs_from = lhs_source(problem, m * n * k)
    turns = m * n * k >= TURNS_MADS
    depth = min(k, MAX_DEPTH if pack or n <= width * vectors else MAX_DEPTH_IN_PLACE)
    panels = min(MAX_PANELS, ceil_div(n, width * vectors))
    chosen = CpuTile(width, vectors, rows, depth, panels, pack, lhs_from, turns)
    while chosen.local_bytes(size) > budget_bytes(profile):
        if panels > 1:
            panels -= 1
        elif depth > 16:
            depth //= 2
        else:
            raise UnsupportedError(f"needs more local memory than the device's {profile.local_bytes} bytes")
        chosen = CpuTile(width, vectors, rows, depth, panels, pack, lhs_from, turns)
    return chosen


def budget_bytes(profile: DeviceProfile) -> int:
    """Local memory for the copied blocks."""
    return min(profile.local_bytes, LEVEL2_SHARE_BYTES + 64 * 1024)


def block(problem: Problem, profile: DeviceProfile, t: CpuTile, *, slices: int = 1) -> CpuBlock:
    """How the result is divided among work-items: the cheapest of all divisions, from the real extents.

    A division costs what its slowest core computes, plus copying rhs, fetching lhs once for every column of
    blocks, and a little for every block and for having few of them to even out the cores with.
    """
    cores = profile.compute_units
    panels = ceil_div(problem.n, t.panel)
    row_tiles = ceil_div(problem.m, t.rows)
    mads = problem.batch * problem.m * problem.n * problem.k
    most = max(1, mads // MIN_ITEM_MADS)
    depth = ceil_div(problem.k, slices)
    depths = ceil_div(depth, t.depth)
    imbalance = IMBALANCE_COST * math.log2(cores) * cores
    best = (float("inf"), 0, 0)
    for wide in range(1, min(t.panels if t.pack_rhs else panels, panels) + 1):
        columns = ceil_div(panels, wide)
        for tall in row_divisions(row_tiles, cores):
            below = ceil_div(row_tiles, tall)
            items = columns * below * problem.batch * slices
            busy = ceil_div(items, cores) * cores / items + max(0, items - most)
            made = copies(items, below, depths, cores, t) if t.pack_rhs else 0.0
            copy = COPY_COST_ROWS * made / (problem.m * columns * problem.batch * slices)
            evening = imbalance / items + items * BLOCK_COST_MADS / mads
            overhead = copy + FETCH_COST_COLS / (wide * t.panel) + evening
            padding = columns * wide / panels * (1.0 if t.turns else below * tall / row_tiles)
            best = min(best, (busy * padding * (1 + overhead), wide, tall))
    _, wide, tall = best
    return CpuBlock(wide * t.panel, tall * t.rows, ceil_div(depth, depths))


def copies(items: int, below: int, depths: int, cores: int, t: CpuTile) -> float:
    """How often a block's part of rhs is copied, with `below` blocks of all `items` below one another.

    In turns, the blocks of a column share one copy, but of all of its `depths` only the one in which they
    meet, and a core that begins within a column, or takes blocks of another core, makes a copy of its own.
    """
    if not t.turns:
        return items
    anew = (below - 1) * (depths - 1) / depths
    return min(items, items // below * (1 + anew) + cores)


def row_divisions(row_tiles: int, cores: int) -> list[int]:
    """Row tiles of one work-item worth considering: the rows cut in 1, 2, 3 … parts."""
    return sorted({ceil_div(row_tiles, parts) for parts in range(1, min(row_tiles, 8 * cores) + 1)})


def lhs_source(problem: Problem, mads: int) -> str:
    """Where the kernel reads lhs: in place when its rows are contiguous and need no widening, else copied.

    Rows that are not contiguous are packed once for all work-items, unless the product is small.
    """
    if problem.lhs.canonical().col_stride == 1:
        return "copied" if widened(problem) else "in_place"
    return "packed" if mads > SMALL_MADS and problem.n > 128 else "copied"


def widened(problem: Problem) -> bool:
    return problem.elem in (Elem.F16, Elem.BF16)


def rhs_in_place(problem: Problem) -> bool:
    return problem.rhs.canonical().col_stride == 1 and not widened(problem)


def multiply_calls(
    problem: Problem, profile: DeviceProfile, t: CpuTile, blocks: CpuBlock, *, slices: int = 1, depth: int = 0
) -> tuple[KernelCall, ...]:
    """The launches of cpu.cl: packing lhs where the tile says so, then the product.

    Scratch buffer 0 is for sums kept outside the result (with slices > 1 the sums of slices of `depth`),
    buffer 1 for the packed lhs.
    """
    walk = check(problem, profile)
    refuse(problem, profile, t, blocks)
    packed = t.lhs_from == "packed"
    options = (
        type_options(problem)
        + stride_options(problem)
        + defines(VW=t.width, NV=t.vectors, MR=t.rows, KC=t.program_depth, PANEL_ROWS=t.panel_rows)
        + defines(PARTS=int(needs_parts(problem)), TURNS=int(t.turns))
        + defines(PACK_TILES=PACK_TILES, PACK_DEPTH=PACK_DEPTH, ON_CPU=int(profile.is_cpu))
        + (f"-DLHS_FROM={t.lhs_from.upper()}",)
    )
    count = ceil_div(problem.n, blocks.cols) * ceil_div(problem.m, blocks.rows) * walk.count * slices
    if count > MAX_BLOCKS:
        raise UnsupportedError(f"{count} blocks; at most {MAX_BLOCKS}")
    division = (blocks.cols, blocks.rows, blocks.depth, count, int(t.pack_rhs), depth or problem.k, slices)
    common = (Slot.LHS, Slot.RHS, Slot.OUT, call_numbers(problem, walk, division))
    groups = min(count, profile.compute_units) if t.turns else count
    extra: tuple[Arg, ...] = (Scratch(0) if slices > 1 or needs_parts(problem) else None,)
    if t.turns:
        extra += (Counter(COUNTER_INTS * groups),)
    if packed:
        extra += (Scratch(1),)
    source = kernel_text(*TEXTS)
    product = KernelCall(source, "cpu_gemm", options, (groups, 1, 1), (1, 1, 1), (*common, *extra))
    if not packed:
        return (product,)
    stretches = ceil_div(problem.k, PACK_DEPTH)
    tiles = ceil_div(ceil_div(problem.m, t.rows), PACK_TILES)
    pack = KernelCall(
        source, "pack_lhs", options, (stretches, tiles, walk.count), (1, 1, 1), (*common, Scratch(1))
    )
    return (pack, product)


def call_numbers(problem: Problem, walk: BatchWalk, division: tuple[int, ...]) -> np.generic:
    """The kernels' one argument of numbers: `args_t` of cpu.cl, `division` its last fields."""
    matrices = (
        *operand_args(problem.lhs, walk.lhs),
        *operand_args(problem.rhs, walk.rhs),
        *operand_args(problem.out, walk.out),
    )
    extents = (problem.m, problem.n, problem.k, walk.extents[1])
    filled: np.generic = np.array([(matrices, extents, division)], ARGS)[0]
    return filled


def scratch(problem: Problem, profile: DeviceProfile, t: CpuTile, parts_bytes: int) -> tuple[int, ...]:
    """Sizes of the scratch buffers `multiply_calls` speaks of. Raises UnsupportedError for one too large."""
    sizes: tuple[int, ...] = (parts_bytes,) if parts_bytes else ()
    if t.lhs_from == "packed":
        rows = round_up(problem.m, t.rows)
        sizes = (parts_bytes or 64, problem.batch * rows * problem.k * accumulator_bytes(problem))
    if sizes and profile.max_alloc_bytes and max(sizes) > profile.max_alloc_bytes:
        raise UnsupportedError(f"a buffer of {max(sizes)} bytes; at most {profile.max_alloc_bytes} here")
    return sizes


def needs_parts(problem: Problem) -> bool:
    """Whether sums between two depth blocks need a buffer of their own: the result's type can't hold them."""
    return problem.out.elem is not (Elem.F64 if problem.elem is Elem.F64 else Elem.F32)


def refuse(problem: Problem, profile: DeviceProfile, t: CpuTile, blocks: CpuBlock) -> None:
    """Raises UnsupportedError for a tile or block the kernel can't do."""
    if not t.pack_rhs and not rhs_in_place(problem):
        raise UnsupportedError(NOT_IN_PLACE)
    if t.lhs_from == "in_place" and widened(problem):
        raise UnsupportedError("lhs can't be read in place: it is widened")
    if blocks.cols % t.panel or blocks.rows % t.rows:
        raise UnsupportedError(f"a block of {blocks.rows}x{blocks.cols} for tiles of {t.rows}x{t.panel}")
    if blocks.depth > t.depth or (t.pack_rhs and blocks.cols > t.panels * t.panel):
        raise UnsupportedError("the block is larger than what is copied of rhs")
    if t.local_bytes(accumulator_bytes(problem)) > profile.local_bytes:
        raise UnsupportedError(f"needs more local memory than the device's {profile.local_bytes} bytes")


def plan(
    problem: Problem,
    profile: DeviceProfile,
    *,
    packed: bool,
    tiles: CpuTile | None = None,
    blocks: CpuBlock | None = None,
) -> LaunchPlan:
    """One launch, or two where lhs is packed first. Raises UnsupportedError.

    `packed`: copy rhs even where it could be read in place. Where both ways are the same launch one refuses:
    of two that are equal, noise would choose. Small products that are not packed are computed by one core.
    On few cores, vectors times matrices that the gemv candidates read as streams are left to them: blocks
    were never faster there, in f32 up to a third slower, and as fast in single minutes, which then decided.
    On sixteen they took 0.7 to 1.4 times as long.
    """
    walk = check(problem, profile)
    if tiles is None and blocks is None:
        if not packed and not rhs_in_place(problem) and cautious_floats(profile) == vector_floats(profile):
            raise UnsupportedError(f"{NOT_IN_PLACE}: matmul_cpu_gemm_packed is the same")
        if cpu_small.usable(problem, profile):
            if not packed:
                return cpu_small.plan(problem, cautious_floats(profile))
            if cpu_small.surely_fastest(problem):
                raise UnsupportedError("so small a product copies nothing: matmul_cpu_gemm is the same")
        if gemv.read_in_streams(problem, walk, profile):
            raise UnsupportedError("so large a matrix times a vector is left to the candidates for vectors")
    t = tiles or tile(problem, profile, packed)
    b = blocks or block(problem, profile, t)
    # One block of depth writes its result at once, so nothing is kept between blocks.
    kept = problem.batch * problem.m * problem.n if problem.k > b.depth else 16
    parts_bytes = kept * accumulator_bytes(problem) if needs_parts(problem) else 0
    return LaunchPlan(multiply_calls(problem, profile, t, b), scratch(problem, profile, t, parts_bytes))
