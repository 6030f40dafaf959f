"""Proof workers for a tuning that is sure to come, started before OpenCL is even imported.

Importing it, opening the device and making the candidates take about as long as a worker needs to start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .config import Config
from .matmul.cost import compute_ops
from .matmul.key import MatmulAutotuneKey
from .matmul.problem import Elem, Problem, Shape
from .proof.pool import Pool, early_pool
from .store.cold import ColdDecisions
from .store.stores import DecisionStore, Store
from .tuning.level import Level
from .tuning.tunable import key_text

TUNER = "matmul"


def problem_of(config: Config, shape: Shape, elem: Elem, batch: int, precision: str | None) -> Problem:
    """The problem of a shape, with the configured precision for f32 unless one is given."""
    wanted = precision or config.matmul.f32_precision
    return shape.problem(elem, batch=batch, precision=wanted if elem is Elem.F32 else "full")


def matmul_keys(problems: Iterable[Problem], level: Level) -> list[MatmulAutotuneKey]:
    """The keys of those problems for which there is something to compute."""
    return [MatmulAutotuneKey.build(problem, level) for problem in problems if compute_ops(problem)]


def surely_new(
    decisions: DecisionStore | ColdDecisions, tuner: str, level: Level, keys: Iterable[Any]
) -> bool:
    """Whether one of these keys has no decision for any device, so that it will have to be tuned."""
    return not all(decisions.knows(tuner, str(level), key_text(key)) for key in keys)


def workers_for(
    config: Config, store: Store, device: str | None, problems: Iterable[Problem], *, cold: bool = False
) -> Pool | None:
    """Workers, starting, for a session that will surely tune one of these products on it; else None."""
    decisions = ColdDecisions(store.decisions) if cold else store.decisions
    level = Level.parse(config.autotune.level)
    new = surely_new(decisions, TUNER, level, matmul_keys(problems, level))
    return early_pool(config.proof, device) if new else None
