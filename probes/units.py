"""The compute probe on matrix units: which a device has, and loops that keep them busy.

Units are named as in candidates: cmma is a warp's product (mma.sync) or a sub-group's (Intel's functions),
mma the warp group's (wgmma) where there is one. More is probed than candidates compute with: f64 and
Intel's units are shown and bound nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import numpy as np
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.matmul.nvidia.ptx import PtxRewrite
from rooftune.matmul.nvidia.registers import accumulator_count, pin, wgmma_16bit, wgmma_tf32

from .compute import LABEL, Loop
from .sub_groups import TYPES, has_sub_group_products, sub_group_loops

AMPERE, HOPPER = (8, 0), (9, 0)
A_TILES, B_TILES = 4, 4
COLUMNS = 256
STEPS = 4
GROUP = 256


def probed_units(profile: DeviceProfile) -> list[tuple[str, str]]:
    """(element type, unit) of each matrix unit that can be probed; TF32 counts as a type of its own."""
    if has_sub_group_products(profile):
        return [(elem, "cmma") for elem in TYPES]
    if profile.capability is None:
        return []
    found = [(elem, "cmma") for elem in ("f16", "bf16") if profile.has_unit("cmma", elem)]
    if profile.capability >= AMPERE and profile.has_f64:
        found.append(("f64", "cmma"))
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
        depth = f64_depth(client.profile)
        source, name = unit_source(dtype, unit, depth)
        self.kernel = client.kernel(source, name, (), PtxRewrite() if unit == "mma" else None)
        self.out = client.empty((8 if dtype == "f64" else 4) * GROUP * self.groups)
        self.ops = self.groups * unit_ops(dtype, unit, depth)

    def sample(self, iterations: int) -> float:
        """Device seconds of so many iterations."""
        self.kernel.set_args(self.out, np.int32(iterations))
        return self.client.sample(self._run, 1)

    def _run(self) -> None:
        self.client.enqueue(self.kernel, (GROUP * self.groups,), (GROUP,), label=LABEL)


def unit_loops(client: Client, dtype: str, unit: str) -> Sequence[Loop]:
    """The loops worth trying on one unit."""
    if has_sub_group_products(client.profile):
        return sub_group_loops(client, dtype)
    return [UnitLoop(client, dtype, unit, groups) for groups in ((1,) if unit == "mma" else (1, 2))]


def f64_depth(profile: DeviceProfile) -> int:
    """Multiply-adds of one sum in one f64 product: m8n8k4 everywhere, m16n8k16 from Hopper on.

    On an H200 the small form reaches half of what the large one does.
    """
    return 16 if (profile.capability or (0, 0)) >= HOPPER else 4


def unit_ops(dtype: str, unit: str, depth: int = 16) -> int:
    """Operations of one iteration of one work-group; `depth` is an f64 product's."""
    if unit == "mma":
        return 2 * 2 * 64 * COLUMNS * (8 if dtype == "tf32" else 16) * STEPS
    a_tiles, b_tiles, rows = _warp_tiles(dtype, depth)
    return GROUP // 32 * a_tiles * b_tiles * 2 * rows * 8 * depth


def _warp_tiles(dtype: str, depth: int) -> tuple[int, int, int]:
    """Independent products of a warp along either side, and the rows of one."""
    if dtype == "f64":
        return (2, 2, 16) if depth == 16 else (4, 4, 8)
    return A_TILES, B_TILES, 16


def unit_source(dtype: str, unit: str, depth: int = 16) -> tuple[str, str]:
    """Program text and kernel name; `depth` is an f64 product's."""
    a_tiles, b_tiles, _ = _warp_tiles(dtype, depth)
    defines = {
        "ELEM": dtype, "IS_TF32": int(dtype == "tf32"), "IS_BF16": int(dtype == "bf16"),
        "WARP_GROUPS": int(unit == "mma"), "A_TILES": a_tiles, "B_TILES": b_tiles, "DEPTH": depth,
    }
    lines = [f"#define {name} {value}\n" for name, value in defines.items()]
    if unit == "mma":
        lines.append(
            wgmma_tf32("PRODUCT", COLUMNS) if dtype == "tf32"
            else wgmma_16bit("PRODUCT", COLUMNS, dtype, a_transposed=False, b_transposed=False)
        )
        lines.append(pin("PIN", accumulator_count(COLUMNS)))
    file = "nvidia_f64_units.cl" if dtype == "f64" else "nvidia_units.cl"
    text = resources.files(__package__).joinpath(f"kernels/{file}").read_text()
    return "".join(lines) + text, "warp_group_products" if unit == "mma" else "warp_products"
