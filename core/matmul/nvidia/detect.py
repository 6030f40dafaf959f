"""Which matrix instructions and copy engines really work on a device: its word, then a tiny trial build.

The compute capability says what the hardware has. Whether this driver's compiler takes the instructions, and
the program text they are hidden in can still be rewritten, only a build shows. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ...device.profile import DeviceProfile
from ...device.units import units_of
from ...errors import RooftuneError, UnsupportedError
from ..families.common import kernel_text
from ..launch import Rewrite
from .ptx import PtxRewrite
from .registers import wgmma_16bit
from .tiles import HOPPER

Unit = tuple[str, str, str]

_WARP = """
__kernel void trial(__global float *d, __global const uint *a)
{
    float x = d[0], y = d[1], z = d[2], w = d[3];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};"
                 : "+f"(x), "+f"(y), "+f"(z), "+f"(w) : "r"(a[0]));
    d[0] = x + y + z + w;
}
"""
_BULK = """
__kernel void trial(__global const uchar *map)
{
    __local uchar tile[1024] __attribute__((aligned(1024)));
    __local ulong bar[1];
    copy_box(shared_address(tile), map, 0, 0, 0, 0, shared_address(bar));
    barrier_wait(shared_address(bar), 0);
}
"""
_WARP_GROUP = """
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void trial(__global float *d, ulong a)
{
    float acc[4] = {d[0], d[1], d[2], d[3]};
    products_begin();
    PRODUCT(acc, a, a);
    products_commit();
    PRODUCTS_WAIT(0);
    d[0] = acc[0];
}
"""


class Builder(Protocol):
    """What detection needs of a device client."""

    profile: DeviceProfile

    def build(self, source: str, options: Any = (), rewrite: Rewrite | None = None) -> Any: ...


def detect_units(client: Builder) -> frozenset[Unit]:
    """(unit, element type, precision) for each unit that the device claims and the compiler takes.

    Fails safe: whatever goes wrong in a trial only makes the unit unsupported. Three builds of a few
    lines at most, none on devices that claim nothing, and kept in the client's caches.
    """
    claimed = units_of(client.profile)
    if not claimed:
        return claimed
    return frozenset(unit for unit in claimed if unit[0] in set(_working(client, claimed)))


def _working(client: Builder, claimed: frozenset[Unit]) -> Iterator[str]:
    names = {unit for unit, _, _ in claimed}
    warp = _builds(client, _WARP)
    if warp:
        yield "cmma"
    if "mma" in names and (_warp_groups_build(client) if client.profile.capability == HOPPER else warp):
        yield "mma"
    if "tma" in names and _builds(client, kernel_text("nvidia_common.cl") + _BULK):
        yield "tma"


def _warp_groups_build(client: Builder) -> bool:
    product = wgmma_16bit("PRODUCT", 8, "f16", a_transposed=False, b_transposed=False)
    return _builds(client, product + kernel_text("nvidia_common.cl") + _WARP_GROUP, PtxRewrite())


def _builds(client: Builder, source: str, rewrite: Rewrite | None = None) -> bool:
    try:
        client.build(source, (), rewrite)
    except (RooftuneError, UnsupportedError):
        return False
    return True
