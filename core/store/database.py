"""One environment's file: opened carefully, written in transactions, and never in the way of the job.

Whatever happens to the file (it is damaged, foreign, newer than we are, read-only, on a full disk, locked,
deleted under our feet), callers see entries that are or are not there. What could not be written is kept in
memory for this process, and a warning says so once.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..folders import absolute
from ..waiting import STORE, WRITER, waiting
from . import locks, sql
from .connections import connect, connect_read_only, identity_of, is_damage, lock_file, size_bytes
from .entry import Entry, now_text
from .environment import substitute_for
from .header import APPLICATION_ID, FileKind, read_header
from .salvage import Salvage, salvage, set_aside
from .schema import STEPS, Step

T = TypeVar("T")

BUSY_S = 10.0
"""How long another process may hold the file before we go on without it."""
MEMORY_VERSIONS = 1 << 48
"""Versions from here on are of entries that are in memory only."""
_FULL_CHECK_BYTES = 4 << 20


class _Foreign(Exception):
    """The file turned out not to be ours."""


class _Newer(Exception):
    """The file's schema is newer than this program's."""


class Database:
    """The entries and records of one file; of memory alone when `path` is None.

    `path` is the file really used: None once there is none, and `<name>.rooftune.db` where the
    wanted file is not ours (with `substitute=False` nothing is used instead). `warn` is called with
    each new warning; all are in `.warnings`. Safe to use from several threads, and in a forked child.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        warn: Callable[[str], None] | None = None,
        steps: Sequence[Step] = STEPS,
        busy_s: float = BUSY_S,
        read_only: bool = False,
        substitute: bool = True,
    ) -> None:
        self.path = absolute(path) if path is not None else None
        self.warnings: list[str] = []
        self.writable = False
        self.schema = len(steps)
        self._warn = warn
        self._steps = steps
        self._busy_s = busy_s
        self._wants_read_only = read_only
        self._substitute = substitute
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._pid = os.getpid()
        self._abandoned: list[sqlite3.Connection] = []
        self._replaced = False
        self._lock = threading.RLock()
        self._memory: dict[tuple[str, str, str], Entry] = {}
        self._memory_records: list[tuple[str, str, str]] = []
        self._memory_versions = itertools.count(MEMORY_VERSIONS)
        with self._lock:
            self._open()

    # -- what callers do -----------------------------------------------------------------------------------

    def get(self, namespace: str, key: str, checksum: str = "") -> Entry | None:
        """The entry, or None when there is none or it is damaged."""
        place = (namespace, key, checksum)
        with self._lock:
            if place in self._memory:
                return self._memory[place]
            row = self._read(lambda connection: sql.select(connection, place), None)
        return self._sound(row) if row else None

    def version(self, namespace: str, key: str, checksum: str = "") -> int:
        """The version of what is stored there now, sound or not; 0 for nothing. See `put`."""
        place = (namespace, key, checksum)
        with self._lock:
            if place in self._memory:
                return self._memory[place].version
            row = self._read(lambda connection: sql.select(connection, place), None)
        return int(row[6]) if row else 0

    def put(self, entry: Entry, began_at: int | None = None) -> Entry:
        """Store an entry and return the one that stands.

        `began_at` is the version seen when the work for it began: what stood there then is replaced, what was
        committed since by somebody else stays. None replaces whatever there is.
        """
        entry = replace(entry, at=entry.at or now_text(), version=0)
        place = (entry.namespace, entry.key, entry.checksum)
        with self._lock:
            known = self._memory.get(place)
            if known is not None and began_at not in (None, known.version):
                return known
            if known is not None:
                began_at = None
            stands = self._write(lambda connection: sql.put(connection, entry, began_at))
            if stands is not None:
                self._memory.pop(place, None)
                return stands
            self._memory[place] = replace(entry, version=next(self._memory_versions))
            return self._memory[place]

    def at_key(self, namespace: str, key: str) -> list[Entry]:
        """All sound entries for a key, whatever their checksum, oldest first."""
        rows: list[tuple[Any, ...]] = []
        with self._lock:
            rows = self._read(lambda connection: sql.select_key(connection, namespace, key), rows)
            found = {entry.checksum: entry for row in rows if (entry := self._sound(row)) is not None}
            held = [entry for place, entry in self._memory.items() if place[:2] == (namespace, key)]
        found |= {entry.checksum: entry for entry in held}
        return sorted(found.values(), key=lambda entry: entry.version)

    def namespaces_of(self, key: str, prefix: str) -> set[str]:
        """The namespaces at or below `prefix` that have an entry for this key."""
        nothing: set[str] = set()
        with self._lock:
            found = self._read(lambda connection: sql.select_namespaces(connection, key, prefix), nothing)
            held = {name for name, at, _ in self._memory if at == key and sql.is_below(name, prefix)}
        return found | held

    def find(self, prefix: str = "") -> list[Entry]:
        """All sound entries whose namespace is `prefix` or below it, oldest first."""
        return [entry for entry, sound in self.scan(prefix) if sound]

    def scan(self, prefix: str = "") -> list[tuple[Entry, bool]]:
        """All entries at or below a namespace, oldest first, each with whether it is as it was written."""
        no_rows: list[tuple[Any, ...]] = []
        with self._lock:
            rows = self._read(lambda connection: sql.select_below(connection, prefix), no_rows)
            entries = [sql.entry_of(row) for row in rows]
            found = [(entry, entry.digest == row[7]) for entry, row in zip(entries, rows, strict=True)]
            held = [entry for entry in self._memory.values() if sql.is_below(entry.namespace, prefix)]
        places = {(entry.namespace, entry.key, entry.checksum) for entry in held}
        found = [(e, sound) for e, sound in found if (e.namespace, e.key, e.checksum) not in places]
        return found + [(entry, True) for entry in held]

    def delete(self, entries: Sequence[Entry]) -> int:
        """Remove these entries, and say how many there were. A value written since is left alone."""
        with self._lock:
            removed = 0
            for entry in entries:
                place = (entry.namespace, entry.key, entry.checksum)
                if place in self._memory and self._memory[place].version == entry.version:
                    del self._memory[place]
                    removed += 1
            versions = [(entry.version,) for entry in entries]
            return removed + (self._write(lambda connection: sql.delete(connection, versions)) or 0)

    def append(self, records: Sequence[tuple[str, str]]) -> None:
        """Add records, (namespace, JSON text): lines of history that are never looked up."""
        at = now_text()

        def write(connection: sqlite3.Connection) -> bool:
            for namespace, value in records:
                sql.append(connection, namespace, at, value)
            return True

        with self._lock:
            if self._write(write) is None:
                self._memory_records.extend((namespace, at, value) for namespace, value in records)
                del self._memory_records[: -sql.RECORDS_KEPT]

    def records(self, prefix: str, newest: int | None = None) -> list[tuple[str, str, str]]:
        """(namespace, at, value) of records at or below a namespace, oldest first; the `newest` so many."""
        rows: list[tuple[str, str, str]] = []
        with self._lock:
            rows = self._read(lambda connection: sql.select_records(connection, prefix), rows)
            rows += [record for record in self._memory_records if sql.is_below(record[0], prefix)]
        return rows[len(rows) - min(newest, len(rows)) :] if newest is not None else rows

    def counts(self) -> list[tuple[str, int, int]]:
        """(namespace, entries, bytes of their keys and values) for every namespace, records included."""
        totals: dict[str, tuple[int, int]] = {}
        entries = ((entry.namespace, entry.key + entry.value) for entry, _ in self.scan())
        records = ((namespace, value) for namespace, _, value in self.records(""))
        for namespace, text in itertools.chain(entries, records):
            count, size = totals.get(namespace, (0, 0))
            totals[namespace] = (count + 1, size + len(text.encode("utf-8", "surrogatepass")))
        return [(namespace, *totals[namespace]) for namespace in sorted(totals)]

    def problems(self) -> list[str]:
        """What a full check of the file finds wrong; empty when all is well."""
        with self._lock:
            lines = self._read(
                lambda connection: [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)")],
                ["ok"],
            )
        found = [] if lines == ["ok"] else lines
        return found + [f"entry {entry.id} is damaged" for entry, sound in self.scan() if not sound]

    def lock(self, name: str, wait_s: float, holder: str) -> locks.Lock:
        """A lock between processes that use this file (see locks.acquire); always had without a file."""
        if self.path is None or not self.writable:
            return locks.Lock(None, owned=True)
        return locks.acquire(lock_file(self.path), name, wait_s, holder)

    def close(self) -> None:
        """Let go of the file. Using the database again opens it again."""
        with self._lock:
            self._disconnect()

    # -- reading and writing -------------------------------------------------------------------------------

    def _read(self, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        for attempt in (1, 2):
            connection = self._usable()
            if connection is None:
                return otherwise
            try:
                return action(connection)
            except (sqlite3.Error, ValueError, OverflowError) as error:
                if attempt == 2 or not self._recover(error, "read"):
                    break
        return otherwise

    def _write(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """What the action returns, committed; None when it could not be written."""
        for attempt in (1, 2):
            connection = self._usable()
            if connection is None or not self.writable:
                return None
            try:
                return self._transaction(connection, action)
            except _Newer:
                self._reopen_read_only()
            except (sqlite3.Error, ValueError, OverflowError) as error:
                if attempt == 2 or not self._recover(error, "write"):
                    break
        return None

    def _transaction(self, connection: sqlite3.Connection, action: Callable[[sqlite3.Connection], T]) -> T:
        with waiting(WRITER):
            connection.execute("BEGIN IMMEDIATE")
        try:
            if sql.user_version(connection) > self.schema:  # a newer program migrated the file meanwhile
                raise _Newer
            result = action(connection)
            connection.execute("COMMIT")
            return result
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _sound(self, row: tuple[Any, ...]) -> Entry | None:
        entry = sql.entry_of(row)
        if entry.digest == row[7]:
            return entry
        self.say(f"entry {entry.id} of {self.path} is damaged and counts as missing")
        return None

    # -- trouble -------------------------------------------------------------------------------------------

    def _recover(self, error: Exception, verb: str) -> bool:
        """Deal with a failed read or write; True when it is worth trying again."""
        if not is_damage(error):
            self.say(
                f"{self.path} could not be {'read' if verb == 'read' else 'written'} ({error}); "
                f"what is new is kept in memory for this run"
            )
            if "locked" in str(error) or "busy" in str(error):
                self._wait_less()
            return False
        return self._repair(error)

    def _repair(self, error: Exception) -> bool:
        """Open the file again, replacing it if it really is damaged; True when it can be written again."""
        path = self.path
        if path is None:
            return False
        if self._wants_read_only:
            self._give_up(f"{path} is damaged ({error}); what can be read of it is kept")
            self._carry_over(salvage(path))
            return False
        self._disconnect()
        with locks.acquire(lock_file(path), "open", self._busy_s, STORE):
            return self._open_ours(path, thorough=True)

    def _replace_damaged(self, path: Path, error: Exception) -> bool:
        """Set the damaged file aside and start a new one with what can be read; the opening lock is held."""
        if self._replaced:
            self._give_up(f"{path} is damaged again ({error})")
            return False
        self._replaced = True
        saved = self._rescue(path, error)
        if saved is None or not self._open_ours(path):
            return False
        self._carry_over(saved)
        return True

    def _rescue(self, path: Path, error: Exception) -> Salvage | None:
        try:
            aside = set_aside(path)
        except OSError as refusal:
            saved = salvage(path)
            self._give_up(f"{path} is damaged ({error}) and cannot be set aside ({refusal.strerror})")
            self._carry_over(saved)
            return None
        saved = salvage(aside)
        self.say(
            f"{path} was damaged ({error}); it is set aside as {aside.name}, and {len(saved.entries)} of its "
            f"entries could be read and are kept"
        )
        return saved

    def _carry_over(self, saved: Salvage) -> None:
        def write(connection: sqlite3.Connection) -> bool:
            for entry in saved.entries:
                sql.put(connection, entry, None)
            for record in saved.records:
                sql.append(connection, *record)
            return True

        if self._write(write) is None:
            for entry in saved.entries:
                kept = replace(entry, version=next(self._memory_versions))
                self._memory[entry.namespace, entry.key, entry.checksum] = kept
            self._memory_records.extend(saved.records)

    def _give_up(self, why: str) -> None:
        self._disconnect()
        self.path, self.writable = None, False
        self.say(f"{why}; nothing is stored beyond this run")

    def say(self, text: str) -> None:
        """Warn of something, once."""
        if text not in self.warnings:
            self.warnings.append(text)
            if self._warn is not None:
                self._warn(text)

    def _wait_less(self) -> None:
        self._busy_s = min(self._busy_s, 0.2)
        if self._connection is not None:
            self._connection.execute(f"PRAGMA busy_timeout = {int(self._busy_s * 1000)}")

    # -- opening -------------------------------------------------------------------------------------------

    def _usable(self) -> sqlite3.Connection | None:
        """The connection, opened again after a fork, a close, or when the file was replaced or deleted."""
        if self.path is None:
            return None
        if self._pid != os.getpid():
            self._abandon()
        if self._connection is not None and self._identity not in (None, identity_of(self.path)):
            self._disconnect()
        if self._connection is None:
            self._open()
        return self._connection

    def _abandon(self) -> None:
        """A connection inherited through a fork must not be used, nor closed: that harms the parent."""
        if self._connection is not None:
            self._abandoned.append(self._connection)
        self._connection, self._pid = None, os.getpid()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection, self._identity = None, None

    def _open(self) -> None:
        if self.path is None:
            return
        path = self._ours_or_substitute(self.path)
        if path is None:
            return
        self.path = path
        if self._wants_read_only:
            self._open_read_only(path, "")
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            self._give_up(f"{path.parent} cannot be made ({getattr(error, 'strerror', None) or error})")
            return
        with locks.acquire(lock_file(path), "open", self._busy_s, STORE):
            self._open_ours(path)

    def _ours_or_substitute(self, path: Path) -> Path | None:
        """A path that holds our file or none. A foreign file is left alone, byte for byte."""
        header = read_header(path)
        if header.kind is not FileKind.FOREIGN:
            return path
        other = substitute_for(path)
        if not self._substitute or other == path or read_header(other).kind is FileKind.FOREIGN:
            self._give_up(f"{path} {header.why} and is left alone")
            return None
        self.say(f"{path} {header.why} and is left alone; {other.name} beside it is used instead")
        return other

    def _open_ours(self, path: Path, thorough: bool = False) -> bool:
        """Connect, migrate, check; the opening lock is held. False when the file can at best be read."""
        header = read_header(path)
        if header.schema > self.schema:
            return self._open_newer(path)
        try:
            connection = connect(path, "rwc", self._busy_s)
            try:
                self._prepare(connection, thorough or size_bytes(path) <= _FULL_CHECK_BYTES)
            except BaseException:
                connection.close()
                raise
        except _Newer:
            return self._open_newer(path)
        except _Foreign:
            self._give_up(f"{path} is not a store of rooftune and is left alone")
            return False
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if is_damage(error):
                return self._replace_damaged(path, error)
            return self._open_read_only(path, f"{path} cannot be written ({error})")
        self._connection, self._identity, self.writable = connection, identity_of(path), True
        return True

    def _prepare(self, connection: sqlite3.Connection, thorough: bool) -> None:
        if sql.user_version(connection) > self.schema:
            raise _Newer
        if sql.user_version(connection) < self.schema or sql.application_id(connection) != APPLICATION_ID:
            self._migrate(connection)
        with suppress(sqlite3.OperationalError):  # locked by another, or a folder that cannot have WAL
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        verdict = sql.check(connection, thorough)
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        connection.execute(f"SELECT {sql.COLUMNS}, id FROM entries LIMIT 1").fetchone()
        connection.execute("SELECT sequence, namespace, at, value FROM records LIMIT 1").fetchone()

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Take the missing steps, all or none. The marks of the file go in with the first.

        A new file is still without a WAL here, so the marks are in its own first bytes once this commits.
        """
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = sql.user_version(connection)
            if version > self.schema:
                raise _Newer
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            marked = sql.application_id(connection)
            if marked != APPLICATION_ID and (tables or marked):
                raise _Foreign
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            for step in self._steps[max(version, 0) :]:
                step(connection)
            connection.execute(f"PRAGMA user_version = {self.schema}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _open_newer(self, path: Path) -> bool:
        return self._open_read_only(
            path,
            f"{path} was written by a newer rooftune (schema {read_header(path).schema}, this one knows "
            f"{self.schema}) and is only read",
        )

    def _reopen_read_only(self) -> None:
        path = self.path
        self._disconnect()
        if path is not None:
            self._open_newer(path)

    def _open_read_only(self, path: Path, why: str) -> bool:
        """Read what is there; always False, for nothing can be written."""
        self.writable = False
        self._wants_read_only = True
        kind = read_header(path).kind
        connection = connect_read_only(path, self._busy_s) if kind is FileKind.OURS else None
        if connection is None:
            self._give_up(why or f"{path} cannot be read")
            return False
        self._connection, self._identity = connection, None
        if why:
            self.say(f"{why}; what is new is kept in memory for this run")
        return False
