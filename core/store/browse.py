"""Looking at stores and tidying them up: what `tune cache` and `tune env` show and remove."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import UsageError
from ..tuning.decision import Decision
from ..waiting import STORE
from . import locks
from .connections import connect, lock_file
from .database import BUSY_S, Database
from .entry import Entry, parts
from .environment import environment_folder, environment_name, locate, substitute_for
from .header import APPLICATION_ID, FileKind, read_header
from .leftovers import half_made, reclaim
from .schema import SCHEMA

MAX_STRIDE_FACTOR = 10
"""Keys tell alignments apart up to 2 to this power."""
SHORT_ID = 8
"""Digits of an id that are shown to people; any unambiguous beginning of one names its entry."""


@dataclass(frozen=True)
class StoredDecision:
    """One decision in a store, with what a list shows of it.

    `decision` is None when the entry is damaged or is no decision. `checksum_ok`: whether it was made for
    today's list of candidates; None where that list is not known. `measured` counts candidates, `roofline`
    is the winner's share of it.
    """

    entry: Entry
    device_id: str
    tuner: str
    level: str
    key: Any
    decision: Decision | None
    checksum_ok: bool | None

    @property
    def id(self) -> str:
        return self.entry.id

    def row(self) -> dict[str, Any]:
        """The entry as `tune cache ls --json` gives it."""
        decision = self.decision
        return {
            "id": self.id,
            "namespace": self.entry.namespace,
            "device": self.device_id,
            "tuner": self.tuner,
            "level": self.level,
            "key": self.key,
            "winner": decision.name if decision else None,
            "median_s": decision.median_s if decision else None,
            "roofline": decision.roofline if decision else None,
            "measured": decision.measured if decision else 0,
            "checksum_ok": self.checksum_ok,
            "origin": self.entry.origin,
            "at": self.entry.at,
        }


@dataclass(frozen=True)
class EnvironmentFile:
    """One environment of a folder: its file, its size with what SQLite keeps beside it, its decisions."""

    name: str
    path: Path
    size_bytes: int
    decisions: int
    current: bool


# -- opening -----------------------------------------------------------------------------------------------


def open_environment(
    config: Config, *, cwd: Path | None = None, warn: Callable[[str], None] | None = None
) -> Database:
    """The configured environment to look at: a file that is not there is not made, and looks empty."""
    location = locate(config.environment.name, config.environment.path, cwd)
    if location.path is None:
        raise UsageError(location.problem, hint="Set [environment] path, or XDG_CACHE_HOME.")
    path, absent = location.path, (FileKind.MISSING, FileKind.NEW)
    if read_header(path).kind is FileKind.FOREIGN and read_header(substitute_for(path)).kind in absent:
        return Database(path, warn=warn, substitute=False)
    return Database(None if read_header(path).kind in absent else path, warn=warn)


def open_file(path: Path, *, write: bool = False, warn: Callable[[str], None] | None = None) -> Database:
    """A store given by its file. UsageError when it is none. Only with `write` is it ever changed."""
    kind = read_header(path).kind
    if kind is FileKind.MISSING:
        raise UsageError(f"there is no file {path}", hint="`tune env ls` lists the environments there are.")
    if kind is not FileKind.OURS:
        raise UsageError(f"{path} is not a store of rooftune", hint="Name the .db file of an environment.")
    return Database(path, warn=warn, read_only=not write, substitute=False)


def environment_path(config: Config, cwd: Path | None = None) -> Path:
    """The file of the configured environment, whether there or not. UsageError where there is no place."""
    location = locate(config.environment.name, config.environment.path, cwd)
    if location.path is None:
        raise UsageError(location.problem, hint="Set [environment] path, or XDG_CACHE_HOME.")
    return location.path


def used_path(config: Config, cwd: Path | None = None) -> Path:
    """The same; where it is a file of another program, the one that is used instead (see substitute_for)."""
    path = environment_path(config, cwd)
    other = substitute_for(path)
    foreign = FileKind.FOREIGN
    return other if read_header(path).kind is foreign and read_header(other).kind is not foreign else path


# -- decisions ---------------------------------------------------------------------------------------------


def stored_decisions(database: Database, checksums: Mapping[str, str] | None = None) -> list[StoredDecision]:
    """All decisions of a store, oldest first; `checksums` are today's by tuner name."""
    found = database.scan("autotune")
    return [_stored(entry, sound, checksums or {}) for entry, sound in found]


def find_decisions(stored: Sequence[StoredDecision], ids: Iterable[str]) -> list[StoredDecision]:
    """The decisions that ids, or beginnings of ids, name. UsageError for none or several."""
    chosen: dict[str, StoredDecision] = {}
    for text in ids:
        wanted = text.strip().lower()
        fitting = [item for item in stored if wanted and item.id.startswith(wanted)]
        if not fitting:
            raise UsageError(f"there is no decision '{text}'", hint="`tune cache ls` lists them all.")
        if len({item.id for item in fitting}) > 1:
            names = ", ".join(item.id for item in fitting[:5])
            raise UsageError(f"'{text}' names several decisions: {names}", hint="Give more of the id.")
        chosen[fitting[0].id] = fitting[0]
    return list(chosen.values())


def select_decisions(
    stored: Sequence[StoredDecision],
    *,
    tuner: str | None = None,
    device: str | None = None,
    level: str | None = None,
    older_than: timedelta | None = None,
) -> list[StoredDecision]:
    """The decisions that fit everything given; `device` is any part of a device id, whatever the case."""
    before = datetime.now(timezone.utc) - older_than if older_than is not None else None
    return [
        item
        for item in stored
        if (tuner is None or item.tuner == tuner)
        and (device is None or device.lower() in item.device_id.lower())
        and (level is None or item.level == level)
        and (before is None or _is_before(item.entry.at, before))
    ]


def parse_age(text: str) -> timedelta:
    """An age as typed: `90s`, `15m`, `12h`, `30d`, `2w`. UsageError for anything else."""
    match = re.fullmatch(r"(\d{1,6})\s*([smhdw])", text.strip().lower())
    if not match:
        raise UsageError(f"'{text}' is no age", hint="Give a number and one of s, m, h, d, w: 30d, 12h.")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match.group(2)]
    return timedelta(seconds=int(match.group(1)) * seconds)


def age_text(at: str) -> str:
    """How long ago, in four characters at most: 5s, 12m, 3h, 40d; `now` too where a clock went back."""
    then = _time(at)
    if then is None:
        return "?"
    seconds = (datetime.now(timezone.utc) - then).total_seconds()
    if seconds < 1:
        return "now"
    for unit, size in (("s", 60), ("m", 60), ("h", 24), ("d", 999)):
        if seconds < size:
            return f"{int(seconds)}{unit}"
        seconds /= size
    return "old"


def key_text(key: Any) -> str:
    """A key in a few words, for a list: `1024 f32 T @32`; of other tuners its fields.

    `@32`: strides are multiples of 32 bytes only; nothing is said of 1024 and more.
    """
    try:
        definition = key["definition"]
        extents = [str(int(definition[name])) for name in ("m", "n", "k")]
        size = extents[0] if len(set(extents)) == 1 else "x".join(extents)
        batch = f" b{definition['batch']}" if definition["batch"] != 1 else ""
        flags = _layout_mark(definition["matrix_layout_lhs"], "t")
        flags += _layout_mark(definition["matrix_layout_rhs"], "T")
        precision = f" {definition['precision']}" if definition["precision"] != "full" else ""
        factor = min(definition["lhs_stride_factor"], definition["rhs_stride_factor"])
        aligned = f" @{2**factor}" if factor < MAX_STRIDE_FACTOR else ""
        return f"{size}{batch} {definition['elem_lhs']}{precision}" + (f" {flags}" if flags else "") + aligned
    except (KeyError, TypeError, ValueError):
        return printable(_own_key_text(key))


def _own_key_text(key: Any) -> str:
    """Another tuner's key: `height=512 width=32` where it is flat, else compact JSON."""
    if isinstance(key, dict) and key and not any(isinstance(each, (dict, list)) for each in key.values()):
        values = {name: each if isinstance(each, str) else json.dumps(each) for name, each in key.items()}
        return " ".join(f"{name}={each}" for name, each in values.items())
    return json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def named_key(tuner: str, key: Any) -> str:
    """A key in a few words, for a list of several tuners' keys: another tuner's after its name."""
    if tuner == "matmul":
        return key_text(key)
    return f"{printable(tuner)} {own_key_text(key)}"


def own_key_text(key: Any) -> str:
    """Another tuner's key in a few words: a problem size alone as it is typed."""
    size = key.get("problem_size") if isinstance(key, dict) else None
    return "x".join(map(str, size)) if isinstance(size, list) else key_text(key)


def short_tuner(tuner: str) -> str:
    """A tuner's name as people say it: that of a specified kernel without `kernel:`."""
    return printable(tuner).removeprefix("kernel:")


def find_tuner(stored: Sequence[StoredDecision], text: str) -> str | None:
    """The tuner with decisions that a text names: whole, as lists show it, or short; None for none.

    A whole name is never another tuner's short one. UsageError for several.
    """
    tuners = sorted({item.tuner for item in stored})
    fitting = [tuner for tuner in tuners if text in (tuner, printable(tuner))]
    fitting = fitting or [tuner for tuner in tuners if short_tuner(tuner) == text]
    if len(fitting) > 1:
        names = ", ".join(map(printable, fitting))
        raise UsageError(f"'{text}' names several tuners: {names}", hint="Give the whole name.")
    return fitting[0] if fitting else None


def _layout_mark(layout: Any, mark: str) -> str:
    return {"Contiguous": "", "HighlyPermuted": "?"}.get(layout, mark) if isinstance(layout, str) else mark


def printable(text: str) -> str:
    """Text without control characters: what is stored may come from elsewhere, and terminals obey those."""
    return "".join(char if char.isprintable() else "?" for char in text)


# -- checking ----------------------------------------------------------------------------------------------


def verify_file(path: Path) -> list[str]:
    """What is wrong with a store's file, in sentences; empty when all is well. Changes nothing."""
    header = read_header(path)
    if header.kind is FileKind.FOREIGN:
        return [f"{path} is not a store of rooftune, or its first bytes are damaged"]
    if header.kind is not FileKind.OURS:
        return []
    if header.schema > SCHEMA:
        return [f"{path} was written by a newer rooftune (schema {header.schema}, this one knows {SCHEMA})"]
    with closing(Database(path, read_only=True, substitute=False)) as database:
        problems = database.problems()
        bad = [item for item in stored_decisions(database) if item.decision is None]
        found = problems + [f"entry {item.id} is no decision" for item in bad]
    return list(dict.fromkeys(found + list(database.warnings)))


# -- environments ------------------------------------------------------------------------------------------


def list_environments(config: Config, cwd: Path | None = None) -> list[EnvironmentFile]:
    """The environments of the configured folder, by name. Nothing is opened for writing."""
    folder = environment_folder(config.environment.path, cwd)
    current = environment_name(config.environment.name)
    try:
        paths = sorted(folder.glob("*.db")) if folder is not None else []
    except OSError:
        paths = []
    return [
        EnvironmentFile(path.stem, path, _size_bytes(path), _count(path), path.stem == current)
        for path in paths
        if read_header(path).kind in (FileKind.OURS, FileKind.NEW)
    ]


def find_environment(config: Config, name: str, cwd: Path | None = None) -> Path:
    """The file of an environment that is there and ours; UsageError otherwise."""
    folder = environment_folder(config.environment.path, cwd)
    path = folder / f"{environment_name(name)}.db" if folder is not None else None
    kind = read_header(path).kind if path is not None else FileKind.MISSING
    if path is None or kind is FileKind.MISSING:
        raise UsageError(f"there is no environment '{name}'", hint="`tune env ls` lists them all.")
    if kind is FileKind.FOREIGN:
        raise UsageError(f"{path} is not a store of rooftune and is left alone")
    return path


def remove_environment(path: Path) -> Path:
    """Delete an environment's file (see find_environment) with all that SQLite keeps beside it."""
    with locks.acquire(lock_file(path), "open", BUSY_S, STORE):
        try:
            path.unlink()
            for suffix in ("-wal", "-shm", "-journal"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path} cannot be removed ({error.strerror})") from error
    with suppress(OSError):
        lock_file(path).unlink()
    return path


def copy_environment(config: Config, source: str, target: str, cwd: Path | None = None) -> Path:
    """Copy an environment, whole and consistent, to a new name. UsageError when the name is taken."""
    origin = find_environment(config, source, cwd)
    path = origin.with_name(f"{environment_name(target)}.db")
    if path.exists():
        raise UsageError(f"there is an environment '{path.stem}' already", hint="Choose another name.")
    reclaim(path.parent, r".+\.db", lambda left: read_header(left).kind is FileKind.OURS)
    temporary = half_made(path)
    try:
        with closing(connect(origin, "ro", BUSY_S)) as old, closing(connect(temporary, "rwc", BUSY_S)) as new:
            new.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # ours from the first moment
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")
        _rename_to_new(temporary, path)
    except FileExistsError:
        raise UsageError(f"there is an environment '{path.stem}' already") from None
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"{origin} cannot be copied to {path} ({error})") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return path


def _rename_to_new(source: Path, target: Path) -> None:
    """Give a file a name that must not be taken. FileExistsError when it is."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(target) from None
        os.rename(source, target)


def _stored(entry: Entry, sound: bool, checksums: Mapping[str, str]) -> StoredDecision:
    place = parts(entry.namespace)
    device_id, tuner, level = place[2:5] if len(place) == 5 else ("", "", "")
    decision = _decision(entry) if sound else None
    known = checksums.get(tuner)
    checksum_ok = None if known is None else known == entry.checksum
    return StoredDecision(
        entry, device_id, tuner, level, _json(entry.key), decision, checksum_ok if decision else False
    )


def _decision(entry: Entry) -> Decision | None:
    value = _json(entry.value)
    try:
        return Decision.from_json({**value, "origin": entry.origin}) if isinstance(value, dict) else None
    except ValueError:
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _time(at: str) -> datetime | None:
    try:
        then = datetime.fromisoformat(at.replace("Z", "+00:00"))
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=timezone.utc)


def _is_before(at: str, limit: datetime) -> bool:
    then = _time(at)
    return then is not None and then < limit


def _size_bytes(path: Path) -> int:
    sizes = 0
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            sizes += path.with_name(path.name + suffix).stat().st_size
    return sizes


def _count(path: Path) -> int:
    if read_header(path).kind is not FileKind.OURS:
        return 0
    with closing(Database(path, read_only=True, substitute=False)) as database:
        return len(database.scan("autotune"))
