"""What a probe found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Protocol

VERSION = 6
"""Of the probes' methods: results of another version are never used."""


class ProbeStore(Protocol):
    """Results that outlive the process, as JSON data under (device, version, key)."""

    def load(self, device_id: str, probe_version: int, probe_key: str) -> Mapping[str, Any] | None: ...

    def save(
        self, device_id: str, probe_version: int, probe_key: str, result: Mapping[str, Any]
    ) -> object: ...


class MemoryStore:
    """Keeps results for this process only."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, int, str], Mapping[str, Any]] = {}

    def load(self, device_id: str, probe_version: int, probe_key: str) -> Mapping[str, Any] | None:
        return self._results.get((device_id, probe_version, probe_key))

    def save(self, device_id: str, probe_version: int, probe_key: str, result: Mapping[str, Any]) -> None:
        self._results[(device_id, probe_version, probe_key)] = result


def probe_key(probe: str, facts: Mapping[str, Any]) -> str:
    """Under which a result is stored, readable: `bandwidth access=read state=hot working_set_bytes=65536`."""
    return " ".join([probe, *(f"{name}={facts[name]}" for name in sorted(facts))])


@dataclass(frozen=True)
class ProbeResult:
    """One measured property of a device.

    `facts` say what was probed (dtype and arithmetic; access, working_set_bytes, state), `extra` what was
    found beside the value. `spread` is a share of the value. `launches`, `samples` and `wall_s` are
    what measuring cost; for a cached result, what it had cost.
    """

    probe: str
    facts: dict[str, Any]
    value: float
    unit: str
    spread: float
    launches: int
    samples: int
    wall_s: float
    extra: dict[str, Any] = field(default_factory=dict)
    at: str = ""
    cached: bool = False
    previous: float | None = None

    @property
    def moved(self) -> float | None:
        """The change since the value stored before, as a share of it; None if there was none."""
        if self.previous is None or self.previous == 0:
            return None
        return self.value / self.previous - 1

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        shown = {
            "probe": self.probe,
            **self.facts,
            "value": self.value,
            "unit": self.unit,
            "spread": self.spread,
            "cached": self.cached,
            "launches": self.launches,
            "samples": self.samples,
            "wall_s": self.wall_s,
            "at": self.at,
            **self.extra,
        }
        if self.previous is not None:
            shown |= {"previous": self.previous, "moved": self.moved}
        return shown

    def to_stored(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "facts": self.facts,
            "value": self.value,
            "unit": self.unit,
            "spread": self.spread,
            "launches": self.launches,
            "samples": self.samples,
            "wall_s": self.wall_s,
            "extra": self.extra,
            "at": self.at,
        }

    @classmethod
    def from_stored(cls, data: Mapping[str, Any]) -> ProbeResult:
        """Raises KeyError, TypeError or ValueError for data that is no probe result."""
        result = cls(**{name: data[name] for name in _STORED})
        if not isinstance(result.facts, dict) or not isinstance(result.extra, dict):
            raise TypeError("facts and what was found beside the value are objects")
        return replace(result, value=float(result.value), spread=float(result.spread), cached=True)


_STORED = ("probe", "facts", "value", "unit", "spread", "launches", "samples", "wall_s", "extra", "at")


def now() -> str:
    """The time, in UTC, as records carry it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
