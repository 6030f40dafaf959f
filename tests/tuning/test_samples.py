from __future__ import annotations

from math import inf, nan
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import UsageError
from rooftune.tuning.samples import BenchSettings, Samples

TIMES = st.lists(st.floats(1e-7, 10.0), min_size=1, max_size=20)


def samples(*values: float) -> Samples:
    made = Samples()
    for value in values:
        made.add(value)
    return made


def test_the_first_sample_counts_while_there_are_fewer_than_three() -> None:
    assert list(samples(9.0, 1.0).counted) == [9.0, 1.0]


def test_with_three_samples_the_first_one_no_longer_counts() -> None:
    made = samples(1.0, 9.0, 7.0)
    assert list(made.counted) == [9.0, 7.0]
    assert (made.best, made.median, made.worst) == (7.0, 8.0, 9.0)


def test_two_samples_without_improvement_converge() -> None:
    assert samples(1.0, 1.0, 1.0, 1.0, 1.0).converged
    assert not samples(1.0, 1.0, 1.0, 1.0).converged


def test_the_third_sample_resets_convergence_since_the_window_moved() -> None:
    assert samples(1.0, 1.0).stale == 1
    assert samples(1.0, 1.0, 1.0).stale == 0


def test_an_improvement_of_two_percent_or_less_is_none() -> None:
    assert samples(1.0, 1.0, 1.0, 0.98).stale == 1
    assert samples(1.0, 1.0, 1.0, 0.97).stale == 0


def test_an_improvement_starts_the_count_anew() -> None:
    made = samples(1.0, 1.0, 1.0, 1.0, 0.5)
    assert made.stale == 0
    made.add(0.5)
    made.add(0.5)
    assert made.converged


@given(TIMES)
def test_statistics_are_those_of_the_samples_that_count(times: list[float]) -> None:
    made = samples(*times)
    counted = times[1:] if len(times) >= 3 else times
    assert made.best == min(counted)
    assert made.worst == max(counted)
    assert made.median == median(counted)
    assert made.best <= made.mean * (1 + 1e-12)
    assert made.variance >= 0
    assert 0 <= made.iqr <= made.worst - made.best


@given(TIMES, st.floats(1e-7, 10.0))
def test_samples_inside_a_limit_are_counted_among_those_that_count(times: list[float], limit: float) -> None:
    made = samples(*times)
    assert made.inside(limit) == len([value for value in made.counted if value <= limit])


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_samples": 0},
        {"max_samples": 0},
        {"short_circuit_samples": 0},
        {"min_samples": 2.0},
        {"min_samples": True},
        {"speed_factor": 0.99},
        {"speed_factor": nan},
        {"speed_factor": inf},
        {"speed_factor": "2"},
        {"budget_s": 0},
        {"budget_s": -1.0},
        {"budget_s": nan},
        {"min_samples": 5, "max_samples": 4},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        BenchSettings(**wrong)
    assert next(iter(wrong)) in str(caught.value)
    assert caught.value.hint


def test_the_smallest_settings_allowed_are_allowed() -> None:
    BenchSettings(1, 1, 1, 1.0, True, 0.001)


def test_samples_that_vary_show_that_the_device_is_shared() -> None:
    def unsteady(*values: float) -> bool:
        samples = Samples()
        for value in values:
            samples.add(value)
        return samples.unsteady

    assert not unsteady(1.0) and not unsteady(1.4, 1.0, 1.1)
    assert unsteady(1.6, 1.0, 1.0)
    assert not unsteady(9.0, 1.0, 1.0, 1.05, 1.0, 1.1, 1.0)
    assert unsteady(1.0, 1.0, 1.5, 1.0, 1.4, 1.0, 1.5)
