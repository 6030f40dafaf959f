"""What the rest of the program may know of a device, as plain data: no pyopencl in here.

A profile can be written by hand, so plans, keys and tile sizes can be computed and tested for
devices that are not present.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceProfile:
    """Properties of one OpenCL device. Sizes in bytes, `capability` is NVIDIA's (major, minor)."""

    name: str
    platform: str = ""
    vendor: str = ""
    driver: str = ""
    kind: str = "gpu"  # "gpu" | "cpu" | "accelerator"
    opencl_version: str = ""
    compute_units: int = 1
    max_work_group: int = 256
    local_bytes: int = 32 * 1024
    memory_bytes: int = 0
    max_alloc_bytes: int = 0
    cache_bytes: int = 0
    unified_memory: bool = False
    vector_width_f32: int = 1
    has_f64: bool = True
    has_f16: bool = False  # cl_khr_fp16 arithmetic; half storage (vload_half) always works
    extensions: frozenset[str] = field(default_factory=frozenset)
    capability: tuple[int, int] | None = None
    units: frozenset[tuple[str, str, str]] = field(default_factory=frozenset)
    """Matrix hardware found usable: (unit, element type, precision), unit one of cmma, mma, tma."""

    @property
    def is_cpu(self) -> bool:
        return self.kind == "cpu"

    @property
    def has_cache_policies(self) -> bool:
        """Whether loads and stores can say what caches are to keep: NVIDIA's, from capability 8.0 on."""
        return (self.capability or (0, 0)) >= (8, 0)

    def has_unit(self, unit: str, elem: str, precision: str = "full") -> bool:
        """Whether the matrix instruction or copy engine `unit` serves this element type and precision."""
        return (unit, elem, precision) in self.units

    @property
    def id(self) -> str:
        """Stable id of equal devices: no index; memory size only where the device owns it."""
        parts = [self.platform, self.name, self.driver, f"{self.compute_units}cu"]
        if not self.unified_memory and not self.is_cpu:
            parts.append(f"{self.memory_bytes >> 20}MiB")
        return "|".join(" ".join(part.split()) for part in parts)
