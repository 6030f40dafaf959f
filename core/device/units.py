"""Matrix instructions and copy engines a device offers, from what the device says of itself."""

from __future__ import annotations

from .profile import DeviceProfile

_WARP_PRODUCTS = (8, 0)
_WARP_GROUP_PRODUCTS = (9, 0)
"""The only capability that has them: later ones have other instructions."""


def units_of(profile: DeviceProfile) -> frozenset[tuple[str, str, str]]:
    """(unit, element type, precision) for each unit a candidate may use on this device.

    On NVIDIA the compute capability says it: warp-wide products of f16 and bf16 from 8.0, the bulk copy
    engine from 9.0, and on 9.0 itself warp-group products, which also serve f32, in TF32 and split in
    two TF32 parts. Other vendors: none.
    """
    capability = profile.capability
    if capability is None or capability < _WARP_PRODUCTS:
        return frozenset()
    units = {(unit, elem, "full") for unit in ("cmma", "mma") for elem in ("f16", "bf16")}
    if capability >= _WARP_GROUP_PRODUCTS:
        units |= {("tma", elem, "full") for elem in ("f16", "bf16")}
    if capability == _WARP_GROUP_PRODUCTS:
        units |= {(unit, "f32", precision) for unit in ("mma", "tma") for precision in ("full", "tf32")}
    return frozenset(units)
