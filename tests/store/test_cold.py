"""A cold run forgets this device's probe results, replaces them when done, and loses none before that."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooftune.store.cold import ColdProbes
from rooftune.store.database import Database
from rooftune.store.stores import ProbeStore, Store

SWEEP = [f"bandwidth {size}" for size in (1, 2, 4)]


@pytest.fixture(params=["file", "memory"])
def probes(request: pytest.FixtureRequest, tmp_path: Path) -> ProbeStore:
    store = Store(Database(tmp_path / "s.db" if request.param == "file" else None))
    for key in [*SWEEP, "launch"]:
        store.probes.save("device", 1, key, {"value": 1.0})
    store.probes.save("other device", 1, "launch", {"value": 1.0})
    return store.probes


def stored(probes: ProbeStore, device: str = "device") -> set[str]:
    return {key for key in [*SWEEP, "launch", "compute"] if probes.load(device, 1, key) is not None}


def test_a_cold_run_sees_nothing_of_before(probes: ProbeStore) -> None:
    cold = ColdProbes(probes)
    assert cold.load("device", 1, "launch") is None
    cold.save("device", 1, "launch", {"value": 2.0})
    assert cold.load("device", 1, "launch") == {"value": 2.0}


def test_when_done_only_what_was_measured_anew_is_left(probes: ProbeStore) -> None:
    cold = ColdProbes(probes)
    cold.save("device", 1, "launch", {"value": 2.0})
    cold.save("device", 1, "compute", {"value": 3.0})
    cold.replace_old()
    assert stored(probes) == {"launch", "compute"}
    assert probes.load("device", 1, "launch") == {"value": 2.0}


def test_an_interrupted_run_leaves_what_stood_before(probes: ProbeStore) -> None:
    cold = ColdProbes(probes)
    cold.save("device", 1, "compute", {"value": 3.0})
    cold.save("device", 1, "launch", {"value": 3.0})
    assert stored(probes) == {*SWEEP, "launch"}
    assert probes.load("device", 1, "launch") == {"value": 1.0}


def test_other_devices_and_what_others_wrote_meanwhile_stay(probes: ProbeStore) -> None:
    cold = ColdProbes(probes)
    assert cold.load("device", 1, "launch") is None
    probes.save("device", 1, SWEEP[0], {"value": 9.0})
    cold.save("device", 1, "compute", {"value": 3.0})
    cold.replace_old()
    assert stored(probes) == {SWEEP[0], "compute"}
    assert stored(probes, "other device") == {"launch"}


def test_a_run_that_probed_nothing_forgets_nothing(probes: ProbeStore) -> None:
    cold = ColdProbes(probes)
    assert cold.load("device", 1, "launch") is None
    cold.replace_old()
    assert stored(probes) == {*SWEEP, "launch"}
