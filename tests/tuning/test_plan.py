from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rooftune.tuning.plan import make_plan
from rooftune.tuning.tunable import Tunable, TuneGroup

PRIORITIES = st.integers(-2, 3)
SETS = st.lists(st.lists(st.tuples(PRIORITIES, PRIORITIES), max_size=3), max_size=12)


def tunable(name: str, *memberships: tuple[TuneGroup, Any]) -> Tunable:
    made = Tunable(name, lambda inputs: None)
    for group, priority in memberships:
        made.group(group, priority)
    return made


def tunables_of(shape: list[list[tuple[int, int]]]) -> list[Tunable]:
    return [
        tunable(f"t{index}", *((TuneGroup(f"g{p}", p), q) for p, q in memberships))
        for index, memberships in enumerate(shape)
    ]


def indexes(tunables: list[Tunable], key: Any = None) -> list[list[int]]:
    return [[entry.index for entry in entries] for entries in make_plan(tunables, key)]


def test_levels_run_from_high_group_priority_to_low_and_tiers_inside_them() -> None:
    low, high = TuneGroup("low", 1), TuneGroup("high", 2)
    places = [(low, 3), (high, 0), (high, 3), (low, 0)]
    tunables = [tunable(name, place) for name, place in zip("abcd", places, strict=True)]
    assert indexes(tunables) == [[2], [1], [0], [3]]


def test_groups_of_equal_priority_form_one_level() -> None:
    one, other = TuneGroup("one", 2), TuneGroup("other", 2)
    places = [(one, 3), (other, 3), (one, 2), (other, 1)]
    tunables = [tunable(name, place) for name, place in zip("abcd", places, strict=True)]
    assert indexes(tunables) == [[0, 1], [2], [3]]


def test_a_candidate_in_two_groups_is_returned_once_in_its_first_round() -> None:
    low, high = TuneGroup("low", 1), TuneGroup("high", 2)
    tunables = [tunable("a", (low, 3), (high, 1)), tunable("b", (high, 2)), tunable("c", (low, 3))]
    assert indexes(tunables) == [[1], [0], [2]]


def test_a_round_emptied_by_earlier_ones_is_passed_over() -> None:
    low, middle, high = TuneGroup("low", 1), TuneGroup("middle", 2), TuneGroup("high", 3)
    tunables = [tunable("a", (high, 1), (middle, 1)), tunable("b", (low, 1))]
    assert indexes(tunables) == [[0], [1]]


def test_candidates_in_no_group_join_the_first_round() -> None:
    group = TuneGroup("group", 1)
    assert indexes([tunable("a", (group, 1)), tunable("b"), tunable("c", (group, 2))]) == [[1, 2], [0]]
    assert indexes([tunable("a"), tunable("b")]) == [[0, 1]]


def test_a_negative_priority_of_group_or_candidate_leaves_it_out() -> None:
    group, never = TuneGroup("group", 1), TuneGroup("never", -1)
    assert indexes([tunable("a", (never, 3)), tunable("b", (group, -1)), tunable("c", (group, 0))]) == [[2]]
    assert indexes([tunable("a", (never, 3), (group, 1))]) == [[0]]


def test_priorities_may_depend_on_the_key_and_say_why() -> None:
    group = TuneGroup("group", lambda key: (key, "as the key says"))
    (entries,) = make_plan([tunable("a", (group, lambda key: (3, "always")))], 2)
    assert (entries[0].group_priority, entries[0].priority) == (2, 3)
    assert entries[0].why == "as the key says; always"
    assert make_plan([tunable("a", (group, 3))], -1) == ()


def test_no_candidates_make_no_plan() -> None:
    assert make_plan([], None) == ()


@given(SETS)
def test_each_candidate_comes_once_unless_left_out_everywhere(shape: list[list[tuple[int, int]]]) -> None:
    planned = [index for entries in indexes(tunables_of(shape)) for index in entries]
    meant = [i for i, groups in enumerate(shape) if not groups or any(p >= 0 and q >= 0 for p, q in groups)]
    assert sorted(planned) == meant


@given(SETS)
def test_no_round_is_empty_and_each_is_in_ascending_order(shape: list[list[tuple[int, int]]]) -> None:
    for entries in indexes(tunables_of(shape)):
        assert entries
        assert entries == sorted(entries)


@given(SETS)
def test_a_round_is_one_tier_of_one_level_and_they_only_go_down(shape: list[list[tuple[int, int]]]) -> None:
    tiers = []
    for entries in make_plan(tunables_of(shape), None):
        grouped = {(entry.group_priority, entry.priority) for entry in entries if entry.group}
        assert len(grouped) <= 1
        tiers += sorted(grouped)
    assert tiers == sorted(tiers, reverse=True)


@given(SETS)
def test_each_candidate_comes_in_the_best_round_it_has_a_place_in(shape: list[list[tuple[int, int]]]) -> None:
    for entries in make_plan(tunables_of(shape), None):
        for entry in entries:
            if entry.group:
                best = max((p, q) for p, q in shape[entry.index] if p >= 0 and q >= 0)
                assert (entry.group_priority, entry.priority) == best
