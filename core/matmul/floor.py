"""What a candidate's launches alone tell of its time: the least it can take, and what is foreseen of it."""

from __future__ import annotations

from math import ceil, prod

from ..device.profile import DeviceProfile
from ..tuning.bounds import CLOCK_NOISE, Bound, Bounds
from ..tuning.foresight import Foresight
from .cost import compute_ops
from .launch import KernelCall, LaunchPlan, Slot
from .problem import Elem, Problem

SAME_MEMORY = 2
"""Scratch at least this fraction (a half) of the operands' size lives in the memory they live in."""

CORE_BOOST = 2.0
"""One core may be this much faster than its share of the peak: two may be threads of one, and it has the
higher clock for itself."""

UNIT_BOOST = 1.5
"""The same for a unit of a GPU, whose clock under full load may be lower by a third."""

EMULATED = 8.0
"""On CPUs, work-groups of several work-items are foreseen to take so many times as long as those of one: a
core runs their work-items one after another, and keeps what each holds over a barrier in memory."""

PLAIN = 4.0
"""The same for plain multiply-adds where matrix instructions serve the type and precision as they are."""


def floor_s(plan: LaunchPlan, bounds: Bounds | None, profile: DeviceProfile) -> float | None:
    """Seconds that a plan's window on the device certainly lasts; None where no peak is known.

    At least the roofline of the product, and the time of the busiest unit (`_busiest_s`). To that comes what
    only this plan spends. Its kernels run one after another, and the product's own work is in one of them.
    The others take an empty kernel's window each at the least; and where there are others, scratch buffers
    are written by one kernel and read by another, so that one transfer of them adds to the product's. Small
    scratch buffers don't count: a cache may be faster than the memory whose bandwidth is known. Clock noise
    is allowed for.
    """
    if bounds is None or bounds.roofline_s is None:
        return None
    others = len(plan.calls) - 1
    spent_s = max(_scratch_s(plan, bounds), others * bounds.launch_window_s) if others > 0 else 0.0
    least_s = max(bounds.roofline_s, _busiest_s(plan, bounds, profile))
    return (least_s + spent_s) * (1 - CLOCK_NOISE)


def foresight(plan: LaunchPlan, problem: Problem, profile: DeviceProfile, family: str = "") -> Foresight:
    """How the plan's product kernel is foreseen to compare with others, before any peak is known.

    The factor is what the busiest unit has to do against an even share of the product's operations, times the
    kernel's detour, and PLAIN and EMULATED where they apply. Kin are kernels of one name and family; on a CPU
    all whose work-groups have several work-items.
    """
    call = _product_call(plan)
    share = compute_ops(problem) / profile.compute_units
    factor = max(1.0, _waves(call, profile) * call.group_ops / share) if share > 0 else 1.0
    factor *= call.detour
    program = call.source, call.options
    if profile.is_cpu and call.local_size is not None and prod(call.local_size) > 1:
        return Foresight(factor * EMULATED, "emulated", program)
    split = problem.elem is Elem.F32 and problem.precision == "full"  # plain ones may be the faster there
    if not call.matrix and not split and profile.has_unit("mma", problem.elem.value, problem.precision):
        factor *= PLAIN
    return Foresight(factor, (family, call.name), program, plan.expected_s)


def _busiest_s(plan: LaunchPlan, bounds: Bounds, profile: DeviceProfile) -> float:
    """What the unit with most work needs. A work-group runs on one unit, and some unit runs no fewer than the
    average, rounded up.

    Where the kernel says what a work-group makes of the product, that is its groups' operations, those past
    the edges included, at the unit's share of the peak; plain ones at the plain peak, where that is known.
    Else a plan with fewer groups than units leaves units idle.
    """
    compute = _bound(bounds, "compute")
    if compute is None:
        return 0.0
    call, units = _product_call(plan), profile.compute_units
    boost = CORE_BOOST if profile.is_cpu else UNIT_BOOST
    peak_per_s = compute.peak_per_s
    if not call.matrix and bounds.plain_ops_per_s:
        peak_per_s = min(peak_per_s, bounds.plain_ops_per_s)
    if call.group_ops:
        alone_s = _waves(call, profile) * call.group_ops * units / (peak_per_s * boost)
        return max(alone_s, compute.amount / peak_per_s)
    groups = _work_groups(call)
    return compute.amount * units / (peak_per_s * groups * boost) if groups * boost < units else 0.0


def _product_call(plan: LaunchPlan) -> KernelCall:
    """The launch that multiplies: the one that says what its groups make, or reads both operands, or has most
    groups."""
    return max(plan.calls, key=lambda call: (call.group_ops > 0, _reads_both(call), _work_groups(call)))


def _reads_both(call: KernelCall) -> bool:
    slots = [arg for arg in call.args if isinstance(arg, Slot)]
    return Slot.LHS in slots and Slot.RHS in slots


def _waves(call: KernelCall, profile: DeviceProfile) -> int:
    return ceil(_work_groups(call) / profile.compute_units)


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
