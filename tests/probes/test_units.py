"""Probes of matrix units, as far as they can be checked without the hardware."""

from __future__ import annotations

import pytest
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.device.units import units_of
from rooftune.probes.method import Method
from rooftune.probes.prober import Prober
from rooftune.probes.units import probed_units, unit_ops, unit_source

SHORT = Method(sample_s=1e-3, settle_s=0.0, settle_at_most_s=0.02, best_s=0.0, busy_s=0.0)


def card(major: int, minor: int) -> DeviceProfile:
    profile = DeviceProfile("card", capability=(major, minor))
    return DeviceProfile("card", capability=(major, minor), units=units_of(profile))


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 5), []),
        ((8, 6), [("f16", "cmma"), ("bf16", "cmma")]),
        ((9, 0), [("f16", "cmma"), ("bf16", "cmma"), ("f16", "mma"), ("bf16", "mma"), ("tf32", "mma")]),
        ((10, 0), [("f16", "cmma"), ("bf16", "cmma")]),
    ],
)
def test_units_follow_what_the_device_has(
    capability: tuple[int, int], expected: list[tuple[str, str]]
) -> None:
    assert probed_units(card(*capability)) == expected


def test_a_device_of_another_maker_has_none() -> None:
    assert probed_units(DeviceProfile("chip", kind="cpu")) == []


@pytest.mark.parametrize(("dtype", "unit"), probed_units(card(9, 0)))
def test_the_program_names_its_instruction_and_hides_what_must_be_hidden(dtype: str, unit: str) -> None:
    source, name = unit_source(dtype, unit)
    assert f"void {name}(" in source
    if unit == "mma":
        depth = 8 if dtype == "tf32" else 16
        assert f"//@wgmma.mma_async.sync.aligned.m64n256k{depth}.f32.{dtype}.{dtype}" in source
    else:
        assert f"#define ELEM {dtype}\n" in source
    for line in source.splitlines():
        if "wgmma." in line and "asm" in line:
            assert '"//@wgmma.' in line


def test_operations_of_one_iteration() -> None:
    # two warp groups, 64 x 256 sums each, four steps of 16 (8 for TF32) multiply-adds
    assert unit_ops("f16", "mma") == 2 * (2 * 64 * 256 * 16 * 4)
    assert unit_ops("tf32", "mma") == unit_ops("f16", "mma") // 2
    # eight warps, sixteen products of 16 x 8 x 16
    assert unit_ops("f16", "cmma") == 2 * (8 * 16 * 16 * 8 * 16)


@pytest.mark.gpu
def test_units_are_faster_than_plain_arithmetic() -> None:
    found = [d for d in list_devices() if d.usable and probed_units(d.profile)]
    if not found:
        pytest.skip("needs an NVIDIA device with matrix units")
    prober = Prober(Client(found[0].index), method=SHORT)
    plain = prober.compute("f32").value
    for dtype, unit in probed_units(found[0].profile):
        assert prober.compute(dtype, unit).value > 2 * plain
