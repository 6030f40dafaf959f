from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.counters import Counters

labels = st.lists(st.sampled_from(["MatmulEntry", "LaunchOverhead", "CopyOutput"]))


@given(labels, labels)
def test_what_is_counted_since_a_moment_is_what_came_after_it(before: list[str], after: list[str]) -> None:
    counters = Counters()
    for label in before:
        counters.count_launch(label)
    start = counters.snapshot()
    for label in after:
        counters.count_launch(label)
    added = counters.since(start)
    assert added.launches == {label: after.count(label) for label in sorted(set(after))}
    assert added.total == len(after)
    assert start.total == len(before)


def test_compiles_are_counted_apart() -> None:
    counters = Counters()
    start = counters.snapshot()
    counters.count_compile()
    assert counters.since(start).compiles == 1
    assert counters.launches == {}
