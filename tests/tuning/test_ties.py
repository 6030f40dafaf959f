from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.tuning.ties import TieBreak, in_turn, median_within, paired_verdict, sign_confidence

DIFFERENCES = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20)


def test_all_pairs_to_one_side_are_as_sure_as_that_many_coin_tosses() -> None:
    assert sign_confidence([-1.0] * 10) == pytest.approx(1 - 2 / 2**10)


def test_an_even_split_and_pairs_without_a_difference_say_nothing() -> None:
    assert sign_confidence([-1.0, 1.0]) == 0.0
    assert sign_confidence([0.0, 0.0]) == 0.0


@given(DIFFERENCES)
def test_confidence_is_a_share_and_the_same_for_both_sides(differences: list[float]) -> None:
    confidence = sign_confidence(differences)
    assert 0.0 <= confidence < 1.0
    assert confidence == sign_confidence([-difference for difference in differences])


@given(DIFFERENCES)
def test_turning_every_pair_turns_the_verdict(differences: list[float]) -> None:
    verdict = paired_verdict(differences, "a", "b", first_wins_even=True)
    turned = paired_verdict([-d for d in differences], "a", "b", first_wins_even=False)
    assert (verdict.winner, verdict.loser) == (turned.loser, turned.winner)


def test_a_median_is_within_when_all_but_a_few_pairs_lie_on_either_side_of_the_bar() -> None:
    assert not median_within([0.0] * 5, 1.0)  # five coins all show heads once in 32 times
    assert median_within([0.0] * 6, 1.0)
    assert median_within([3.0, -3.0, *[0.0] * 18], 1.0)
    assert not median_within([0.0, 3.0] * 50, 1.0)  # half above: the median may be as well
    assert not median_within([3.0] * 100, 1.0)


@given(DIFFERENCES, st.floats(0.01, 1.0))
def test_whether_it_is_within_does_not_hang_on_who_is_first(differences: list[float], bar: float) -> None:
    assert median_within(differences, bar) == median_within([-d for d in differences], bar)


def test_turns_favour_nobody_and_have_no_period() -> None:
    order = "".join("".join(in_turn(["a", "b"], turn)) for turn in range(64))
    assert order.startswith("abbabaab")
    for power in (1, 2):  # what drifts, or drifts faster and faster, hits both alike
        places = [sum(at**power for at, who in enumerate(order) if who == side) for side in "ab"]
        assert places[0] == places[1]
    assert all(order[:64] != order[period : 64 + period] for period in range(1, 64))


def test_no_number_of_pairs_makes_it_certain() -> None:
    said = [TieBreak("a", "b", 30, 1e-6, confidence).sure for confidence in (0.0, 0.5, 0.989, 0.9999, 1.0)]
    assert said == ["0%", "50%", "99%", "over 99%", "over 99%"]
