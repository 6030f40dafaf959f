"""A full disk and a folder that cannot be written, on real small file systems where those may be mounted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rooftune.store.browse import verify_file
from rooftune.store.database import Database
from rooftune.store.entry import Entry, to_text

from .runs import cold_run

KEYS = ("a", "b", "c", "d")


def run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, or a visible skip where it cannot be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not run("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)):
        pytest.skip("a small file system cannot be mounted here (that takes root)")
    yield folder
    run("mount", "-o", "remount,rw", str(folder))
    assert run("umount", "-l", str(folder))


def fill(folder: Path, leave_bytes: int) -> Path:
    """Fill the file system but for so many bytes."""
    filler = folder / "filler"
    status = os.statvfs(folder)
    filler.write_bytes(b"\0" * max(status.f_bavail * status.f_frsize - leave_bytes, 0))
    return filler


@pytest.mark.parametrize("leave_kib", [0, 4, 8, 12, 16, 24, 32, 36, 40, 44, 48, 56, 64, 80, 100, 150])
def test_a_full_disk_stops_no_job_and_spoils_no_file(disk: Path, leave_kib: int) -> None:
    file = disk / "default.db"
    filler = fill(disk, leave_kib << 10)
    warnings: list[str] = []
    database = Database(file, warn=warnings.append)
    for number in range(60):
        database.put(Entry("autotune", str(number), "", to_text("x" * 3000)))
        assert database.get("autotune", str(number)) is not None
    assert len(database.find()) == 60
    assert any("full" in warning or "disk" in warning for warning in warnings), warnings
    assert len(warnings) <= 2
    database.close()
    filler.unlink()
    with closing(Database(file)) as again:
        assert not again.problems() and not again.warnings
        assert again.writable
        again.put(Entry("autotune", "new", "", "1"))
        assert again.get("autotune", "new") is not None


def test_what_was_stored_before_the_disk_filled_is_still_used(disk: Path) -> None:
    file = disk / "default.db"
    cold_run(file, *KEYS)
    fill(disk, 0)
    result = cold_run(file, *KEYS, "new")
    assert {result["keys"][key][0] for key in KEYS} == {"disk"}
    assert result["keys"]["new"][0] == "tuned"
    assert "warning" in result["stderr"] or "memory" in result["stderr"]
    assert verify_file(file) == []


def test_a_read_only_file_system_is_read(disk: Path) -> None:
    file = disk / "default.db"
    cold_run(file, *KEYS)
    assert run("mount", "-o", "remount,ro", str(disk))
    before = file.read_bytes()
    result = cold_run(file, *KEYS, "new")
    assert {result["keys"][key][0] for key in KEYS} == {"disk"}
    assert result["keys"]["new"][0] == "tuned"
    assert "memory" in result["stderr"]
    assert file.read_bytes() == before


def test_a_read_only_file_system_is_read_with_its_wal(disk: Path, tmp_path: Path) -> None:
    source = Database(tmp_path / "source.db")
    source.put(Entry("autotune", "old", "", "1"))
    source.close()
    source = Database(tmp_path / "source.db")
    source.put(Entry("autotune", "only in the WAL", "", "1"))
    for name in ("source.db", "source.db-wal"):
        (disk / name).write_bytes((tmp_path / name).read_bytes())
    source.close()
    assert run("mount", "-o", "remount,ro", str(disk))
    with closing(Database(disk / "source.db")) as database:
        assert {entry.key for entry in database.find()} == {"old", "only in the WAL"}
        assert not database.writable and database.warnings


def test_a_read_only_file_system_without_a_store(disk: Path) -> None:
    assert run("mount", "-o", "remount,ro", str(disk))
    result = cold_run(disk / "sub" / "default.db", "new")
    assert result["keys"]["new"][0] == "tuned" and result["path"] == "None"
    result = cold_run(disk / "default.db", "new")
    assert result["keys"]["new"][0] == "tuned" and result["path"] == "None"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    file = folder / "default.db"
    cold_run(file, *KEYS)
    folder.chmod(0o555)
    file.chmod(0o444)
    try:
        result = cold_run(file, *KEYS, "new")
        assert {result["keys"][key][0] for key in KEYS} == {"disk"}
        assert result["keys"]["new"][0] == "tuned"
    finally:
        folder.chmod(0o755)
