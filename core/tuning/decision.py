"""A decision: the winner for a key with all the evidence, as it is stored and as it is reported."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from math import isfinite
from typing import Any, Literal, get_args

from .bounds import Bounds
from .events import Event
from .samples import Samples
from .ties import TieBreak
from .typed import Kind, check_types, is_number

_EVIDENCE: dict[str, Kind] = {
    **dict.fromkeys(("name", "digest", "outcome", "reason"), str),
    "index": int,
    "repeats": int,
    "kept": bool,
}
_TIMINGS: dict[str, Kind] = {
    f"{what}_s": "number" for what in ("probe", "prove", "compile", "measure", "wait")
}
_CHECK: dict[str, Kind] = {"name": str, "passed": bool, "reason": str, "where": str}
_DECISION: dict[str, Kind] = {
    **dict.fromkeys(("tuner", "checksum", "level", "device_id", "device", "environment", "at", "bad"), str),
    "index": int,
    "origin": str,
    "limit_s": "number or null",
    "short_circuit": bool,
}

OutcomeKind = Literal["measured", "dropped", "skipped", "unsupported", "error", "fault"]


@dataclass(frozen=True)
class Evidence:
    """What is known of one candidate: all its samples in seconds, or why it has none that count.

    `outcome` is "measured" for a survivor, "dropped" for one found too slow, "skipped" for one never
    tried, "unsupported", "error" for one disqualified, "fault" for one that lost the device. `kept`
    evidence comes from an earlier decision on the same code.
    """

    index: int
    name: str
    digest: str
    outcome: OutcomeKind
    samples: tuple[float, ...] = ()
    repeats: int = 1
    reason: str = ""
    kept: bool = False

    @property
    def timed(self) -> bool:
        """Whether its samples are evidence of how fast it is."""
        return self.outcome in ("measured", "dropped") and bool(self.samples)

    @property
    def statistics(self) -> Samples:
        return Samples(list(self.samples))

    @property
    def median_s(self) -> float | None:
        return self.statistics.median if self.timed else None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evidence:
        samples = tuple(data["samples"])
        if not all(is_number(s) and s > 0 for s in samples):
            raise ValueError("a sample is not a number of seconds above 0")
        evidence = check_types(cls(**{**data, "samples": samples}), **_EVIDENCE)
        if evidence.outcome not in get_args(OutcomeKind):
            raise ValueError(f"the outcome {evidence.outcome!r} is not known")
        return evidence


@dataclass(frozen=True)
class Check:
    """A proof's or an output check's verdict on a candidate.

    `where` a proof was run: "worker", "inline" (in the user's process), or empty for an output check.
    """

    name: str
    passed: bool
    reason: str = ""
    where: str = ""

    def record(self) -> dict[str, Any]:
        """For the decision record: what is empty is left out."""
        more = {"reason": self.reason, "where": self.where}
        return {"name": self.name, "passed": self.passed, **{k: v for k, v in more.items() if v}}


@dataclass(frozen=True)
class Timings:
    """Where the time of a tuning went, in seconds of wall clock; waiting for others is in `wait_s` alone."""

    probe_s: float = 0.0
    prove_s: float = 0.0
    compile_s: float = 0.0
    measure_s: float = 0.0
    wait_s: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The winner for a key, and everything that led to it. `evidence` has every candidate, by index.

    `key` is plain JSON data, and so is `measured_on`: which of the key's problems the winner's samples are
    of, where that is known. `at` is UTC. `bad` says why the decision must not be used again, if so.
    """

    key: Any
    index: int
    evidence: tuple[Evidence, ...]
    tuner: str = ""
    checksum: str = ""
    level: str = ""
    device_id: str = ""
    device: str = ""
    environment: str = ""
    at: str = ""
    origin: Literal["local", "imported"] = "local"
    bounds: Bounds | None = None
    limit_s: float | None = None
    short_circuit: bool = False
    tie_break: TieBreak | None = None
    events: tuple[Event, ...] = ()
    checks: tuple[Check, ...] = ()
    timings: Timings = field(default_factory=Timings)
    bad: str = ""
    measured_on: Any = None

    @property
    def winner(self) -> Evidence:
        return self.evidence[self.index]

    @property
    def name(self) -> str:
        return self.winner.name

    @property
    def digest(self) -> str:
        return self.winner.digest

    @property
    def median_s(self) -> float | None:
        """The winner's median in seconds per execution; None where nothing had to be measured."""
        return self.winner.median_s

    @property
    def roofline(self) -> float | None:
        """The winner's share of the roofline; None where that is unknown."""
        return self.share_of(self.winner)

    @property
    def confidence(self) -> float | None:
        """How sure a tie was broken, 0 to 1; None where there was no tie."""
        return self.tie_break.confidence if self.tie_break else None

    @property
    def measured(self) -> int:
        """How many candidates have samples."""
        return sum(evidence.timed for evidence in self.evidence)

    @property
    def ranking(self) -> list[Evidence]:
        """Candidates with samples: the winner, the other survivors, then the dropped, each fastest first."""
        timed = [evidence for evidence in self.evidence if evidence.timed]
        timed.sort(key=lambda e: (e.outcome == "dropped", e.median_s, e.index))
        return sorted(timed, key=lambda e: e.index != self.index)

    def share_of(self, evidence: Evidence) -> float | None:
        """The share of the roofline a candidate reaches; None where that is unknown."""
        if self.bounds is None or evidence.median_s is None:
            return None
        return self.bounds.share(evidence.median_s)

    def condemned(self, index: int, reason: str) -> Decision:
        """The same decision, not to be used again since candidate `index` lost the device."""
        fault = replace(self.evidence[index], outcome="fault", reason=reason)
        evidence = tuple(fault if e.index == index else e for e in self.evidence)
        return replace(self, evidence=evidence, bad=reason)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data, whole: `from_json` gives an equal decision back."""
        data = asdict(self)
        data["evidence"] = [{**asdict(e), "samples": list(e.samples)} for e in self.evidence]
        data["bounds"] = self.bounds.to_json() if self.bounds else None
        data["events"] = [asdict(event) for event in self.events]
        data["checks"] = [asdict(check) for check in self.checks]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Decision:
        """The decision `to_json` wrote. Raises ValueError when the data is not one."""
        try:
            decision = check_types(cls(**{**data, **_parts(data)}), **_DECISION)
            known = 0 <= decision.index < len(decision.evidence)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a decision: {error}") from error
        if not known or [e.index for e in decision.evidence] != list(range(len(decision.evidence))):
            raise ValueError("not a decision: its indexes don't fit its candidates")
        return decision

    def record(self) -> dict[str, Any]:
        """The decision as one line for scripts. Durations are {"secs", "nanos"}; NaN and infinity null."""
        return {
            "key": self.key,
            "fastest_index": self.index,
            "fastest_time": duration(self.median_s),
            "results": [{"outcome": outcome} for outcome in self._outcomes()],
            "log_context": {
                "bounds": self._bounds_record(),
                "limit": duration(self.limit_s),
                "events": [_event_record(event) for event in self.events],
            },
            "checks": [check.record() for check in self.checks],
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "at": self.at,
        }

    def _outcomes(self) -> Iterable[dict[str, Any]]:
        timed = [evidence for evidence in self.evidence if evidence.timed]
        for evidence in sorted(timed, key=lambda e: (e.index != self.index, e.median_s, e.index)):
            yield {"Ok": _measured_record(evidence)}
        for evidence in self.evidence:
            if not evidence.timed:
                yield {"Err": _error_record(evidence)}

    def _bounds_record(self) -> dict[str, Any] | None:
        if self.bounds is None:
            return None
        bounds = [
            {
                "resource": {"amount": bound.amount, "peak_per_s": bound.peak_per_s},
                "threshold": bound.threshold,
            }
            for bound in self.bounds.bounds
        ]
        return {"bounds": bounds, "launch_overhead": duration(self.bounds.launch_window_s)}


def read_decision(data: dict[str, Any] | None) -> Decision | None:
    """A stored decision, or None for what is not one."""
    if data is None:
        return None
    try:
        return Decision.from_json(data)
    except ValueError:
        return None


def duration(seconds: float | None) -> dict[str, int] | None:
    """Seconds as whole seconds and nanoseconds; None for nothing, NaN and infinity."""
    if seconds is None or not isfinite(seconds * 1e9):
        return None
    secs, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return {"secs": secs, "nanos": nanos}


def utc_now() -> str:
    """The time as decisions carry it: 2026-01-31T12:00:00Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parts(data: dict[str, Any]) -> dict[str, Any]:
    bounds, tie = data["bounds"], data["tie_break"]
    return {
        "evidence": tuple(Evidence.from_json(evidence) for evidence in data["evidence"]),
        "bounds": Bounds.from_json(bounds) if bounds is not None else None,
        "tie_break": TieBreak.from_json(tie) if tie is not None else None,
        "events": tuple(Event.from_json(event) for event in data["events"]),
        "checks": tuple(check_types(Check(**check), **_CHECK) for check in data["checks"]),
        "timings": check_types(Timings(**data["timings"]), **_TIMINGS),
    }


def _measured_record(evidence: Evidence) -> dict[str, Any]:
    statistics = evidence.statistics
    computation = {
        "mean": duration(statistics.mean),
        "median": duration(statistics.median),
        "variance": duration(statistics.variance),
        "min": duration(statistics.best),
        "max": duration(statistics.worst),
    }
    return {"name": evidence.name, "index": evidence.index, "computation": computation}


def _error_record(evidence: Evidence) -> dict[str, Any]:
    if evidence.outcome in ("error", "fault"):
        return {"Unknown": {"name": evidence.name, "err": evidence.reason}}
    return {"Skip": {"name": evidence.name}}


def _event_record(event: Event) -> dict[str, Any]:
    if event.kind == "TuningStep":
        return {event.kind: [event.name, duration(event.value)]}
    return {event.kind: event.name if event.value is None else [event.name, event.value]}
