"""Probes of matrix units, as far as they can be checked without the hardware."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.device.units import units_of
from rooftune.probes.method import Method
from rooftune.probes.peaks import compute_sources
from rooftune.probes.prober import Prober
from rooftune.probes.units import f64_depth, probed_units, unit_ops, unit_source

WARPS = [("f16", "cmma"), ("bf16", "cmma"), ("f64", "cmma")]
SHORT = Method(sample_s=1e-3, settle_s=0.0, settle_at_most_s=0.02, best_s=0.0, busy_s=0.0)


def card(major: int, minor: int) -> DeviceProfile:
    profile = DeviceProfile("card", capability=(major, minor))
    return DeviceProfile("card", capability=(major, minor), units=units_of(profile))


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 5), []),
        ((8, 6), WARPS),
        ((9, 0), [*WARPS, ("f16", "mma"), ("bf16", "mma"), ("tf32", "mma")]),
        ((10, 0), WARPS),
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
    elif dtype == "f64":
        assert '"mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 ' in source
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
    # eight warps, four products of 16 x 8 x 16 from Hopper on, sixteen of 8 x 8 x 4 before
    assert unit_ops("f64", "cmma", f64_depth(card(9, 0))) == 2 * (8 * 4 * 16 * 8 * 16)
    assert unit_ops("f64", "cmma", f64_depth(card(8, 0))) == 2 * (8 * 16 * 8 * 8 * 4)


def test_units_no_candidate_computes_with_bound_nothing() -> None:
    profile = card(9, 0)
    client = SimpleNamespace(profile=profile, device_name="card")
    sources = partial(compute_sources, Prober(client))  # type: ignore[arg-type]
    assert sources("f64", "full") == [("f64", "plain", 1.0)]
    assert sources("f16", "full") == [("f16", "mma", 1.0)]
    assert sources("f32", "full") == [("f32", "plain", 1.0), ("tf32", "mma", 1 / 3)]
    assert sources("f32", "tf32") == [("tf32", "mma", 1.0)]


@pytest.mark.gpu
def test_units_are_faster_than_plain_arithmetic() -> None:
    found = [d for d in list_devices() if d.usable and probed_units(d.profile)]
    if not found:
        pytest.skip("needs an NVIDIA device with matrix units")
    prober = Prober(Client(found[0].index), method=SHORT)
    for dtype, unit in probed_units(found[0].profile):
        plain = prober.compute("f64" if dtype == "f64" else "f32").value
        assert prober.compute(dtype, unit).value > 1.5 * plain
