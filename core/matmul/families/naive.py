"""matmul_naive: one work-item an element."""

from __future__ import annotations

from ...device.profile import DeviceProfile
from ..launch import KernelCall, LaunchPlan
from ..problem import Problem
from .common import check, kernel_text, lower_pow2, problem_args, round_up, stride_options, type_options

KERNELS = ("prelude.cl", "naive.cl")


def plan(problem: Problem, profile: DeviceProfile) -> LaunchPlan:
    """The simplest launch there is; the yardstick for every other. Raises UnsupportedError."""
    walk = check(problem, profile)
    wide = min(64, profile.max_work_group, 2 * lower_pow2(problem.n))
    tall = min(4, max(1, profile.max_work_group // wide), 2 * lower_pow2(problem.m))
    call = KernelCall(
        kernel_text(*KERNELS),
        "naive",
        type_options(problem) + stride_options(problem),
        (round_up(problem.n, wide), round_up(problem.m, tall), walk.count),
        (wide, tall, 1),
        problem_args(problem, walk),
    )
    return LaunchPlan((call,))
