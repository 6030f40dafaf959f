"""Which candidate serves a call: memory, store, threads, and what happens when a winner can't run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
from rooftune.errors import DeviceFaultError, OutOfMemoryError, UnsupportedError, UsageError, WorkError
from rooftune.tuning.context import FreeClaim, TuningContext, Verdict, default_context, set_default_context
from rooftune.tuning.decision import Decision
from rooftune.tuning.level import Level
from rooftune.tuning.tunable import Tunable, TunableSet
from rooftune.tuning.tuner import LocalTuner

from .fakes import FakeClient
from .scene import MS, Scene


class Patient:
    """Candidates that run as told: an exception for a name makes that one fail from then on."""

    def __init__(self, **times: float) -> None:
        self.scene = Scene()
        self.failures: dict[str, Exception] = {}
        self.ran: list[str] = []
        for name, seconds in times.items():
            self.scene.tunables.with_tunable(Tunable(name, self.runner(name, seconds)))
        self.tuner = LocalTuner("test", self.scene.context)

    def runner(self, name: str, seconds: float) -> Any:
        def fn(inputs: Any) -> str:
            if name in self.failures:
                raise self.failures[name]
            self.ran.append(name)
            self.scene.client.windows.append(seconds)
            return name

        return fn

    def execute(self, inputs: Any = 1) -> Any:
        return self.tuner.execute(self.scene.client, self.scene.tunables, inputs)

    def decide(self, inputs: Any = 1) -> Any:
        return self.tuner.decide(self.scene.client, self.scene.tunables, inputs)

    def new_process(self) -> None:
        self.tuner = LocalTuner("test", self.scene.context)
        self.ran.clear()

    @property
    def said(self) -> list[str]:
        return self.scene.said


def patient() -> Patient:
    return Patient(a=3 * MS, b=1 * MS, c=2 * MS)


# Memory and store


def test_a_key_is_tuned_once_then_answered_from_memory_by_one_run_of_the_winner() -> None:
    case = patient()
    assert case.decide().source == "tuned"
    case.ran.clear()
    assert case.execute() == "b"
    assert case.ran == ["b"]
    assert case.decide().source == "memory"


def test_a_new_process_answers_from_the_store_and_measures_nothing() -> None:
    case = patient()
    tuned = case.decide().decision
    case.new_process()
    outcome = case.decide()
    assert (outcome.source, outcome.tunable.name) == ("disk", "b")
    assert outcome.decision == tuned
    assert case.ran == []
    assert len(case.scene.records) == 1


def test_another_key_is_tuned_on_its_own() -> None:
    case = patient()
    case.decide(1)
    assert case.decide(2).source == "tuned"
    assert case.decide(1).source == "memory"


def test_keys_that_only_python_calls_equal_are_tuned_apart() -> None:
    case = patient()
    sources = [case.decide(key).source for key in (1, 1.0, True)]
    assert sources == ["tuned"] * 3


def test_keys_of_equal_json_share_a_decision() -> None:
    case = patient()
    case.decide((1, 2))
    assert case.decide([1, 2]).source == "memory"


def test_equal_devices_share_decisions_and_other_devices_do_not() -> None:
    case = patient()
    case.decide()
    twin, other = FakeClient(), FakeClient("fake|device|2")
    assert case.tuner.decide(twin, case.scene.tunables, 1).source == "memory"
    case.scene.client.device_id = other.device_id
    assert case.decide().source == "tuned"


def test_levels_have_their_own_decisions() -> None:
    case = patient()
    case.decide()
    case.scene.context.level = Level.EXTENSIVE
    assert case.decide().source == "tuned"


def test_tuners_of_other_names_have_their_own_decisions() -> None:
    case = patient()
    case.decide()
    other = LocalTuner("other", case.scene.context)
    assert other.decide(case.scene.client, case.scene.tunables, 1).source == "tuned"


def test_without_a_store_a_key_is_still_tuned_only_once() -> None:
    case = patient()
    tuner = LocalTuner("test", TuningContext())
    sources = [tuner.decide(case.scene.client, case.scene.tunables, 1).source for _ in range(2)]
    assert sources == ["tuned", "memory"]


def test_a_forgotten_key_is_looked_up_in_the_store_again() -> None:
    case = patient()
    case.decide()
    case.tuner.forget(case.scene.client, case.scene.tunables, 1)
    assert case.decide().source == "disk"


def test_a_stored_row_that_is_no_decision_is_tuned_anew_and_replaced() -> None:
    case = patient()
    case.decide()
    (row,) = case.scene.store.rows
    case.scene.store.rows[row] = (1, {"nonsense": True})
    case.new_process()
    assert case.decide().source == "tuned"
    case.new_process()
    assert case.decide().source == "disk"


def test_a_decision_whose_winner_changed_is_not_used_and_says_why() -> None:
    case = patient()
    case.decide()
    case.scene.tunables = TunableSet(lambda inputs: inputs)
    for name, version in [("a", "1"), ("b", "2"), ("c", "1")]:
        case.scene.tunables.with_tunable(Tunable(name, case.runner(name, 5 * MS), version=version))
    case.new_process()
    outcome = case.decide()
    assert outcome.source == "tuned" and "b has changed" in outcome.note


def test_of_two_processes_that_tune_at_once_the_first_to_commit_stays() -> None:
    case = patient()
    rival = case.decide().decision
    (row,) = case.scene.store.rows
    del case.scene.store.rows[row]
    case.new_process()
    rival_data = replace(rival, index=2, at="2026-01-01T00:00:00Z").to_json()

    def commit_first(inputs: Any, output: Any) -> None:
        case.scene.store.rows.setdefault(row, (99, rival_data))

    case.scene.tunables.with_check(commit_first)
    assert case.decide().decision.name == "c"
    assert case.scene.store.rows[row] == (99, rival_data)


def test_what_another_process_decided_while_this_one_waited_is_used_unmeasured() -> None:
    case = patient()
    decided = case.decide().decision.to_json()
    case.scene.store.rows.clear()
    case.scene.store.claim = lambda *row, **began: nullcontext(FreeClaim(decided))  # type: ignore[method-assign]
    case.new_process()
    outcome = case.decide()
    assert (outcome.source, outcome.decision.name) == ("disk", "b")
    assert case.ran == []


def test_where_measuring_is_forbidden_a_new_key_is_an_error_and_a_stored_one_is_not() -> None:
    case = patient()
    case.decide(1)
    case.scene.context.measure = False
    case.new_process()
    assert case.decide(1).source == "disk"
    with pytest.raises(WorkError, match="this key has no decision yet"):
        case.decide(2)
    assert case.ran == []


# Building


def test_a_set_is_built_once_for_each_client() -> None:
    built = []

    def build(client: FakeClient) -> TunableSet:
        built.append(client)
        return TunableSet(lambda inputs: inputs)

    tuner, one, two = LocalTuner(), FakeClient(), FakeClient("other")
    assert tuner.init(one, build) is tuner.init(one, build)
    assert tuner.init(two, build) is not tuner.init(one, build)
    assert built == [one, two]


def test_a_tuner_is_named_after_the_module_and_name_of_what_builds_it() -> None:
    tuner = LocalTuner()
    tuner.init(FakeClient(), build_nothing)
    assert tuner.name == f"{__name__}.build_nothing"
    assert LocalTuner("mine").name == "mine"
    with pytest.raises(UsageError, match="no name"):
        _ = LocalTuner().name


def build_nothing(client: FakeClient) -> TunableSet:
    return TunableSet(lambda inputs: inputs)


def test_a_set_without_candidates_is_refused() -> None:
    with pytest.raises(UsageError, match="no candidates"):
        LocalTuner("test", TuningContext()).decide(FakeClient(), build_nothing(FakeClient()), 1)


def test_tuners_without_a_context_use_the_default_one() -> None:
    before, context = default_context(), TuningContext(environment="lab")
    set_default_context(context)
    try:
        assert LocalTuner("test").context is context
    finally:
        set_default_context(before)


# Threads


def test_threads_that_meet_the_same_new_key_tune_it_once() -> None:
    case = patient()
    start = threading.Barrier(8)
    outcomes: list[str] = []

    def call() -> None:
        start.wait()
        outcomes.append(case.decide().source)

    run_all([call] * 8)
    assert sorted(outcomes) == ["memory"] * 7 + ["tuned"]
    assert len(case.scene.records) == 1


def test_threads_that_wait_for_a_tuning_that_fails_get_its_error() -> None:
    case = patient()
    entered, go_on = threading.Event(), threading.Event()
    errors: list[str] = []

    def key_slowly(inputs: Any) -> Any:
        entered.set()
        go_on.wait(5)
        raise WorkError("nothing works")

    case.scene.tunables.with_bounds(lambda key, inputs: key_slowly(inputs))

    def call() -> None:
        try:
            case.decide()
        except WorkError as error:
            errors.append(str(error))

    def wait_then_call() -> None:
        entered.wait(5)
        threading.Timer(0.05, go_on.set).start()
        call()

    run_all([call, wait_then_call])
    assert errors == ["nothing works"] * 2


def test_after_an_interrupted_tuning_another_thread_may_tune() -> None:
    case = patient()
    interrupted = [KeyboardInterrupt()]

    def probe(key: Any, inputs: Any) -> None:
        if interrupted:
            raise interrupted.pop()

    case.scene.tunables.with_bounds(probe)
    with pytest.raises(KeyboardInterrupt):
        case.decide()
    assert case.decide().source == "tuned"


def test_a_candidate_that_asks_for_its_own_key_is_disqualified_and_nothing_hangs() -> None:
    case = patient()
    case.scene.tunables.with_tunable(Tunable("recursive", lambda inputs: case.execute()))
    decision = case.decide().decision
    assert decision.name == "b"
    assert "key it is being measured for" in decision.evidence[3].reason


def run_all(calls: list[Any]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


# When a winner can't run


def test_a_winner_that_fails_to_build_lets_the_next_measured_one_serve_the_call() -> None:
    case = patient()
    case.decide()
    case.new_process()
    case.failures["b"] = RuntimeError("build failed")
    assert case.execute() == "c"
    assert case.ran == ["c"]


def test_that_is_said_once_and_the_key_is_tuned_again() -> None:
    case = patient()
    case.decide()
    case.new_process()
    case.failures["b"] = RuntimeError("build failed")
    assert [case.execute() for _ in range(3)] == ["c"] * 3
    assert len(case.said) == 1
    assert "b could not be run (RuntimeError: build failed); c ran instead" in case.said[0]
    assert len(case.scene.records) == 2
    case.new_process()
    outcome = case.decide()
    assert (outcome.source, outcome.decision.name) == ("disk", "c")
    assert outcome.decision.evidence[1].outcome == "error"


def test_where_measuring_is_forbidden_the_next_measured_one_goes_on_serving() -> None:
    case = patient()
    case.decide()
    case.scene.context.measure = False
    case.new_process()
    case.failures["b"] = RuntimeError("build failed")
    assert [case.execute() for _ in range(3)] == ["c"] * 3
    assert len(case.said) == 1


def test_a_call_that_every_candidate_fails_raises_the_winners_own_error_and_discards_nothing() -> None:
    case = patient()
    case.decide()
    case.failures = {name: TypeError(f"{name}: wrong operand") for name in "abc"}
    with pytest.raises(TypeError, match="b: wrong operand"):
        case.execute()
    case.failures = {}
    assert case.decide().source == "memory" and case.said == []


def test_an_unsupported_problem_runs_the_next_candidate_and_changes_nothing_stored() -> None:
    case = patient()
    case.decide()
    stored = dict(case.scene.store.rows)
    case.failures["b"] = UnsupportedError("odd size")
    assert case.execute() == "c"
    case.failures["c"] = UnsupportedError("odd size")
    assert case.execute() == "a"
    assert case.scene.store.rows == stored and case.said == []
    case.failures = {}
    assert case.execute() == "b"
    assert case.decide().source == "memory"


def test_a_problem_that_no_candidate_supports_is_an_error_with_their_reasons() -> None:
    case = patient()
    case.decide()
    case.failures = {name: UnsupportedError("five batch axes") for name in "abc"}
    with pytest.raises(WorkError, match="b: five batch axes"):
        case.execute()


def test_candidates_never_tried_serve_when_all_measured_ones_refuse() -> None:
    case = Patient(a=1 * MS, b=2 * MS)
    case.failures["b"] = UnsupportedError("odd size")
    case.decide()
    case.failures = {"a": UnsupportedError("five batch axes")}
    assert case.execute() == "b"


def test_out_of_memory_is_reported_as_that_and_discards_nothing() -> None:
    case = patient()
    case.decide()
    stored = dict(case.scene.store.rows)
    case.failures["b"] = OutOfMemoryError("8 GiB more needed")
    with pytest.raises(OutOfMemoryError, match="8 GiB"):
        case.execute()
    assert case.scene.store.rows == stored
    case.failures = {}
    assert case.decide().source == "memory"


def test_a_bad_operand_is_the_callers_and_reaches_no_other_candidate() -> None:
    case = patient()
    case.decide()
    case.failures["b"] = UsageError("out has the wrong shape")
    case.ran.clear()
    with pytest.raises(UsageError):
        case.execute()
    assert case.ran == []


def test_a_winner_that_loses_the_device_is_named_and_the_next_process_tunes_again_without_it() -> None:
    case = patient()
    case.decide()
    case.failures["b"] = DeviceFaultError("illegal address")
    with pytest.raises(DeviceFaultError, match=r"candidate b .*illegal address") as caught:
        case.execute()
    assert caught.value.hint
    case.failures = {}
    case.new_process()
    outcome = case.decide()
    assert outcome.source == "tuned" and "candidate b faulted" in outcome.note
    assert outcome.decision.name == "c"
    assert "b" not in case.ran


def test_after_a_lost_device_other_new_keys_blame_nobody() -> None:
    case = patient()
    case.decide()
    case.failures["b"] = DeviceFaultError("illegal address")
    with pytest.raises(DeviceFaultError, match="candidate b"):
        case.execute()
    case.failures = {name: DeviceFaultError("context lost") for name in "abc"}
    case.ran.clear()
    with pytest.raises(DeviceFaultError, match="lost earlier in this process") as caught:
        case.tuner.decide(case.scene.client, case.scene.tunables, "another key")
    assert "candidate" not in str(caught.value) and caught.value.hint
    assert case.ran == []
    case.failures = {}
    case.new_process()
    assert case.tuner.decide(case.scene.client, case.scene.tunables, "another key").decision.bad == ""


def test_a_candidate_that_lost_the_device_while_it_was_tuned_is_the_only_one_blamed() -> None:
    case = patient()
    case.failures["b"] = DeviceFaultError("illegal address")
    with pytest.raises(DeviceFaultError, match="candidate b"):
        case.decide()
    with pytest.raises(DeviceFaultError, match="lost earlier in this process"):
        case.tuner.decide(case.scene.client, case.scene.tunables, "another key")


def test_a_device_that_others_have_lost_is_noticed_before_anything_is_tuned(monkeypatch) -> None:
    case = patient()

    def gone() -> None:
        raise DeviceFaultError("a kernel faulted while running")

    monkeypatch.setattr(case.scene.client, "sync", gone)
    for said in ("before anything was tuned", "lost earlier"):
        with pytest.raises(DeviceFaultError, match=said):
            case.decide()
    assert case.ran == []


def test_a_fault_that_shows_only_later_condemns_the_decision_too() -> None:
    case = patient()
    case.execute()
    error = case.tuner.condemn(case.scene.client, case.scene.tunables, 1, RuntimeError("lost"))
    assert isinstance(error, DeviceFaultError) and "candidate b" in str(error)
    case.new_process()
    assert case.decide().source == "tuned"


# Imported decisions


class OneVerdict:
    """Proves every candidate with the same verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[int] = []

    def prove(
        self, client: Any, tunables: Mapping[int, Tunable], key: Any, inputs: Any
    ) -> Mapping[int, Verdict]:
        self.asked += tunables
        return dict.fromkeys(tunables, self.verdict)

    def paused(self, client: Any) -> AbstractContextManager[object]:
        return nullcontext()

    def alone(self, client: Any, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        return self.verdict


def imported(case: Patient) -> None:
    """Makes the stored decision one that came from another machine."""
    for row, (version, data) in case.scene.store.rows.items():
        case.scene.store.rows[row] = (version, {**data, "origin": "imported"})


def test_an_imported_decision_is_proven_here_before_it_is_used() -> None:
    case = patient()
    case.decide()
    imported(case)
    prover = OneVerdict(Verdict(True, where="worker"))
    case.scene.context.prover = prover
    case.new_process()
    outcome = case.decide()
    assert (outcome.source, outcome.decision.origin) == ("disk", "imported")
    assert prover.asked == [1]
    case.decide()
    assert prover.asked == [1]


def test_an_imported_decision_that_proves_wrong_here_is_tuned_anew_from_nothing() -> None:
    case = patient()
    case.decide()
    imported(case)
    case.new_process()

    class OnlyBWrong(OneVerdict):
        def prove(
            self, client: Any, tunables: Mapping[int, Tunable], key: Any, inputs: Any
        ) -> Mapping[int, Verdict]:
            return {index: Verdict(index != 1, "wrong here", "worker") for index in tunables}

    case.scene.context.prover = OnlyBWrong(Verdict(None))
    outcome = case.decide()
    assert outcome.source == "tuned" and "imported" in outcome.note
    assert outcome.decision.name == "c" and outcome.decision.origin == "local"
    assert "a" in case.ran


def test_a_stored_decision_reads_back_as_the_one_that_was_made() -> None:
    case = patient()
    made = case.decide().decision
    ((_, data),) = case.scene.store.rows.values()
    assert Decision.from_json(data) == made
