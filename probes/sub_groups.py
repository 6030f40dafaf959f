"""The compute probe on Intel's matrix engines: products by the work-items of a sub-group.

Written from the specification of cl_intel_subgroup_matrix_multiply_accumulate, in which all numbers here
stand. It has not been run on a device that has the extension; tests run it with functions of the same
meaning in their place.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.errors import BuildError

from .compute import LABEL

NEEDED = frozenset({"cl_intel_subgroup_matrix_multiply_accumulate", "cl_intel_required_subgroup_size"})
TYPES = ("f16", "bf16", "i8")
ROWS = 8
SIZES = (8, 16)
"""Lanes of a sub-group: the fewest a device has must be asked for, products of others are undefined."""
SUB_GROUPS = 8
"""Of a work-group: as many as an engine keeps under way."""
TILES = ((2, 2), (4, 2))


def has_sub_group_products(profile: DeviceProfile) -> bool:
    """Whether the driver says that it has the functions, and lets a kernel choose its sub-groups' size."""
    return profile.extensions >= NEEDED


def depth_of(dtype: str) -> int:
    """Multiply-adds of one sum in one product: K."""
    return 32 if dtype == "i8" else 16


class SubGroupLoop:
    """Products of sub-groups of `size` lanes, over and over. Raises BuildError where there are none such."""

    def __init__(
        self, client: Client, dtype: str, size: int, tiles: tuple[int, int], groups_a_core: int = 1
    ) -> None:
        self.client = client
        self.name = f"cmma {dtype} {size} lanes {tiles[0]}x{tiles[1]}"
        self.local = SUB_GROUPS * size
        self.groups = client.profile.compute_units * groups_a_core
        self.kernel = client.kernel(sub_group_source(dtype, size, tiles), "sub_group_products")
        self.out = client.empty(4 * self.local * self.groups)
        self.ops = self.groups * SUB_GROUPS * tiles[0] * tiles[1] * 2 * ROWS * size * depth_of(dtype)

    def sample(self, iterations: int) -> float:
        """Device seconds of so many iterations."""
        self.kernel.set_args(self.out, np.int32(iterations))
        return self.client.sample(self._run, 1)

    def _run(self) -> None:
        self.client.enqueue(self.kernel, (self.local * self.groups,), (self.local,), label=LABEL)


def sub_group_loops(client: Client, dtype: str) -> list[SubGroupLoop]:
    """The loops worth trying. Raises BuildError where the compiler takes neither size of sub-group."""
    size = _fewest_lanes(client, dtype)
    return [SubGroupLoop(client, dtype, size, tiles, groups) for tiles in TILES for groups in (1, 2)]


def _fewest_lanes(client: Client, dtype: str) -> int:
    """pyopencl can't query it; a kernel that asks for fewer lanes than a device has does not build."""
    try:
        client.build(sub_group_source(dtype, SIZES[0], TILES[0]))
    except BuildError:
        return SIZES[1]
    return SIZES[0]


def sub_group_source(dtype: str, size: int, tiles: tuple[int, int]) -> str:
    """Program text for sub-groups of `size` lanes."""
    sums = "int" if dtype == "i8" else "float"
    defines = {
        "SIZE": size, "LOCAL": SUB_GROUPS * size, "A_TILES": tiles[0], "B_TILES": tiles[1],
        "PRODUCT": f"intel_sub_group_{dtype}_{dtype}_matrix_mad_k{depth_of(dtype)}",
        "ROWS": "short8" if size == 16 else "int8", "SUM": sums, "SUMS": f"{sums}8",
        "IS_BF16": int(dtype == "bf16"), "IS_I8": int(dtype == "i8"),
    }
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    return lines + resources.files(__package__).joinpath("kernels/intel_units.cl").read_text()
