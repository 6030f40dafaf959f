"""The mma candidates: warp-group products where the device has them, else hand-laid warp products."""

from __future__ import annotations

from ...device.profile import DeviceProfile
from ..launch import LaunchPlan
from ..problem import Problem
from . import accelerated, tf32

KERNELS = tuple(dict.fromkeys((*accelerated.KERNELS, *tf32.KERNELS)))


def plan(problem: Problem, profile: DeviceProfile, *, variant: str) -> LaunchPlan:
    """Launches of the mma candidate of this variant. Raises UnsupportedError for what it can't do."""
    return accelerated.plan(problem, profile, unit="mma", variant=variant)
