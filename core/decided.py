"""Stored decisions as records: the work of `tune decisions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .matmul.key import MatmulAutotuneKey
from .matmul.problem import Elem, Shape
from .session import TUNER, Session
from .tuning.decision import Decision
from .tuning.tunable import key_text


def stored_records(
    session: Session,
    shapes: Sequence[Shape] = (),
    *,
    dtype: str | None = None,
    device: str | int | None = None,
    batch: int = 1,
    precision: str | None = None,
) -> list[dict[str, Any]]:
    """Records of the environment's decisions, oldest first.

    With shapes: those of their keys, on one device, at the session's level. Without: all of them.
    """
    decisions = _all(session) if not shapes else _of(session, shapes, dtype, device, batch, precision)
    return [decision.record() for decision in decisions]


def _all(session: Session) -> Iterator[Decision]:
    for entry in session.store.decisions.all():
        decision = read_decision(entry)
        if decision is not None:
            yield decision


def _of(
    session: Session,
    shapes: Sequence[Shape],
    dtype: str | None,
    device: str | int | None,
    batch: int,
    precision: str | None,
) -> Iterator[Decision]:
    client = session.client(device)
    elem = Elem.parse(dtype or "f32")
    wanted = precision or session.config.matmul.f32_precision
    checksum = session.tunables(client).checksum
    for shape in shapes:
        problem = shape.problem(elem, batch=batch, precision=wanted if elem is Elem.F32 else "full")
        key = key_text(MatmulAutotuneKey.build(problem, session.level))
        data = session.store.decisions.load(TUNER, str(session.level), client.device_id, checksum, key)
        decision = read_decision(data)
        if decision is not None:
            yield decision


def read_decision(data: dict[str, Any] | None) -> Decision | None:
    """A stored decision, or None for what is not one."""
    if data is None:
        return None
    try:
        return Decision.from_json(data)
    except ValueError:
        return None
