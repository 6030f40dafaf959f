"""matmul_cpu_gemm and matmul_cpu_gemm_packed: cache-blocked, one work-item a block, wide vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Scratch
from ..problem import Elem, Problem
from .common import (
    accumulator_bytes,
    ceil_div,
    check,
    defines,
    kernel_text,
    lower_pow2,
    problem_args,
    round_up,
    stride_options,
    type_options,
)

KERNELS = ("prelude.cl", "cpu.cl")
LOCAL_RESERVE_BYTES = 4096


@dataclass(frozen=True)
class CpuTile:
    """Register tile: width, vectors, rows, copied block: depth, cols; rows of an item, what is copied."""

    width: int
    vectors: int
    rows: int
    depth: int
    cols: int
    row_block: int
    pack_rhs: bool
    stage_lhs: bool

    @property
    def panel(self) -> int:
        """Columns of the register tile."""
        return self.width * self.vectors

    def local_bytes(self, element_bytes: int) -> int:
        columns = self.cols if self.pack_rhs else self.panel
        lhs = self.rows * (self.depth + 16) if self.stage_lhs else 0
        return (columns * self.depth + lhs) * element_bytes


def register_tile(problem: Problem, profile: DeviceProfile) -> tuple[int, int, int]:
    """Width, vectors and rows of the register tile: as many accumulators as the register file holds.

    32 registers of 64 bytes where the device computes 16 floats at a time, else 16 registers.
    """
    floats = min(16, max(4, lower_pow2(profile.vector_width_f32)))
    width = max(2, floats // 2) if problem.elem is Elem.F64 else floats
    rows, vectors = (8, 3) if floats == 16 else (6, 2)
    while vectors > 1 and width * (vectors - 1) >= problem.n:
        vectors -= 1
    return width, vectors, min(rows, max(problem.m, 1))


def tile(problem: Problem, profile: DeviceProfile, packed: bool) -> CpuTile:
    """The tile for this problem and device; `packed` copies rhs always, else only where it must be."""
    size = accumulator_bytes(problem)
    width, vectors, rows = register_tile(problem, profile)
    panel = width * vectors
    widened = problem.elem in (Elem.F16, Elem.BF16)
    pack_rhs = packed or widened or problem.rhs.canonical().col_stride != 1
    depth = min(round_up(problem.k, 16), 256)
    panels = max(1, min(4, ceil_div(problem.n, panel)))
    items = 4 * profile.compute_units
    while panels > 1 and ceil_div(problem.n, panel * panels) * problem.batch < items:
        panels -= 1
    columns = ceil_div(problem.n, panel * panels) * problem.batch
    row_tiles = ceil_div(problem.m, rows)
    row_blocks = min(row_tiles, max(1, ceil_div(items, columns)))
    chosen = CpuTile(
        width, vectors, rows, depth, panel * panels, rows * ceil_div(row_tiles, row_blocks), pack_rhs, True
    )
    while chosen.local_bytes(size) > profile.local_bytes - LOCAL_RESERVE_BYTES and chosen.depth > 16:
        chosen = replace(chosen, depth=chosen.depth // 2)
    return chosen


def multiply_call(
    problem: Problem, profile: DeviceProfile, t: CpuTile, *, slices: int = 1, depth: int = 0
) -> KernelCall:
    """The launch of cpu.cl; with slices > 1 slices of `depth`, their sums in the first scratch buffer."""
    walk = check(problem, profile)
    refuse_tile(problem, profile, t)
    parts = needs_parts(problem, t)
    options = defines(
        VW=t.width,
        NV=t.vectors,
        MR=t.rows,
        KC=t.depth,
        NB=t.cols,
        PACK_RHS=int(t.pack_rhs),
        STAGE_LHS=int(t.stage_lhs),
        SLICES=slices,
        PARTS=int(parts and slices == 1),
    )
    extra: tuple[Arg, ...] = (np.int32(t.row_block),)
    if slices > 1:
        extra += (Scratch(0), np.int32(depth))
    elif parts:
        extra += (Scratch(0),)
    groups = (ceil_div(problem.n, t.cols), ceil_div(problem.m, t.row_block), walk.count * slices)
    return KernelCall(
        kernel_text(*KERNELS),
        "cpu_gemm",
        type_options(problem) + stride_options(problem) + options,
        groups,
        (1, 1, 1),
        (*problem_args(problem, walk), *extra),
    )


def needs_parts(problem: Problem, t: CpuTile) -> bool:
    """Whether sums between two depth blocks need a buffer of their own: the result's type can't hold them."""
    accumulates_in = Elem.F64 if problem.elem is Elem.F64 else Elem.F32
    return problem.out.elem is not accumulates_in


def refuse_tile(problem: Problem, profile: DeviceProfile, t: CpuTile) -> None:
    widened = problem.elem in (Elem.F16, Elem.BF16)
    if not t.pack_rhs and (widened or problem.rhs.canonical().col_stride != 1):
        raise UnsupportedError("rhs can't be read in place: it is widened, or its columns are not contiguous")
    if not t.stage_lhs and widened:
        raise UnsupportedError("lhs can't be read in place: it is widened")
    if t.cols % t.panel or t.row_block % t.rows:
        raise UnsupportedError(f"block {t.row_block}x{t.cols} is not a multiple of tile {t.rows}x{t.panel}")
    if t.local_bytes(accumulator_bytes(problem)) > profile.local_bytes:
        raise UnsupportedError(f"needs more local memory than the device's {profile.local_bytes} bytes")


def plan(
    problem: Problem, profile: DeviceProfile, *, packed: bool, tiles: CpuTile | None = None
) -> LaunchPlan:
    """One launch. `packed`: copy rhs even where it could be read in place. Raises UnsupportedError."""
    check(problem, profile)
    t = tiles or tile(problem, profile, packed)
    call = multiply_call(problem, profile, t)
    if not needs_parts(problem, t):
        return LaunchPlan((call,))
    # One block of depth writes its result at once, so nothing is kept between blocks.
    kept = problem.batch * problem.m * problem.n if problem.k > t.depth else 1
    return LaunchPlan((call,), (kept * accumulator_bytes(problem),))
