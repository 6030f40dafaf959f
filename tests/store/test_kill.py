"""kill -9 at random moments of cold runs: no decision that stood is lost, and the next run is fine."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pytest
from rooftune.store.database import Database

from .runs import cold_run, start


def kill_at_random(folder: Path, kills: int) -> None:
    """Half of the runs start on a file that is not there yet, half go on with one that has seen kills."""
    stood: dict[Path, set[str]] = {}
    for number in range(kills):
        file = folder / ("kept.db" if number % 2 else f"fresh{number}.db")
        keys = [f"{number}-{each}" for each in range(200)]
        run = start(file, *keys, sample_s=0.0002, announce=True)
        with suppress(TimeoutExpired):
            run.wait(timeout=random.uniform(0.1, 2.0))
        run.send_signal(signal.SIGKILL)
        out, err = run.communicate()
        assert "Traceback" not in err, err
        stood.setdefault(file, set()).update(line for line in out.splitlines() if line in keys)
        check(file, stood[file])
    known = sum(map(len, stood.values()))
    print(f"{kills} kills, {known} decisions stood in {len(stood)} files, none lost")
    began = time.monotonic()
    again = cold_run(folder / "kept.db", "after all", *list(stood.get(folder / "kept.db", ()))[:20])
    assert again["keys"].pop("after all")[0] == "tuned"
    assert all(source == "disk" for source, _ in again["keys"].values())
    assert time.monotonic() - began < 60


def check(file: Path, stood: set[str]) -> None:
    """All decisions are there and the file is whole, seen by SQLite alone and by a store."""
    with closing(Database(file)) as database:
        assert not database.warnings, database.warnings
        assert stood <= {entry.key.strip('"') for entry in database.find("autotune")}
        assert database.problems() == []
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_killed_cold_runs_lose_nothing(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 8)


@pytest.mark.long
def test_two_hundred_killed_cold_runs_lose_nothing(tmp_path: Path) -> None:
    kill_at_random(tmp_path, 200)
