"""Decisions on their way to other machines: one JSON file, checked in every part before anything is taken.

Importing only ever adds rows to the open store. What is imported is marked so, and is proven on this
machine before it is used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UsageError
from ..formats import load_schema
from ..tuning.decision import Decision
from ..tuning.tunable import separated_hash
from .database import MEMORY_VERSIONS, Database
from .entry import IMPORTED, LOCAL, Entry, now_text, parts, sha256, to_text
from .jsonshape import first_problem
from .leftovers import half_made, reclaim
from .stores import decisions_namespace

EXPORT_SCHEMA = "rooftune/export/1"
MAX_FILE_BYTES = 64 << 20

_SIGNED = ("device_id", "tuner", "level", "checksum", "key", "at")


@dataclass(frozen=True)
class Refusal:
    """An entry that was not taken, and why. `invalid` unless something as good is already there."""

    id: str
    reason: str
    invalid: bool


@dataclass(frozen=True)
class ImportReport:
    """The ids of the entries taken, and those refused."""

    taken: tuple[str, ...]
    refused: tuple[Refusal, ...]


class _Invalid(Exception):
    """An entry that cannot be believed; the text says why."""


def export_decisions(entries: Iterable[Entry]) -> dict[str, Any]:
    """Stored decisions as one JSON object that `import_decisions` takes."""
    exported = [_exported(entry) for entry in entries]
    return {
        "schema": EXPORT_SCHEMA,
        "rooftune": __version__,
        "at": now_text(),
        "entries": exported,
        "sha256": sha256(*(entry["sha256"] for entry in exported)),
    }


def write_export(path: Path, entries: Sequence[Entry]) -> None:
    """Write an export, whole or not at all. UsageError when it cannot be written."""
    text = json.dumps(export_decisions(entries), ensure_ascii=False, indent=1) + "\n"
    try:
        reclaim(path.parent, re.escape(path.name), _is_export)
        temporary = half_made(path)
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written ({reason})", hint="Name a file that can be.") from error


def _is_export(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(100).startswith(b'{\n "schema": "' + EXPORT_SCHEMA.encode())


def read_export(path: Path) -> dict[str, Any]:
    """The JSON object of an export file. UsageError when it is not one or was changed."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read ({reason})", hint="Name a readable file.") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB and is not read")
    try:
        data = _strict_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON text: {str(error)[:200]}", hint=_WHAT_IT_IS) from error
    if not isinstance(data, dict) or data.get("schema") != EXPORT_SCHEMA:
        raise UsageError(f"{path} is not an export of decisions ({EXPORT_SCHEMA})", hint=_WHAT_IT_IS)
    whole = {**_schema(), "properties": {**_schema()["properties"], "entries": {"type": "array"}}}
    if problem := first_problem(data, whole):
        raise UsageError(f"{path} is not a valid export: {problem}", hint=_WHAT_IT_IS)
    claimed = [entry.get("sha256") if isinstance(entry, dict) else None for entry in data["entries"]]
    if data["sha256"] != sha256(*(str(digest) for digest in claimed)):
        raise UsageError(
            f"{path} was changed since it was exported: its checksum is wrong", hint="Export it again."
        )
    return data


def import_decisions(database: Database, data: dict[str, Any]) -> ImportReport:
    """Take what is valid out of an export (see read_export) into the store.

    A local decision always stays; an imported one gives way to a newer one.
    """
    taken: list[str] = []
    refused: list[Refusal] = []
    for number, exported in enumerate(data["entries"], 1):
        name = _name(exported, number)
        try:
            entry = _imported(exported)
        except _Invalid as problem:
            refused.append(Refusal(name, str(problem), invalid=True))
            continue
        reason = _why_not(database, entry)
        if reason:
            refused.append(Refusal(name, reason, invalid=False))
        else:
            taken.append(entry.id)
    return ImportReport(tuple(taken), tuple(refused))


_WHAT_IT_IS = "Import takes files that `tune cache export` wrote."


@cache
def _schema() -> dict[str, Any]:
    return load_schema("export")


def _exported(entry: Entry) -> dict[str, Any]:
    _, _, device_id, tuner, level = parts(entry.namespace)
    decision = json.loads(entry.value)
    fields = {
        "id": entry.id,
        "device_id": device_id,
        "tuner": tuner,
        "level": level,
        "checksum": entry.checksum,
        "key": entry.key,
        "at": entry.at,
        "decision": decision,
    }
    return {**fields, "sha256": _digest(fields)}


def _digest(fields: dict[str, Any]) -> str:
    return sha256(*(fields[name] for name in _SIGNED), to_text(fields["decision"]))


def _imported(exported: Any) -> Entry:
    """The entry that an exported one stands for. Raises _Invalid for whatever does not fit together."""
    schema = _schema()
    if problem := first_problem(exported, schema["$defs"]["entry"], schema["$defs"]):
        raise _Invalid(problem)
    try:
        digest = _digest(exported)
    except (ValueError, RecursionError) as error:  # 1e999 is read as infinity, which no export holds
        raise _Invalid(f"its decision can't be stored: {error}") from error
    if exported["sha256"] != digest:
        raise _Invalid("its checksum is wrong: it was changed or damaged")
    stored = exported["decision"]
    try:
        decision = Decision.from_json(stored)
        key = _strict_json(exported["key"])
    except (ValueError, RecursionError) as error:
        raise _Invalid(str(error)[:200]) from error
    if key != decision.key:
        raise _Invalid("its decision is for another key")
    for name in ("device_id", "tuner", "level", "checksum"):
        if stored[name] != exported[name]:
            raise _Invalid(f"its decision has another {name}")
    if exported["checksum"] != separated_hash(*(evidence.name for evidence in decision.evidence)):
        raise _Invalid("its checksum is not that of its candidates")
    if decision.bad:
        raise _Invalid("its winner was found to be faulty")
    if len(decision.evidence) > 1 and not decision.winner.timed:
        raise _Invalid("its winner was never measured")
    place = decisions_namespace(exported["device_id"], exported["tuner"], exported["level"])
    entry = Entry(place, exported["key"], exported["checksum"], to_text(stored), IMPORTED, exported["at"])
    if entry.id != exported["id"]:
        raise _Invalid("its id is not that of its key")
    return entry


def _why_not(database: Database, entry: Entry) -> str:
    """Store a valid entry, or say why what is there already stays."""
    standing = database.get(entry.namespace, entry.key, entry.checksum)
    began_at = database.version(entry.namespace, entry.key, entry.checksum)
    if standing is not None and standing.origin == LOCAL:
        return "a decision made on this machine is there already"
    if standing is not None and standing.value == entry.value:
        return "the same decision was imported before"
    if standing is not None and standing.at > entry.at:
        return "a newer decision was imported before"
    stands = database.put(entry, began_at)
    if (stands.value, stands.origin) != (entry.value, entry.origin):
        return "another process stored a decision meanwhile"
    in_memory = stands.version >= MEMORY_VERSIONS
    return "the store could not be written" if in_memory and database.path is not None else ""


def _strict_json(text: str) -> Any:
    """JSON without NaN, infinities and repeated names."""

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is given twice")
        return found

    return json.loads(text, parse_constant=no_constant, object_pairs_hook=once)


def _name(exported: Any, number: int) -> str:
    """The id an entry gives itself where that is safe to show, else its place in the file."""
    given = exported.get("id") if isinstance(exported, dict) else None
    safe = isinstance(given, str) and re.fullmatch(r"[0-9a-f]{12}", given)
    return given if safe and given else f"entry {number}"
