"""matmul_{simple,double}_unit_{max,min}_tile_size: register tiles, staged through local memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import Arg, KernelCall, LaunchPlan, Scratch
from ..problem import Elem, Problem
from . import simt
from .common import (
    accumulator_bytes,
    ceil_div,
    check,
    defines,
    kernel_text,
    problem_args,
    stride_options,
    type_options,
)

KERNELS = ("prelude.cl", "unit.cl", *simt.KERNELS)
TEXTS = ("prelude.cl", "unit.cl")


@dataclass(frozen=True)
class UnitTile:
    """Work-items along n and m, rows and columns of each, depth of a stage."""

    tx: int
    ty: int
    rows: int
    cols: int
    depth: int

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a work-group."""
        return self.ty * self.rows, self.tx * self.cols

    def local_bytes(self, stages: int, element_bytes: int) -> int:
        bm, bn = self.block
        return stages * self.depth * (bm + bn + 2) * element_bytes


def tile(problem: Problem, profile: DeviceProfile, size: str, stages: int) -> UnitTile:
    """The tile for this problem and device; `size` is "max" or "min".

    Registers decide the largest (64 accumulators of f32 a work-item), local memory the depth.
    """
    if size not in ("max", "min"):
        raise ValueError(f"size is 'max' or 'min', not {size!r}")
    wide = problem.elem is Elem.F64
    if profile.is_cpu:
        side, edge, depth = 8, 4 if size == "max" else 2, 16
    else:
        side = 16
        edge = (4 if wide else 8) if size == "max" else (2 if wide else 4)
        depth = 8 if wide else 16
    while side * side > profile.max_work_group:
        side //= 2
    chosen = UnitTile(side, side, edge, edge, depth)
    while chosen.local_bytes(stages, accumulator_bytes(problem)) > profile.local_bytes:
        if chosen.depth == 1:
            raise UnsupportedError(f"needs more local memory than the device's {profile.local_bytes} bytes")
        chosen = UnitTile(side, side, edge, edge, chosen.depth // 2)
    return chosen


def multiply_call(
    problem: Problem, profile: DeviceProfile, t: UnitTile, stages: int, *, slices: int = 1, depth: int = 0
) -> KernelCall:
    """The launch of unit.cl; with slices > 1 slices of `depth`, their sums in the first scratch buffer."""
    walk = check(problem, profile)
    bm, bn = t.block
    groups = (ceil_div(problem.n, bn), ceil_div(problem.m, bm), walk.count * slices)
    options = defines(
        TX=t.tx, TY=t.ty, TM=t.rows, TN=t.cols, BK=t.depth, STAGES=stages, SPLIT=int(slices > 1)
    )
    extra: tuple[Arg, ...] = (Scratch(0), np.int32(depth), np.int32(slices)) if slices > 1 else ()
    return KernelCall(
        kernel_text(*TEXTS),
        "unit",
        type_options(problem) + stride_options(problem) + options,
        (groups[0] * t.tx, groups[1] * t.ty, groups[2]),
        (t.tx, t.ty, 1),
        (*problem_args(problem, walk), *extra),
        group_ops=2.0 * bm * bn * problem.k / slices,
    )


def plan(
    problem: Problem, profile: DeviceProfile, *, size: str, stages: int, tiles: UnitTile | None = None
) -> LaunchPlan:
    """One launch. `size` "max" or "min", `stages` 1 (simple) or 2 (double). Raises UnsupportedError.

    f32 on NVIDIA's Hopper goes through its copy engine instead (simt.py), which may repack operands first.
    """
    if tiles is None and simt.usable(problem, profile):
        return simt.plan(problem, profile, size=size, stages=stages)
    t = tiles or tile(problem, profile, size, stages)
    if t.tx * t.ty > profile.max_work_group:
        raise UnsupportedError(f"{t.tx * t.ty} work-items a group; at most {profile.max_work_group} here")
    return LaunchPlan((multiply_call(problem, profile, t, stages),))
