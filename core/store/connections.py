"""Connections to files in every state, and what their errors mean."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

_ENVIRONMENTAL = (
    "locked",
    "busy",
    "full",
    "disk i/o",
    "readonly",
    "unable to open",
    "interrupted",
    "locking protocol",
    "out of memory",
    "large file support",
    "not authorized",
    "cannot start a transaction",
    "too big",
)


def connect(path: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode that runs nothing a file brings along; `mode` is SQLite's."""
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def connect_read_only(path: Path, busy_s: float) -> sqlite3.Connection | None:
    """A connection that can read the file, or None.

    In a folder that cannot be written a WAL database opens only as immutable, and then without what its WAL
    still holds: so with a WAL present a copy of both is read.
    """
    for way in _read_only_ways(path, busy_s):
        try:
            connection = way()
        except (sqlite3.Error, OSError, ValueError):
            continue
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
        except (sqlite3.Error, ValueError):
            connection.close()
    return None


def _read_only_ways(path: Path, busy_s: float) -> Iterator[Callable[[], sqlite3.Connection]]:
    yield lambda: connect(path, "ro", busy_s)
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size > 0:
        yield lambda: _connect_copy(path, wal, busy_s)
    yield lambda: connect(path, "ro&immutable=1", busy_s)


def _connect_copy(path: Path, wal: Path, busy_s: float) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    memory.text_factory = lambda raw: raw.decode("utf-8", "replace")
    with tempfile.TemporaryDirectory(prefix="rooftune-") as folder:
        copy = Path(folder) / "copy.db"
        copy.write_bytes(path.read_bytes())
        copy.with_name("copy.db-wal").write_bytes(wal.read_bytes())
        with closing(connect(copy, "rw", busy_s)) as source:
            source.backup(memory)
    return memory


def is_damage(error: Exception) -> bool:
    """Whether the file is to blame; otherwise it is the disk, the folder or a neighbour."""
    text = str(error).lower()
    return not any(word in text for word in _ENVIRONMENTAL)


def identity_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
        return status.st_dev, status.st_ino
    except OSError:
        return None


def size_bytes(path: Path) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def lock_file(path: Path) -> Path:
    """The file whose byte ranges are the locks of the store at `path`."""
    return path.with_name(path.name + "-lock")
