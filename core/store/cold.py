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
    """A probe store that answers only with what this run measured, and at its end replaces all that is older.

    Until then nothing is written: a run that is interrupted leaves what stood before.
    """

    def __init__(self, store: ProbeStore) -> None:
        self._store = store
        self._fresh: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._old: dict[tuple[str, int], list[Entry]] = {}

    def load(self, device_id: str, probe_version: int, probe_key: str) -> dict[str, Any] | None:
        self._note_old(device_id, probe_version)
        return self._fresh.get((device_id, probe_version, probe_key))

    def save(self, device_id: str, probe_version: int, probe_key: str, result: Mapping[str, Any]) -> None:
        self._note_old(device_id, probe_version)
        self._fresh[device_id, probe_version, probe_key] = dict(result)

    def _note_old(self, device_id: str, probe_version: int) -> None:
        if (device_id, probe_version) not in self._old:
            self._old[device_id, probe_version] = self._store.entries(device_id, probe_version)

    def replace_old(self) -> None:
        """Writes what was measured, and forgets what was stored of those devices before.

        What others wrote since stays, unless the same was measured here.
        """
        for place, result in self._fresh.items():
            self._store.save(*place, result)
        for device in {place[:2] for place in self._fresh}:
            self._store.drop(self._old[device])
