"""The measuring method on devices made of arithmetic."""

from __future__ import annotations

from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooftune.errors import MeasurementError
from rooftune.probes.method import Method, grow, measure, sensible

SHORT = Method(sample_s=1e-3, settle_s=0.0, settle_at_most_s=0.02, best_s=0.002, busy_s=0.002)


@given(
    unit_s=st.floats(1e-12, 1.0),
    overhead_s=st.floats(0, 1e-3),
    target_s=st.floats(1e-4, 0.1),
    start=st.integers(1, 100),
)
def test_work_grows_until_a_sample_is_long_enough(
    unit_s: float, overhead_s: float, target_s: float, start: int
) -> None:
    calls = []

    def sample(work: int) -> float:
        calls.append(work)
        return overhead_s + work * unit_s

    most = 1 << 40
    work, taken = grow(sample, target_s, start, most)
    assert taken == len(calls) < 120
    assert calls == sorted(calls)
    assert overhead_s + work * unit_s >= target_s or work == most
    # not much longer than asked for: a probe must stay quick
    assert work == start or work * unit_s <= 8 * target_s + unit_s


@given(st.integers(1, 50), st.integers(1, 50))
def test_work_never_passes_its_limit(start: int, more: int) -> None:
    seen = []

    def sample(work: int) -> float:
        seen.append(work)
        return 1e-9

    grow(sample, 1.0, start, start + more)
    assert max(seen) == start + more


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(0.5, 2.0), min_size=4, max_size=10), st.floats(1e-6, 1e-4))
def test_the_best_sample_counts_and_the_spread_tells_how_steady_it_was(
    noise: list[float], unit_s: float
) -> None:
    taken: list[float] = []

    def sample(work: int) -> float:
        seconds = work * unit_s * noise[len(taken) % len(noise)]
        taken.append(seconds / work)
        return seconds

    found = measure(sample, SHORT)
    assert found.samples >= SHORT.agreeing
    assert min(noise) * unit_s <= found.unit_s * (1 + 1e-9)
    assert found.unit_s <= max(noise) * unit_s * (1 + 1e-9)
    assert found.spread >= 0


def test_a_steady_device_has_no_spread() -> None:
    found = measure(lambda work: work * 1e-6, SHORT)
    assert found.unit_s == pytest.approx(1e-6)
    assert found.spread == pytest.approx(0, abs=1e-9)


def test_a_device_that_never_settles_is_left_in_time() -> None:
    turn = 0

    def sample(work: int) -> float:
        nonlocal turn
        turn += 1
        return work * 1e-6 * (1 + turn % 2)

    began = perf_counter()
    found = measure(sample, SHORT)
    assert perf_counter() - began < 2
    assert found.spread > 0.5


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e18])
def test_a_value_that_cannot_be_right_is_refused(value: float) -> None:
    with pytest.raises(MeasurementError, match="cannot be right"):
        sensible(value, 1.0, 1e17, "the compute peak")


def test_a_sensible_value_passes() -> None:
    assert sensible(5.0, 1.0, 10.0, "x") == 5.0


def test_on_a_busy_device_short_samples_find_the_gaps() -> None:
    """Something else takes the device for half of every 20 ms; a sample of 1 ms can miss it."""
    calls = 0

    def sample(work: int) -> float:
        nonlocal calls
        calls += 1
        seconds = work * 1e-6
        disturbed = seconds > 5e-3 or calls % 3 == 0
        return seconds * (1.5 + 0.2 * (calls % 2)) if disturbed else seconds

    method = Method(settle_s=0.0, settle_at_most_s=0.01, best_s=0.001, busy_s=0.01)
    assert measure(sample, method, start=10_000).unit_s == pytest.approx(1e-6)
