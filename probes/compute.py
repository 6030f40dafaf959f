"""The compute probe: multiply-adds a second, counted as two operations each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Protocol

import numpy as np
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile

from .method import TRIAL, Measured, Method, measure

LABEL = "ComputeThroughput"
SIZE_BYTES = {"f32": 4, "f64": 8}
_C_TYPE = {"f32": "float", "f64": "double"}
_NUMPY = {"f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class Variant:
    """One way to keep a device busy: kernel, vector width, independent accumulators, launch size."""

    kernel: str
    lanes: int
    accumulators: int
    local: int
    groups: int
    unroll: int = 4

    @property
    def ops(self) -> int:
        """Operations of one iteration of all work-items."""
        return 2 * self.lanes * self.accumulators * self.unroll * self.local * self.groups


def variants(profile: DeviceProfile, dtype: str) -> list[Variant]:
    """The variants worth trying: the best of them is the peak."""
    if profile.is_cpu:
        return _cpu_variants(profile, dtype)
    local = min(256, profile.max_work_group)
    groups = 16 * profile.compute_units
    return [
        Variant("chain", 1, 16, local, groups, unroll=8),
        Variant("tile", 1, 64, local, groups),
        Variant("chain", 4, 4, local, groups, unroll=8),
    ]


def _cpu_variants(profile: DeviceProfile, dtype: str) -> list[Variant]:
    """Vectors as wide as the CPU's, or as any CPU's: a driver may call its registers narrower than they are.

    12 accumulators hide four cycles of latency on two or three units and fit 16 registers.
    """
    widest = 64 // SIZE_BYTES[dtype]
    native = max(1, profile.vector_width_f32 * 4 // SIZE_BYTES[dtype])
    groups = 4 * profile.compute_units
    return [Variant("chain", lanes, 12, 1, groups) for lanes in dict.fromkeys((min(native, 16), widest))]


class Loop(Protocol):
    """Something to repeat: `ops` operations an iteration, `name` for people."""

    ops: int
    name: str

    def sample(self, iterations: int) -> float:
        """Device seconds of so many iterations."""


def plain_loops(client: Client, dtype: str) -> list[VariantLoop]:
    """The variants for this device, built."""
    return [VariantLoop(client, dtype, variant) for variant in variants(client.profile, dtype)]


def best_of(client: Client, loops: Sequence[Loop], method: Method) -> tuple[float, Measured, str]:
    """Try each loop shortly, measure the fastest by the method: operations a second, how, and which."""
    with client.exclusive():
        tried = [(measure(loop.sample, TRIAL, start=16), loop) for loop in loops]
        trial, loop = min(tried, key=lambda found: found[0].unit_s / found[1].ops)
        measured = measure(loop.sample, method, start=trial.work)
    # a short try may have met a quieter machine than the long measurement: a roof is the best ever seen
    return loop.ops / min(measured.unit_s, trial.unit_s), measured, loop.name


class VariantLoop:
    """A variant ready to run on a device."""

    def __init__(self, client: Client, dtype: str, variant: Variant) -> None:
        self.client = client
        self.variant = variant
        self.ops = variant.ops
        self.name = f"{variant.kernel} {variant.lanes}x{variant.accumulators}"
        text = resources.files(__package__).joinpath("kernels/compute.cl").read_text()
        self.kernel = client.kernel(_defines(dtype, variant) + text, variant.kernel, ("-cl-mad-enable",))
        self.out = client.empty(variant.local * variant.groups * SIZE_BYTES[dtype])
        # x below one keeps every value finite however long the loop runs
        self.numbers = (_NUMPY[dtype](0.999), _NUMPY[dtype](0.001))

    def sample(self, iterations: int) -> float:
        """Device seconds of so many iterations."""
        self.kernel.set_args(self.out, *self.numbers, np.int32(iterations))
        return self.client.sample(self._run, 1)

    def _run(self) -> None:
        size = self.variant.local * self.variant.groups
        self.client.enqueue(self.kernel, (size,), (self.variant.local,), label=LABEL)


def _defines(dtype: str, variant: Variant) -> str:
    elem, lanes = _C_TYPE[dtype], variant.lanes
    names = [f"(v).s{i:x}" for i in range(lanes)] if lanes > 1 else ["(v)"]
    tile = int(variant.accumulators**0.5) if variant.kernel == "tile" else 1
    lines = {
        "ELEM": elem,
        "VEC": elem if lanes == 1 else f"{elem}{lanes}",
        "LANES": lanes,
        "SUM(v)": f"({' + '.join(names)})",
        "ACCUMULATORS": variant.accumulators if variant.kernel == "chain" else 1,
        "TILE": tile,
        "UNROLL": variant.unroll,
    }
    return "".join(f"#define {name} {value}\n" for name, value in lines.items())
