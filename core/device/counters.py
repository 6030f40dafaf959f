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


class Tally:
    """One thread's launches under one label. That thread alone adds to it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Counters:
    """Counters of one client. Counting takes no lock: each thread counts for itself, reading adds up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread = threading.local()
        self._tallies: list[tuple[threading.Thread, dict[str, Tally]]] = []
        self._ended: Counter[str] = Counter()
        self._compiles = 0

    @property
    def launches(self) -> dict[str, int]:
        return self.snapshot().launches

    @property
    def compiles(self) -> int:
        return self._compiles

    def tally(self, label: str) -> Tally:
        """This thread's tally of a label, for one who counts often: add to its `count`."""
        tallies = self._of_thread()
        found = tallies.get(label)
        if found is None:
            with self._guard:
                found = tallies[label] = Tally()
        return found

    def count_launch(self, label: str, times: int = 1) -> None:
        self.tally(label).count += times

    def count_compile(self) -> None:
        with self._guard:
            self._compiles += 1

    def snapshot(self) -> Counts:
        """The counts now, as a copy that does not change any more."""
        with self._guard:
            total = Counter(self._ended)
            for _, tallies in self._tallies:
                total.update(_counted(tallies))
            return Counts(dict(total), self._compiles)

    def since(self, start: Counts) -> Counts:
        """What was added after `start`, labels without a new launch left out."""
        now = self.snapshot()
        added = {
            label: count - start.launches.get(label, 0)
            for label, count in sorted(now.launches.items())
            if count > start.launches.get(label, 0)
        }
        return Counts(added, now.compiles - start.compiles)

    def _of_thread(self) -> dict[str, Tally]:
        try:
            tallies: dict[str, Tally] = self._thread.tallies
        except AttributeError:
            tallies = self._thread.tallies = {}
            with self._guard:
                self._fold_ended_threads()
                self._tallies.append((threading.current_thread(), tallies))
        return tallies

    def _fold_ended_threads(self) -> None:
        for thread, tallies in self._tallies:
            if not thread.is_alive():
                self._ended.update(_counted(tallies))
        self._tallies = [(thread, tallies) for thread, tallies in self._tallies if thread.is_alive()]


def _counted(tallies: dict[str, Tally]) -> dict[str, int]:
    return {label: tally.count for label, tally in tallies.items()}
