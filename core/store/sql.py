"""The statements: what is read from and written to the tables, inside a transaction of the caller's."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from .entry import Entry

RECORDS_KEPT = 10_000
"""Records older than the newest this many of a namespace are dropped."""

COLUMNS = "namespace, key, checksum, value, origin, at, version, digest"
_BELOW = (  # "0" is the character after "/"
    "(:prefix = '' OR namespace = :prefix OR (namespace > :prefix || '/' AND namespace < :prefix || '0'))"
)


def entry_of(row: tuple[Any, ...]) -> Entry:
    """The entry of a row of COLUMNS."""
    namespace, key, checksum, value, origin, at = (str(value) for value in row[:6])
    return Entry(namespace, key, checksum, value, origin, at, int(row[6]))


def select(connection: sqlite3.Connection, place: tuple[str, str, str]) -> tuple[Any, ...] | None:
    """The row at (namespace, key, checksum), or None."""
    row: tuple[Any, ...] | None = connection.execute(
        f"SELECT {COLUMNS} FROM entries WHERE namespace = ? AND key = ? AND checksum = ?", place
    ).fetchone()
    return row


def select_key(connection: sqlite3.Connection, namespace: str, key: str) -> list[tuple[Any, ...]]:
    """All rows for a key, whatever their checksum."""
    return connection.execute(
        f"SELECT {COLUMNS} FROM entries WHERE namespace = ? AND key = ?", (namespace, key)
    ).fetchall()


def select_namespaces(connection: sqlite3.Connection, key: str, prefix: str) -> set[str]:
    """Where at or below a namespace there is a row for a key."""
    rows = connection.execute(
        f"SELECT DISTINCT namespace FROM entries WHERE key = :key AND {_BELOW}",
        {"key": key, "prefix": prefix},
    )
    return {str(row[0]) for row in rows}


def select_below(connection: sqlite3.Connection, prefix: str) -> list[tuple[Any, ...]]:
    """All rows at or below a namespace (all for an empty one), oldest first."""
    return connection.execute(
        f"SELECT {COLUMNS} FROM entries WHERE {_BELOW} ORDER BY version", {"prefix": prefix}
    ).fetchall()


def select_records(connection: sqlite3.Connection, prefix: str) -> list[tuple[str, str, str]]:
    """(namespace, at, value) of the records at or below a namespace, oldest first."""
    rows = connection.execute(
        f"SELECT namespace, at, value FROM records WHERE {_BELOW} ORDER BY sequence", {"prefix": prefix}
    )
    return [(str(row[0]), str(row[1]), str(row[2])) for row in rows]


def is_below(namespace: str, prefix: str) -> bool:
    """Whether a namespace is `prefix` or below it."""
    return not prefix or namespace == prefix or namespace.startswith(prefix + "/")


def put(connection: sqlite3.Connection, entry: Entry, began_at: int | None) -> Entry:
    """Write an entry and return what stands: a sound one written since `began_at`, else this one.

    None replaces whatever is there.
    """
    row = select(connection, (entry.namespace, entry.key, entry.checksum))
    if row is not None and began_at is not None and int(row[6]) != began_at:
        standing = entry_of(row)
        if standing.digest == row[7]:
            return standing
    if row is not None:
        connection.execute("DELETE FROM entries WHERE version = ?", (row[6],))
    cursor = connection.execute(
        "INSERT INTO entries (id, namespace, key, checksum, value, origin, at, digest) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.id,
            entry.namespace,
            entry.key,
            entry.checksum,
            entry.value,
            entry.origin,
            entry.at,
            entry.digest,
        ),
    )
    return replace(entry, version=int(cursor.lastrowid or 0))


def delete(connection: sqlite3.Connection, versions: list[tuple[int]]) -> int:
    """Remove rows by version; how many there were."""
    return connection.executemany("DELETE FROM entries WHERE version = ?", versions).rowcount


def append(connection: sqlite3.Connection, namespace: str, at: str, value: str) -> None:
    """Add a record; now and then the oldest go."""
    cursor = connection.execute(
        "INSERT INTO records (namespace, at, value) VALUES (?, ?, ?)", (namespace, at, value)
    )
    if (cursor.lastrowid or 0) % 1000 == 0:
        connection.execute(
            "DELETE FROM records WHERE namespace = ? AND sequence NOT IN "
            "(SELECT sequence FROM records WHERE namespace = ? ORDER BY sequence DESC LIMIT ?)",
            (namespace, namespace, RECORDS_KEPT),
        )


def user_version(connection: sqlite3.Connection) -> int:
    """The schema's number."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def application_id(connection: sqlite3.Connection) -> int:
    """Whose file it is."""
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def check(connection: sqlite3.Connection, full: bool) -> str:
    """SQLite's own verdict on the file, 'ok' or what is wrong first."""
    return str(connection.execute(f"PRAGMA {'integrity' if full else 'quick'}_check(1)").fetchone()[0])
