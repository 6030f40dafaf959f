"""Setting a damaged file aside, and reading out of it what can still be read."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .entry import Entry

_ENTRY_COLUMNS = "version, namespace, key, checksum, value, origin, at, digest"
_RECORD_COLUMNS = "sequence, namespace, at, value"
_SINGLE_TRIES = 10_000


@dataclass(frozen=True)
class Salvage:
    """Sound entries, oldest first, and readable records (namespace, at, JSON text)."""

    entries: tuple[Entry, ...] = ()
    records: tuple[tuple[str, str, str], ...] = ()


def set_aside(path: Path) -> Path:
    """Rename a file with its `-wal`, `-shm` and `-journal`, and return its new path. OSError when it
    cannot be.

    The side files go first: a new database must never meet the WAL of the old one.
    """
    stem = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    aside, count = path.with_name(stem), 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{stem}-{count}")
    for suffix in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def salvage(path: Path) -> Salvage:
    """Everything in a damaged file that can be read and is as it was written."""
    try:
        uri = f"file:{quote(os.fsencode(path))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0, isolation_level=None)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            entries = _rows(connection, "entries", "version", _ENTRY_COLUMNS)
            records = _rows(connection, "records", "sequence", _RECORD_COLUMNS)
    except sqlite3.Error:
        return Salvage()
    return Salvage(
        tuple(entry for row in entries if (entry := _entry(row)) is not None),
        tuple(record for row in records if (record := _record(row)) is not None),
    )


def _rows(connection: sqlite3.Connection, table: str, number: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of a table in order, read from both ends towards the damage and then one by one inside it."""
    found: dict[int, tuple[Any, ...]] = {}
    broken = False
    for order in ("ASC", "DESC"):
        try:
            for row in connection.execute(
                f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {number} {order}"
            ):
                found[row[0]] = row
        except (sqlite3.Error, ValueError, OverflowError):
            broken = True
        if not broken:
            break
    if broken and found:
        numbers = [number for number in found if isinstance(number, int)]
        inside = (n for n in range(min(numbers), max(numbers)) if n not in found)
        for _, wanted in zip(range(_SINGLE_TRIES), inside, strict=False):
            with suppress(sqlite3.Error, ValueError, OverflowError):
                row = connection.execute(
                    f"SELECT {columns} FROM {table} WHERE {number} = ?", (wanted,)
                ).fetchone()
                if row is not None:
                    found[wanted] = row
    return [found[number] for number in sorted(found, key=lambda n: n if isinstance(n, int) else 0)]


def _entry(row: tuple[Any, ...]) -> Entry | None:
    if not all(isinstance(value, str) for value in row[1:]):
        return None
    entry = Entry(*row[1:7])
    return entry if entry.digest == row[7] else None


def _record(row: tuple[Any, ...]) -> tuple[str, str, str] | None:
    try:
        _, namespace, at, value = row
        json.loads(value)
        return (namespace, at, value) if isinstance(namespace, str) and isinstance(at, str) else None
    except (TypeError, ValueError, RecursionError):
        return None
