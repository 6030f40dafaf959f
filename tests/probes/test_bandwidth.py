"""Passes over a set larger than the caches must not find it there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.errors import BuildError
from rooftune.probes import bandwidth
from rooftune.probes.method import TRIAL

GROUPS_AT_ONCE_A_UNIT = 8


@given(st.integers(1, 200), st.sampled_from(bandwidth.ACCESSES), st.integers(14, 36))
def test_passes_share_a_launch_only_over_small_sets_and_where_all_groups_run_at_once(
    units: int, access: str, log2_size: int
) -> None:
    profile = DeviceProfile("gpu", compute_units=units, memory_bytes=1 << 37, cache_bytes=50 << 20)
    for walk in bandwidth.walks(profile, access, 1 << log2_size):
        at_once = walk.groups <= GROUPS_AT_ONCE_A_UNIT * units
        assert walk.shared_launch == (1 << log2_size < bandwidth.LAUNCH_A_PASS_BYTES)
        assert at_once or not walk.shared_launch
        assert not walk.rotate or walk.shared_launch
        assert not walk.once or not walk.shared_launch


@given(st.lists(st.floats(1e6, 1e13), min_size=1, max_size=8))
def test_the_fastest_try_is_measured_and_the_next_where_it_is_close(rates: list[float]) -> None:
    walk = bandwidth.walks(DeviceProfile("cpu", kind="cpu", compute_units=2), "read", 1 << 20)[0]
    tried = [bandwidth.Way("read", walk, rate) for rate in rates]
    first, *next_one = [way.bytes_per_s for way in bandwidth.finalists(tried)]
    assert first == max(rates) and len(next_one) <= 1
    close = sorted(rates)[-2:-1] if len(rates) > 1 and sorted(rates)[-2] >= bandwidth.ALIKE * first else []
    assert next_one == close


@given(st.integers(1, 1 << 40))
def test_the_set_that_bounds_a_problem_is_not_larger_than_it(nbytes: int) -> None:
    found = bandwidth.bounding_set(nbytes)
    assert found <= nbytes < 2 * found
    assert found & (found - 1) == 0


def test_the_set_that_measures_memory_is_larger_than_a_gpus_caches() -> None:
    profile = DeviceProfile("gpu", compute_units=132, memory_bytes=1 << 37, cache_bytes=4 << 20)
    assert bandwidth.memory_set(profile) >= 1 << 30


def test_instructions_for_the_cache_are_for_devices_that_have_them() -> None:
    def hinted(capability: tuple[int, int] | None, access: str) -> bool:
        profile = DeviceProfile("gpu", compute_units=132, memory_bytes=1 << 37, capability=capability)
        return any(walk.hinted for walk in bandwidth.walks(profile, access, 1 << 30))

    assert all(hinted(capability, access) for capability in ((8, 0), (9, 0)) for access in ("read", "copy"))
    assert not any(
        hinted(capability, access) for capability in (None, (7, 5)) for access in bandwidth.ACCESSES
    )
    assert not hinted((9, 0), "write")


@pytest.mark.parametrize("access", ["read", "copy"])
def test_a_walk_the_compiler_refuses_is_left_out(access: str) -> None:
    found = next(device for device in list_devices() if device.usable and device.profile.capability is None)
    client = Client(found.index)
    client.profile = replace(client.profile, kind="gpu", capability=(9, 0))
    refused = bandwidth.walks(client.profile, access, bandwidth.LAUNCH_A_PASS_BYTES)[0]
    assert refused.hinted
    with pytest.raises(BuildError):
        bandwidth.Mover(client, access, 1 << 20, refused)
    moved = bandwidth.probe_hot(client, (access,), bandwidth.LAUNCH_A_PASS_BYTES, TRIAL)
    assert moved.bytes_per_s > 1e6
