"""Tuning a specified kernel for its problem sizes, and what it cost: the work of `tune kernel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .device.client import Client
from .errors import UsageError, WorkError
from .session import Session
from .spec.kernel import TunedKernel
from .spec.launch import KernelInputs, size_text
from .spec.registry import remember
from .spec.spec import Configuration, KernelSpec
from .tuned_run import Cost, cost_of, failed


@dataclass(frozen=True)
class SizeRun:
    """One problem size, its winner, and what its first call and the next ones cost."""

    size: tuple[int, ...]
    key: dict[str, Any]
    cost: Cost
    configuration: Configuration | None = None

    @property
    def label(self) -> str:
        """Extents joined by x."""
        return size_text(self.size)

    @property
    def measured(self) -> int:
        """How many configurations have times in the decision."""
        return sum(e.timed for e in self.cost.decision.evidence) if self.cost.decision else 0

    def to_json(self) -> dict[str, Any]:
        decision = self.cost.decision
        return {
            "problem_size": list(self.size),
            "key": self.key,
            "configuration": self.configuration,
            "measured": self.measured,
            "checks": [vars(check) for check in decision.checks] if decision else [],
            **self.cost.to_json(),
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
        return all(run.cost.error is None for run in self.sizes)

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
    begin: Callable[[str], object] = lambda label: None,
    done: Callable[[SizeRun], object] = lambda run: None,
) -> KernelReport:
    """Tunes the specification's sizes (or those given) in order on made-up data.

    `begin` is called with the label of each, `done` after it.
    The specification is kept in the environment under its name as soon as one size has a decision that
    could be run; until then what stood under the name stays. A size that no configuration can compute, or
    that is cold where measuring is not allowed, has its `error` set.
    """
    kernel = TunedKernel(session, client, spec)
    runs: list[SizeRun] = []
    for size in sizes or spec.problem_sizes:
        begin(size_text(size))
        run = _run(session, kernel, size, repeat)
        if run.cost.decision is not None and all(earlier.cost.decision is None for earlier in runs):
            remember(session.store, spec)
        runs.append(run)
        done(run)
    environment, level = session.config.environment.name, str(session.level)
    return KernelReport(
        spec.name, client.device_name, environment, level, len(kernel.configurations), tuple(runs)
    )


def _run(session: Session, kernel: TunedKernel, size: tuple[int, ...], repeat: int) -> SizeRun:
    key, configuration = kernel.key(KernelInputs(size, ())), None
    proven = session.prover.usage
    try:
        session.context.progress("operands", 0, 1)
        inputs = kernel.inputs_for(size)
        cost = cost_of(
            session,
            kernel.client,
            lambda: kernel.decide(inputs),
            lambda: kernel.run(inputs),
            repeat,
            proven=proven,
        )
    except WorkError as error:
        cost = failed(error)
    if cost.decision is not None:
        configuration = kernel.configurations[cost.decision.index]
    return SizeRun(size, key, cost, configuration)
