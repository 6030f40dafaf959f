"""The OpenCL devices of this machine: what was found, where it came from, what is wrong with it.

Importing this module imports pyopencl.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import DeviceError
from .opencl import RUNTIMES, cl
from .profile import DeviceProfile
from .runtimes import DEFECTIVE_POCL, Runtimes
from .units import units_of

KIND_RANK = {"gpu": 0, "accelerator": 1, "cpu": 2}


@dataclass(frozen=True)
class FoundDevice:
    """One device of one platform. `issues` are sentences; `usable` is False when it cannot run anything."""

    index: int
    platform: str
    name: str
    kind: str
    origin: str
    issues: list[str]
    profile: DeviceProfile
    platform_version: str = ""
    usable: bool = True
    defective: bool = False
    device: cl.Device | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """One line that names it: index, name, platform."""
        return f"{self.index}: {self.name} ({self.platform}, {self.profile.driver})"

    def to_json(self) -> dict[str, Any]:
        """As `tune devices --json` lists it."""
        profile = self.profile
        return {
            "index": self.index,
            "name": self.name,
            "platform": self.platform,
            "platform_version": self.platform_version,
            "kind": self.kind,
            "origin": self.origin,
            "driver": profile.driver,
            "usable": self.usable,
            "defective": self.defective,
            "issues": self.issues,
            "id": profile.id,
            "compute_units": profile.compute_units,
            "memory_bytes": profile.memory_bytes,
            "max_alloc_bytes": profile.max_alloc_bytes,
            "local_bytes": profile.local_bytes,
            "cache_bytes": profile.cache_bytes,
            "vector_width_f32": profile.vector_width_f32,
            "f64": profile.has_f64,
            "f16": profile.has_f16,
            "capability": None if profile.capability is None else list(profile.capability),
            "units": sorted(list(unit) for unit in profile.units),
        }


@dataclass(frozen=True)
class Survey:
    """All devices, the default first, and problems that belong to no device."""

    devices: tuple[FoundDevice, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


_surveyed: Survey | None = None
_guard = threading.Lock()


def survey() -> Survey:
    """Look at every platform, once per process. Raises nothing: what fails becomes a problem."""
    global _surveyed
    with _guard:
        if _surveyed is None:
            _surveyed = _survey(RUNTIMES)
        return _surveyed


def list_devices() -> list[FoundDevice]:
    """Usable and unusable devices; the order is the order of preference, so index 0 is the default."""
    return list(survey().devices)


def choose_device(text: str | int | None = None) -> FoundDevice:
    """The device of this index, or the one whose name or platform contains the text.

    Without a text, ROOFTUNE_DEVICE says it; without that, the default: a GPU before an accelerator
    before a CPU, and a runtime with known defects last. Raises DeviceError when none or several match.
    """
    found = survey()
    usable = [d for d in found.devices if d.usable]
    if not usable:
        raise DeviceError(_nothing(found), hint=how_to_get_a_runtime())
    wanted = os.environ.get("ROOFTUNE_DEVICE", "") if text is None else str(text)
    wanted = wanted.strip()
    if not wanted:
        return usable[0]
    matches = [d for d in usable if _matches(d, wanted)]
    if len(matches) == 1:
        return matches[0]
    what = "no OpenCL device matches" if not matches else "several OpenCL devices match"
    listed = "; ".join(d.label for d in (matches or usable))
    raise DeviceError(
        f"{what} '{wanted}'. {'They are' if matches else 'There are'}: {listed}",
        hint="Give the index, or a part of a name or platform that only one device has.",
    )


def _matches(device: FoundDevice, wanted: str) -> bool:
    if wanted.isdigit():
        return device.index == int(wanted)
    version = re.sub(r"^OpenCL \S+ ", "", device.platform_version)  # what all of them have says nothing
    return wanted.lower() in f"{device.name}\n{device.platform}\n{version}".lower()


def _nothing(found: Survey) -> str:
    if found.devices:
        reasons = "; ".join(f"{d.label}: {' '.join(d.issues)}" for d in found.devices)
        return f"no OpenCL device that can be used. {reasons}"
    return " ".join(["no OpenCL device was found.", *found.problems])


def how_to_get_a_runtime() -> str:
    """A sentence that says how to get an OpenCL runtime on this very system."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    parts = []
    if machine == "x86_64":
        parts.append("For the CPU, without root: pip install intel-opencl-rt intel-cmplr-lib-rt.")
    installer = _package_install("pocl-opencl-icd")
    if installer:
        parts.append(f"For the CPU, from the system: {installer}.")
    parts.append("For a GPU: the OpenCL package of its driver.")
    return " ".join(parts)


def _package_install(debian_name: str) -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            fields = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return ""
    family = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    if {"debian", "ubuntu"} & set(family):
        return f"apt install {debian_name}"
    if {"fedora", "rhel", "centos"} & set(family):
        return "dnf install pocl"
    if "arch" in family:
        return "pacman -S pocl"
    return "zypper install pocl" if {"suse", "opensuse"} & set(family) else ""


def _survey(runtimes: Runtimes) -> Survey:
    problems = list(runtimes.problems)
    found: list[FoundDevice] = []
    for platform in _platforms(problems):
        library = _library_of(platform)
        try:
            devices = platform.get_devices()
        except cl.Error as error:
            devices = []
            if error.code != cl.status_code.DEVICE_NOT_FOUND:
                problems.append(f"platform {platform.name}: its devices cannot be listed ({error}).")
        if not devices:
            problems.append(f"platform {platform.name} ({runtimes.origin_of(library)}) shows no device.")
        for device in devices:
            found.append(_found(platform, device, library, runtimes, problems))
    found.sort(key=_preference)
    numbered = tuple(replace(d, index=i) for i, d in enumerate(found))
    return Survey(numbered, tuple(problems), runtimes.notes)


def _preference(device: FoundDevice) -> tuple[bool, int, bool, str, str]:
    rank = KIND_RANK.get(device.kind, 3)
    return (not device.usable, rank, device.defective, device.platform, device.platform_version)


def _platforms(problems: list[str]) -> list[cl.Platform]:
    try:
        return list(cl.get_platforms())
    except cl.Error as error:
        if error.code != -1001:  # no platform: said by the caller
            problems.append(f"the OpenCL loader failed: {error}.")
        return []


def _found(
    platform: cl.Platform, device: cl.Device, library: str, runtimes: Runtimes, problems: list[str]
) -> FoundDevice:
    profile = profile_of(device)
    issues, usable, defective = _issues(platform, device, library, profile)
    return FoundDevice(
        0,
        platform.name.strip(),
        profile.name,
        profile.kind,
        runtimes.origin_of(library),
        issues,
        profile,
        platform.version.strip(),
        usable,
        defective,
        device,
    )


def _issues(
    platform: cl.Platform, device: cl.Device, library: str, profile: DeviceProfile
) -> tuple[list[str], bool, bool]:
    issues = []
    usable = True
    if not device.available:
        issues.append("the driver says it is not available")
        usable = False
    if not device.compiler_available:
        issues.append("its driver has no compiler")
        usable = False
    defective = "PoCL 3.0-rc" in platform.version or f"{os.sep}pyopencl{os.sep}.libs{os.sep}" in library
    if defective:
        issues.append(DEFECTIVE_POCL)
    if not profile.has_f64:
        issues.append("no f64 (no cl_khr_fp64)")
    return issues, usable, defective


def profile_of(device: cl.Device) -> DeviceProfile:
    """The properties of a device that the rest of the program may know."""
    extensions = frozenset(device.extensions.split())
    profile = DeviceProfile(
        name=device.name.strip().strip("\0"),
        platform=device.platform.name.strip(),
        vendor=device.vendor.strip(),
        driver=device.driver_version.strip(),
        kind=_kind(device),
        opencl_version=device.version.strip(),
        compute_units=device.max_compute_units,
        max_work_group=device.max_work_group_size,
        local_bytes=device.local_mem_size,
        memory_bytes=device.global_mem_size,
        max_alloc_bytes=device.max_mem_alloc_size,
        cache_bytes=device.global_mem_cache_size,
        unified_memory=bool(device.host_unified_memory),
        vector_width_f32=max(1, device.native_vector_width_float),
        has_f64="cl_khr_fp64" in extensions,
        has_f16="cl_khr_fp16" in extensions,
        extensions=extensions,
        capability=_capability(device, extensions),
    )
    return replace(profile, units=units_of(profile))


def _kind(device: cl.Device) -> str:
    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _capability(device: cl.Device, extensions: frozenset[str]) -> tuple[int, int] | None:
    if "cl_nv_device_attribute_query" not in extensions:
        return None
    return (int(device.compute_capability_major_nv), int(device.compute_capability_minor_nv))


def location_of(device: cl.Device) -> str:
    """What tells one of two equal cards from the other, where the driver says it; else empty."""
    if "cl_nv_device_attribute_query" not in device.extensions:
        return ""
    return f"pci {device.pci_domain_id_nv:04x}:{device.pci_bus_id_nv:02x}:{device.pci_slot_id_nv:02x}"


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _library_of(platform: cl.Platform) -> str:
    """The driver library behind a platform, or an empty text.

    An ICD platform object starts with a pointer to its dispatch table, whose first entry is a
    function inside the driver; the dynamic linker knows which file that lies in.
    """
    if os.name != "posix" or "cl_khr_icd" not in platform.extensions:
        return ""
    try:
        linker = ctypes.CDLL(None)
        table = ctypes.c_void_p.from_address(platform.int_ptr).value
        if not table:
            return ""
        function = ctypes.c_void_p.from_address(table).value
        info = _DlInfo()
        if not function or not linker.dladdr(ctypes.c_void_p(function), ctypes.byref(info)):
            return ""
        return os.fsdecode(info.file or b"")
    except (OSError, AttributeError):
        return ""
