"""Stores that forget what was there: a cold run measures everything anew and replaces it when done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tuning.place import Place
from .entry import Entry
from .stores import DecisionStore, ProbeStore


class ColdDecisions:
    """A decision store that answers only with what this run saved, and replaces what stood before."""

    def __init__(self, store: DecisionStore) -> None:
        self._store = store
        self._fresh: set[Place] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load(self, place: Place) -> dict[str, Any] | None:
        return self._store.load(place) if place in self._fresh else None

    def others(self, place: Place) -> list[dict[str, Any]]:
        return []

    def knows(self, tuner: str, level: str, key: str) -> bool:
        return any((p.tuner, p.level, p.key) == (tuner, level, key) for p in self._fresh)

    def save(
        self,
        place: Place,
        decision_json: Mapping[str, Any],
        *,
        began_at_row_version: int | None,
    ) -> dict[str, Any]:
        self._fresh.add(place)
        return self._store.save(place, decision_json, began_at_row_version=began_at_row_version)


class ColdProbes:
    """A probe store that answers only with what this run measured, and at its end drops all that is older."""

    def __init__(self, store: ProbeStore) -> None:
        self._store = store
        self._fresh: set[tuple[str, int, str]] = set()
        self._old: dict[tuple[str, int], list[Entry]] = {}

    def load(self, device_id: str, probe_version: int, probe_key: str) -> dict[str, Any] | None:
        self._note_old(device_id, probe_version)
        place = (device_id, probe_version, probe_key)
        return self._store.load(*place) if place in self._fresh else None

    def save(self, device_id: str, probe_version: int, probe_key: str, result: Mapping[str, Any]) -> None:
        self._note_old(device_id, probe_version)
        self._fresh.add((device_id, probe_version, probe_key))
        self._store.save(device_id, probe_version, probe_key, result)

    def _note_old(self, device_id: str, probe_version: int) -> None:
        if (device_id, probe_version) not in self._old:
            self._old[device_id, probe_version] = self._store.entries(device_id, probe_version)

    def drop_old(self) -> None:
        """Forgets what was stored of the measured devices before; what was written since stays."""
        measured = {place[:2] for place in self._fresh}
        for device, entries in self._old.items():
            if device in measured:
                self._store.drop(entries)
