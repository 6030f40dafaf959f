"""One problem tuned and then called again, and what that cost: what runs of `tune` report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .device.client import Client
from .device.counters import Counts
from .errors import RooftuneError
from .proof.pool import Usage
from .session import Session
from .tuning.decision import Decision
from .tuning.tuner import Outcome, Source
from .waiting import Stopwatch

SLOW_CALL_S = 0.05
"""Progress is told between calls that take this long."""


@dataclass(frozen=True)
class Cost:
    """What happened to one problem. Times in seconds of wall clock, each call synchronised.

    `waited_s` is the part of `first_s` in which other processes were waited for. `first` and `next` count
    launches by label and compilations: of the first call, and of the `len(next_s)` calls after it. `proof`
    is what proof workers did for it, apart from those counts.
    """

    source: Source | None = None
    decision: Decision | None = None
    first_s: float | None = None
    waited_s: float | None = None
    next_s: tuple[float, ...] = ()
    first: Counts = field(default_factory=Counts)
    next: Counts = field(default_factory=Counts)
    proof: Usage | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "source": self.source,
            "decision": None
            if decision is None
            else {
                "index": decision.index,
                "name": decision.name,
                "median_s": decision.median_s,
                "roofline": decision.roofline,
            },
            "limit_s": decision.limit_s if decision else None,
            "short_circuit": decision.short_circuit if decision else None,
            "first_s": self.first_s,
            "waited_s": self.waited_s,
            "next": {
                "count": len(self.next_s),
                "min_s": min(self.next_s, default=None),
                "median_s": median(self.next_s) if self.next_s else None,
            },
            "launches": {"first": self.first.launches, "next": self.next.launches},
            "compiles": {"first": self.first.compiles, "next": self.next.compiles},
            "spent": dict(vars(decision.timings)) if decision and self.source == "tuned" else None,
            "proof": vars(self.proof) if self.proof else None,
            "error": self.error,
        }


def failed(error: RooftuneError) -> Cost:
    """Of a problem that nothing could compute, or that may not be measured."""
    return Cost(error=str(error))


def cost_of(
    session: Session,
    client: Client,
    decide: Callable[[], Outcome],
    run: Callable[[], object],
    repeat: int,
    *,
    again: Callable[[], object] | None = None,
    proven: Usage | None = None,
) -> Cost:
    """Decides and runs a problem, then runs it `repeat` times more, which the session's progress is told.

    `again` is one of these later runs, and waits for it; without it they are as the first.
    `proven`: what workers had done before anything was done for this problem, where some were started early.
    """
    progress = session.context.progress
    client.sync()
    start, proven = client.counters.snapshot(), proven or session.prover.usage

    def run_and_wait() -> None:
        run()
        client.sync()

    began, watch = time.perf_counter(), Stopwatch()
    outcome = decide()
    run_and_wait()
    first_s, waited_s = time.perf_counter() - began, watch.waited_s
    first, middle = client.counters.since(start), client.counters.snapshot()
    next_s: list[float] = []
    progress("call", 0, repeat)
    for done in range(1, repeat + 1):
        next_s.append(_timed(again or run_and_wait))
        if next_s[-1] >= SLOW_CALL_S:
            progress("call", done, repeat)
    return Cost(
        outcome.source,
        outcome.decision,
        first_s,
        waited_s,
        tuple(next_s),
        first,
        client.counters.since(middle),
        session.prover.usage.since(proven),
    )


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
