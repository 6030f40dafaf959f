from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.tuning.ties import paired_verdict, sign_confidence

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
