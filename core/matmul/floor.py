"""The least time a candidate can take: its own launches and transfers beyond the product itself."""

from __future__ import annotations

from ..tuning.bounds import CLOCK_NOISE, Bounds
from .launch import LaunchPlan

SAME_MEMORY = 2
"""Scratch at least this fraction (a half) of the operands' size lives in the memory they live in."""


def floor_s(plan: LaunchPlan, bounds: Bounds | None) -> float | None:
    """Seconds that a plan's window on the device certainly lasts; None where no peak is known.

    To the roofline of the product comes what only this plan spends. Its kernels run one after another, and
    the product's own work is in one of them. The others take an empty kernel's window each at the least;
    and where there are others, scratch buffers are written by one kernel and read by another, so that one
    transfer of them adds to the product's. Small scratch buffers don't count: a cache may be faster than
    the memory whose bandwidth is known. Clock noise is allowed for.
    """
    if bounds is None or bounds.roofline_s is None:
        return None
    others = len(plan.calls) - 1
    spent_s = max(_scratch_s(plan, bounds), others * bounds.launch_window_s) if others > 0 else 0.0
    return (bounds.roofline_s + spent_s) * (1 - CLOCK_NOISE)


def _scratch_s(plan: LaunchPlan, bounds: Bounds) -> float:
    memory = next((bound for bound in bounds.bounds if bound.resource == "memory"), None)
    scratch_bytes = sum(plan.scratch_bytes)
    if memory is None or scratch_bytes * SAME_MEMORY < memory.amount:
        return 0.0
    return scratch_bytes / memory.peak_per_s
