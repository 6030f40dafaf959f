"""What a killed `tune env copy` or export left half-made goes with the next one; nothing of others does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rooftune.config import Config
from rooftune.device.places import HALF_MADE, HALF_MADE_S, drop_half_made
from rooftune.store import leftovers
from rooftune.store.browse import copy_environment
from rooftune.store.stores import open_store
from rooftune.store.transfer import write_export

KILLED = """
import os, sys
from pathlib import Path
from rooftune.config import Config
from rooftune.store import browse, transfer
os.replace = browse._rename_to_new = lambda *_: os._exit(9)
if sys.argv[1] == "copy":
    browse.copy_environment(Config(), "default", "other")
else:
    transfer.write_export(Path(sys.argv[1]), [])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment with something in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(Config())
    store.probes.save("device", 1, "key", {"value": 1.0})
    store.close()
    assert store.path is not None
    return store.path.parent


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def killed(what: str) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, what]).returncode == 9


def made_old(path: Path) -> Path:
    then = path.lstat().st_mtime - leftovers.LEAST_AGE_S - 1
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def hidden(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("."))


def test_a_killed_copy_is_reclaimed_by_the_next(folder: Path) -> None:
    killed("copy")
    (left,) = hidden(folder)
    copy_environment(Config(), "default", "young")
    assert hidden(folder) == [left], "it may be another container's, which is at it just now"
    made_old(left)
    copy_environment(Config(), "default", "other")
    assert hidden(folder) == []


def test_a_killed_export_is_reclaimed_by_the_next(folder: Path, tmp_path: Path) -> None:
    killed(str(tmp_path / "x.json"))
    (left,) = hidden(tmp_path)
    write_export(tmp_path / "y.json", [])
    assert hidden(tmp_path) == [made_old(left)]
    write_export(tmp_path / "x.json", [])
    assert hidden(tmp_path) == []


def test_what_is_not_surely_ours_stays(folder: Path, gone: int, tmp_path: Path) -> None:
    store = (folder / "default.db").read_bytes()
    others = {
        f".notes.db-{gone}": b"not a database",
        f".empty.db-{gone}": b"",
        f".alive.db-{os.getppid()}": store,
        f"visible.db-{gone}": store,
        ".no-number.db-12x": store,
    }
    for name, content in others.items():
        made_old(_written(folder / name, content))
    (target := tmp_path / "elsewhere.db").write_bytes(store)
    (folder / f".link.db-{gone}").symlink_to(target)
    made_old(folder / f".link.db-{gone}")
    copy_environment(Config(), "default", "other")
    assert {name: (folder / name).read_bytes() for name in others} == others
    assert (folder / f".link.db-{gone}").is_symlink() and target.read_bytes() == store


def test_a_file_of_others_in_the_way_is_gone_around(folder: Path) -> None:
    mine = _written(folder / f".other.db-{os.getpid()}", b"not a database")
    assert copy_environment(Config(), "default", "other").exists()
    assert mine.read_bytes() == b"not a database"


def test_half_made_files_in_our_cache_go_after_an_hour(tmp_path: Path) -> None:
    old, young = _written(tmp_path / f"{HALF_MADE}a", b""), _written(tmp_path / f"{HALF_MADE}b", b"")
    kept = _written(tmp_path / "kept", b"")
    for path in (old, kept):
        os.utime(path, (0, path.stat().st_mtime - HALF_MADE_S - 1))
    drop_half_made(tmp_path)
    assert not old.exists() and young.exists() and kept.exists()


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
