"""Adding up slices of k of f32 products."""

from __future__ import annotations

import numpy as np

from ...device.profile import DeviceProfile
from ..families.common import ceil_div, defines, kernel_text, lower_pow2, upper_pow2
from ..launch import KernelCall, Scratch, Slot
from ..problem import BatchWalk, Problem
from .operands import out_args, wide_stores

GROUP = 256
MOST_LANES = 16
ITEMS_PER_UNIT = 512
"""Work-items that keep a multiprocessor busy with loads."""


def add_parts(
    problem: Problem, profile: DeviceProfile, walk: BatchWalk, slices: int, parts: Scratch
) -> KernelCall:
    """The launch that adds up the slices in `parts`, [product][slice][m][n], into the result."""
    pieces = problem.m * ceil_div(problem.n, 4)
    short_of = ceil_div(profile.compute_units * ITEMS_PER_UNIT, pieces * walk.count)
    lanes = min(lower_pow2(slices), upper_pow2(short_of), MOST_LANES)
    sizes = (problem.m, problem.n, slices, walk.extents[1], problem.n % 4 == 0)
    return KernelCall(
        kernel_text("nvidia_slices.cl"),
        "add_parts",
        defines(LANES=lanes),
        (ceil_div(pieces, GROUP // lanes) * GROUP, walk.count),
        (GROUP, 1),
        (
            parts,
            Slot.OUT,
            *out_args(problem, walk),
            *(np.uint32(x) for x in sizes),
            wide_stores(problem, walk),
        ),
    )
