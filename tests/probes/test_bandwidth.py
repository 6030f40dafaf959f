"""Passes over a set larger than the caches must not find it there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.probes import bandwidth

RESIDENT_GROUPS_A_UNIT = 8


@given(st.integers(1, 200), st.sampled_from(bandwidth.ACCESSES), st.integers(14, 36))
def test_passes_share_a_launch_only_where_all_groups_run_at_once(
    units: int, access: str, log2_size: int
) -> None:
    profile = DeviceProfile("gpu", compute_units=units, memory_bytes=1 << 37, cache_bytes=50 << 20)
    for walk in bandwidth.walks(profile, access, 1 << log2_size):
        at_once = walk.groups <= RESIDENT_GROUPS_A_UNIT * units
        assert walk.resident == at_once
        assert not walk.rotate or walk.resident


@given(st.integers(1, 200), st.integers(30, 36))
def test_what_a_launch_writes_besides_its_reading_is_little(units: int, log2_size: int) -> None:
    profile = DeviceProfile("gpu", compute_units=units, memory_bytes=1 << 37)
    for walk in bandwidth.walks(profile, "read", 1 << log2_size):
        written = walk.groups * walk.local * walk.vector_bytes
        assert written <= (1 << log2_size) / 50
