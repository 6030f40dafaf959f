"""Export and import: what is valid travels, everything else is refused with a reason."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rooftune.errors import UsageError
from rooftune.formats import load_schema
from rooftune.store.browse import stored_decisions
from rooftune.store.database import Database
from rooftune.store.entry import sha256, to_text
from rooftune.store.jsonshape import first_problem
from rooftune.store.stores import Store
from rooftune.store.transfer import (
    MAX_FILE_BYTES,
    export_decisions,
    import_decisions,
    read_export,
    write_export,
)
from rooftune.tuning.bounds import Bound, Bounds
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tuner import LocalTuner

from .cold_run import NumbersClient, candidates, tune

KEYS = ["a", "b", "c"]
SCHEMA = load_schema("export")


def tuned(path: Path | None = None) -> Store:
    store = Store(Database(path))
    tunables = candidates(5).with_bounds(lambda key, inputs: Bounds((Bound("memory", 10, 1e4, 0.8),), 1e-6))
    tune(store, KEYS, NumbersClient(0.0), tunables)
    return store


def exported() -> dict[str, Any]:
    return export_decisions(tuned().database.find("autotune"))


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The export with its checksums made right again: what somebody who means harm would do."""
    for entry in data["entries"]:
        fields = [entry.get(name) for name in ("device_id", "tuner", "level", "checksum", "key", "at")]
        with suppress(KeyError, ValueError):
            entry["sha256"] = sha256(*map(str, fields), to_text(entry["decision"]))
    data["sha256"] = sha256(*(str(entry.get("sha256")) for entry in data["entries"]))
    return data


EXPORT = exported()


def test_an_export_fits_its_schema() -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(EXPORT)
    assert first_problem(EXPORT, SCHEMA) == ""


def test_an_import_elsewhere_is_used_without_measuring(tmp_path: Path) -> None:
    write_export(tmp_path / "out.json", tuned(tmp_path / "one.db").database.find("autotune"))
    other = Store(Database(tmp_path / "two.db"))
    report = import_decisions(other.database, read_export(tmp_path / "out.json"))
    assert len(report.taken) == 3 and not report.refused
    client = NumbersClient(0.0)
    context = TuningContext(store=other.decisions, measure=False)
    outcome = LocalTuner("numbers", context).decide(client, candidates(5), "a")
    assert (outcome.source, outcome.decision.origin, client.samples) == ("disk", "imported", 0)
    assert all(item.row()["origin"] == "imported" for item in stored_decisions(other.database))


def test_a_local_decision_wins_over_an_imported_one() -> None:
    store = tuned()
    before = store.database.find("autotune")
    report = import_decisions(store.database, copy.deepcopy(EXPORT))
    assert not report.taken
    assert {refusal.reason for refusal in report.refused} == {
        "a decision made on this machine is there already"
    }
    assert not any(refusal.invalid for refusal in report.refused)
    assert store.database.find("autotune") == before


def test_an_imported_one_gives_way_to_a_newer_one() -> None:
    database = Database(None)
    assert len(import_decisions(database, copy.deepcopy(EXPORT)).taken) == 3
    again = import_decisions(database, copy.deepcopy(EXPORT))
    assert {refusal.reason for refusal in again.refused} == {"the same decision was imported before"}
    newer, older = copy.deepcopy(EXPORT), copy.deepcopy(EXPORT)
    for data, at in ((newer, "2999"), (older, "1999")):
        for entry in data["entries"]:
            entry["at"] = f"{at}-01-01T00:00:00.000000Z"
            entry["decision"]["environment"] = at
    assert len(import_decisions(database, sealed(newer)).taken) == 3
    refused = import_decisions(database, sealed(older)).refused
    assert {refusal.reason for refusal in refused} == {"a newer decision was imported before"}


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    data = copy.deepcopy(EXPORT)
    change(data["entries"][0])
    return sealed(data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda e: e["decision"].update(index=9), "indexes"),
        (lambda e: e["decision"].update(index=-1), "at least 0"),
        (lambda e: e["decision"].update(index=True), "no integer"),
        (lambda e: e["decision"].update(extra=1), "unknown field 'extra'"),
        (lambda e: e["decision"].pop("timings"), "lacks 'timings'"),
        (lambda e: e["decision"].update(device_id="other"), "another device_id"),
        (lambda e: e["decision"].update(key="other"), "another key"),
        (lambda e: e["decision"]["evidence"].pop(), "not that of its candidates"),
        (lambda e: e["decision"]["evidence"][0].update(name="other"), "not that of its candidates"),
        (lambda e: e["decision"]["evidence"][0].update(samples=[-1.0]), "above 0"),
        (lambda e: e["decision"]["evidence"][0].update(samples=["1"]), "no number"),
        (lambda e: e["decision"]["evidence"][0].update(samples=[]), "never measured"),
        (lambda e: e["decision"]["evidence"][0].update(outcome="fine"), "none of"),
        (lambda e: e["decision"].update(bad="it faulted"), "faulty"),
        (lambda e: e.update(tuner="../../x"), "another tuner"),
        (lambda e: e.update(tuner="\x1b[2J"), "not such a text"),
        (lambda e: e.update(level="fast"), "none of"),
        (lambda e: e.update(id="0" * 12), "its id"),
        (lambda e: e.update(key="{"), "Expecting"),
        (lambda e: e.update(checksum="x"), "not such a text"),
        (lambda e: e.clear(), "lacks"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: Callable[[Any], Any], reason: str) -> None:
    database = Database(None)
    report = import_decisions(database, changed(change))
    (refusal,) = report.refused
    assert reason in refusal.reason and refusal.invalid
    assert len(report.taken) == 2 and len(database.find()) == 2


def test_a_changed_entry_is_refused() -> None:
    data = copy.deepcopy(EXPORT)
    data["entries"][1]["decision"]["evidence"][0]["samples"][0] = 1e-9
    (refusal,) = import_decisions(Database(None), data).refused
    assert "checksum is wrong" in refusal.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[1, 2", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"a": NaN}', "NaN"),
        ("1" * 10_000, "not JSON"),
        ("[]", "not an export"),
        ("null", "not an export"),
        ('{"schema": "rooftune/export/2"}', "not an export"),
        ('{"schema": "rooftune/export/1"}', "lacks"),
        (
            '{"schema": "rooftune/export/1", "rooftune": "1", "at": "x", "entries": 3, "sha256": ""}',
            "not a valid",
        ),
        (json.dumps({**EXPORT, "entries": EXPORT["entries"][:2]}), "was changed"),
        (json.dumps({**EXPORT, "run": "import os"}), "unknown field"),
    ],
    ids=lambda value: value[:24],  # an export has the time in it
)
def test_a_file_that_is_no_export_is_refused_whole(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        read_export(path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_export(tmp_path / "missing.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_export(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    with pytest.raises(UsageError, match="not JSON"):
        read_export(tmp_path / "binary")
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match="larger"):
        read_export(tmp_path / "huge")
    with pytest.raises(UsageError, match="cannot be written"):
        write_export(tmp_path / "no folder" / "out.json", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary", "huge"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for name, item in inside for deeper in places(item, (*path, name)))]


PLACES = [path for path in places(EXPORT) if path]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), values)
@example(("entries", 0, "decision", "evidence", 0, "index"), 0.0)
@example(("entries", 0, "decision", "evidence", 0, "index"), float("inf"))
def test_our_check_of_a_schema_agrees_with_a_complete_one(path: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(EXPORT)
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    assert (first_problem(data, SCHEMA) == "") == jsonschema.Draft202012Validator(SCHEMA).is_valid(data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PLACES), values)
@example(("entries", 2, "decision", "events", 1, "value"), float("inf"))
def test_no_change_makes_an_import_fail_otherwise_than_by_refusing(path: tuple[Any, ...], value: Any) -> None:
    data = copy.deepcopy(EXPORT)
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    if not isinstance(data["entries"], list):
        return
    if all(isinstance(entry, dict) for entry in data["entries"]):
        sealed(data)
    database = Database(None)
    report = import_decisions(database, data)
    assert len(report.taken) + len(report.refused) == len(data["entries"])
    assert all(item.decision is not None for item in stored_decisions(database))


def test_an_export_cut_off_or_with_flipped_bits_is_refused(tmp_path: Path) -> None:
    rng, path = random.Random(5), tmp_path / "in.json"
    raw = json.dumps(EXPORT).encode()
    for number in range(200):
        broken = bytearray(raw)
        if number % 2:
            del broken[rng.randrange(len(broken)) :]
        else:
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        database = Database(None)
        try:
            report = import_decisions(database, read_export(path))
        except UsageError:
            continue
        assert len(report.taken) + len(report.refused) == 3
        assert all(item.decision is not None for item in stored_decisions(database))
