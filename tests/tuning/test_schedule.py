"""The rules of sampling, each as a trace on fake candidates. `times` are samples; warm-ups last 1 s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import DeviceFaultError, MeasurementError, OutOfMemoryError, UnsupportedError
from rooftune.tuning.foresight import NOTHING_FORESEEN, Foresight
from rooftune.tuning.samples import BenchSettings
from rooftune.tuning.schedule import Contender, RoundResult, State, run_round

from .fakes import Bench, Series

DEFAULTS = BenchSettings()


def play(bench: Bench, *times: Any, limit: float | None = None, **settings: Any) -> RoundResult:
    return run_round(bench.contenders(*times), BenchSettings(**settings), limit)


def states(result: RoundResult) -> dict[str, str]:
    return {standing.name: standing.state.value for standing in result.standings}


def winner(result: RoundResult) -> str | None:
    return result.winner.name if result.winner else None


# First pass


def test_the_first_pass_takes_a_warm_up_and_one_sample_each_by_ascending_index() -> None:
    bench = Bench()
    contenders = [bench.contender(2, 1.0), bench.contender(0, 1.0), bench.contender(1, 1.0)]
    run_round(contenders, DEFAULTS)
    assert bench.log[:6] == ["warm a", "a", "warm b", "b", "warm c", "c"]


def test_the_warm_up_does_not_count() -> None:
    bench = Bench()
    result = run_round([bench.contender(0, 2.0, warm_up=100.0), bench.contender(1, 3.0)], DEFAULTS)
    assert winner(result) == "a"
    assert 100.0 not in result.standings[0].samples.values


def rounds_of(names: str, count: int) -> str:
    """The order of a first pass and the rounds after it."""
    turns = [names, names[::-1], names[::-1], names, names[::-1], names, names, names[::-1]]
    return "".join(turns[:count])


def test_later_rounds_are_interleaved() -> None:
    bench = Bench()
    play(bench, 1.0, 1.0, 1.0)
    assert bench.order.startswith(rounds_of("abc", 4))


# Repeats


def repeats_used(window_s: float, later_s: float | None = None) -> list[int]:
    used: list[int] = []

    def sample(repeats: int) -> float:
        used.append(repeats)
        return window_s if len(used) == 1 or later_s is None else later_s

    run_round([Contender(0, "a", sample)], DEFAULTS)
    return used


@pytest.mark.parametrize(
    ("window_s", "repeats"), [(1e-3, 1), (100e-6, 1), (99e-6, 2), (40e-6, 3), (5e-6, 20), (1e-6, 64)]
)
def test_tiny_kernels_are_repeated_until_a_sample_lasts_long_enough(window_s: float, repeats: int) -> None:
    used = repeats_used(window_s)
    assert used[0] == 1
    assert set(used[1:]) == {repeats}


def test_a_slow_warm_up_does_not_make_the_samples_too_short() -> None:
    used = repeats_used(1e-3, 5e-6)
    assert used[:3] == [1, 1, 20]
    assert set(used[2:]) == {20}


def test_repeats_do_not_change_after_the_first_sample() -> None:
    assert set(repeats_used(20e-6, 30e-6)[1:]) == {5}


# Short circuit


def test_a_candidate_inside_the_limit_wins_after_two_samples_and_stops_everything() -> None:
    bench = Bench()
    result = play(bench, 5.0, 1.0, 0.5, limit=1.5)
    assert winner(result) == "b"
    assert result.short_circuit
    assert bench.order == "abb"
    assert states(result)["c"] == "waiting"
    assert [event.name for event in result.events if event.kind == "ShortCircuit"] == ["b"]


def test_a_sample_outside_the_limit_ends_the_attempt_in_the_first_pass() -> None:
    bench = Bench()
    play(bench, [1.0, 2.0, 2.0], 3.0, limit=1.5)
    assert bench.order.startswith("aab")


@pytest.mark.parametrize("wanted", [1, 2, 3, 5])
def test_the_first_pass_takes_as_many_samples_inside_the_limit_as_are_wanted(wanted: int) -> None:
    bench = Bench()
    result = play(bench, 1.0, 1.0, limit=1.5, short_circuit_samples=wanted)
    assert result.short_circuit
    assert bench.order == "a" * wanted


def test_a_sample_exactly_at_the_limit_is_inside() -> None:
    assert play(Bench(), 1.0, 2.0, limit=1.0).short_circuit


def test_after_each_round_the_lowest_median_inside_the_limit_short_circuits() -> None:
    bench = Bench()
    result = play(bench, [2.0, 1.2, 1.2], [2.0, 1.1, 1.1], [2.0, 3.0], limit=1.5)
    assert bench.order == rounds_of("abc", 3)
    assert result.short_circuit
    assert winner(result) == "b"


def test_a_first_sample_that_no_longer_counts_does_not_help_to_short_circuit() -> None:
    bench = Bench()
    result = play(bench, [1.0, 2.0, 1.0, 2.0], 2.1, limit=1.5, max_samples=4)
    assert not result.short_circuit


def test_without_a_limit_nothing_short_circuits() -> None:
    assert not play(Bench(), 1e-3, 2e-3).short_circuit


# Dropping


def test_slow_candidates_are_dropped_from_min_samples_on() -> None:
    bench = Bench()
    result = play(bench, 1.0, 1.1, 2.0)
    assert states(result) == {"a": "live", "b": "live", "c": "dropped"}
    assert bench.sampled("c") == DEFAULTS.min_samples


def test_the_slowest_are_dropped_first() -> None:
    result = play(Bench(), 1.0, 3.0, 4.0, 2.0)
    dropped = [event.name for event in result.events if event.kind == "Dropped"]
    assert dropped == ["c", "b"]


def test_never_drops_below_the_survivor_floor() -> None:
    result = play(Bench(), 1.0, 5.0)
    assert states(result) == {"a": "live", "b": "live"}
    result = play(Bench(), 1.0, 5.0, 6.0)
    assert states(result) == {"a": "live", "b": "live", "c": "dropped"}


def test_one_slow_outlier_drops_nobody_since_minima_are_compared() -> None:
    result = play(Bench(), 1.0, 1.0, [1.1, 1.1, 50.0, 1.1])
    assert states(result)["c"] == "live"


def test_one_slow_outlier_of_the_best_saves_nobody_either() -> None:
    bench = Bench()
    result = play(bench, [1.0, 1.4, 1.0], [1.1, 1.4, 1.1], 1.9)
    assert states(result)["c"] == "dropped"
    assert bench.sampled("c") == 3


def test_exactly_the_speed_factor_is_not_dropped() -> None:
    assert states(play(Bench(), 1.0, 1.0, 1.5))["c"] == "live"
    assert states(play(Bench(), 1.0, 1.0, 1.75, speed_factor=1.75))["c"] == "live"


def test_after_the_first_pass_a_hopeless_candidate_is_dropped_at_once() -> None:
    bench = Bench()
    result = play(bench, 1.0, 10.5, 9.5)
    assert states(result)["b"] == "dropped"
    assert bench.sampled("b") == 1
    assert bench.sampled("c") > 1


def test_a_candidate_is_dropped_at_once_when_warm_up_and_sample_are_far_behind() -> None:
    bench = Bench()
    slow = bench.contender(1, 3.1, warm_up=4.0)
    result = run_round([bench.contender(0, 1.0), slow, bench.contender(2, 1.1)], DEFAULTS)
    assert states(result)["b"] == "dropped"
    assert bench.log[:5] == ["warm a", "a", "warm b", "b", "warm c"]
    assert "3.1 times" in result.standings[1].reason


def test_one_slow_run_of_the_first_two_drops_nobody() -> None:
    for warm_up, times in ((9.0, 1.0), (1.0, [9.0, 1.0])):
        bench = Bench()
        contenders = [bench.contender(0, 1.0), bench.contender(1, times, warm_up=warm_up)]
        assert states(run_round(contenders, DEFAULTS))["b"] == "live"


def test_those_measured_before_the_leader_was_known_are_dropped_after_the_first_pass() -> None:
    bench = Bench()
    early = bench.contender(0, 4.0, warm_up=4.0)
    result = run_round([early, bench.contender(1, 1.0), bench.contender(2, 1.1)], DEFAULTS)
    assert states(result)["a"] == "dropped"
    assert bench.sampled("a") == 1


def test_short_runs_get_two_more_before_they_are_dropped() -> None:
    bench = Bench()
    leader = bench.contender(0, 1e-3, warm_up=1e-3)
    unlucky = bench.contender(1, [4e-3, 4e-3, 1e-3], warm_up=5e-3)
    slow = bench.contender(2, 4e-3, warm_up=5e-3)
    result = run_round([leader, unlucky, slow], DEFAULTS)
    assert states(result) == {"a": "live", "b": "live", "c": "dropped"}
    assert bench.sampled("c") == 3


def test_short_runs_drop_nobody_while_something_else_slows_them_down() -> None:
    ms = 1e-3
    slowed_too, steady = [1 * ms, 6 * ms, 1 * ms], [1 * ms]
    alike, varied = [4 * ms, 4 * ms, 4 * ms, 0.8 * ms], [8 * ms, 4 * ms, 4 * ms, 0.8 * ms]
    for leader, unlucky, state in (
        (slowed_too, alike, "live"),
        (steady, varied, "live"),
        (steady, alike, "dropped"),
        ([40 * x for x in slowed_too], [40 * x for x in alike], "dropped"),
    ):
        bench = Bench()
        contenders = [
            bench.contender(0, leader, warm_up=leader[0]),
            bench.contender(1, unlucky, warm_up=5 * unlucky[1]),
        ]
        result = run_round(contenders, DEFAULTS)
        assert states(result)["b"] == state
        assert winner(result) == ("b" if state == "live" else "a")
        assert bench.order.startswith("abbbab") == (state == "live")


def test_one_slow_run_of_a_leader_that_was_steady_so_far_leaves_another_in() -> None:
    ms = 1e-3
    bench = Bench()
    contenders = [bench.contender(0, [1 * ms] * 6 + [6 * ms, 1 * ms], warm_up=ms)]
    contenders += [bench.contender(i, 40 * ms, warm_up=40 * ms) for i in range(1, 6)]
    contenders.append(bench.contender(6, [4 * ms, 4 * ms, 4 * ms, 0.8 * ms], warm_up=4 * ms))
    result = run_round(contenders, DEFAULTS)
    assert [name for name, state in states(result).items() if state == "live"] == ["a", "g"]


def test_beside_an_unsteady_leader_two_slow_short_samples_drop_nobody() -> None:
    ms = 1e-3
    for first_s, state in ((4 * ms, "live"), (1 * ms, "dropped")):
        leader = Bench().contender(0, [first_s, 1 * ms], warm_up=4 * ms)
        slowed = Bench().contender(1, [13 * ms, 13 * ms, 0.9 * ms], warm_up=13 * ms)
        assert states(run_round([leader, slowed], DEFAULTS))["b"] == state


def test_what_the_leader_ran_to_check_others_does_not_count_for_it() -> None:
    # All are slower in the first pass, where it is checked twelve times.
    ms = 1e-3
    bench = Bench()
    contenders = [
        bench.contender(0, [9.2 * ms] * 13 + [8 * ms], warm_up=9 * ms),
        bench.contender(1, [9.7 * ms, 8.5 * ms], warm_up=9 * ms),
        *(bench.contender(i, 40 * ms, warm_up=40 * ms) for i in range(2, 14)),
    ]
    result = run_round(contenders, DEFAULTS)
    assert winner(result) == "a"
    assert list(states(result).values()).count("dropped") == 12
    assert len(result.standings[0].samples) <= DEFAULTS.max_samples


def test_a_leader_that_fails_when_it_checks_another_leaves_it_in() -> None:
    ms = 1e-3
    bench = Bench()
    leader = bench.contender(0, [1 * ms, MeasurementError("gone")], warm_up=ms)
    result = run_round([leader, bench.contender(1, 4 * ms, warm_up=4 * ms)], DEFAULTS)
    assert states(result) == {"a": "disqualified", "b": "live"}
    bench = Bench()
    slow = [bench.contender(i, 12 * ms, warm_up=12 * ms) for i in (0, 1)]
    result = run_round([*slow, bench.contender(2, [1 * ms, MeasurementError("gone")], warm_up=ms)], DEFAULTS)
    assert states(result) == {"a": "live", "b": "live", "c": "disqualified"}
    assert bench.sampled("c") == 2


def test_nobody_is_checked_for_who_gets_no_more_samples() -> None:
    ms = 1e-3
    few, brief = BenchSettings(min_samples=1, max_samples=1), BenchSettings(budget_s=1e-9)
    for settings in (few, brief):
        bench = Bench()
        slowed = [1 * ms, 6 * ms]
        contenders = [bench.contender(0, slowed, warm_up=ms), bench.contender(1, 11 * ms, warm_up=11 * ms)]
        assert states(run_round(contenders, settings))["b"] == "dropped"
        assert bench.order == "ab"


def test_in_rounds_nobody_is_dropped_for_fewer_than_six_short_samples_where_any_vary() -> None:
    ms = 1e-3
    varied = [2.9 * ms, 7 * ms, 9 * ms, 7 * ms, 9 * ms, 0.9 * ms]
    alike = [2.9 * ms] + [4 * ms] * 4 + [0.9 * ms]
    steady, unsteady = [1 * ms], [1 * ms, 2.4 * ms]
    for other, third, state in (
        (steady, varied, "live"),
        (unsteady, alike, "live"),
        (steady, alike, "dropped"),
    ):
        bench = Bench()
        contenders = [bench.contender(i, times, warm_up=ms) for i, times in enumerate([steady, other])]
        contenders.append(bench.contender(2, third, warm_up=2.9 * ms))
        assert states(run_round(contenders, BenchSettings(min_samples=3, max_samples=6)))["c"] == state


def test_a_long_first_run_far_behind_is_not_repeated() -> None:
    bench = Bench()
    result = run_round([bench.contender(0, 1.0), bench.contender(1, 30.0, warm_up=30.0)], DEFAULTS)
    assert states(result)["b"] == "dropped"
    assert result.standings[1].samples.values == [30.0]
    assert bench.sampled("b") == 0


def test_where_nobody_may_be_dropped_a_slow_first_run_drops_nobody() -> None:
    contenders = [Bench().contender(0, 1.0), Bench().contender(1, 50.0, warm_up=50.0)]
    assert states(run_round(contenders, DEFAULTS, may_drop=False))["b"] == "live"


def test_a_hopeless_candidate_goes_even_below_the_survivor_floor() -> None:
    bench = Bench()
    result = play(bench, 60.0, 1.0, budget_s=1e9)
    assert states(result) == {"a": "dropped", "b": "live"}
    assert bench.sampled("a") == 1


def test_dropped_candidates_never_win_whatever_their_arithmetic_says() -> None:
    # "c" is dropped for its counted samples at the third round; its uncounted first was the fastest.
    result = play(Bench(), [1.0, 1.0, 1.0, 9.0, 9.0, 9.0], [1.1, 1.1, 1.1, 9.0, 9.0, 9.0], [0.9, 2.0, 2.0])
    assert states(result)["c"] == "dropped"
    assert result.standings[0].samples.median > result.standings[2].samples.median
    assert winner(result) in ("a", "b")


def test_where_nobody_may_be_dropped_nobody_is() -> None:
    result = run_round(Bench().contenders(1.0, 2.0, 50.0), DEFAULTS, None, may_drop=False)
    assert states(result) == {"a": "live", "b": "live", "c": "live"}


# Stopping


def test_a_round_stops_when_all_live_ones_have_converged() -> None:
    bench = Bench()
    play(bench, 1.0, 1.1)
    assert bench.order == rounds_of("ab", 5)


def test_one_that_still_improves_keeps_the_round_going() -> None:
    bench = Bench()
    play(bench, 1.0, [1.4, 1.35, 1.3, 1.25, 1.2, 1.15, 1.1, 1.1, 1.1])
    assert bench.sampled("a") == bench.sampled("b") == 9


def test_a_round_stops_at_max_samples() -> None:
    bench = Bench()
    improving = [10.0 * 0.97**step for step in range(30)]
    play(bench, improving, [1.4 * value for value in improving], max_samples=7)
    assert bench.order == rounds_of("ab", 7)


def test_one_alone_stops_at_min_samples() -> None:
    bench = Bench()
    play(bench, 1.0, min_samples=4)
    assert bench.order == "a" * 4


def test_convergence_is_not_asked_for_before_min_samples() -> None:
    bench = Bench()
    play(bench, 1.0, 1.1, min_samples=8)
    assert bench.order == rounds_of("ab", 8)


def test_a_round_out_of_budget_decides_on_what_it_has() -> None:
    bench, clock = Bench(), Series([float(tick) for tick in range(10_000)])
    contenders = bench.contenders(1.0, 1.1, 1.2)
    result = run_round(contenders, BenchSettings(budget_s=1e-3), clock=clock.next)
    assert bench.order == "abc"
    assert winner(result) == "a"


def test_every_candidate_gets_one_sample_whatever_the_budget() -> None:
    bench = Bench()
    result = run_round(bench.contenders(3.0, 2.0), BenchSettings(budget_s=1e-9))
    assert bench.order == "ab"
    assert winner(result) == "b"


def test_time_spent_compiling_is_not_taken_from_the_budget() -> None:
    now = [0.0]
    bench = Bench()

    def compile_slowly() -> None:
        now[0] += 100.0

    contenders = [bench.contender(i, 1.0 + i / 10, prepare=compile_slowly) for i in range(2)]
    result = run_round(contenders, BenchSettings(budget_s=1.0), clock=lambda: now[0])
    assert bench.order == rounds_of("ab", 5)
    assert result.measure_s == 0.0


# Disqualification


@pytest.mark.parametrize("window", [0.0, -1.0, float("nan"), float("inf"), MeasurementError("unresolved")])
def test_an_unresolved_window_disqualifies_however_good_the_earlier_samples(window: Any) -> None:
    result = play(Bench(), [0.5, 0.5, 0.5, window], 1.0, speed_factor=3.0)
    assert states(result) == {"a": "disqualified", "b": "live"}
    assert winner(result) == "b"
    assert result.standings[0].reason


def test_any_error_disqualifies_with_its_reason() -> None:
    result = play(Bench(), ValueError("bad argument"), OutOfMemoryError("64 GiB"), 1.0)
    assert [standing.reason for standing in result.standings[:2]] == ["ValueError: bad argument", "64 GiB"]
    assert winner(result) == "c"


def test_an_error_in_the_warm_up_disqualifies_too() -> None:
    bench = Bench()
    result = run_round([bench.contender(0, 1.0, warm_up=ValueError("no")), bench.contender(1, 2.0)], DEFAULTS)
    assert states(result) == {"a": "disqualified", "b": "live"}
    assert bench.sampled("a") == 0


def test_a_candidate_that_refuses_is_unsupported_and_not_at_fault() -> None:
    result = play(Bench(), UnsupportedError("no tensor cores"), 1.0)
    assert states(result) == {"a": "unsupported", "b": "live"}


def test_a_candidate_that_can_not_be_prepared_is_not_run() -> None:
    def prepare() -> None:
        raise RuntimeError("build failed")

    bench = Bench()
    result = run_round([bench.contender(0, 1.0, prepare=prepare), bench.contender(1, 2.0)], DEFAULTS)
    assert states(result)["a"] == "disqualified"
    assert "a" not in bench.order


def test_when_all_are_disqualified_nobody_wins() -> None:
    result = play(Bench(), ValueError(), [1.0, ValueError()])
    assert winner(result) is None
    assert result.ranking == []


def test_a_device_fault_ends_the_round_since_nothing_runs_afterwards() -> None:
    with pytest.raises(DeviceFaultError):
        play(Bench(), 1.0, [1.0, DeviceFaultError("illegal address")])


# Winning


def test_the_smallest_median_wins() -> None:
    result = play(Bench(), [1.0, 2.0, 1.9, 1.9, 2.0], [1.5, 1.5, 1.5, 1.5, 1.5])
    assert winner(result) == "b"


def test_of_equal_medians_the_lowest_index_wins() -> None:
    assert winner(play(Bench(), 1.0, 1.0, 1.0)) == "a"


def test_the_survivors_are_ranked_so_that_the_next_best_is_known() -> None:
    result = play(Bench(), 1.2, 1.0, 1.1)
    assert [standing.name for standing in result.ranking] == ["b", "c", "a"]


# Ties

NOISY = [1.0, 1.00, 1.10, 1.00, 1.10, 1.00, 1.10, 1.00, 1.10, 1.05]
"""Ten samples whose median is 1.05 and whose interquartile range is 0.1."""


def play_tie(bench: Bench, first: list[Any], second: list[Any]) -> RoundResult:
    """Ten samples of each, then the paired ones given, over and over."""
    return play(bench, [*NOISY, *first * 20], [*NOISY, *second * 20], min_samples=10)


def test_a_tie_is_broken_by_up_to_twenty_paired_samples_in_turned_order() -> None:
    bench = Bench()
    result = play_tie(bench, [1.01, 1.11], [0.99, 1.09])
    assert bench.order[20:] == "abbabaabbaababbabaab"
    assert result.tie_break is not None
    assert (winner(result), result.tie_break.winner, result.tie_break.loser) == ("b", "b", "a")
    assert result.tie_break.pairs == 10
    assert result.tie_break.difference_s == pytest.approx(0.02)
    assert result.tie_break.confidence > 0.99


def pairs_of_a_tie(first: list[float], second: list[float], sample_s: float) -> int:
    """How many pairs end a tie whose samples go on like this, in multiples of `sample_s`."""
    bench = Bench()
    series = [[sample_s * t for t in (*NOISY, *times * 300)] for times in (first, second)]
    contenders = [bench.contender(i, times, warm_up=sample_s) for i, times in enumerate(series)]
    result = run_round(contenders, BenchSettings(min_samples=10))
    assert result.tie_break is not None
    return result.tie_break.pairs


def test_short_samples_are_paired_on_until_one_is_sure() -> None:
    assert pairs_of_a_tie([1.01, 1.11], [0.99, 1.09], 1e-4) == 11  # the first n with 2 * 0.5 ** n < 0.001
    assert 11 < pairs_of_a_tie([1.01, 1.11, 1.01, 1.01], [1.03, 1.08, 1.03, 1.03], 1e-4) < 60


def test_short_samples_are_paired_on_until_it_does_not_matter_who_wins() -> None:
    assert pairs_of_a_tie([1.0, 1.1], [1.0, 1.1], 1e-4) == 10
    assert pairs_of_a_tie([1.0, 1.1], [1.005, 1.095], 1e-4) == 10
    one_in_four_strays = [1.1, 1.0, 1.0, 1.0], [1.0, 1.0, 1.1, 1.0]
    assert 10 < pairs_of_a_tie(*one_in_four_strays, 1e-4) < 60


def test_a_toss_up_of_short_samples_is_paired_for_long_but_not_for_ever() -> None:
    by_turns = [1.0, 1.2, 1.2, 1.0]
    assert pairs_of_a_tie(by_turns, [1.1], 1e-4) == 480
    assert pairs_of_a_tie(by_turns, [1.1], 1e-3) == 240
    assert pairs_of_a_tie(by_turns, [1.1], 6e-3) == 10
    slowed_by_turns = [1.0, 2.4, 2.4, 1.0]  # by something else, so longer samples count as short too
    assert 80 < pairs_of_a_tie(slowed_by_turns, [1.7], 6e-3) < 200  # as fit in 2.4 s


def test_pairs_that_disagree_with_the_medians_are_not_the_end_of_a_tie() -> None:
    # In the rounds "b" was slow by chance; in pairs each wins by turns.
    bench = Bench()
    ms = 1e-3
    by_turns = [1.0 * ms, 1.2 * ms, 1.2 * ms, 1.0 * ms]
    result = run_round(
        [
            bench.contender(0, [1.0 * ms] * 3 + by_turns * 40, warm_up=ms),
            bench.contender(1, [1.3 * ms] * 3 + [1.1 * ms] * 400, warm_up=ms),
        ],
        DEFAULTS,
    )
    assert result.tie_break is not None and result.tie_break.pairs >= 10


def test_on_a_device_that_others_use_a_wide_gap_is_paired_off_too() -> None:
    ms = 1e-3
    for disturbed, pairs in (([3.0 * ms, 1.0 * ms, 1.0 * ms], True), ([1.0 * ms] * 3, False)):
        bench = Bench()
        contenders = [
            bench.contender(0, [*disturbed, *[1.0 * ms] * 300], warm_up=ms),
            bench.contender(1, [1.6 * ms] * 300, warm_up=1.6 * ms),
        ]
        result = run_round(contenders, replace(DEFAULTS, speed_factor=2.0))
        assert winner(result) == "a"
        assert (result.tie_break is not None) is pairs


def test_one_lucky_sample_of_a_leader_that_others_slow_drops_nobody() -> None:
    ms = 10e-3
    slowed = [3.3 * ms] * 100
    for leader, state in (([3.4 * ms, 1.9 * ms, *slowed], State.LIVE), ([1.9 * ms] * 100, State.DROPPED)):
        contenders = [
            Bench().contender(0, leader, warm_up=3 * ms),
            Bench().contender(1, slowed, warm_up=3 * ms),
            Bench().contender(2, slowed, warm_up=3 * ms),
        ]
        result = run_round(contenders, BenchSettings(min_samples=3, max_samples=6), break_ties=False)
        assert result.standings[1].state is state


def test_a_few_pairs_settle_nothing_on_a_device_that_others_use() -> None:
    ms = 1e-3
    lost_by_chance = [2.1 * ms] * 3 + [1.0 * ms] * 300
    contenders = [
        Bench().contender(0, [2.0 * ms, 1.0 * ms, 2.0 * ms, *lost_by_chance], warm_up=2 * ms),
        Bench().contender(1, [2.0 * ms, 1.05 * ms, 2.0 * ms, *[1.05 * ms] * 300], warm_up=2 * ms),
    ]
    result = run_round(contenders, BenchSettings(min_samples=3, max_samples=3))
    assert winner(result) == "a"
    assert result.tie_break is not None and result.tie_break.pairs > 10


def test_one_that_was_slowed_in_most_samples_but_not_in_its_best_meets_the_winner_in_pairs() -> None:
    ms = 1e-3
    contenders = [
        Bench().contender(0, [4.9 * ms, 1.8 * ms, 4.9 * ms, 4.9 * ms, *[1.8 * ms] * 300], warm_up=5 * ms),
        Bench().contender(1, [2.0 * ms] * 300, warm_up=2 * ms),
    ]
    result = run_round(contenders, BenchSettings(min_samples=4, max_samples=4))
    assert result.tie_break is not None
    assert winner(result) == "a"


def test_where_others_use_the_device_best_samples_against_the_medians_are_a_tie() -> None:
    ms = 1e-3
    slowed = [1.2 * ms, 6.2 * ms, 7.9 * ms, 13.6 * ms, 1.2 * ms, 7.9 * ms, 6.6 * ms]
    contenders = [
        Bench().contender(0, [2.2 * ms] * 300, warm_up=2.2 * ms),
        Bench().contender(1, [*slowed, *[1.2 * ms] * 300], warm_up=2 * ms),
    ]
    result = run_round(contenders, BenchSettings(min_samples=7, max_samples=7))
    assert result.tie_break is not None
    assert winner(result) == "b"


def test_where_others_use_the_device_the_best_sample_meets_the_winner_whatever_its_median() -> None:
    ms = 1e-3
    for unit_s, far in ((1 * ms, 0), (6 * ms, 1)):  # the far one's samples are no short ones any more
        slowed = [3 * unit_s, unit_s, 9 * unit_s, 9 * unit_s]
        contenders = [Bench().contender(i, (2 + i / 10) * unit_s, warm_up=2 * unit_s) for i in range(5)]
        contenders.append(Bench().contender(5, [*slowed, *[unit_s] * 300], warm_up=2 * unit_s))
        contenders += [Bench().contender(6, 16 * ms, warm_up=16 * ms)] * far
        result = run_round(contenders, BenchSettings(min_samples=4, max_samples=4))
        assert len(result.ranking) == 6 + far
        assert winner(result) == "f"


def test_the_sign_of_the_median_difference_decides_not_the_medians() -> None:
    # "a" has the smaller median at first and loses most pairs by little.
    first = [0.99, *NOISY[1:-1], 1.04, *[1.02, 1.09, 1.0] * 20]
    second = [*NOISY, *[1.01, 1.08, 1.11] * 20]
    result = play(Bench(), first, second, min_samples=10)
    assert result.tie_break is not None
    assert [standing.name for standing in result.ranking] == ["b", "a"]
    assert result.standings[0].samples.median < result.standings[1].samples.median


def test_pairs_without_a_difference_give_no_confidence_and_the_lowest_index() -> None:
    result = play_tie(Bench(), [1.0, 1.1], [1.0, 1.1])
    assert winner(result) == "a"
    assert result.tie_break is not None
    assert result.tie_break.confidence == 0.0


def test_medians_further_apart_than_their_spread_need_no_pairs() -> None:
    bench = Bench()
    result = play(bench, 1.0, 1.05)
    assert result.tie_break is None
    assert bench.order == rounds_of("ab", 5)


def test_pairs_end_as_soon_as_the_tie_is_gone() -> None:
    bench = Bench()
    result = play_tie(bench, [1.0], [1.4])
    assert 0 < len(bench.order[20:]) < 20
    assert winner(result) == "a"


def test_a_tie_is_never_broken_by_fewer_than_five_pairs() -> None:
    bench = Bench()
    result = play(bench, [1.0, 1.00, 1.01, 1.00, 1.01], [1.0, 1.01, 1.00, 1.01, 1.00, 1.3])
    assert result.tie_break is not None
    assert result.tie_break.pairs == 5
    assert winner(result) == "a"


def test_medians_of_few_samples_that_lie_close_are_a_tie_whatever_their_spread() -> None:
    result = play(Bench(), [1.0, 1.0, 1.0, 1.0, 1.0, 1.05], 1.02)
    assert result.tie_break is not None
    assert winner(result) == "b"


def test_medians_of_short_samples_are_a_tie_up_to_half_apart() -> None:
    def pairs(second_s: float) -> int:
        contenders = [Bench().contender(i, time, warm_up=time) for i, time in enumerate((1e-4, second_s))]
        tie = run_round(contenders, replace(DEFAULTS, speed_factor=2.0)).tie_break
        return tie.pairs if tie else 0

    assert (pairs(1.4e-4), pairs(1.6e-4)) == (5, 0)


def test_a_third_as_close_meets_the_winner_of_the_first_two() -> None:
    bench = Bench()
    result = play(bench, [*[1.0] * 5, 1.03], [*[1.01] * 5, 1.0, 1.0], [*[1.02] * 5, 0.9])
    assert winner(result) == "c"
    assert result.tie_break is not None
    assert (result.tie_break.winner, result.tie_break.loser) == ("c", "b")
    assert [event.name for event in result.events if event.kind == "TieBreak"] == ["b", "c"]


def test_one_disqualified_in_the_pairs_leaves_the_other_to_win() -> None:
    result = play_tie(Bench(), [1.0, ValueError("late")], [1.1, 1.0])
    assert winner(result) == "b"
    assert states(result)["a"] == "disqualified"
    assert result.tie_break is None


def test_a_round_that_short_circuits_at_its_first_candidate_breaks_no_tie() -> None:
    assert play(Bench(), 1.0, 1.0, limit=2.0).tie_break is None


def test_one_measured_before_may_still_beat_the_one_inside_the_limit() -> None:
    # "a" was slow once, by chance; without the pairs "b" would win for a single sample.
    bench = Bench()
    result = play(bench, [1.6, 1.0], [1.1], 0.5, limit=1.5)
    assert bench.order == "abb" + "baababbaab"
    assert result.short_circuit
    assert winner(result) == "a"
    assert states(result)["c"] == "waiting"
    assert [event.name for event in result.events if event.kind == "ShortCircuit"] == ["a"]


def test_one_inside_the_limit_that_fails_in_the_pairs_does_not_win() -> None:
    result = play(Bench(), 1.6, [1.1, 1.1, ValueError("late")], limit=1.5)
    assert states(result) == {"a": "live", "b": "disqualified"}
    assert winner(result) == "a" and not result.short_circuit


def test_after_a_round_one_inside_the_limit_is_paired_with_another_that_may_be_faster() -> None:
    # "a" has the lower median, but only one sample inside the limit that counts.
    result = play(Bench(), [2.0, 2.0, 1.0, 0.9], [2.0, 1.4, 1.5, 1.4], limit=1.45, short_circuit_samples=1)
    assert result.short_circuit
    assert winner(result) == "a"


# Not adaptive


def test_plain_sampling_takes_three_warm_ups_and_max_samples_of_each() -> None:
    bench = Bench()
    calls: list[str] = []
    contenders = [
        Contender(c.index, c.name, lambda repeats, c=c: calls.append(c.name) or c.sample(repeats))  # type: ignore[func-returns-value]
        for c in bench.contenders(1.0, 100.0)
    ]
    result = run_round(contenders, BenchSettings(adaptive=False, max_samples=6), limit_s=1.5)
    assert calls.count("a") == calls.count("b") == 3 + 6
    assert states(result) == {"a": "live", "b": "live"}
    assert not result.short_circuit
    assert winner(result) == "a"


def test_plain_sampling_lets_the_median_decide_a_tie() -> None:
    result = play(Bench(), NOISY, NOISY, adaptive=False)
    assert result.tie_break is None


# Floors


def test_a_candidate_that_can_not_beat_the_leader_is_not_measured() -> None:
    bench = Bench()
    floors = [None, 1.5, 0.5]
    contenders = [bench.contender(i, time, floor=floors[i]) for i, time in enumerate([1.0, 5.0, 0.9])]
    result = run_round(contenders, DEFAULTS)
    assert states(result)["b"] == "skipped"
    assert "1.5" in result.standings[1].reason
    assert "b" not in bench.order and "warm b" not in bench.log
    assert winner(result) == "c"


def test_those_that_need_most_come_last_when_a_leader_is_known() -> None:
    bench = Bench()
    floors = [3.0, 0.9, None, 0.9]
    result = run_round([bench.contender(i, 1.0, floor=floor) for i, floor in enumerate(floors)], DEFAULTS)
    assert bench.order.startswith("cbd")
    assert states(result)["a"] == "skipped"


def test_before_one_is_good_enough_those_of_the_same_program_are_looked_at() -> None:
    bench = Bench()
    same = Foresight(program="p")
    times = [(1e-3, same), (0.5e-3, same), (0.2e-3, NOTHING_FORESEEN)]
    contenders = [
        bench.contender(i, s, warm_up=1e-3, foresight=foresight) for i, (s, foresight) in enumerate(times)
    ]
    result = run_round(contenders, DEFAULTS, limit_s=2e-3)
    assert winner(result) == "b" and result.short_circuit
    assert states(result)["c"] == "waiting"


def test_where_samples_are_long_one_good_enough_ends_it_whatever_its_program() -> None:
    bench = Bench()
    contenders = [bench.contender(i, 1.0, foresight=Foresight(program="p")) for i in range(2)]
    assert winner(run_round(contenders, DEFAULTS, limit_s=2.0)) == "a"
    assert bench.order == "aa"


def test_one_of_the_same_program_that_can_not_be_prepared_leaves_the_other_to_win() -> None:
    bench = Bench()
    same = Foresight(program="p")

    def fails() -> None:
        raise ValueError("wrong")

    first = bench.contender(0, 1e-3, warm_up=1e-3, foresight=same)
    result = run_round([first, bench.contender(1, 1e-4, foresight=same, prepare=fails)], DEFAULTS, 2e-3)
    assert winner(result) == "a" and states(result)["b"] == "disqualified"


def test_one_that_could_better_the_leader_by_less_than_is_asked_for_is_not_measured() -> None:
    for tolerance, sampled in ((1.0, True), (1.25, False)):
        bench = Bench()
        contenders = [bench.contender(0, 1.0), bench.contender(1, 1.0, floor=0.9)]
        result = run_round(contenders, DEFAULTS, tolerance=tolerance)
        assert bool(bench.sampled("b")) is sampled
    assert "can't win by enough" in result.standings[1].reason


def test_those_foreseen_to_take_longest_come_last() -> None:
    bench = Bench()
    factors = [8.0, 1.0, 4.0]
    contenders = [bench.contender(i, 1.0, floor=0.5, foresight=Foresight(f)) for i, f in enumerate(factors)]
    run_round(contenders, DEFAULTS)
    assert bench.order.startswith("bca")


def kin_of_a_slow_one(slow_s: float, floors: tuple[float | None, float | None]) -> RoundResult:
    bench = Bench()
    kin = Foresight(2.0, "kin")
    return run_round(
        [
            bench.contender(0, 1.0, warm_up=1.0, floor=0.01),
            bench.contender(1, slow_s, warm_up=slow_s, floor=floors[0], foresight=kin),
            bench.contender(2, 1.0, floor=floors[1], foresight=kin),
            bench.contender(3, 1.0, floor=0.5, foresight=Foresight(3.0, "others")),
        ],
        DEFAULTS,
    )


def test_one_much_like_another_that_is_hopeless_is_not_measured() -> None:
    result = kin_of_a_slow_one(3.5, (0.1, 0.1))
    assert states(result)["c"] == "skipped" and states(result)["d"] == "live"
    assert result.standings[2].reason == "going by b, it would take 3.5 times as long as a"


def test_kin_are_judged_by_how_far_they_are_from_their_floors() -> None:
    assert states(kin_of_a_slow_one(1.5, (0.1, 0.1)))["c"] == "live"
    assert states(kin_of_a_slow_one(1.5, (0.1, 0.2)))["c"] == "skipped"


def test_one_that_is_compiled_already_is_looked_at_whatever_its_kin_did() -> None:
    bench = Bench()
    kin = Foresight(1.0, "kin", "program")
    contenders = [bench.contender(i, s, foresight=kin) for i, s in enumerate((9.0, 1.0))]
    leader = bench.contender(2, 1.0, foresight=Foresight(0.5))
    assert states(run_round([*contenders, leader], DEFAULTS))["b"] == "live"


def expecting(times: list[tuple[float, Foresight]]) -> RoundResult:
    bench = Bench()
    return run_round(
        [bench.contender(i, s, warm_up=s, foresight=f) for i, (s, f) in enumerate(times)], DEFAULTS
    )


def test_those_expected_to_be_fastest_go_first_and_those_expected_to_be_slow_not_at_all() -> None:
    fast, near, slow = (Foresight(expected_s=s) for s in (1.0, 1.1, 1.3))
    result = expecting([(1.3, slow), (1.0, NOTHING_FORESEEN), (1.1, near), (1.0, fast)])
    assert states(result) == {"a": "skipped", "b": "live", "c": "live", "d": "live"}
    assert result.standings[0].reason == "expected to take 1.3s, b took 1s"
    assert [event.name for event in result.events if event.kind == "TuningStep"][:3] == ["b", "d", "c"]


def test_where_the_leader_is_faster_than_expected_others_may_be_too() -> None:
    fast, slow = (Foresight(expected_s=s) for s in (2.0, 2.3))
    assert states(expecting([(1.0, slow), (1.0, fast)]))["a"] == "live"
    assert states(expecting([(1.0, replace(slow, expected_s=2.5)), (1.0, fast)]))["a"] == "skipped"
    assert states(expecting([(1.0, slow), (1.9, fast)]))["a"] == "live"


def test_of_kin_with_formulas_those_expected_to_be_slower_than_the_leader_are_not_measured() -> None:
    first, second = (Foresight(kin="kin", expected_s=s) for s in (1.0, 1.05))
    assert states(expecting([(1.0, first), (1.0, second)]))["b"] == "skipped"
    slow = expecting(
        [(1.0, Foresight(expected_s=1.0)), (1.18, replace(first, expected_s=1.1)), (1.0, second)]
    )
    assert states(slow)["c"] == "live" and states(slow)["b"] == "skipped"
    other = replace(second, kin="others")
    assert states(expecting([(1.0, first), (1.0, other)]))["b"] == "live"


def test_the_first_candidate_is_measured_whatever_its_floor() -> None:
    assert winner(run_round([Bench().contender(0, 1.0, floor=9.0)], DEFAULTS)) == "a"


def test_where_nobody_may_be_dropped_floors_skip_nobody() -> None:
    contenders = [Bench().contender(0, 1.0), Bench().contender(1, 5.0, floor=4.0)]
    assert states(run_round(contenders, DEFAULTS, may_drop=False))["b"] == "live"


# Holding the device


def test_samples_are_taken_holding_the_device_and_nothing_else_is_done_then() -> None:
    held: list[bool] = [False]
    trace: list[tuple[str, bool]] = []

    @contextmanager
    def hold() -> Iterator[None]:
        held[0] = True
        yield
        held[0] = False

    def contender(index: int) -> Contender:
        def sample(repeats: int) -> float:
            trace.append(("sample", held[0]))
            return 1.0

        return Contender(index, str(index), sample, lambda: trace.append(("prepare", held[0])))

    run_round(
        [contender(0), contender(1)],
        DEFAULTS,
        hold=hold,
        progress=lambda done, total: trace.append(("progress", held[0])),
    )
    assert {what for what, _ in trace} == {"sample", "prepare", "progress"}
    assert all(was_held == (what == "sample") for what, was_held in trace)


def test_the_device_is_let_go_when_a_candidate_loses_it() -> None:
    held: list[bool] = [False]

    @contextmanager
    def hold() -> Iterator[None]:
        held[0] = True
        try:
            yield
        finally:
            held[0] = False

    with pytest.raises(DeviceFaultError):
        run_round(Bench().contenders(DeviceFaultError("gone")), DEFAULTS, hold=hold)
    assert not held[0]


# Whatever the times

WINDOWS = st.floats(1e-3, 1.0) | st.just(0.0)
SERIES = st.lists(WINDOWS, min_size=1, max_size=15)
SETTINGS = st.builds(
    lambda least, more, enough, factor: BenchSettings(least, least + more, enough, factor),
    st.integers(1, 6),
    st.integers(0, 8),
    st.integers(1, 4),
    st.floats(1.0, 3.0),
)


@given(st.lists(SERIES, min_size=1, max_size=6), SETTINGS, st.none() | st.floats(1e-3, 1.0))
def test_a_round_always_ends_and_only_survivors_win(
    series: list[list[float]], settings: BenchSettings, limit: float | None
) -> None:
    result = run_round(Bench().contenders(*series), settings, limit)
    live = [standing for standing in result.standings if standing.state is State.LIVE]
    assert all(standing in live for standing in result.ranking)
    assert (result.winner is None) == (not live)
    for standing in result.standings:
        assert len(standing.samples) <= settings.max_samples + 3 * 10
        assert all(value > 0 for value in standing.samples.values)
    if result.winner and not result.short_circuit and result.tie_break is None:
        assert result.winner.rank == min(standing.rank for standing in live)


@given(st.lists(SERIES, min_size=2, max_size=6), SETTINGS)
def test_the_same_times_give_the_same_round(series: list[list[float]], settings: BenchSettings) -> None:
    first, second = Bench(), Bench()
    results = [run_round(bench.contenders(*series), settings) for bench in (first, second)]
    assert first.log == second.log
    assert winner(results[0]) == winner(results[1])


@given(st.lists(st.floats(1e-3, 1.0), min_size=3, max_size=8))
def test_at_least_two_survive_unless_hopeless(times: list[float]) -> None:
    contenders = [Bench().contender(i, seconds, warm_up=seconds) for i, seconds in enumerate(times)]
    result = run_round(contenders, DEFAULTS)
    hopeful = [seconds for seconds in times if seconds <= 3 * min(times)]
    survivors = [standing for standing in result.standings if standing.state is State.LIVE]
    assert len(survivors) >= min(2, len(hopeful))


def test_short_samples_drop_nobody_before_they_tell_more() -> None:
    for scale, decides, dropped in ((1.0, True, True), (1e-3, True, False), (1e-3, False, True)):
        bench = Bench()
        times = [[t * scale] * 100 for t in (1.0, 1.01, 2.0)]
        contenders = [bench.contender(i, series, warm_up=scale) for i, series in enumerate(times)]
        run_round(contenders, BenchSettings(min_samples=3, max_samples=10), break_ties=decides)
        assert (bench.sampled("c") == 3) is dropped
