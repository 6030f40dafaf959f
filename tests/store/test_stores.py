"""Decisions, probe results, proofs and records, each under its own namespace."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooftune.store import null_store
from rooftune.store.cold import ColdDecisions
from rooftune.store.database import Database
from rooftune.store.stores import Store
from rooftune.tuning.context import TuningContext
from rooftune.tuning.place import Place
from rooftune.tuning.tuner import LocalTuner

from .cold_run import NumbersClient, candidates

ROW = Place("matmul", "balanced", "a device|1.0", "sum", '{"m":1}')


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return null_store() if request.param == "memory" else Store(Database(tmp_path / "default.db"))


def test_a_decision_is_found_under_exactly_its_place(store: Store) -> None:
    decisions = store.decisions
    assert decisions.load(ROW) is None and decisions.row_version(ROW) is None
    assert decisions.save(ROW, {"x": 1}, began_at_row_version=None) == {"x": 1, "origin": "local"}
    assert decisions.load(ROW) == {"x": 1, "origin": "local"}
    for place in range(len(ROW)):
        other = [*ROW]
        other[place] = "extensive" if place == 1 else "other"
        assert decisions.load(Place(*other)) is None


def test_a_retune_replaces_what_stood_when_it_began_and_nothing_newer(store: Store) -> None:
    decisions = store.decisions
    decisions.save(ROW, {"x": 1}, began_at_row_version=None)
    began = decisions.row_version(ROW)
    assert decisions.save(ROW, {"x": 2}, began_at_row_version=began)["x"] == 2
    assert decisions.save(ROW, {"x": 3}, began_at_row_version=began)["x"] == 2
    assert decisions.save(ROW, {"x": 4}, began_at_row_version=None)["x"] == 2


def test_two_lists_of_candidates_live_side_by_side(store: Store) -> None:
    decisions = store.decisions
    other = ROW._replace(checksum="another sum")
    decisions.save(ROW, {"x": 1}, began_at_row_version=None)
    decisions.save(other, {"x": 2}, began_at_row_version=None)
    assert [found["x"] for found in decisions.others(ROW)] == [2, 1]
    assert decisions.load(ROW) == {"x": 1, "origin": "local"}


def test_a_proof_here_is_of_the_decision_that_stands(store: Store) -> None:
    decisions = store.decisions
    decisions.set_proven_here(ROW)
    assert not decisions.proven_here(ROW)
    decisions.save(ROW, {"x": 1, "origin": "imported"}, began_at_row_version=None)
    assert not decisions.proven_here(ROW)
    decisions.set_proven_here(ROW)
    assert decisions.proven_here(ROW)
    decisions.save(ROW, {"x": 2, "origin": "imported"}, began_at_row_version=decisions.row_version(ROW))
    assert not decisions.proven_here(ROW)


def test_a_key_is_known_for_whatever_device_and_candidates(store: Store) -> None:
    decisions = store.decisions
    decisions.save(ROW._replace(device_id="b/c", checksum="other"), {"x": 1}, began_at_row_version=None)
    assert decisions.knows(ROW.tuner, ROW.level, ROW.key)
    assert not decisions.knows("vector_add", ROW.level, ROW.key)
    assert not decisions.knows(ROW.tuner, "full", ROW.key)
    assert not decisions.knows(ROW.tuner, ROW.level, '{"m":2}')
    cold = ColdDecisions(decisions)
    assert not cold.knows(ROW.tuner, ROW.level, ROW.key)
    cold.save(ROW, {"x": 1}, began_at_row_version=None)
    assert cold.knows(ROW.tuner, ROW.level, ROW.key)


def test_forgetting_a_decision(store: Store) -> None:
    assert not store.decisions.forget(ROW)
    store.decisions.save(ROW, {"x": 1}, began_at_row_version=None)
    assert store.decisions.forget(ROW)
    assert store.decisions.load(ROW) is None


def test_probe_results_and_proofs(store: Store) -> None:
    key = {"probe": "bandwidth", "access": "read"}
    assert store.probes.load("device", 1, key) is None
    store.probes.save("device", 1, key, {"value": 1.5})
    store.probes.save("device", 1, key, {"value": 2.5})
    assert store.probes.load("device", 1, dict(reversed(key.items()))) == {"value": 2.5}
    assert store.probes.load("device", 2, key) is None
    store.proofs.save("device", ["digest", "f32"], {"passed": True})
    assert store.proofs.load("device", ["digest", "f32"]) == {"passed": True}
    old = store.probes.entries("device", 1)
    store.probes.save("device", 1, "another", {"value": 3.5})
    assert store.probes.drop(old) == 1
    assert store.probes.load("device", 1, key) is None
    assert store.probes.load("device", 1, "another") == {"value": 3.5}


def test_records_come_back_in_order(store: Store) -> None:
    store.records.append("autotune", {"key": "a"})
    store.records.append("sessions", {"command": "shapes"})
    kinds = [record["kind"] for record in store.records.read()]
    assert sorted(kinds) == ["autotune", "sessions"]
    (record,) = store.records.read("sessions")
    assert record["command"] == "shapes" and record["at"].endswith("Z")
    with pytest.raises(ValueError, match="compilation"):
        store.records.append("other", {})


def test_adding_a_candidate_measures_it_against_the_best_known(tmp_path: Path) -> None:
    store = Store(Database(tmp_path / "default.db"))

    def measured(count: int) -> set[str]:
        client = NumbersClient(0.0)
        tuner = LocalTuner("numbers", TuningContext(store=store.decisions))
        decision = tuner.decide(client, candidates(count), "key").decision
        return {evidence.name for evidence in decision.evidence if evidence.timed and not evidence.kept}

    assert len(measured(33)) == 33
    assert measured(34) <= {"candidate_0", "candidate_33"}
    assert len(store.database.find("autotune")) == 2
