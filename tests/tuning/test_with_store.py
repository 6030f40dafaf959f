"""The tuner on a real environment file, as two processes would use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooftune.store.database import Database
from rooftune.store.stores import Store
from rooftune.tuning.decision import Decision
from rooftune.tuning.place import Place

from .scene import MS, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(store=Store(Database(tmp_path / "default.db")).decisions)
    made.add("a", 3 * MS)
    made.add("b", 1 * MS)
    return made


def test_a_decision_survives_the_process_unchanged(scene: Scene, tmp_path: Path) -> None:
    made = scene.decide({"n": 3})
    runs = dict(scene.made.runs)
    scene.context.store = Store(Database(tmp_path / "default.db")).decisions
    assert scene.decide({"n": 3}) == made
    assert scene.made.runs == runs


def test_lists_of_candidates_live_side_by_side_and_share_evidence(scene: Scene) -> None:
    scene.decide()
    old_list = scene.tunables
    scene.renew()
    for name, seconds in [("a", 3 * MS), ("b", 1 * MS), ("new", 0.5 * MS)]:
        scene.add(name, seconds)
    assert scene.decide().name == "new"
    assert scene.runs("a") == 0
    scene.tunables = old_list
    scene.made.runs.clear()
    assert scene.decide().name == "b"
    assert not scene.made.runs


def test_a_tuning_replaces_the_row_that_stood_when_it_began(scene: Scene) -> None:
    made = scene.decide()
    row = Place("test", "balanced", scene.client.device_id, scene.tunables.checksum, "1")
    store = scene.context.store
    bad = made.condemned(1, "b lost the device").to_json()
    store.save(row, bad, began_at_row_version=store.row_version(row))
    assert scene.decide().name == "a"
    stored = store.load(row)
    assert stored is not None
    assert Decision.from_json(stored).name == "a"
