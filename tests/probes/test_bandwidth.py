"""Passes over a set larger than the caches must not find it there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.probes import bandwidth

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


def test_the_set_that_measures_memory_is_larger_than_a_gpus_caches() -> None:
    profile = DeviceProfile("gpu", compute_units=132, memory_bytes=1 << 37, cache_bytes=4 << 20)
    assert bandwidth.memory_set(profile) >= 1 << 30
