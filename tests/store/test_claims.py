"""Several processes on one cold key: one tunes it, and nobody waits for ever."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from rooftune.store import locks
from rooftune.store.database import Database
from rooftune.store.stores import Store
from rooftune.tuning.place import Place

from .runs import cold_run, finish, start

ROW = Place("matmul", "balanced", "device", "sum", "key")
KEYS = ("a", "b", "c", "d")


def together(file: Path, processes: int) -> None:
    runs = []
    for _ in range(processes):
        keys = random.sample(KEYS, len(KEYS))
        runs.append(start(file, *keys, sample_s=0.002))
    results = [finish(run) for run in runs]
    sources = Counter(source for result in results for source, _ in result["keys"].values())
    assert sources == {"tuned": len(KEYS), "disk": len(KEYS) * (processes - 1)}
    database = Database(file)
    assert len(database.find("autotune")) == len(KEYS)
    assert not database.problems()
    database.close()


def test_processes_on_four_cold_keys_tune_each_once(tmp_path: Path) -> None:
    together(tmp_path / "default.db", 5)


@pytest.mark.long
def test_sixteen_processes_on_four_cold_keys_tune_each_once(tmp_path: Path) -> None:
    for number in range(5):
        together(tmp_path / f"{number}.db", 16)


def test_a_process_that_dies_gives_its_claims_back(tmp_path: Path) -> None:
    file = tmp_path / "default.db"
    first = start(file, "a", sample_s=5.0)
    deadline = time.monotonic() + 30
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    second = start(file, "a")
    time.sleep(0.3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert finish(second)["keys"]["a"][0] == "tuned"


def test_waiting_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "default.db"
    store = Store(Database(file))
    with store.decisions.claim(ROW, began_at_row_version=None) as claim:
        assert claim.owned
        child = os.fork()
        if child == 0:
            other = Store(Database(file))
            began = time.monotonic()
            with other.decisions.claim(ROW, began_at_row_version=None, wait_s=0.2) as late:
                os._exit(
                    0 if not late.owned and late.decision is None and time.monotonic() - began < 5 else 1
                )
        assert os.waitpid(child, 0)[1] == 0
    with store.decisions.claim(ROW, began_at_row_version=None, wait_s=0.0) as claim:
        assert claim.owned


def test_keys_do_not_wait_for_one_another(tmp_path: Path) -> None:
    store = Store(Database(tmp_path / "default.db"))
    with (
        store.decisions.claim(ROW, began_at_row_version=None) as one,
        store.decisions.claim(ROW._replace(key="other key"), began_at_row_version=None, wait_s=0.0) as two,
    ):
        assert one.owned and two.owned


def test_what_was_decided_while_waiting_comes_with_the_claim(tmp_path: Path) -> None:
    store = Store(Database(tmp_path / "default.db"))
    store.decisions.save(ROW, {"x": 1}, began_at_row_version=None)
    with store.decisions.claim(ROW, began_at_row_version=None) as claim:
        assert claim.decision == {"x": 1, "origin": "local"}
    with store.decisions.claim(ROW, began_at_row_version=store.decisions.row_version(ROW)) as claim:
        assert claim.decision is None


def test_where_locks_cannot_be_had_the_work_goes_on(tmp_path: Path) -> None:
    with locks.acquire(tmp_path / "no folder" / "lock", "name", 0.0, "somebody") as lock:
        assert lock.owned


def test_a_network_folder_without_locks_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refuse)
    store = Store(Database(tmp_path / "default.db"))
    with store.decisions.claim(ROW, began_at_row_version=None) as claim:
        assert claim.owned
        store.decisions.save(ROW, {"x": 1}, began_at_row_version=None)
    assert store.decisions.load(ROW) is not None


def test_a_warm_run_measures_nothing(tmp_path: Path) -> None:
    file = tmp_path / "default.db"
    assert cold_run(file, *KEYS)["samples"] > 0
    warm = cold_run(file, *KEYS)
    assert warm["samples"] == 0
    assert {source for source, _ in warm["keys"].values()} == {"disk"}
