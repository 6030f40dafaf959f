"""`tune devices`: the OpenCL devices of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import Common, common
from .render import emit, format_bytes, print_folded, say, status_line, warn

if TYPE_CHECKING:
    from rooftune.device.discovery import FoundDevice


@common("json")
def devices(common: Common) -> None:
    """List the OpenCL devices: where each came from, and what is wrong with it.

    The first one is the default; --device and ROOFTUNE_DEVICE choose another. Exits with 3, and says
    how to get a runtime on this system, when there is no device that can be used.
    """
    from rooftune.device.discovery import choose_device, survey
    from rooftune.errors import DeviceError

    with status_line("looking for devices"):
        found = survey()
        try:
            chosen: int | None = choose_device().index
        except DeviceError:
            if not any(device.usable for device in found.devices):
                raise
            chosen = None
    if common.json:
        emit(
            "devices",
            {
                "default": chosen,
                "devices": [device.to_json() for device in found.devices],
                "problems": [*found.problems],
                "notes": [*found.notes],
            },
        )
        return
    for device in found.devices:
        print_folded(_lines(device, device.index == chosen), " " * 13)
    if chosen is None:
        warn("ROOFTUNE_DEVICE names none of these devices, or several")
    for problem in found.problems:
        warn(problem)
    for note in found.notes:
        say(f"note: {note}")


def _lines(device: FoundDevice, default: bool) -> list[str]:
    profile = device.profile
    mark = "  (default)" if default else ""
    facts = [
        profile.kind,
        f"{profile.compute_units} compute units",
        f"{format_bytes(profile.memory_bytes)} memory",
        f"f32 vectors of {profile.vector_width_f32}" if profile.is_cpu else "",
        f"compute capability {profile.capability[0]}.{profile.capability[1]}" if profile.capability else "",
        "f64" if profile.has_f64 else "",
        "f16 arithmetic" if profile.has_f16 else "",
    ]
    lines = [
        f"{device.index}: {device.name}{mark}",
        f"   platform  {device.platform}, driver {profile.driver}, {profile.opencl_version}",
        f"   from      {device.origin}",
        f"   has       {', '.join(fact for fact in facts if fact)}",
    ]
    if profile.units:
        lines.append(f"   units     {', '.join(' '.join(unit) for unit in sorted(profile.units))}")
    if not device.usable:
        lines.append("   not usable")
    return lines + [f"   issue     {issue}" for issue in device.issues]
