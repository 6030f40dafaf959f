"""The least time a candidate can take: its own launches and transfers beyond the product itself."""

from __future__ import annotations

from math import ceil, prod

from ..tuning.bounds import CLOCK_NOISE, Bound, Bounds
from .launch import KernelCall, LaunchPlan

SAME_MEMORY = 2
"""Scratch at least this fraction (a half) of the operands' size lives in the memory they live in."""

UNIT_BOOST = 2.0
"""One compute unit may be this much faster than its share of the peak: higher clocks, a core for itself."""


def floor_s(plan: LaunchPlan, bounds: Bounds | None, compute_units: int = 1) -> float | None:
    """Seconds that a plan's window on the device certainly lasts; None where no peak is known.

    A work-group runs on one compute unit, so that a plan with few of them reaches a part of the peak only.
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
    least_s = max(bounds.roofline_s, _on_few_units_s(plan, bounds, compute_units))
    return (least_s + spent_s) * (1 - CLOCK_NOISE)


def _on_few_units_s(plan: LaunchPlan, bounds: Bounds, compute_units: int) -> float:
    """The product's operations on as many units as the plan's widest kernel has work-groups for."""
    compute = _bound(bounds, "compute")
    groups = max((_work_groups(call) for call in plan.calls), default=compute_units)
    if compute is None or groups * UNIT_BOOST >= compute_units:
        return 0.0
    return compute.least_s * compute_units / (groups * UNIT_BOOST)


def _work_groups(call: KernelCall) -> int:
    """How many there are; the driver's choice is unknown, and may be one item each."""
    local = call.local_size or (1,) * len(call.global_size)
    return prod(ceil(items / group) for items, group in zip(call.global_size, local, strict=True))


def _bound(bounds: Bounds, resource: str) -> Bound | None:
    return next((bound for bound in bounds.bounds if bound.resource == resource), None)


def _scratch_s(plan: LaunchPlan, bounds: Bounds) -> float:
    memory = _bound(bounds, "memory")
    scratch_bytes = sum(plan.scratch_bytes)
    if memory is None or scratch_bytes * SAME_MEMORY < memory.amount:
        return 0.0
    return scratch_bytes / memory.peak_per_s
