from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.tuning.bounds import Bound, Bounds

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bounds.json").read_text())
PEAKS = st.floats(1e3, 1e16)
AMOUNTS = st.integers(0, 2**70)


def golden_bounds(threshold: float | None) -> Bounds:
    return Bounds(
        (
            Bound("compute", GOLDEN["compute_ops"], GOLDEN["peak_ops_per_s"], threshold),
            Bound("bandwidth", GOLDEN["bytes"], GOLDEN["peak_bytes_per_s"], threshold),
        ),
        GOLDEN["launch_overhead_ns"] * 1e-9,
    )


def test_the_worked_example_gives_its_limit_to_the_nanosecond() -> None:
    limit_s = golden_bounds(GOLDEN["threshold"]).limit_s
    assert limit_s is not None
    assert round(limit_s * 1e9) == GOLDEN["limit_ns"]


def test_without_a_threshold_there_is_a_roofline_but_no_limit() -> None:
    bounds = golden_bounds(None)
    assert bounds.limit_s is None
    assert bounds.roofline_s == GOLDEN["compute_ops"] / GOLDEN["peak_ops_per_s"]


@pytest.mark.parametrize("peak", [0.0, -1.0, nan, inf, -inf])
def test_a_peak_that_is_no_peak_drops_its_bound(peak: float) -> None:
    bounds = Bounds((Bound("compute", 100, peak, 0.8), Bound("bandwidth", 10, 10.0, 0.5)))
    assert [bound.resource for bound in bounds.bounds] == ["bandwidth"]
    assert bounds.limit_s == 2.0


def test_the_launch_window_alone_is_no_limit() -> None:
    bounds = Bounds((Bound("compute", 100, 0.0, 0.8),), 5e-6)
    assert bounds.limit_s is None
    assert bounds.roofline_s is None
    assert bounds.share(1.0) is None


@pytest.mark.parametrize("window", [nan, inf, -1.0])
def test_a_launch_window_that_is_no_time_counts_as_none(window: float) -> None:
    assert Bounds((Bound("compute", 10, 10.0, 0.5),), window).limit_s == 2.0


@given(AMOUNTS, AMOUNTS, PEAKS, PEAKS, st.floats(0.01, 1.0), st.floats(0, 1e-3))
def test_the_limit_is_the_slowest_resource_over_the_threshold_plus_one_launch(
    ops: int, size: int, peak_ops: float, peak_bytes: float, threshold: float, launch_s: float
) -> None:
    bounds = Bounds((Bound("c", ops, peak_ops, threshold), Bound("b", size, peak_bytes, threshold)), launch_s)
    expected = max(ops / peak_ops, size / peak_bytes) / threshold + launch_s
    assert bounds.limit_s == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 2**60), PEAKS, st.floats(1e-9, 1e3))
def test_the_share_of_the_roofline_is_one_at_the_roofline_and_less_above_it(
    ops: int, peak: float, more_s: float
) -> None:
    bounds = Bounds((Bound("c", ops, peak, 0.8),))
    roofline_s = bounds.roofline_s
    assert roofline_s is not None
    assert bounds.share(roofline_s) == 1.0
    assert bounds.share(roofline_s + more_s) == pytest.approx(roofline_s / (roofline_s + more_s))


@given(st.lists(st.tuples(AMOUNTS, PEAKS, st.none() | st.floats(0.1, 1.0)), max_size=3), st.floats(0, 1))
def test_bounds_come_back_from_json_unchanged(
    cases: list[tuple[int, float, float | None]], launch_s: float
) -> None:
    bounds = Bounds(tuple(Bound("r", *case) for case in cases), launch_s)
    assert Bounds.from_json(json.loads(json.dumps(bounds.to_json()))) == bounds
