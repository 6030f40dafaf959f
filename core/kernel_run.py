"""Tuning a specified kernel for its problem sizes, and what it cost: the work of `tune kernel`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .device.client import Client
from .device.counters import Counts
from .errors import UsageError, WorkError
from .session import Session
from .shapes_run import calls
from .spec.kernel import TunedKernel
from .spec.launch import KernelInputs
from .spec.registry import remember
from .spec.spec import Configuration, KernelSpec
from .tuning.decision import Decision
from .tuning.tuner import Source
from .waiting import Stopwatch


@dataclass(frozen=True)
class SizeRun:
    """What happened to one problem size. Times in seconds of wall clock, each call synchronised.

    `waited_s` is the part of `first_s` in which other processes were waited for.
    """

    size: tuple[int, ...]
    key: dict[str, Any]
    source: Source | None = None
    decision: Decision | None = None
    configuration: Configuration | None = None
    first_s: float | None = None
    waited_s: float | None = None
    next_s: tuple[float, ...] = ()
    first: Counts = field(default_factory=Counts)
    next: Counts = field(default_factory=Counts)
    error: str | None = None

    @property
    def label(self) -> str:
        """Extents joined by x."""
        return "x".join(map(str, self.size))

    @property
    def measured(self) -> int:
        """How many configurations have times in the decision."""
        return sum(e.timed for e in self.decision.evidence) if self.decision else 0

    def to_json(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "problem_size": list(self.size),
            "key": self.key,
            "source": self.source,
            "decision": None
            if decision is None
            else {
                "index": decision.index,
                "name": decision.name,
                "median_s": decision.median_s,
                "roofline": decision.roofline,
            },
            "configuration": self.configuration,
            "measured": self.measured,
            "limit_s": decision.limit_s if decision else None,
            "short_circuit": decision.short_circuit if decision else None,
            "checks": [vars(check) for check in decision.checks] if decision else [],
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
            "error": self.error,
        }


@dataclass(frozen=True)
class KernelReport:
    """All problem sizes of one run, in order."""

    name: str
    device: str
    environment: str
    level: str
    configurations: int
    sizes: tuple[SizeRun, ...]

    @property
    def complete(self) -> bool:
        return all(run.error is None for run in self.sizes)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.name,
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "configurations": self.configurations,
            "sizes": [run.to_json() for run in self.sizes],
        }


def parse_size(text: str) -> tuple[int, ...]:
    """A problem size as typed: 4096 or 1024x1024. Raises UsageError."""
    parts = text.lower().split("x")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise UsageError(
            f"'{text}' is not a problem size", hint="One to three numbers: 4096, 1024x1024, 64x64x64."
        )
    return tuple(map(int, parts))


def tune_kernel(
    session: Session,
    client: Client,
    spec: KernelSpec,
    sizes: Sequence[tuple[int, ...]] = (),
    *,
    repeat: int = 20,
    done: Callable[[SizeRun], object] = lambda run: None,
) -> KernelReport:
    """Tunes the specification's sizes (or those given) in order on made-up data; `done` is called after each.

    The specification is kept in the environment under its name. A size that no configuration can
    compute, or that is cold where measuring is not allowed, has its `error` set.
    """
    kernel = TunedKernel(session, client, spec)
    remember(session.store, spec)
    runs = []
    for size in sizes or spec.problem_sizes:
        runs.append(_run(client, kernel, size, repeat, session.context.progress))
        done(runs[-1])
    environment, level = session.config.environment.name, str(session.level)
    return KernelReport(
        spec.name, client.device_name, environment, level, len(kernel.configurations), tuple(runs)
    )


def _run(
    client: Client,
    kernel: TunedKernel,
    size: tuple[int, ...],
    repeat: int,
    progress: Callable[[str, int, int], object],
) -> SizeRun:
    try:
        progress("operands", 0, 1)
        inputs = kernel.inputs_for(size)
        return _measured(client, kernel, inputs, repeat, progress)
    except WorkError as error:
        said = f"{error.message}. {error.hint}" if error.hint else error.message
        return SizeRun(size, kernel.key(KernelInputs(size, ())), error=said)


def _measured(
    client: Client,
    kernel: TunedKernel,
    inputs: KernelInputs,
    repeat: int,
    progress: Callable[[str, int, int], object],
) -> SizeRun:
    client.sync()
    start, began, watch = client.counters.snapshot(), time.perf_counter(), Stopwatch()
    outcome = kernel.decide(inputs)
    kernel.run(inputs)
    client.sync()
    first_s, waited_s = time.perf_counter() - began, watch.waited_s
    first, middle = client.counters.since(start), client.counters.snapshot()
    return SizeRun(
        inputs.size,
        kernel.key(inputs),
        outcome.source,
        outcome.decision,
        kernel.configurations[outcome.decision.index],
        first_s,
        waited_s,
        calls(lambda: _call(client, kernel, inputs), repeat, progress),
        first,
        client.counters.since(middle),
    )


def _call(client: Client, kernel: TunedKernel, inputs: KernelInputs) -> float:
    began = time.perf_counter()
    kernel.run(inputs)
    client.sync()
    return time.perf_counter() - began
