"""Looking at a file's first bytes must not disturb connections that are open on it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rooftune.store.header import MOST_OPENED, FileKind, read_header

fcntl = pytest.importorskip("fcntl")

_TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(3)
"""


def test_locks_of_this_process_outlive_a_look_at_the_header(tmp_path):
    path = tmp_path / "some.db"
    path.write_bytes(b"not ours")
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_SH)
        for _ in range(2):
            assert read_header(path).kind is FileKind.FOREIGN
        ran = subprocess.run([sys.executable, "-c", _TRY_TO_LOCK, str(path)])
    assert ran.returncode == 3, "another process got a lock that this one held"


def test_a_file_that_took_anothers_place_is_looked_at_anew(tmp_path):
    path, other = tmp_path / "some.db", tmp_path / "other.db"
    path.write_bytes(b"not ours")
    assert read_header(path).kind is FileKind.FOREIGN
    other.write_bytes(b"")
    os.replace(other, path)
    assert read_header(path).kind is FileKind.NEW


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="there is no /proc here")
def test_descriptors_do_not_pile_up(tmp_path):
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for number in range(3 * MOST_OPENED):
        path = tmp_path / f"{number}.db"
        path.write_bytes(b"not ours")
        assert read_header(path).kind is FileKind.FOREIGN
        if number % 2:
            path.unlink()
    assert count() <= before + MOST_OPENED


_MANY_STORES = """
import sys
from rooftune.config import load_config
from rooftune.store.stores import open_store

said, stores = [], []
for turn in range(15):
    stores.append(open_store(load_config(), warn=said.append))
    for number in range(6):
        stores[-1].probes.save("device", 1, f"{sys.argv[1]} {turn % 5} {number}", {"value": "x" * 3000})
    if turn % 3 == 2:
        stores.pop(0).close()
sys.exit("; ".join(said) if said else 0)
"""


def test_processes_that_each_open_one_file_several_times_damage_nothing(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _MANY_STORES, name],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b", "c")
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
