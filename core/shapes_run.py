"""Tuning a list of shapes in order, in one process, and what it cost: the work of `tune shapes`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from .device.client import Client
from .device.counters import Counts
from .device.memory import check_available
from .errors import RooftuneError, UsageError, WorkError
from .matmul.cost import compute_ops
from .matmul.key import MatmulAutotuneKey
from .matmul.problem import Elem, Problem, Shape
from .matmul.tunables import MatmulInputs
from .proof.pool import Usage
from .session import Session
from .tuning.decision import Decision
from .tuning.tuner import Source
from .waiting import Stopwatch

REPEAT = 20
SLOW_CALL_S = 0.05


@dataclass(frozen=True)
class ShapeRun:
    """What happened to one shape. Times in seconds of wall clock, each call synchronised.

    `waited_s` is the part of `first_s` in which other processes were waited for. `first` and `next` count
    launches by label and compilations: of the first call, and of the `len(next_s)` calls after it. `proof`
    is what proof workers did for it, apart from those counts.
    """

    shape: Shape
    problem: Problem
    key: MatmulAutotuneKey
    source: Source | None = None
    decision: Decision | None = None
    first_s: float | None = None
    waited_s: float | None = None
    next_s: tuple[float, ...] = ()
    first: Counts = field(default_factory=Counts)
    next: Counts = field(default_factory=Counts)
    proof: Usage | None = None
    error: str | None = None

    @property
    def gflops(self) -> float | None:
        """Giga-operations a second of the fastest later call."""
        return compute_ops(self.problem) / min(self.next_s) / 1e9 if self.next_s else None

    def to_json(self) -> dict[str, Any]:
        decision, shape = self.decision, self.shape
        return {
            "shape": shape.text,
            "m": shape.m,
            "n": shape.n,
            "k": shape.k,
            "batch": self.problem.batch,
            "dtype": str(self.problem.elem),
            "key": self.key.to_json(),
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
            "gflops": self.gflops,
            "launches": {"first": self.first.launches, "next": self.next.launches},
            "compiles": {"first": self.first.compiles, "next": self.next.compiles},
            "spent": _spent(decision) if self.source == "tuned" else None,
            "proof": vars(self.proof) if self.proof else None,
            "error": self.error,
        }


@dataclass(frozen=True)
class ShapesReport:
    """All shapes of one run, in order."""

    device: str
    environment: str
    level: str
    shapes: tuple[ShapeRun, ...]

    @property
    def complete(self) -> bool:
        return all(run.error is None for run in self.shapes)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "shapes": [run.to_json() for run in self.shapes],
        }


def tune_shapes(
    session: Session,
    client: Client,
    shapes: Sequence[Shape],
    *,
    elem: Elem = Elem.F32,
    batch: int = 1,
    repeat: int = REPEAT,
    precision: str | None = None,
    done: Callable[[ShapeRun], object] = lambda run: None,
) -> ShapesReport:
    """Tunes the shapes in order on random operands; `done` is called after each.

    A shape that no candidate can compute, or that is cold where measuring is not allowed, has its
    `error` set and does not stop the others. Raises UsageError for a wrong batch or repeat.
    """
    if batch < 1 or repeat < 0:
        raise UsageError(f"batch is {batch} and repeat {repeat}; batch must be at least 1, repeat at least 0")
    session.tunables(client)  # once per device, not part of any shape
    runs = []
    for shape in shapes:
        problem = session.problem(shape, elem, batch, precision)
        runs.append(_run(session, client, shape, problem, repeat))
        done(runs[-1])
    environment = session.config.environment.name
    return ShapesReport(client.device_name, environment, str(session.level), tuple(runs))


def random_inputs(client: Client, problem: Problem, seed: int = 0) -> MatmulInputs:
    """Random operands for a problem of fresh operands, on the device. Raises OutOfMemoryError."""
    sizes = [operand.size_bytes for operand in (problem.lhs, problem.rhs, problem.out)]
    client.check_fits(*sizes)
    check_available(sum(sizes) if client.profile.is_cpu else max(sizes))
    rng = np.random.default_rng(seed)
    lhs, rhs = (
        client.upload(_random(rng, operand.size_bytes, problem.elem))
        for operand in (problem.lhs, problem.rhs)
    )
    return MatmulInputs(problem, lhs, rhs, client.empty(problem.out.size_bytes))


def _random(rng: np.random.Generator, nbytes: int, elem: Elem) -> np.ndarray[Any, Any]:
    count = nbytes // elem.size_bytes
    if elem is Elem.F64:
        return rng.random(count) * 2 - 1
    values = rng.random(count, np.float32) * 2 - 1
    if elem is Elem.F16:
        return values.astype(np.float16)
    if elem is Elem.BF16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def _run(session: Session, client: Client, shape: Shape, problem: Problem, repeat: int) -> ShapeRun:
    key = MatmulAutotuneKey.build(problem, session.level)
    if 0 in (shape.m, shape.n, shape.k):
        return ShapeRun(shape, problem, key, source="memory")
    try:
        return _measured(session, client, shape, problem, key, repeat)
    except WorkError as error:
        return ShapeRun(shape, problem, key, error=_sentence(error))


def _measured(
    session: Session, client: Client, shape: Shape, problem: Problem, key: MatmulAutotuneKey, repeat: int
) -> ShapeRun:
    progress = session.context.progress
    progress("operands", 0, 1)
    inputs = random_inputs(client, problem)
    client.sync()
    start = client.counters.snapshot()
    proven = session.prover.usage
    began, watch = time.perf_counter(), Stopwatch()
    outcome = session.decide(client, inputs)
    session.execute(client, inputs)
    client.sync()
    first_s, waited_s = time.perf_counter() - began, watch.waited_s
    middle = client.counters.snapshot()
    next_s = calls(lambda: _call(session, client, inputs), repeat, progress)
    return ShapeRun(
        shape,
        problem,
        key,
        outcome.source,
        outcome.decision,
        first_s,
        waited_s,
        next_s,
        first=_between(start, middle),
        next=client.counters.since(middle),
        proof=session.prover.usage.since(proven),
    )


def calls(
    call: Callable[[], float], repeat: int, progress: Callable[[str, int, int], object]
) -> tuple[float, ...]:
    """The seconds that each of so many calls says it took; `progress` is told between slow ones."""
    seconds: list[float] = []
    progress("call", 0, repeat)
    for done in range(1, repeat + 1):
        seconds.append(call())
        if seconds[-1] >= SLOW_CALL_S:
            progress("call", done, repeat)
    return tuple(seconds)


def _call(session: Session, client: Client, inputs: MatmulInputs) -> float:
    began = time.perf_counter()
    session.execute(client, inputs)
    client.sync()
    return time.perf_counter() - began


def _between(start: Counts, end: Counts) -> Counts:
    gained = {label: n - start.launches.get(label, 0) for label, n in sorted(end.launches.items())}
    return Counts({label: n for label, n in gained.items() if n}, end.compiles - start.compiles)


def _spent(decision: Decision | None) -> dict[str, float] | None:
    return dict(vars(decision.timings)) if decision else None


def _sentence(error: RooftuneError) -> str:
    return f"{error.message}. {error.hint}" if error.hint else error.message
