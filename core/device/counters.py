"""Counts what a process asks of a device: launches by label, and runs of the compiler."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Counts:
    """Launches by label and compiler runs, at one moment or between two."""

    launches: dict[str, int] = field(default_factory=dict)
    compiles: int = 0

    @property
    def total(self) -> int:
        """All counted launches."""
        return sum(self.launches.values())


class Counters:
    """Thread-safe counters of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launches: Counter[str] = Counter()
        self._compiles = 0

    @property
    def launches(self) -> dict[str, int]:
        return self.snapshot().launches

    @property
    def compiles(self) -> int:
        return self._compiles

    def count_launch(self, label: str, times: int = 1) -> None:
        with self._lock:
            self._launches[label] += times

    def count_compile(self) -> None:
        with self._lock:
            self._compiles += 1

    def snapshot(self) -> Counts:
        """The counts now, as a copy that does not change any more."""
        with self._lock:
            return Counts(dict(self._launches), self._compiles)

    def since(self, start: Counts) -> Counts:
        """What was added after `start`, labels without a new launch left out."""
        now = self.snapshot()
        added = {
            label: count - start.launches.get(label, 0)
            for label, count in sorted(now.launches.items())
            if count > start.launches.get(label, 0)
        }
        return Counts(added, now.compiles - start.compiles)
