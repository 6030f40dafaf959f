"""What is kept, each kind under its own namespace: decisions, probe results, proofs, records.

autotune/<schema>/<device id>/<tuner name>/<level>      decisions
throughput/<schema>/probe-v<n>/<device id>              probe results
proofs/<schema>/<device id>                             verdicts that will not change
records/v1/autotune | compilation | sessions            what happened, for people; never looked up
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config
from ..tuning.place import Place
from ..waiting import KEY
from .database import Database
from .entry import IMPORTED, LOCAL, Entry, namespace, parts, to_text
from .environment import locate
from .locks import Lock
from .schema import SCHEMA

CLAIM_WAIT_S = 120.0
"""How long a process waits for another that is tuning the same key, before it tunes it itself."""

SILENT_WAIT_S = 2.0
"""So much of that waiting is not worth a word."""

RECORD_KINDS = ("autotune", "compilation", "sessions")


@dataclass
class Claim:
    """The right to tune a key, or the decision that made it needless. Use in a `with`.

    `decision` is what another process decided while this one waited, else None. `owned` is False when another
    process still held the key after all the waiting: tune it anyway.
    """

    owned: bool
    decision: dict[str, Any] | None = None
    _lock: Lock | None = field(default=None, repr=False)

    def release(self) -> None:
        """Let the next process have the key. A process that dies releases its claims by dying."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class DecisionStore:
    """Decisions, by tuner, level, device, checksum of the candidates' names, and key.

    `key_json` and decisions are JSON-able values; equal keys give equal JSON text.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, place: Place) -> dict[str, Any] | None:
        """The stored decision, with `"origin"` "local" or "imported" in it, or None."""
        entry = self._database.get(_at(place), place.key, place.checksum)
        return _decision(entry) if entry else None

    def row_version(self, place: Place) -> int | None:
        """What `save` wants as `began_at_row_version`, taken when a tuning begins; None: nothing is
        stored.
        """
        return self._database.version(_at(place), place.key, place.checksum) or None

    def save(
        self,
        place: Place,
        decision_json: Mapping[str, Any],
        *,
        began_at_row_version: int | None,
    ) -> dict[str, Any]:
        """Store a decision, whole, in one transaction, and return the one that stands.

        It replaces what stood when its tuning began; of two processes that tuned the key at the same time
        the first to commit stays.
        """
        value = {name: decision_json[name] for name in decision_json if name != "origin"}
        origin = IMPORTED if decision_json.get("origin") == IMPORTED else LOCAL
        entry = Entry(_at(place), place.key, place.checksum, to_text(value), origin)
        return _decision(self._database.put(entry, began_at_row_version or 0)) or dict(decision_json)

    def others(self, place: Place) -> list[dict[str, Any]]:
        """Decisions for this key among any list of candidates, newest first: evidence to build on."""
        entries = self._database.at_key(_at(place), place.key)
        found = [_decision(entry) for entry in reversed(entries)]
        return [decision for decision in found if decision is not None]

    def knows(self, tuner: str, level: str, key: str) -> bool:
        """Whether anything is stored for this key, for whatever device and list of candidates."""
        namespaces = self._database.namespaces_of(key, namespace("autotune", SCHEMA))
        return any(parts(name)[-2:] == [tuner, level] for name in namespaces)

    def all(self) -> list[dict[str, Any]]:
        """Every stored decision, of all tuners, levels and devices, oldest first."""
        found = [_decision(entry) for entry in self._database.find("autotune")]
        return [decision for decision in found if decision is not None]

    def forget(self, place: Place) -> bool:
        """Remove a decision (its winner faulted); True when there was one."""
        entry = self._database.get(_at(place), place.key, place.checksum)
        return entry is not None and self._database.delete([entry]) > 0

    def proven_here(self, place: Place) -> bool:
        """Whether the imported decision that stands there now was proven on this machine before."""
        entry = self._database.get(_at(place), place.key, place.checksum)
        mark = self._database.get(imports_namespace(place.device_id), entry.id) if entry else None
        return entry is not None and mark is not None and mark.value == to_text(entry.digest)

    def set_proven_here(self, place: Place) -> None:
        """Remember that the imported decision that stands there now was proven on this machine.

        The mark is kept apart from the decision, so that it never travels with it.
        """
        entry = self._database.get(_at(place), place.key, place.checksum)
        if entry is not None:
            self._database.put(Entry(imports_namespace(place.device_id), entry.id, "", to_text(entry.digest)))

    def claim(
        self,
        place: Place,
        *,
        began_at_row_version: int | None,
        wait_s: float = CLAIM_WAIT_S,
    ) -> Claim:
        """Claim a key before tuning it, so that of several processes one tunes it and the others wait.

        Waits at most `wait_s` seconds for a process that holds the key. A decision committed since
        `began_at_row_version` comes back in the claim.
        """
        name = to_text(["decision", *place])
        lock = self._database.lock(name, min(wait_s, SILENT_WAIT_S), KEY)
        if not lock.owned and wait_s > SILENT_WAIT_S:
            self._database.say(f"another process is tuning a key of this run; waiting {wait_s:.0f} s at most")
            lock = self._database.lock(name, wait_s - SILENT_WAIT_S, KEY)
        changed = self.row_version(place) != began_at_row_version
        return Claim(lock.owned, self.load(place) if changed else None, lock)


class ProbeStore:
    """Probe results by device, probe version and the probe's own key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, device_id: str, probe_version: int, probe_key: Any) -> dict[str, Any] | None:
        """The stored result, or None."""
        return _object(self._database.get(probes_namespace(device_id, probe_version), to_text(probe_key)))

    def save(self, device_id: str, probe_version: int, probe_key: Any, result: Mapping[str, Any]) -> None:
        """Store a result in place of any earlier one."""
        place = probes_namespace(device_id, probe_version)
        self._database.put(Entry(place, to_text(probe_key), "", to_text(dict(result))))

    def entries(self, device_id: str, probe_version: int) -> list[Entry]:
        """All results of a device, as they are stored now."""
        return self._database.find(probes_namespace(device_id, probe_version))

    def drop(self, entries: Sequence[Entry]) -> int:
        """Remove results, unless they were written anew since; says how many there were."""
        return self._database.delete(entries)


class ProofStore:
    """Verdicts by device and what was proven (digest, element types, precision, suite)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, device_id: str, proof_key: Any) -> dict[str, Any] | None:
        """The stored verdict, or None."""
        return _object(self._database.get(proofs_namespace(device_id), to_text(proof_key)))

    def save(self, device_id: str, proof_key: Any, verdict: Mapping[str, Any]) -> None:
        """Store a verdict in place of any earlier one."""
        self._database.put(Entry(proofs_namespace(device_id), to_text(proof_key), "", to_text(dict(verdict))))


class KernelStore:
    """Specifications of kernels by name, with their sources."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, name: str) -> dict[str, Any] | None:
        """What was kept under the name, or None."""
        return _object(self._database.get(kernels_namespace(), to_text(name)))

    def save(self, name: str, row: Mapping[str, Any]) -> None:
        """Keep a specification in place of any earlier one of that name."""
        self._database.put(Entry(kernels_namespace(), to_text(name), "", to_text(dict(row))))

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(json.loads(entry.key) for entry in self._database.find(kernels_namespace()))


class Records:
    """What happened, one JSON object each; only ever appended and shown."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Add a record; `kind` is one of RECORD_KINDS."""
        self.extend([(kind, record)])

    def extend(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add (kind, record) pairs in one go."""
        self._database.append([(records_namespace(kind), to_text(dict(record))) for kind, record in records])

    def read(self, kind: str | None = None, newest: int | None = None) -> list[dict[str, Any]]:
        """Records of a kind (None: of all), oldest first, each as {"kind", "at", …what was appended}."""
        prefix = records_namespace(kind) if kind else "records"
        rows = self._database.records(prefix, newest)
        return [{"kind": place.rpartition("/")[2], "at": at, **_parsed(value)} for place, at, value in rows]


class Store:
    """One environment, open: its stores, its file (None: memory only), and what there was to warn about."""

    def __init__(self, database: Database, *, decisions: bool = True, probes: bool = True) -> None:
        memory = Database(None)
        self.database = database
        self.decisions = DecisionStore(database if decisions else memory)
        self.probes = ProbeStore(database if probes else memory)
        self.proofs = ProofStore(database)
        self.kernels = KernelStore(database)
        self.records = Records(database)

    @property
    def path(self) -> Path | None:
        """The file in use."""
        return self.database.path

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything said so far about trouble with the file."""
        return tuple(self.database.warnings)

    def close(self) -> None:
        """Let go of the file."""
        self.database.close()


def open_store(
    config: Config | None = None, *, cwd: Path | None = None, warn: Callable[[str], None] | None = None
) -> Store:
    """The configured environment's store. Never fails: with no usable file it is memory and a warning.

    `warn` is called with each warning as it arises. Switched-off caches are memory only.
    """
    config = config or Config()
    location = locate(config.environment.name, config.environment.path, cwd)
    database = Database(location.path, warn=warn)
    if location.path is None:
        database.say(f"{location.problem}; nothing is stored beyond this run")
    return Store(
        database, decisions=not config.autotune.disable_cache, probes=not config.throughput.disable_cache
    )


def null_store() -> Store:
    """A store of memory alone."""
    return Store(Database(None))


def _at(place: Place) -> str:
    return decisions_namespace(place.device_id, place.tuner, place.level)


def decisions_namespace(device_id: str, tuner: str, level: str) -> str:
    return namespace("autotune", SCHEMA, device_id, tuner, level)


def probes_namespace(device_id: str, probe_version: int) -> str:
    return namespace("throughput", SCHEMA, f"probe-v{probe_version}", device_id)


def proofs_namespace(device_id: str) -> str:
    return namespace("proofs", SCHEMA, device_id)


def imports_namespace(device_id: str) -> str:
    return namespace("proofs", SCHEMA, device_id, "imported")


def kernels_namespace() -> str:
    return namespace("kernels", SCHEMA)


def records_namespace(kind: str) -> str:
    if kind not in RECORD_KINDS:
        raise ValueError(f"'{kind}' is no kind of record; there are {', '.join(RECORD_KINDS)}")
    return namespace("records", "v1", kind)


def _decision(entry: Entry) -> dict[str, Any] | None:
    value = _object(entry)
    return None if value is None else {**value, "origin": entry.origin}


def _object(entry: Entry | None) -> dict[str, Any] | None:
    """The entry's value where it is a JSON object; anything else counts as missing."""
    if entry is None:
        return None
    try:
        value = json.loads(entry.value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parsed(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return {"damaged": True}
    return parsed if isinstance(parsed, dict) else {"value": parsed}
