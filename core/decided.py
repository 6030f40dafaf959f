"""Stored decisions as records: the work of `tune decisions`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .config import EnvironmentConfig
from .device.client import Client
from .matmul.key import MatmulAutotuneKey
from .matmul.problem import Elem, Problem, Shape
from .session import TUNER, Session
from .tuning.decision import Decision, read_decision
from .tuning.level import Level
from .tuning.place import Place
from .tuning.tunable import key_text


def stored_records(
    session: Session,
    shapes: Sequence[Shape] = (),
    *,
    elem: Elem = Elem.F32,
    device: str | int | None = None,
    batch: int = 1,
    precision: str | None = None,
) -> list[dict[str, Any]]:
    """Records of the environment's decisions, oldest first.

    With shapes: those of their keys, on one device, at the session's level. Without: all of them.
    """
    found: Iterable[Decision]
    if not shapes:
        found = filter(None, map(read_decision, session.store.decisions.all()))
    else:
        problems = [session.problem(shape, elem, batch, precision) for shape in shapes]
        found = stored_decisions(session, problems, session.client(device))
    return [decision.record() for decision in found]


def stored_decisions(session: Session, problems: Sequence[Problem], client: Client) -> Iterator[Decision]:
    """The decisions stored for these problems' keys on a device; keys without one are passed over."""
    checksum = session.tunables(client).checksum
    for problem in problems:
        key = key_text(MatmulAutotuneKey.build(problem, session.level))
        decision = read_decision(
            session.store.decisions.load(Place(TUNER, str(session.level), client.device_id, checksum, key))
        )
        if decision is not None:
            yield decision


def tuning_command(
    session: Session, shapes: Sequence[Shape], elem: Elem, batch: int, precision: str | None
) -> str:
    """The command line that tunes these shapes as this session looks for them."""
    options = (
        *(["--dtype", str(elem)] if elem is not Elem.F32 else []),
        *(["--batch", str(batch)] if batch != 1 else []),
        *(["--precision", precision] if precision else []),
    )
    words = ["tune", "shapes", *(shape.text for shape in shapes), *options, *place_options(session)]
    return shlex.join(words)


def place_options(session: Session) -> list[str]:
    """The options that make a command look where this session does."""
    environment, level = session.config.environment.name, session.level
    return [
        *(["--level", str(level)] if level is not Level.BALANCED else []),
        *(["--environment", environment] if environment != EnvironmentConfig().name else []),
    ]


def roofline_decisions(
    session: Session, client: Client, shapes: Sequence[Shape], elem: Elem, batch: int, precision: str | None
) -> tuple[list[tuple[Decision, str]], list[str]]:
    """Decisions of a device with their labels (empty: as the key says), and shapes that have none.

    Without shapes: the newest decision of every key, whatever tuner and level made it.
    """
    if not shapes:
        newest: dict[tuple[str, str], Decision] = {}
        for decision in filter(None, map(read_decision, session.store.decisions.all())):
            if decision.device_id == client.device_id and not decision.bad:
                newest[(decision.tuner, key_text(decision.key))] = decision
        return [(decision, "") for decision in newest.values()], []
    decided: list[tuple[Decision, str]] = []
    missing: list[str] = []
    for shape in shapes:
        problem = session.problem(shape, elem, batch, precision)
        stored = list(stored_decisions(session, [problem], client))
        decided += [(decision, shape.text) for decision in stored]
        missing += [] if stored else [shape.text]
    return decided, missing
