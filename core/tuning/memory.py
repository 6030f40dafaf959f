"""Decisions of this process. A key is tuned by one thread while the others that meet it wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import WorkError
from .decision import Decision


class Slot(NamedTuple):
    """What a decision in memory is for. The key counts by its canonical JSON."""

    device_id: str
    environment: str
    level: str
    checksum: str
    fingerprint: str
    key: str


@dataclass
class Entry:
    """A decision in memory, and the candidates that could not be run since it was made, with reasons."""

    decision: Decision
    broken: dict[int, str] = field(default_factory=dict)
    stale: bool = False


@dataclass
class Pending:
    """A key that one thread is tuning while others wait."""

    owner: int
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class DecisionTable:
    """Safe to use from many threads. `revision` grows whenever a decision that served stops to serve."""

    def __init__(self) -> None:
        self.revision = 0
        self._entries: dict[Slot, Entry] = {}
        self._pending: dict[Slot, Pending] = {}
        self._lock = threading.Lock()

    def get(self, slot: Slot) -> Entry | None:
        """What is known, stale or not."""
        with self._lock:
            return self._entries.get(slot)

    def drop(self, slot: Slot) -> None:
        with self._lock:
            self.revision += 1
            self._entries.pop(slot, None)

    def claim(self, slot: Slot) -> Decision | Pending:
        """A decision that can be used, or the right and duty to make one and then call `settle`.

        Waits while another thread makes it, and raises that thread's error.
        """
        while True:
            with self._lock:
                entry = self._entries.get(slot)
                if entry is not None and not entry.stale:
                    return entry.decision
                pending = self._pending.get(slot)
                if pending is None:
                    return self._pending.setdefault(slot, Pending(threading.get_ident()))
            _wait_for(pending)

    def settle(
        self, slot: Slot, pending: Pending, decision: Decision | None, error: Exception | None = None
    ) -> None:
        """Ends a claim: with a decision, with the error for those who wait, or with neither."""
        with self._lock:
            if decision is not None:
                self._entries[slot] = Entry(decision)
            del self._pending[slot]
        pending.error = error
        pending.done.set()

    def keep(self, slot: Slot) -> Decision | None:
        """Lets a stale decision go on serving, after nothing better could be made."""
        with self._lock:
            entry = self._entries.get(slot)
            if entry is None:
                return None
            entry.stale = False
            return entry.decision

    def set_aside(self, slot: Slot, broken: Mapping[int, str]) -> dict[int, str]:
        """Notes candidates that could not be run; returns those new. Without its winner a key is stale."""
        with self._lock:
            entry = self._entries.get(slot)
            if entry is None:
                return {}
            fresh = {index: reason for index, reason in broken.items() if index not in entry.broken}
            entry.broken.update(fresh)
            self.revision += bool(fresh)
            entry.stale = entry.stale or entry.decision.index in fresh
            return fresh


def _wait_for(pending: Pending) -> None:
    if pending.owner == threading.get_ident():
        raise WorkError(
            "a candidate asked the tuner for the key it is being measured for",
            hint="A candidate may use other keys or other tuners, not its own.",
        )
    pending.done.wait()
    if pending.error is not None:
        raise pending.error
