"""A change of the machine's own speed is noticed when most candidates show it."""

from rooftune.tuning.drift import drift
from rooftune.tuning.samples import Samples
from rooftune.tuning.schedule import Contender
from rooftune.tuning.standing import Standing


def standing(index: int, *values: float) -> Standing:
    return Standing(Contender(index, "abcdef"[index], lambda repeats: 1.0), Samples(list(values)))


def test_a_machine_that_slows_down_is_noticed() -> None:
    event = drift([standing(0, 1.0, 1.0, 1.2, 1.2, 1.2), standing(1, 2.0, 2.0, 2.5, 2.5, 2.5)])
    assert event is not None and (event.kind, event.name) == ("SlowedDown", "a")
    assert event.value["agree"] == 2 and abs(event.value["ratio"] - 1.2) < 1e-9


def test_a_clock_that_ramps_up_is_noticed() -> None:
    event = drift([standing(0, 1.5, 1.45, 1.0, 1.0, 1.0)])
    assert event is not None and event.kind == "SpedUp" and event.value["ratio"] < 1


def test_one_candidate_alone_among_several_is_not_the_machine() -> None:
    assert drift([standing(0, 1.0, 1.0, 1.3, 1.3, 1.3), standing(1, 2.0, 2.0, 2.0, 2.0, 2.0)]) is None


def test_samples_that_overlap_are_noise() -> None:
    assert drift([standing(0, 1.0, 1.3, 1.2, 1.25, 1.1)]) is None


def test_a_small_change_is_noise() -> None:
    assert drift([standing(0, 1.0, 1.0, 1.03, 1.03, 1.03)]) is None


def test_few_samples_tell_nothing() -> None:
    assert drift([standing(0, 1.0, 1.0, 2.0, 2.0)]) is None
    assert drift([]) is None


def test_a_late_step_is_found_where_it_happened() -> None:
    event = drift([standing(0, *[1.0] * 8, 1.5, 1.5)])
    assert event is not None and event.kind == "SlowedDown"


def test_one_odd_sample_is_an_outlier() -> None:
    assert drift([standing(0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0)]) is None
