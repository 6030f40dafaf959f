"""What is measured for a key: rounds, proofs, output checks, floors, bounds, and evidence kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from rooftune.errors import DeviceFaultError, MeasurementError, OutOfMemoryError, UnsupportedError, WorkError
from rooftune.tuning.bounds import Bound, Bounds
from rooftune.tuning.contest import PROBED_AGAIN
from rooftune.tuning.context import Verdict
from rooftune.tuning.level import Level
from rooftune.tuning.samples import BenchSettings
from rooftune.tuning.tunable import Tunable, TunableSet, TuneGroup
from rooftune.tuning.tuner import LocalTuner
from rooftune.waiting import waiting

from .fakes import FakeClient
from .scene import MS, Scene, outcomes

# Rounds


def test_the_fastest_candidate_of_the_first_round_wins_and_later_rounds_are_never_tried() -> None:
    scene, first, second = Scene(), TuneGroup("first", 2), TuneGroup("second", 1)
    scene.add("slow", 3 * MS, first)
    scene.add("fast", 2 * MS, first)
    scene.add("fastest", 1 * MS, second)
    decision = scene.decide()
    assert decision.name == "fast"
    assert scene.runs("fastest") == 0
    assert outcomes(decision) == {"slow": "measured", "fast": "measured", "fastest": "skipped"}


def test_the_next_round_is_asked_for_only_while_nothing_could_be_measured() -> None:
    scene = Scene()
    for turn, seconds in enumerate([UnsupportedError("no"), ValueError("broken"), 1 * MS, 1 * MS]):
        scene.add(f"t{turn}", seconds, TuneGroup(f"g{turn}", 9 - turn))
    decision = scene.decide()
    assert decision.name == "t2"
    assert outcomes(decision) == {"t0": "unsupported", "t1": "error", "t2": "measured", "t3": "skipped"}


def test_when_no_candidate_ran_the_error_names_their_reasons() -> None:
    scene = Scene()
    scene.add("a", ValueError("bad argument"))
    scene.add("b", UnsupportedError("no tensor cores"))
    with pytest.raises(WorkError, match="a: ValueError: bad argument; 1 refused"):
        scene.decide()
    assert not scene.records and not scene.store.rows


def test_equal_reasons_are_told_once() -> None:
    scene = Scene()
    for name, value in (("a", "1.5"), ("b", "-2e+03"), ("c", "nan")):
        scene.add(name, ValueError(f"y[0] is {value}"))
    with pytest.raises(WorkError, match=r": all 3 candidates tried, such as a: ValueError: y\[0\] is 1.5\."):
        scene.decide()


def test_when_memory_was_the_reason_the_error_says_so() -> None:
    scene = Scene()
    scene.add("a", OutOfMemoryError("64 GiB asked for"))
    scene.add("b", ValueError("no"))
    with pytest.raises(OutOfMemoryError, match="64 GiB"):
        scene.decide()


def test_out_of_memory_in_one_candidate_lets_another_win() -> None:
    scene = Scene()
    scene.add("a", OutOfMemoryError("64 GiB asked for"))
    scene.add("b", 1 * MS)
    assert scene.decide().name == "b"


def test_dropped_candidates_are_measured_anew_when_every_survivor_fails() -> None:
    scene = Scene()
    scene.add("a", [1 * MS] * 2 + [ValueError("late")])
    scene.add("hopeless", 20 * MS)
    decision = scene.decide()
    assert decision.name == "hopeless"
    assert outcomes(decision) == {"a": "error", "hopeless": "measured"}


def test_a_single_candidate_wins_unmeasured() -> None:
    scene = Scene()
    scene.add("only", 1 * MS)
    decision = scene.decide()
    assert (decision.index, decision.name, decision.median_s) == (0, "only", None)
    assert scene.runs("only") == 0 and scene.client.samples == 0
    assert scene.records[0]["fastest_time"] is None


def test_a_candidate_that_loses_the_device_is_named_and_not_tried_by_the_next_process() -> None:
    scene = Scene()
    scene.add("bad", [1 * MS, DeviceFaultError("illegal address")])
    scene.add("good", 2 * MS)
    with pytest.raises(DeviceFaultError, match=r"candidate bad .*illegal address"):
        scene.decide()
    runs = scene.runs("bad")
    decision = scene.decide()
    assert decision.name == "good" and not decision.bad
    assert scene.runs("bad") == runs
    assert outcomes(decision)["bad"] == "fault"


def test_a_candidate_that_lost_the_device_is_tried_again_once_its_code_changed() -> None:
    scene = Scene()
    scene.add("bad", DeviceFaultError("illegal address"))
    scene.add("good", 2 * MS)
    with pytest.raises(DeviceFaultError):
        scene.decide()
    scene.renew()
    scene.add("bad", 1 * MS, version="2")
    scene.add("good", 2 * MS)
    assert scene.decide().name == "bad"


# Inputs and levels


def test_candidates_are_measured_on_the_measuring_inputs() -> None:
    scene = Scene()
    seen = []
    scene.tunables = TunableSet(lambda inputs: 0, lambda key, inputs: [inputs, "copy"])
    for name in "ab":
        scene.tunables.with_tunable(
            Tunable(name, lambda inputs: (seen.append(inputs), scene.client.windows.append(MS)))
        )
    tuner = LocalTuner("test", scene.context)
    tuner.decide(scene.client, scene.tunables, "mine")
    assert all(inputs == ["mine", "copy"] for inputs in seen)
    tuner.execute(scene.client, scene.tunables, "mine")
    assert seen[-1] == "mine"


def test_level_full_has_no_limit_and_drops_nobody() -> None:
    scene = Scene(level=Level.FULL)
    for name, seconds in [("a", 1 * MS), ("b", 2 * MS), ("c", 30 * MS)]:
        scene.add(name, seconds)
    scene.tunables.with_bounds(lambda key, inputs: bounds(10 * MS))
    decision = scene.decide()
    assert decision.limit_s is None and not decision.short_circuit
    assert set(outcomes(decision).values()) == {"measured"}


def bounds(least_s: float) -> Bounds:
    return Bounds((Bound("compute", 1000, 1000 / least_s, 0.8),))


def test_a_candidate_inside_the_limit_stops_the_tuning() -> None:
    scene = Scene()
    scene.add("a", 5 * MS)
    scene.add("b", 1 * MS)
    scene.add("c", 0.5 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(1 * MS))
    decision = scene.decide()
    assert decision.name == "b" and decision.short_circuit
    assert decision.limit_s == pytest.approx(1.25 * MS)
    assert decision.roofline == pytest.approx(1.0)
    assert {"ShortCircuit": "b"} in scene.records[0]["log_context"]["events"]
    assert scene.runs("c") == 0


def test_short_circuits_can_be_switched_off_and_the_limit_is_recorded_still() -> None:
    scene = Scene(short_circuit=False)
    scene.add("a", 1 * MS)
    scene.add("b", 1 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS))
    decision = scene.decide()
    assert not decision.short_circuit and decision.limit_s is not None
    assert decision.measured == 2


@pytest.mark.parametrize(("share", "defects"), [(0.99, 0), (1.04, 0), (1.06, 1), (2.0, 1)])
def test_only_what_clock_noise_does_not_explain_is_above_the_roofline(share: float, defects: int) -> None:
    scene = Scene(short_circuit=False)
    scene.add("a", 2 * MS / share)
    scene.add("b", 4 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS))
    decision = scene.decide()
    assert [event.kind for event in decision.events].count("RooflineExceeded") == defects
    assert len(scene.said) == defects


def test_a_median_above_the_roofline_is_reported_and_changes_no_peak() -> None:
    scene = Scene(short_circuit=False)
    scene.add("too_good", 1 * MS)
    scene.add("fine", 1.96 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS))
    decision = scene.decide()
    assert [event.name for event in decision.events if event.kind == "RooflineExceeded"] == ["too_good"]
    assert len(scene.said) == 1 and "too_good" in scene.said[0] and "2.00 times" in scene.said[0]
    assert decision.bounds == bounds(2 * MS)


@pytest.mark.parametrize(("second_s", "defects"), [(1 * MS, 0), (1.04 * MS, 0), (1.9 * MS, 1)])
def test_peaks_that_a_candidate_beats_are_probed_once_more(second_s: float, defects: int) -> None:
    scene = Scene(short_circuit=False)
    scene.add("too_good", 1 * MS)
    scene.add("fine", 1.96 * MS)
    asked = []
    scene.tunables.with_bounds(
        lambda key, inputs: bounds(2 * MS), lambda key, inputs: asked.append(1) or bounds(second_s)
    )
    decision = scene.decide()
    assert len(asked) == (PROBED_AGAIN if defects else 1) and decision.bounds == bounds(second_s)
    assert len(scene.said) == defects


def test_peaks_that_hold_are_not_probed_again() -> None:
    scene = Scene(short_circuit=False)
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    asked = []
    scene.tunables.with_bounds(lambda key, inputs: bounds(0.97 * MS), lambda key, inputs: asked.append(1))
    assert scene.decide().bounds == bounds(0.97 * MS) and not asked


def test_peaks_that_can_not_be_probed_again_stand() -> None:
    def again(key: object, inputs: object) -> Bounds:
        raise MeasurementError("unstable")

    scene = Scene(short_circuit=False)
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS), again)
    assert scene.decide().bounds == bounds(2 * MS) and len(scene.said) == 1


def test_a_limit_of_peaks_that_were_too_low_does_not_stop_the_tuning() -> None:
    scene = Scene()
    scene.add("slow", 30 * MS)
    scene.add("beats_the_peak", 5 * MS)
    scene.add("better", 4.3 * MS)
    scene.add("best", 3.8 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(10 * MS), lambda key, inputs: bounds(3.4 * MS))
    decision = scene.decide()
    assert decision.name == "best" and decision.short_circuit
    assert decision.bounds == bounds(3.4 * MS) and decision.limit_s == decision.bounds.limit_s
    assert decision.median_s <= decision.limit_s and not scene.said
    assert scene.runs("slow") <= 4, "who is far behind is not sampled anew"
    stops = [(e.kind, e.name) for e in decision.events if e.kind in ("ShortCircuit", "LimitLowered")]
    early = "beats_the_peak"
    assert stops == [("ShortCircuit", early), ("LimitLowered", early), ("ShortCircuit", "best")]


def test_without_a_candidate_inside_the_right_limit_all_of_the_round_are_sampled() -> None:
    scene = Scene()
    for name, seconds in [("beats_the_peak", 5 * MS), ("better", 4 * MS), ("between", 4.5 * MS)]:
        scene.add(name, seconds)
    scene.tunables.with_bounds(lambda key, inputs: bounds(10 * MS), lambda key, inputs: bounds(3 * MS))
    decision = scene.decide()
    assert decision.name == "better" and not decision.short_circuit and decision.measured == 3
    assert decision.bounds == bounds(3 * MS) and decision.limit_s == pytest.approx(3.75 * MS)


def test_who_is_inside_the_limit_of_the_right_peaks_too_is_good_enough() -> None:
    scene = Scene()
    scene.add("a", 5 * MS)
    scene.add("b", 4 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(6 * MS), lambda key, inputs: bounds(4.5 * MS))
    decision = scene.decide()
    assert decision.name == "a" and decision.short_circuit and scene.runs("b") == 0
    assert decision.limit_s == decision.bounds.limit_s == pytest.approx(4.5 * MS / 0.8)


def test_peaks_beaten_again_and_again_are_probed_a_few_times_and_the_tuning_ends() -> None:
    scene = Scene()
    for name, seconds in [("a", 6 * MS), ("b", 3 * MS), ("c", 1.5 * MS), ("d", 0.5 * MS), ("e", 0.2 * MS)]:
        scene.add(name, seconds)
    better = [4 * MS, 2 * MS, 1 * MS]
    scene.tunables.with_bounds(lambda key, inputs: bounds(10 * MS), lambda key, inputs: bounds(better.pop(0)))
    decision = scene.decide()
    assert not better and decision.bounds == bounds(1 * MS) and decision.limit_s == decision.bounds.limit_s
    assert decision.name == "d" and decision.short_circuit and scene.runs("e") == 0
    assert len(scene.said) == 1


def test_peaks_that_stay_too_low_leave_the_stop_and_are_reported() -> None:
    scene = Scene()
    scene.add("a", 1 * MS)
    scene.add("b", 0.5 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS), lambda key, inputs: bounds(2 * MS))
    decision = scene.decide()
    assert decision.name == "a" and decision.short_circuit and len(scene.said) == 1
    assert [event.kind for event in decision.events].count("RooflineExceeded") == 1


@pytest.mark.parametrize("level", [Level.BALANCED, Level.FULL])
def test_the_limit_belongs_to_the_bounds_where_nothing_stopped_early_too(level: Level) -> None:
    scene = Scene(short_circuit=False, level=level)
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(2 * MS), lambda key, inputs: bounds(0.9 * MS))
    decision = scene.decide()
    assert decision.bounds == bounds(0.9 * MS)
    assert decision.limit_s == (None if level is Level.FULL else decision.bounds.limit_s)


@pytest.mark.parametrize("error", [MeasurementError("unstable"), OutOfMemoryError("full")])
def test_peaks_that_can_not_be_probed_leave_a_tuning_without_a_limit(error: Exception) -> None:
    scene = Scene()
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)

    def probe(key: Any, inputs: Any) -> Bounds:
        raise error

    scene.tunables.with_bounds(probe)
    decision = scene.decide()
    assert decision.name == "a" and decision.limit_s is None
    assert len(scene.said) == 1


# Proofs and checks


class FakeProver:
    """Verdicts by name; notes what it was asked and whether it ever ran beside a measurement."""

    def __init__(self, client: FakeClient | None = None, **verdicts: Verdict) -> None:
        self.client = client
        self.verdicts = verdicts
        self.asked: list[list[str]] = []
        self.awaited: list[str] = []
        self.pauses = 0

    def prove(
        self, client: Any, tunables: Mapping[int, Tunable], key: Any, inputs: Any
    ) -> Mapping[int, Verdict]:
        self.asked.append([tunable.name for tunable in tunables.values()])
        return LazyVerdicts(self, tunables)

    @contextmanager
    def paused(self, client: Any) -> Iterator[None]:
        self.pauses += 1
        yield

    def alone(self, client: Any, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        return self.verdicts.get(tunable.name, Verdict(None))


class LazyVerdicts(Mapping[int, Verdict]):
    """Verdicts that are waited for only when asked for."""

    def __init__(self, prover: FakeProver, tunables: Mapping[int, Tunable]) -> None:
        self.prover, self.tunables = prover, tunables

    def __getitem__(self, index: int) -> Verdict:
        if self.prover.client is not None:
            assert not self.prover.client.held, "verdicts are waited for while the device is free"
        name = self.tunables[index].name
        self.prover.awaited.append(name)
        return self.prover.verdicts.get(name, Verdict(True, where="worker"))

    def __iter__(self) -> Iterator[int]:
        return iter(self.tunables)

    def __len__(self) -> int:
        return len(self.tunables)


def test_a_candidate_whose_proof_failed_is_disqualified_with_the_reason() -> None:
    prover = FakeProver(wrong=Verdict(False, "row 3 is wrong", "worker"))
    scene = Scene(prover=prover)
    scene.add("wrong", 1 * MS)
    scene.add("right", 2 * MS)
    decision = scene.decide()
    assert decision.name == "right"
    assert scene.runs("wrong") == 0
    assert scene.records[0]["checks"] == [
        {"name": "wrong", "passed": False, "reason": "row 3 is wrong", "where": "worker"},
        {"name": "right", "passed": True, "where": "worker"},
    ]
    assert decision.evidence[0].reason == "row 3 is wrong"


def test_what_a_proof_finds_unsupported_is_passed_over() -> None:
    scene = Scene(prover=FakeProver(tensor=Verdict(None, "no tensor cores", "worker", unsupported=True)))
    scene.add("tensor", 1 * MS)
    scene.add("plain", 2 * MS)
    decision = scene.decide()
    assert outcomes(decision) == {"tensor": "unsupported", "plain": "measured"}
    assert [check["name"] for check in scene.records[0]["checks"]] == ["plain"]


def test_a_proof_that_a_short_circuit_makes_needless_is_not_waited_for() -> None:
    prover = FakeProver()
    scene = Scene(prover=prover)
    prover.client = scene.client
    scene.add("a", 1 * MS)
    scene.add("b", 1 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(1 * MS))
    scene.decide()
    assert prover.asked == [["a", "b"]]
    assert prover.awaited == ["a"]
    assert prover.pauses


def test_proofs_of_the_first_round_are_begun_before_peaks_are_probed() -> None:
    prover = FakeProver()
    scene = Scene(prover=prover)
    scene.add("a", 1 * MS)
    scene.add("b", 1 * MS)
    asked: list[list[str]] = []

    def probed(key: Any, inputs: Any) -> Bounds:
        asked.extend(prover.asked)
        return bounds(0.1 * MS)

    scene.tunables.with_bounds(probed)
    scene.decide()
    assert asked == [["a", "b"]]
    assert prover.asked == asked, "and not asked for twice"


def test_a_machine_that_slowed_down_is_recorded() -> None:
    scene = Scene()
    scene.add("a", [1 * MS] * 3 + [2 * MS] * 40)
    scene.add("b", [1.1 * MS] * 3 + [2.2 * MS] * 40)
    (event,) = [event for event in scene.decide().events if event.kind == "SlowedDown"]
    assert event.value["agree"] == event.value["of"] == 2


def test_a_contender_whose_output_is_wrong_may_not_win_and_the_next_best_does() -> None:
    scene = Scene()
    for name, seconds in [("a", 1 * MS), ("b", 2 * MS), ("c", 1.5 * MS)]:
        scene.add(name, seconds)

    def check(inputs: Any, output: str) -> None:
        if output.startswith("a"):
            raise ValueError("off by one")

    scene.tunables.with_check(check)
    decision = scene.decide()
    assert decision.name == "c"
    assert outcomes(decision)["a"] == "error"
    wrong, right = scene.records[0]["checks"]
    assert (wrong["name"], wrong["passed"]) == ("a", False) and "off by one" in wrong["reason"]
    assert right == {"name": "c", "passed": True}


def test_a_short_circuit_whose_output_is_wrong_leaves_the_others_to_be_measured() -> None:
    scene = Scene()
    scene.add("wrong", 1 * MS)
    scene.add("right", 3 * MS)
    scene.add("better", 2 * MS)

    def check(inputs: Any, output: str) -> None:
        assert not output.startswith("wrong")

    scene.tunables.with_check(check).with_bounds(lambda key, inputs: bounds(1 * MS))
    decision = scene.decide()
    assert decision.name == "better"
    assert not decision.short_circuit


@pytest.mark.parametrize("late", [False, True])
def test_who_was_passed_over_for_the_times_of_one_that_is_wrong_gets_its_turn(late: bool) -> None:
    scene = Scene()
    scene.add("wrong", [5 * MS] * 3 + [ValueError("late")] if late else 5 * MS)
    scene.add("slow", 9 * MS)
    scene.add("best", 7 * MS)

    def check(inputs: Any, output: str) -> None:
        assert not output.startswith("wrong")

    scene.tunables.with_check(check)
    scene.tunables.with_floor(lambda key, inputs, tunable: 6 * MS if tunable.name == "best" else None)
    decision = scene.decide()
    assert decision.name == "best"
    assert outcomes(decision) == {"wrong": "error", "slow": "measured", "best": "measured"}


def test_candidates_are_compiled_while_the_device_is_free() -> None:
    scene = Scene()
    prepared = []

    def prepare(inputs: Any) -> None:
        assert not scene.client.held
        prepared.append(inputs)

    scene.add("a", 1 * MS, prepare=prepare)
    scene.add("b", 2 * MS, prepare=prepare)
    decision = scene.decide()
    assert prepared == [1, 1]
    assert decision.timings.compile_s > 0


def test_waiting_for_others_is_a_part_of_its_own_in_the_time_spent() -> None:
    scene = Scene()

    def slow_bounds(key: object, inputs: object) -> None:
        with waiting("another process"):
            time.sleep(0.05)

    scene.add("a", 1 * MS, prepare=lambda inputs: None)
    scene.add("b", 2 * MS, prepare=lambda inputs: None)
    scene.tunables.with_bounds(slow_bounds)
    timings = scene.decide().timings
    assert timings.wait_s >= 0.05
    assert timings.probe_s < timings.wait_s


def test_a_refusal_to_measure_names_what_forbids_it() -> None:
    scene = Scene(measure=False, forbidden_by="--warm")
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    with pytest.raises(WorkError) as refused:
        scene.decide()
    assert "--warm forbids measuring" in refused.value.hint


def test_a_candidate_whose_floor_is_above_the_leader_is_skipped_and_recorded() -> None:
    scene = Scene()
    scene.add("a", 1 * MS)
    scene.add("b", 5 * MS)
    scene.tunables.with_floor(lambda key, inputs, tunable: 4 * MS if tunable.name == "b" else None)
    decision = scene.decide()
    assert outcomes(decision) == {"a": "measured", "b": "skipped"}
    assert "needs 4ms" in decision.evidence[1].reason
    assert scene.runs("b") == 0


def test_progress_is_told_only_while_the_device_is_free() -> None:
    told: list[tuple[str, int, int]] = []
    scene = Scene(settings=BenchSettings())

    def progress(phase: str, done: int, total: int) -> None:
        assert not scene.client.held
        told.append((phase, done, total))

    scene.context.progress = progress
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    scene.tunables.with_bounds(lambda key, inputs: None)
    scene.decide()
    assert told == [("probe", 0, 1), ("probe", 1, 1), ("measure", 0, 2), ("measure", 1, 2), ("measure", 2, 2)]


# Evidence kept


def three(scene: Scene) -> None:
    scene.add("a", 3 * MS)
    scene.add("b", 1 * MS)
    scene.add("c", 2 * MS)


def test_adding_a_candidate_measures_it_against_the_old_best_only() -> None:
    scene = Scene()
    three(scene)
    old = scene.decide()
    scene.renew()
    three(scene)
    scene.add("new", 0.5 * MS)
    decision = scene.decide()
    assert decision.name == "new"
    assert (scene.runs("a"), scene.runs("c")) == (0, 0)
    assert scene.runs("b") > 0 and scene.runs("new") > 0
    assert decision.evidence[0].samples == old.evidence[0].samples
    assert [evidence.kept for evidence in decision.evidence] == [True, False, True, False]


def test_a_slower_newcomer_leaves_the_old_best() -> None:
    scene = Scene()
    three(scene)
    scene.decide()
    scene.renew()
    scene.add("new", 5 * MS)
    three(scene)
    assert scene.decide().name == "b"
    assert scene.runs("a") == scene.runs("c") == 0


def test_a_changed_candidate_is_measured_anew_against_the_old_best() -> None:
    scene = Scene()
    three(scene)
    scene.decide()
    scene.renew()
    scene.add("a", 3 * MS)
    scene.add("b", 9 * MS, version="2")
    scene.add("c", 2 * MS)
    decision = scene.decide()
    assert decision.name == "c"
    assert scene.runs("a") == 0 and scene.runs("b") > 0 and scene.runs("c") > 0


def test_a_changed_loser_leaves_a_decision_as_it_is() -> None:
    scene = Scene()
    three(scene)
    scene.decide()
    scene.renew()
    scene.add("a", 0.1 * MS, version="2")
    scene.add("b", 1 * MS)
    scene.add("c", 2 * MS)
    assert scene.decide().name == "b"
    assert not scene.made.runs


def test_a_removed_loser_needs_no_measurement() -> None:
    scene = Scene()
    three(scene)
    scene.decide()
    scene.renew()
    scene.add("b", 1 * MS)
    scene.add("c", 2 * MS)
    assert scene.decide().name == "b"
    assert not scene.made.runs


def test_a_removed_winner_has_those_never_tried_measured_against_the_best_that_is_left() -> None:
    scene = Scene()
    scene.add("slow", 9 * MS)
    scene.add("winner", 1 * MS)
    scene.add("idle", 2 * MS)
    scene.tunables.with_bounds(lambda key, inputs: bounds(1 * MS))
    assert outcomes(scene.decide())["idle"] == "skipped"
    scene.renew()
    scene.add("slow", 9 * MS)
    scene.add("idle", 2 * MS)
    assert scene.decide().name == "idle"


def test_a_newcomer_in_a_later_round_than_the_old_best_is_not_tried() -> None:
    scene, first, second = Scene(), TuneGroup("first", 2), TuneGroup("second", 1)
    scene.add("a", 2 * MS, first)
    scene.add("b", 3 * MS, first)
    scene.decide()
    scene.renew()
    scene.add("a", 2 * MS, first)
    scene.add("b", 3 * MS, first)
    scene.add("new", 1 * MS, second)
    assert scene.decide().name == "a"
    assert not scene.made.runs


def test_when_newcomers_and_old_best_all_fail_everything_else_is_measured() -> None:
    scene = Scene()
    three(scene)
    scene.decide()
    scene.renew()
    scene.add("a", 3 * MS)
    scene.add("b", ValueError("driver"))
    scene.add("c", 2 * MS)
    scene.add("new", ValueError("broken"))
    decision = scene.decide()
    assert decision.name == "c"
    assert scene.runs("a") > 0


def test_evidence_is_not_taken_from_another_key() -> None:
    scene = Scene()
    three(scene)
    scene.decide(1)
    scene.made.runs.clear()
    scene.decide(2)
    assert scene.runs("a") > 0


# What a decision carries


def test_a_decision_says_where_when_and_with_what_it_was_made() -> None:
    scene = Scene(level=Level.EXTENSIVE, environment="lab")
    three(scene)
    decision = scene.decide({"n": [1, 2]})
    assert decision.key == {"n": [1, 2]}
    assert (decision.device, decision.device_id) == ("Fake Device", "fake|device|1")
    assert (decision.level, decision.environment, decision.origin) == ("extensive", "lab", "local")
    assert decision.at.endswith("Z")
    assert decision.checksum == scene.tunables.checksum
    assert decision.timings.measure_s > 0
    assert scene.records == [decision.record()]


def test_a_decision_keeps_which_problem_its_winner_was_measured_on() -> None:
    def scene_of(*times: float) -> Scene:
        for name, seconds in zip("abcd", times, strict=False):
            scene.add(name, seconds)
        scene.tunables.key = lambda inputs: inputs // 10
        scene.tunables.with_problem(lambda key, inputs: {"size": inputs, "key": key})
        return scene

    scene = Scene()
    assert scene_of(1 * MS, 2 * MS, 3 * MS).decide(17).measured_on == {"size": 17, "key": 1}
    scene.renew()  # the last one is gone: nothing is to be measured, and what was kept is of another problem
    decision = scene_of(1 * MS, 2 * MS).decide(18)
    assert decision.winner.kept and decision.measured_on is None
    scene.renew()
    assert scene_of(1 * MS, 2 * MS, 4 * MS, 0.5 * MS).decide(19).measured_on == {"size": 19, "key": 1}


def test_a_decision_of_candidates_that_do_not_tell_their_problem_keeps_none() -> None:
    scene = Scene()
    scene.add("a", 1 * MS)
    scene.add("b", 2 * MS)
    assert scene.decide().measured_on is None


def test_a_candidate_never_tried_says_why() -> None:
    scene, first, second = Scene(), TuneGroup("first", 2), TuneGroup("second", 1)
    scene.add("good", 1 * MS, first)
    scene.add("too_late", 1 * MS, first)
    scene.add("later_round", 1 * MS, second)
    scene.add("never", 1 * MS, TuneGroup("never", -1))
    scene.tunables.with_bounds(lambda key, inputs: bounds(1 * MS))
    good, *others = scene.decide().evidence
    assert good.outcome == "measured"
    assert [evidence.reason for evidence in others] == [
        "another was good enough before its turn came",
        "an earlier round had a winner",
        "not meant for this key",
    ]


def test_a_device_lost_while_compiling_names_the_candidate_and_ends_the_tuning() -> None:
    scene = Scene()

    def prepare(inputs: Any) -> None:
        raise DeviceFaultError("context lost")

    scene.add("a", 1 * MS)
    scene.add("b", 1 * MS, prepare=prepare)
    with pytest.raises(DeviceFaultError, match="candidate b"):
        scene.decide()


def test_proofs_go_on_when_the_device_can_not_be_held() -> None:
    paused: list[bool] = []

    class Prover(FakeProver):
        @contextmanager
        def paused(self, client: Any) -> Iterator[None]:
            paused.append(True)
            try:
                yield
            finally:
                paused.append(False)

    scene = Scene(prover=Prover())
    scene.add("a", 1 * MS)
    scene.add("b", 1 * MS)

    def refuse() -> Any:
        raise WorkError("the lock file can't be written")

    scene.client.exclusive = refuse  # type: ignore[method-assign]
    with pytest.raises(WorkError, match="lock file"):
        scene.decide()
    assert paused == [True, False]


# Search


class Turns:
    """A search that asks for these candidates, turn after turn."""

    def __init__(self, *turns: list[int]) -> None:
        self.turns = list(turns)
        self.most = sum(map(len, turns))

    def propose(self, measured: Mapping[int, float | None]) -> list[int]:
        return self.turns.pop(0) if self.turns else []


def test_a_turn_that_something_else_slowed_is_compared_as_if_it_had_not_been() -> None:
    scene = Scene()
    scene.add("leader", [3 * MS] * 4 + [1 * MS])
    scene.add("best", [3.1 * MS] * 4 + [0.9 * MS])
    for name in ("c", "d", "e"):
        scene.add(name, 1.5 * MS)
    scene.tunables.with_search(lambda key: Turns([0, 1], [2, 3, 4]))
    assert scene.decide().name == "best"


def test_a_search_goes_on_when_it_stopped_at_the_limit_of_peaks_that_were_too_low() -> None:
    scene = Scene()
    for name, seconds in [("a", 5 * MS), ("b", 6 * MS), ("c", 4 * MS), ("d", 4.4 * MS)]:
        scene.add(name, seconds)
    scene.tunables.with_bounds(lambda key, inputs: bounds(10 * MS), lambda key, inputs: bounds(3.3 * MS))
    scene.tunables.with_search(lambda key: Turns([0, 1], [2, 3]))
    decision = scene.decide()
    assert decision.name == "c" and decision.limit_s == decision.bounds.limit_s


def test_finalists_are_run_a_few_times_in_a_row_for_a_sample() -> None:
    scene = Scene()
    scene.add("a", 1 * MS)
    scene.add("b", 1.1 * MS)
    scene.add("c", 4 * MS)
    scene.tunables.with_search(lambda key: Turns([0, 1, 2]))
    repeats = {evidence.name: evidence.repeats for evidence in scene.decide().evidence}
    assert repeats == {"a": 3, "b": 3, "c": 1}
