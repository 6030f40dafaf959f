"""Matrix instructions and copy engines a device offers, from what the device says of itself."""

from __future__ import annotations

from .profile import DeviceProfile


def units_of(profile: DeviceProfile) -> frozenset[tuple[str, str, str]]:
    """(unit, element type, precision) for each unit a candidate may use on this device."""
    return frozenset()
