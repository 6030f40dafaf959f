from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import UsageError
from rooftune.tuning.level import Level, anchor

SIZES = st.integers(0, 2**62)


@given(st.integers(0, 62))
def test_a_power_of_two_is_its_own_anchor(exponent: int) -> None:
    assert anchor(2**exponent) == 2**exponent


@given(st.integers(1, 61))
def test_one_more_than_a_power_of_two_moves_to_the_next(exponent: int) -> None:
    assert anchor(2**exponent + 1) == 2 ** (exponent + 1)


@given(SIZES)
def test_an_anchor_is_the_smallest_power_of_two_that_is_not_below(x: int) -> None:
    power = anchor(x)
    assert power >= x
    assert x == 0 or (power.bit_count() == 1 and (power == 1 or power // 2 < x))


@given(SIZES, st.sampled_from([(Level.MINIMAL, 5), (Level.EXTENSIVE, 3)]))
def test_anchors_at_broken_bases_are_exact_powers_rounded_up(x: int, case: tuple[Level, int]) -> None:
    level, twice_base = case
    exponent = next(j for j in range(200) if twice_base**j >= x * 2**j)
    expected = ceil_of(twice_base**exponent, 2**exponent) if x else 0
    assert anchor(x, level) == expected


@given(SIZES, SIZES, st.sampled_from(list(Level)))
def test_a_larger_size_never_has_a_smaller_anchor(x: int, y: int, level: Level) -> None:
    assert anchor(min(x, y), level) <= anchor(max(x, y), level)


@given(SIZES)
def test_level_full_does_not_bucket(x: int) -> None:
    assert anchor(x, Level.FULL) == x


def test_zero_is_its_own_anchor_at_every_level() -> None:
    assert [anchor(0, level) for level in Level] == [0, 0, 0, 0]


def test_small_anchors_at_broken_bases() -> None:
    assert [anchor(x, Level.MINIMAL) for x in (1, 2, 3, 4, 7, 16, 17)] == [1, 3, 7, 7, 16, 40, 40]
    assert [anchor(x, Level.EXTENSIVE) for x in (1, 2, 3, 4, 5, 6)] == [1, 3, 4, 6, 6, 8]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(UsageError, match="-1"):
        anchor(-1)


@pytest.mark.parametrize(
    ("text", "level"),
    [("minimal", Level.MINIMAL), ("1", Level.BALANCED), (2, Level.EXTENSIVE), (" FULL ", Level.FULL)],
)
def test_a_level_is_read_from_its_name_or_number(text: str | int, level: Level) -> None:
    assert Level.parse(text) is level


@pytest.mark.parametrize("text", ["", "4", "-1", "medium", 7, "1.0"])
def test_anything_else_is_no_level_and_the_hint_names_them(text: str | int) -> None:
    with pytest.raises(UsageError) as caught:
        Level.parse(text)
    assert "extensive" in caught.value.hint


def test_thresholds_rise_with_the_level_and_full_has_none() -> None:
    assert [level.threshold for level in Level] == [0.6, 0.8, 0.95, None]


def ceil_of(numerator: int, denominator: int) -> int:
    whole = -(-numerator // denominator)
    assert numerator > 2**53 or whole == ceil(numerator / denominator)
    return whole
