"""Candidates and a device that exist only as numbers: the tuner needs no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rooftune.errors import MeasurementError
from rooftune.tuning.context import FreeClaim
from rooftune.tuning.foresight import NOTHING_FORESEEN, Foresight
from rooftune.tuning.place import Place
from rooftune.tuning.schedule import Contender
from rooftune.tuning.tunable import Tunable

FOREVER = 1000


class Series:
    """Times given out one after another; the last one for ever. An exception in it is raised."""

    def __init__(self, times: float | Exception | Sequence[float | Exception]) -> None:
        self.times = list(times) if isinstance(times, Sequence) else [times]
        self.calls = 0

    def next(self) -> float:
        value = self.times[min(self.calls, len(self.times) - 1)]
        self.calls += 1
        if isinstance(value, Exception):
            raise value
        return value


@dataclass
class Bench:
    """Contenders with given sample times (the warm-up takes `warm_up`), and a log of who was sampled."""

    log: list[str] = field(default_factory=list)

    def contender(
        self,
        index: int,
        times: Any,
        *,
        warm_up: Any = 1.0,
        name: str = "",
        floor: float | None = None,
        foresight: Foresight = NOTHING_FORESEEN,
        prepare: Callable[[], object] = lambda: None,
    ) -> Contender:
        name = name or "abcdefghijklmnopqrstuvwxyz"[index]
        warm, series = Series(warm_up), Series(times)

        def sample(repeats: int) -> float:
            if not warm.calls:
                self.log.append(f"warm {name}")
                return warm.next()
            self.log.append(name)
            return series.next()

        return Contender(index, name, sample, prepare, lambda: floor, foresight)

    def contenders(self, *times: Any) -> list[Contender]:
        return [self.contender(index, series) for index, series in enumerate(times)]

    def sampled(self, name: str) -> int:
        return self.log.count(name)

    @property
    def order(self) -> str:
        """Names of those sampled, in order, warm-ups left out."""
        return "".join(entry for entry in self.log if not entry.startswith("warm"))


class FakeClient:
    """A device on which candidate `fn`s say how long they take by leaving it in `running`."""

    def __init__(self, device_id: str = "fake|device|1") -> None:
        self.device_id = device_id
        self.device_name = "Fake Device"
        self.windows: list[float] = []
        self.samples = 0
        self.held = False
        self.lock = threading.Lock()

    def sample(self, fn: Callable[[], Any], repeats: int) -> float:
        assert self.held, "samples are taken only while the device is held"
        self.samples += 1
        self.windows.clear()
        for _ in range(repeats):
            fn()
        if any(window <= 0 for window in self.windows):
            raise MeasurementError("a window of 0 s")
        return sum(self.windows) / repeats

    def sync(self) -> None:
        pass

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self.lock:
            self.held = True
            try:
                yield
            finally:
                self.held = False


class FakeCandidates:
    """Makes tunables that take the given seconds on a FakeClient, and counts their runs by name."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.runs: dict[str, int] = {}

    def tunable(self, name: str, seconds: Any, **options: Any) -> Tunable:
        series = Series(seconds)

        def fn(inputs: Any) -> str:
            self.runs[name] = self.runs.get(name, 0) + 1
            self.client.windows.append(series.next())
            return f"{name}({inputs})"

        return Tunable(name, fn, **options)


class MemoryStore:
    """Decisions in a dict, with the rules of a store: the first of two that began together stays."""

    def __init__(self) -> None:
        self.rows: dict[Place, tuple[int, dict[str, Any]]] = {}
        self.proven: set[Place] = set()
        self.writes = 0

    def load(self, place: Place) -> dict[str, Any] | None:
        return self.rows[place][1] if place in self.rows else None

    def row_version(self, place: Place) -> int | None:
        return self.rows[place][0] if place in self.rows else None

    def others(self, place: Place) -> list[dict[str, Any]]:
        found = [
            (version, data)
            for row, (version, data) in self.rows.items()
            if row._replace(checksum="") == place._replace(checksum="")
        ]
        return [data for _, data in sorted(found, key=lambda pair: -pair[0])]

    def proven_here(self, place: Place) -> bool:
        return place in self.proven

    def set_proven_here(self, place: Place) -> None:
        self.proven.add(place)

    def claim(self, place: Place, began_at_row_version: int | None) -> AbstractContextManager[FreeClaim]:
        return nullcontext(FreeClaim())

    def save(
        self, place: Place, data: dict[str, Any], *, began_at_row_version: int | None
    ) -> dict[str, Any]:
        if self.row_version(place) != began_at_row_version:
            return self.rows[place][1]
        self.writes += 1
        self.rows[place] = (self.writes, data)
        return data
