"""The compute probe on matrix units: which a device has, and loops that keep them busy.

Units are named as in candidates: cmma is a warp's product (mma.sync), mma the warp group's (wgmma) where
there is one. Other vendors' units have no probe, and so bound nothing.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.matmul.nvidia.ptx import PtxRewrite
from rooftune.matmul.nvidia.registers import accumulator_count, pin, wgmma_16bit, wgmma_tf32

from .compute import LABEL

HOPPER = (9, 0)
A_TILES, B_TILES = 4, 4
COLUMNS = 256
STEPS = 4
GROUP = 256


def probed_units(profile: DeviceProfile) -> list[tuple[str, str]]:
    """(element type, unit) of each matrix unit that can be probed; TF32 counts as a type of its own."""
    if profile.capability is None:
        return []
    found = [(elem, "cmma") for elem in ("f16", "bf16") if profile.has_unit("cmma", elem)]
    if profile.capability == HOPPER:
        found += [(elem, "mma") for elem in ("f16", "bf16") if profile.has_unit("mma", elem)]
        found += [("tf32", "mma")] if profile.has_unit("mma", "f32", "tf32") else []
    return found


class UnitLoop:
    """Products on one matrix unit, over and over."""

    def __init__(self, client: Client, dtype: str, unit: str, groups_a_core: int = 1) -> None:
        self.client = client
        self.name = f"{unit} {dtype}"
        self.groups = client.profile.compute_units * groups_a_core
        source, name = unit_source(dtype, unit)
        self.kernel = client.kernel(source, name, (), PtxRewrite() if unit == "mma" else None)
        self.out = client.empty(4 * GROUP * self.groups)
        self.ops = self.groups * unit_ops(dtype, unit)

    def sample(self, iterations: int) -> float:
        """Device seconds of so many iterations."""
        self.kernel.set_args(self.out, np.int32(iterations))
        return self.client.sample(self._run, 1)

    def _run(self) -> None:
        self.client.enqueue(self.kernel, (GROUP * self.groups,), (GROUP,), label=LABEL)


def unit_loops(client: Client, dtype: str, unit: str) -> list[UnitLoop]:
    """The loops worth trying on one unit."""
    return [UnitLoop(client, dtype, unit, groups) for groups in ((1,) if unit == "mma" else (1, 2))]


def unit_ops(dtype: str, unit: str) -> int:
    """Operations of one iteration of one work-group."""
    if unit == "mma":
        depth = 8 if dtype == "tf32" else 16
        return 2 * 2 * 64 * COLUMNS * depth * STEPS
    return GROUP // 32 * A_TILES * B_TILES * 2 * 16 * 8 * 16


def unit_source(dtype: str, unit: str) -> tuple[str, str]:
    """Program text and kernel name."""
    defines = {
        "ELEM": dtype, "IS_TF32": int(dtype == "tf32"), "IS_BF16": int(dtype == "bf16"),
        "WARP_GROUPS": int(unit == "mma"), "A_TILES": A_TILES, "B_TILES": B_TILES,
    }
    lines = [f"#define {name} {value}\n" for name, value in defines.items()]
    if unit == "mma":
        lines.append(
            wgmma_tf32("PRODUCT", COLUMNS) if dtype == "tf32"
            else wgmma_16bit("PRODUCT", COLUMNS, dtype, a_transposed=False, b_transposed=False)
        )
        lines.append(pin("PIN", accumulator_count(COLUMNS)))
    text = resources.files(__package__).joinpath("kernels/nvidia_units.cl").read_text()
    return "".join(lines) + text, "warp_group_products" if unit == "mma" else "warp_products"
