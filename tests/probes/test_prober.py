"""The probes on real OpenCL devices, with short budgets: their logic is tested here, not their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.errors import MeasurementError, UnsupportedError, UsageError
from rooftune.probes import bandwidth, compute
from rooftune.probes.launch import LaunchMethod, empty_window_s
from rooftune.probes.method import Method
from rooftune.probes.peaks import compute_sources, peaks_for
from rooftune.probes.prober import Prober, Request
from rooftune.probes.result import VERSION, MemoryStore, ProbeResult, probe_key

SHORT = Method(sample_s=1e-3, settle_s=0.0, settle_at_most_s=0.02, best_s=0.0, busy_s=0.0)
FEW = LaunchMethod(per_sample=10, most=200)
DEVICES = [found for found in list_devices() if found.usable]


@pytest.fixture(params=DEVICES, ids=lambda found: f"{found.index}-{found.profile.driver}")
def client(request: pytest.FixtureRequest) -> Client:
    return Client(request.param.index)


@pytest.fixture
def prober(client: Client) -> Prober:
    return short_prober(client)


def short_prober(client: Client, store: MemoryStore | None = None, *, fresh: bool = False) -> Prober:
    return Prober(client, store, method=SHORT, launch_method=FEW, fresh=fresh)


def test_compute_is_measured_and_counted_under_its_label(prober: Prober) -> None:
    result = prober.compute("f32")
    assert result.value > 1e8
    assert result.unit == "ops/s"
    assert prober.client.counters.launches == {"ComputeThroughput": result.launches}
    assert result.launches >= result.samples > 0


def test_16_bit_types_add_up_in_f32(prober: Prober) -> None:
    assert prober.compute("f16").value > 1e8
    assert prober.compute("bf16").value > 1e8


def test_f64_is_measured_where_the_device_has_it(prober: Prober) -> None:
    if prober.client.profile.has_f64:
        assert prober.compute("f64").value > 1e8


@pytest.mark.parametrize("access", ["read", "write", "copy", "fastest"])
def test_hot_bandwidth(prober: Prober, access: str) -> None:
    result = prober.bandwidth(access, 200_000)
    assert result.facts == {"access": access, "working_set_bytes": 1 << 18, "state": "hot"}
    assert result.value > 1e7
    assert set(prober.client.counters.launches) == {"MemoryThroughput"}
    if access == "fastest":
        assert result.extra["fastest"] in bandwidth.ACCESSES
        assert result.value >= max(result.extra["trials"].values())


def test_cold_bandwidth(prober: Prober) -> None:
    result = prober.bandwidth("read", 1 << 24, "cold")  # 1 MiB takes a GPU no longer than a launch
    assert result.facts["state"] == "cold"
    assert result.value > 1e6


def test_launch_overhead_keeps_to_its_budget_and_tells_three_times_apart(prober: Prober) -> None:
    result = prober.launch()
    assert result.launches <= FEW.most
    assert prober.client.counters.launches == {"LaunchOverhead": result.launches}
    assert 0 < result.extra["window_s"] < 1
    assert 0 < result.extra["profiled_s"] < 1
    assert result.unit == "s"


def test_the_default_budget_of_launches_is_never_passed(client: Client) -> None:
    result = Prober(client).launch()
    assert result.launches <= 5000


def test_a_sample_moves_every_byte_it_counts(client: Client) -> None:
    """A probe that skipped part of its set would report a bandwidth that is too high."""
    walks = bandwidth.walks(client.profile, "copy", 1 << 18)
    walks += [replace(walk, groups=3) for walk in walks]  # chunks that end inside a step
    once = bandwidth.Walk(16, 16, 1, 512, rotate=False, shared_launch=False, once=True)
    walks += [once, replace(once, unroll=4, groups=128)]
    for walk in walks:
        mover = bandwidth.Mover(client, "copy", 1 << 18, walk)
        size = mover.bytes_a_pass // 2
        source = bytes(i * 7 % 251 for i in range(size))
        marked = client.upload(source)
        client.copy(mover.data[1], marked, size)
        client.copy(mover.data[0], client.upload(bytes(size)), size)
        mover.sample(1)
        assert client.download(mover.data[0], size) == source


def test_a_launch_a_pass_counts_no_launch(client: Client) -> None:
    walk = bandwidth.Walk(16, 16, 4, 64, rotate=False, shared_launch=False)
    mover = bandwidth.Mover(client, "read", 1 << 22, walk, empty_window_s(client))
    assert mover.empty_s > 0
    assert mover.sample(2) > 0
    mover.empty_s = 1.0  # no pass over so small a set lasts a second
    with pytest.raises(MeasurementError, match="no longer than an empty kernel"):
        mover.sample(1)


def test_results_are_kept_per_device_and_version(client: Client) -> None:
    store = MemoryStore()
    first = short_prober(client, store).compute("f32")
    key = probe_key("compute", {"dtype": "f32", "arithmetic": "plain"})
    assert store.load(client.device_id, VERSION, key) is not None
    assert store.load(client.device_id, VERSION + 1, key) is None
    before = client.counters.snapshot()
    again = short_prober(client, store).compute("f32")
    assert client.counters.since(before).launches == {}
    assert (again.value, again.cached, first.cached) == (first.value, True, False)


def test_a_fresh_probe_says_by_how_much_it_moved(client: Client) -> None:
    store = MemoryStore()
    first = short_prober(client, store).compute("f32")
    second = short_prober(client, store, fresh=True).compute("f32")
    assert not second.cached
    assert second.previous == first.value
    assert second.moved == second.value / first.value - 1
    assert second.to_json()["moved"] == second.moved


def test_a_damaged_stored_result_is_measured_again(client: Client) -> None:
    store = MemoryStore()
    key = probe_key("compute", {"dtype": "f32", "arithmetic": "plain"})
    right = short_prober(client, store).compute("f32").to_stored()
    assert short_prober(client, store).compute("f32").cached
    for broken in (
        {}, {"probe": "compute"}, {"value": "fast"}, right | {"value": 0.0}, right | {"value": float("nan")},
        right | {"value": 1e30}, right | {"probe": "other"}, right | {"facts": 3}, right | {"extra": []},
    ):
        store.save(client.device_id, VERSION, key, broken)
        assert not short_prober(client, store).compute("f32").cached


def test_a_launch_overhead_without_its_window_is_measured_again(client: Client) -> None:
    store = MemoryStore()
    right = short_prober(client, store).launch().to_stored()
    assert short_prober(client, store).launch().cached
    for broken in ({}, right["extra"] | {"window_s": 0.0}):
        store.save(client.device_id, VERSION, "launch-overhead", right | {"extra": broken})
        assert not short_prober(client, store).launch().cached


@pytest.mark.parametrize("most", [1, 20])
def test_a_budget_without_a_sample_for_each_queue_is_refused(most: int) -> None:
    with pytest.raises(ValueError, match="no sample"):
        LaunchMethod(per_sample=10, most=most)


def test_a_set_is_bounded_by_what_moves_a_larger_one_faster(client: Client) -> None:
    store = MemoryStore()
    for log2_size, rate in ((16, 3e9), (17, 5e9), (18, 4e9)):
        facts = {"access": "fastest", "working_set_bytes": 1 << log2_size, "state": "hot"}
        result = ProbeResult("bandwidth", facts, rate, "bytes/s", 0.0, 1, 1, 0.1)
        store.save(client.device_id, VERSION, probe_key("bandwidth", facts), result.to_stored())
    prober = short_prober(client, store)
    assert [prober.bounding_bandwidth(1 << size).value for size in (16, 17, 18)] == [5e9, 5e9, 4e9]
    assert prober.bandwidth("fastest", 1 << 16).value == 3e9
    assert client.counters.launches == {}


def test_wrong_names_are_usage_errors_that_list_the_right_ones() -> None:
    prober = short_prober(Client(DEVICES[0].index))
    with pytest.raises(UsageError) as raised:
        prober.compute("f8")
    assert "f32" in raised.value.hint
    with pytest.raises(UsageError):
        prober.bandwidth("sideways")
    with pytest.raises(UnsupportedError):
        prober.compute("f32", "cmma")


def test_peaks_of_a_product(client: Client) -> None:
    prober = short_prober(client)
    peaks = peaks_for(client, None, "f32", "full", 100_000, prober=prober)
    sources = compute_sources(prober, "f32", "full")
    rates = [prober.compute(dtype, unit).value * share for dtype, unit, share in sources]
    assert ("f32", "plain", 1.0) in sources and peaks.ops_per_s == max(rates)
    assert peaks.bytes_per_s == prober.bounding_bandwidth(1 << 16).value
    assert peaks.launch_window_s == prober.launch().extra["window_s"]
    assert peaks.evidence["problems"] == []


class Broken(Prober):
    """Every probe gives a value that cannot be right."""

    def get(self, request: Request) -> ProbeResult:
        raise MeasurementError(f"{request.probe} cannot be right")


def test_a_peak_that_cannot_be_measured_bounds_nothing_and_says_why() -> None:
    client = Client(DEVICES[0].index)
    peaks = peaks_for(client, None, "f32", "full", 100_000, prober=Broken(client))
    assert isnan(peaks.ops_per_s) and isnan(peaks.bytes_per_s) and isnan(peaks.launch_window_s)
    asked = len(compute_sources(Prober(client), "f32", "full")) + 2  # bandwidth and launches
    assert len(peaks.evidence["problems"]) == asked


class Figures(Prober):
    """A device whose peaks are given."""

    def __init__(self, rates: Mapping[tuple[str, str], float]) -> None:
        super().__init__(Client(DEVICES[0].index), method=SHORT, launch_method=FEW)
        self.rates = rates
        used = {("mma", "f32", "full"), ("mma", "f32", "tf32"), ("mma", "f16", "full")}
        self.client.profile = replace(self.client.profile, units=frozenset(used))

    def units(self) -> list[tuple[str, str]]:
        return list(self.rates)

    def compute(self, dtype: str, unit: str = "plain") -> ProbeResult:
        rate = self.rates[("f32" if dtype in ("f16", "bf16") and unit == "plain" else dtype, unit)]
        return ProbeResult("compute", {"dtype": dtype, "arithmetic": unit}, rate, "ops/s", 0, 1, 1, 0)


rates = st.floats(1e9, 1e15)


@given(plain=rates, tf32=rates, half=rates, f64=rates)
def test_which_peak_bounds_which_product(plain: float, tf32: float, half: float, f64: float) -> None:
    found: dict[tuple[str, str], float] = {
        ("f32", "plain"): plain, ("f64", "plain"): f64, ("tf32", "mma"): tf32, ("f16", "mma"): half,
        ("f64", "cmma"): 1e16,  # no candidate uses it
    }
    for elem, precision, expected in (
        ("f32", "full", max(plain, tf32 / 3)),
        ("f32", "tf32", tf32),
        ("f16", "full", half),
        ("bf16", "full", plain),
        ("f64", "full", f64),
    ):
        assert peak_of(found, elem, precision) == pytest.approx(expected)


@given(plain=rates)
def test_units_the_device_lacks_do_not_count(plain: float) -> None:
    only: dict[tuple[str, str], float] = {("f32", "plain"): plain}
    for elem, precision in (("f32", "full"), ("f32", "tf32"), ("f16", "full"), ("bf16", "full")):
        assert peak_of(only, elem, precision) == plain


def peak_of(found: Mapping[tuple[str, str], float], elem: str, precision: str) -> float:
    prober = _figures(found)
    return max(prober.compute(d, u).value * share for d, u, share in compute_sources(prober, elem, precision))


_one: list[Figures] = []


def _figures(found: Mapping[tuple[str, str], float]) -> Figures:
    if not _one:
        _one.append(Figures(found))
    _one[0].rates = found
    return _one[0]


profiles = st.builds(
    DeviceProfile,
    name=st.just("x"),
    kind=st.sampled_from(["cpu", "gpu"]),
    compute_units=st.integers(1, 256),
    max_work_group=st.sampled_from([1, 64, 256, 1024, 4096]),
    memory_bytes=st.integers(1 << 24, 1 << 40),
    max_alloc_bytes=st.integers(1 << 23, 1 << 39),
    cache_bytes=st.integers(0, 1 << 29),
    vector_width_f32=st.sampled_from([1, 4, 8, 16]),
)


@given(profiles, st.integers(0, 1 << 45), st.one_of(st.none(), st.integers(1 << 22, 1 << 38)))
def test_a_working_set_is_a_power_of_two_that_fits(
    profile: DeviceProfile, wanted: int, free: int | None
) -> None:
    size = bandwidth.working_set(profile, wanted, free)
    assert size & (size - 1) == 0
    assert bandwidth.LEAST_SET_BYTES <= size <= max(profile.memory_bytes // 2, bandwidth.LEAST_SET_BYTES)
    assert size <= max(profile.max_alloc_bytes, bandwidth.LEAST_SET_BYTES)
    largest = bandwidth.working_set(profile, 1 << 60, free)
    assert size >= min(wanted, largest)
    assert size < 2 * max(wanted, bandwidth.LEAST_SET_BYTES)


@given(profiles, st.sampled_from(bandwidth.ACCESSES), st.integers(14, 34))
def test_every_walk_covers_its_set(profile: DeviceProfile, access: str, log2_size: int) -> None:
    size = (1 << log2_size) // bandwidth.arrays_of(access)
    for walk in bandwidth.walks(profile, access, 1 << log2_size):
        length = walk.chunk_vectors(size // walk.vector_bytes)
        assert walk.local <= profile.max_work_group
        covered = length * walk.groups * walk.vector_bytes
        assert size * 0.5 <= covered <= size or covered <= walk.groups * walk.vector_bytes
        if walk.groups > 8 * profile.compute_units and not profile.is_cpu:
            assert length % (walk.local * walk.unroll) == 0, "work left over for the slow end of the loop"


@given(profiles, st.sampled_from(["f32", "f64"]))
def test_compute_variants_fit_the_device(profile: DeviceProfile, dtype: str) -> None:
    found = compute.variants(profile, dtype)
    assert found
    for variant in found:
        assert variant.local <= profile.max_work_group
        assert variant.ops > 0
        if profile.is_cpu:
            assert variant.lanes * compute.SIZE_BYTES[dtype] <= 64
            assert variant.accumulators >= 8


@given(
    st.dictionaries(st.sampled_from(["dtype", "unit", "access"]), st.text(max_size=5)),
    st.floats(1, 1e15),
    st.floats(0, 1),
)
def test_a_result_survives_being_stored(facts: dict[str, Any], value: float, spread: float) -> None:
    at = "2026-01-01T00:00:00Z"
    result = ProbeResult("compute", facts, value, "ops/s", spread, 5, 4, 0.5, {"variant": "v"}, at)
    back = ProbeResult.from_stored(result.to_stored())
    assert back.cached
    assert (back.facts, back.value, back.spread, back.extra) == (facts, value, spread, {"variant": "v"})


def test_each_probe_is_announced_with_the_time_left_for_all_that_are_due(client: Client) -> None:
    told: list[tuple[str, float]] = []
    store = MemoryStore()
    prober = short_prober(client, store)
    prober.launch()
    prober = Prober(client, store, method=SHORT, progress=lambda *what: told.append(what))
    peaks_for(client, store, "f32", "full", 1 << 16, prober=prober)
    assert [what.split()[0] for what, _ in told][-2:] == ["compute", "bandwidth"]
    left = [seconds for _, seconds in told]
    assert left[0] == pytest.approx(SHORT.typical_s * len(told))
    assert all(seconds > 0 for seconds in left)


def test_measuring_once_more_keeps_the_better_and_stores_it(client: Client) -> None:
    store = MemoryStore()
    prober = short_prober(client, store)
    request = prober.compute_request("f32")
    first = prober.get(request)
    for value, stands in ((first.value / 2, first.value), (first.value * 2, first.value * 2)):
        prober.improve(replace(request, measured=lambda value=value: replace(first, value=value)))
        assert prober.compute("f32").value == stands
        assert short_prober(client, store).compute("f32").value == stands
    assert prober.compute("f32").previous == first.value


def test_peaks_measured_once_more_are_no_lower(client: Client) -> None:
    prober = short_prober(client, MemoryStore())
    before = peaks_for(client, None, "f32", "full", 1 << 16, prober=prober)
    counted = client.counters.snapshot()
    after = peaks_for(client, None, "f32", "full", 1 << 16, prober=prober, again=True)
    assert client.counters.since(counted).total > 0
    assert after.ops_per_s >= before.ops_per_s and after.bytes_per_s >= before.bytes_per_s


def test_a_sweep_on_a_cpu_is_the_same_however_much_memory_is_free() -> None:
    # one machine's runtime reports one memory today and another tomorrow
    seen = [
        DeviceProfile("cpu", kind="cpu", memory_bytes=size << 30, cache_bytes=32 << 20) for size in (3, 6)
    ]
    sweeps = {tuple(bandwidth.sweep_sets(p, free << 30)) for p in seen for free in (1, 2, 5, 40)}
    (sizes,) = sweeps
    assert sizes[-1] == bandwidth.memory_set(seen[0]) > 2 * seen[0].cache_bytes
