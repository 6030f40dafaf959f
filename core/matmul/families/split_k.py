"""matmul_split_k: the summed axis cut in slices that run side by side, then added up."""

from __future__ import annotations

import numpy as np

from ...device.profile import DeviceProfile
from ...errors import UnsupportedError
from ..launch import KernelCall, LaunchPlan, Scratch, Slot
from ..problem import Problem
from . import cpu, simt, unit
from .common import (
    accumulator_bytes,
    ceil_div,
    check,
    kernel_text,
    lower_pow2,
    operand_args,
    round_up,
    type_options,
)

KERNELS = tuple(dict.fromkeys((*unit.KERNELS, *cpu.KERNELS, "reduce.cl", *simt.KERNELS)))
MAX_SLICES = 64
PORTABLE = 1.9
"""Where tiles leave no room for slices on Hopper, the portable kernels are expected to take so many times as
long as whole products there."""


def slice_count(problem: Problem, profile: DeviceProfile, blocks: int, step: int) -> int:
    """How many slices: enough groups to fill the device, none shorter than 4 steps, never fewer than 2."""
    wanted = 2 * profile.compute_units if profile.is_cpu else 4 * profile.compute_units
    deepest = max(2, problem.k // (4 * step))
    return max(2, min(ceil_div(wanted, blocks), deepest, MAX_SLICES))


def plan(problem: Problem, profile: DeviceProfile, *, slices: int | None = None) -> LaunchPlan:
    """The slices' partial products, then their sum. Raises UnsupportedError when k is 1."""
    walk = check(problem, profile)
    if problem.k < 2:
        raise UnsupportedError("k is 1: nothing to split")
    size = walk.count * problem.m * problem.n * accumulator_bytes(problem)
    expected_s = None
    if simt.usable(problem, profile):
        cut_here = simt.slice_cut(problem, profile, slices)
        if cut_here.slices > 1:
            return _checked(simt.sliced(problem, profile, cut_here), profile)
        whole_s = simt.plan(problem, profile, size="min", stages=2).expected_s
        expected_s = whole_s and PORTABLE * whole_s
    if profile.is_cpu:
        tile = cpu.tile(problem, profile, packed=True)
        groups = ceil_div(problem.n, tile.panels * tile.panel)
        count, depth = cut(problem, slices or slice_count(problem, profile, groups, 64))
        blocks = cpu.block(problem, profile, tile, slices=count)
        multiply = cpu.multiply_calls(problem, profile, tile, blocks, slices=count, depth=depth)
        scratch = cpu.scratch(problem, profile, tile, count * size)
    else:
        block = unit.tile(problem, profile, "max" if min(problem.m, problem.n) > 64 else "min", 1)
        bm, bn = block.block
        groups = ceil_div(problem.n, bn) * ceil_div(problem.m, bm) * walk.count
        count, depth = cut(problem, slices or slice_count(problem, profile, groups, block.depth))
        multiply = (unit.multiply_call(problem, profile, block, 1, slices=count, depth=depth),)
        scratch = (count * size,)
    calls = (*multiply, reduce_call(problem, profile, count))
    return _checked(LaunchPlan(calls, scratch, expected_s), profile)


def _checked(plan: LaunchPlan, profile: DeviceProfile) -> LaunchPlan:
    most = max(plan.scratch_bytes)
    if profile.max_alloc_bytes and most > profile.max_alloc_bytes:
        raise UnsupportedError(f"sums of {most} bytes; at most {profile.max_alloc_bytes} here")
    return plan


def cut(problem: Problem, wanted: int) -> tuple[int, int]:
    """Number of slices, none of them empty, and the depth of each but the last."""
    depth = ceil_div(problem.k, min(max(wanted, 2), problem.k))
    return ceil_div(problem.k, depth), depth


def reduce_call(problem: Problem, profile: DeviceProfile, slices: int) -> KernelCall:
    """The launch that adds up the slices in the first scratch buffer, product by product."""
    walk = check(problem, profile)
    wide = min(64, profile.max_work_group, 2 * lower_pow2(problem.n))
    args = (
        Scratch(0),
        Slot.OUT,
        *operand_args(problem.out, walk.out),
        np.int32(problem.m),
        np.int32(problem.n),
        np.int32(slices),
        np.int32(walk.extents[1]),
    )
    return KernelCall(
        kernel_text("prelude.cl", "reduce.cl"),
        "reduce_parts",
        type_options(problem),
        (round_up(problem.n, wide), problem.m, walk.count),
        (wide, 1, 1),
        args,
    )
