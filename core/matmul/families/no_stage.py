"""matmul_gemm_no_stage: a register tile a work-item, read straight from global memory."""

from __future__ import annotations

from dataclasses import dataclass

from ...device.profile import DeviceProfile
from ..launch import KernelCall, LaunchPlan
from ..problem import Problem
from .common import (
    ceil_div,
    check,
    defines,
    kernel_text,
    lower_pow2,
    problem_args,
    stride_options,
    type_options,
)

KERNELS = ("prelude.cl", "no_stage.cl")


@dataclass(frozen=True)
class NoStageTile:
    """Work-items along n, then rows and columns of each."""

    lanes: int
    rows: int
    cols: int


def tile(problem: Problem, profile: DeviceProfile) -> NoStageTile:
    """The tile for this problem and device: as large as keeps every compute unit busy."""
    if profile.is_cpu:
        lanes = min(16, profile.max_work_group, lower_pow2(problem.n))
        return NoStageTile(lanes, min(4, lower_pow2(problem.m)), 1)
    lanes = min(32, profile.max_work_group)
    wanted = profile.compute_units * 4 * 32
    rows = cols = 4
    while rows * cols > 1 and problem.batch * problem.m * problem.n < wanted * rows * cols:
        rows, cols = (rows // 2, cols) if rows >= cols else (rows, cols // 2)
    return NoStageTile(lanes, rows, cols)


def plan(problem: Problem, profile: DeviceProfile, *, tiles: NoStageTile | None = None) -> LaunchPlan:
    """One launch; `tiles` overrides the tile. Raises UnsupportedError."""
    walk = check(problem, profile)
    t = tiles or tile(problem, profile)
    columns = ceil_div(problem.n, t.lanes * t.cols) * t.lanes
    call = KernelCall(
        kernel_text(*KERNELS),
        "no_stage",
        type_options(problem) + stride_options(problem) + defines(TX=t.lanes, TM=t.rows, TN=t.cols),
        (columns, ceil_div(problem.m, t.rows), walk.count),
        (t.lanes, 1, 1),
        problem_args(problem, walk),
    )
    return LaunchPlan((call,))
