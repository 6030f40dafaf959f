"""Stored decisions looked at again: still right, still fastest, how far they drifted (`tune verify`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import ceil
from statistics import median
from typing import Any

from .decided import stored_decisions
from .device.client import Client
from .errors import DeviceFaultError, MeasurementError, OutOfMemoryError, UnsupportedError, WorkError
from .matmul.example import example_of, named, problem_named, shape_of
from .matmul.key import MatmulAutotuneKey
from .matmul.problem import Elem, Problem, Shape
from .matmul.tunables import MatmulInputs
from .proof.prover import Prover
from .session import TUNER, Session
from .shapes_run import random_inputs
from .store.browse import key_text
from .tuning.context import Verdict
from .tuning.decision import Decision, read_decision
from .tuning.ties import TieBreak, in_turn, paired_verdict
from .tuning.tunable import Tunable

PAIRS = 10
SURE = 0.95
MARGIN = 0.03
"""A runner-up counts as faster when that is SURE, and by more than MARGIN of the winner's time."""

LEAST_WINDOW_S = 100e-6


@dataclass(frozen=True)
class Verified:
    """One decision looked at again. Times in seconds; `drift` is the change of the winner's time, in percent.

    `title` is the shape with batch, type and precision. `tuned_on` is the shape and batch that the stored
    samples are of, None where that is unknown; there is a drift only where this is what is measured now.
    `problem` is what is wrong with the decision, empty if nothing is; `note` is what could not be looked at,
    or looks wrong and is not.
    """

    shape: str
    key: MatmulAutotuneKey
    decision: Decision | None
    proof: Verdict | None = None
    median_s: float | None = None
    runner_up: str | None = None
    runner_up_s: float | None = None
    comparison: TieBreak | None = None
    problem: str = ""
    note: str = ""
    title: str = ""
    measured_on: dict[str, Any] | None = None
    tuned_on: dict[str, Any] | None = None

    @property
    def drift(self) -> float | None:
        if self.tuned_on is None or self.tuned_on != self.measured_on:
            return None
        stored_s = self.decision.median_s if self.decision else None
        return 100 * (self.median_s / stored_s - 1) if stored_s and self.median_s else None

    def to_json(self) -> dict[str, Any]:
        decision, proof = self.decision, self.proof
        return {
            "shape": self.shape,
            "key": self.key.to_json(),
            "measured_on": self.measured_on,
            "tuned_on": self.tuned_on,
            "winner": decision.name if decision else None,
            "right": proof.passed if proof else None,
            "proof": {"where": proof.where, "reason": proof.reason} if proof else None,
            "fastest": None if self.comparison is None else self.comparison.winner != self.runner_up,
            "stored_s": decision.median_s if decision else None,
            "median_s": self.median_s,
            "drift_percent": self.drift,
            "runner_up": None
            if self.runner_up is None
            else {"name": self.runner_up, "median_s": self.runner_up_s},
            "comparison": asdict(self.comparison) if self.comparison else None,
            "problem": self.problem or None,
            "note": self.note or None,
        }


@dataclass(frozen=True)
class VerifyReport:
    """All decisions looked at; `others`: how many of each other tuner's were passed over.

    `outdated`: how many for matrix products were, since they are of another list of candidates than today's.
    """

    device: str
    environment: str
    level: str
    decisions: tuple[Verified, ...] = field(default_factory=tuple)
    others: dict[str, int] = field(default_factory=dict)
    outdated: int = 0

    @property
    def good(self) -> bool:
        return not any(verified.problem for verified in self.decisions)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "good": self.good,
            "decisions": [verified.to_json() for verified in self.decisions],
            "not_verified": [{"tuner": tuner, "count": count} for tuner, count in self.others.items()],
            "outdated": self.outdated,
        }


def verify(
    session: Session,
    client: Client,
    shapes: Sequence[Shape] = (),
    *,
    elem: Elem = Elem.F32,
    batch: int = 1,
    precision: str | None = None,
    done: Callable[[Verified], object] = lambda verified: None,
    progress: Callable[[str, int, int], object] = lambda label, number, total: None,
) -> VerifyReport:
    """Proves the winners of stored decisions anew and measures them against their runners-up.

    With shapes: the decisions for those; without: all for matrix products of this device, level and
    environment, each on the shape that was tuned where that is known, while those of other tuners are
    counted. What is found wrong is reported and changes nothing stored. `progress` is called with the title
    of each, its number and how many there are before it is looked at, `done` with what was found after it.
    """
    # Without a store: what was once proven is proven again.
    prover = Prover(config=session.config.proof, warn=session.warn)
    found = []
    try:
        here = [] if shapes else list(_here(session, client))
        subjects = list(
            _of_shapes(session, client, shapes, elem, batch, precision)
            if shapes
            else _all(session, client, here)
        )
        for number, (plain, problem) in enumerate(subjects, 1):
            progress(plain.title, number, len(subjects))
            found.append(_look(session, client, prover, plain, problem))
            done(found[-1])
    finally:
        prover.close()
    others, outdated = _passed_over(session, client, here)
    environment, level = session.config.environment.name, str(session.level)
    return VerifyReport(client.device_name, environment, level, tuple(found), others, outdated)


Subject = tuple[Verified, Problem | None]
"""What is to be filled in, and the problem to measure."""


def _of_shapes(
    session: Session, client: Client, shapes: Sequence[Shape], elem: Elem, batch: int, precision: str | None
) -> Iterator[Subject]:
    for shape in shapes:
        problem = session.problem(shape, elem, batch, precision)
        decision = next(stored_decisions(session, [problem], client), None)
        key = MatmulAutotuneKey.build(problem, session.level)
        yield _subject(session, key, decision, problem, shape.label), problem


def _all(session: Session, client: Client, here: Sequence[Decision]) -> Iterator[Subject]:
    checksum = session.tunables(client).checksum
    for decision in here:
        if decision.tuner != TUNER or decision.checksum != checksum:
            continue
        key = MatmulAutotuneKey.from_json(decision.key)
        tuned = problem_named(decision.measured_on, key, session.level)
        problem = tuned or example_of(key, session.level)
        yield _subject(session, key, decision, problem), problem


def _subject(
    session: Session,
    key: MatmulAutotuneKey,
    decision: Decision | None,
    problem: Problem | None,
    shape: str = "",
) -> Verified:
    """Nothing found yet, but what is to be measured and what was."""
    tuned = problem_named(decision.measured_on, key, session.level) if decision is not None else None
    if problem is None:
        plain = Verified(key.short(), key, decision, title=key_text(key.to_json()))
    else:
        shape = shape or shape_of(problem).label
        plain = Verified(shape, key, decision, title=_title(shape, problem), measured_on=named(problem))
    return replace(plain, tuned_on=named(tuned) if tuned is not None else None)


def _title(shape: str, problem: Problem) -> str:
    """The shape with what `tune cache ls` says of keys: batch, element type and precision."""
    batch = f" b{problem.batch}" if problem.batch != 1 else ""
    precision = f" {problem.precision}" if problem.precision != "full" else ""
    return f"{shape}{batch} {problem.elem}{precision}"


def _here(session: Session, client: Client) -> Iterator[Decision]:
    """All decisions of this device and level, whatever tuner made them."""
    for decision in filter(None, map(read_decision, session.store.decisions.all())):
        if decision.device_id == client.device_id and decision.level == str(session.level):
            yield decision


def _passed_over(session: Session, client: Client, here: Sequence[Decision]) -> tuple[dict[str, int], int]:
    """How many decisions other tuners than that of matrix products have here, and how many are outdated."""
    checksum = session.tunables(client).checksum
    others = Counter(decision.tuner for decision in here if decision.tuner != TUNER)
    outdated = sum(decision.tuner == TUNER and decision.checksum != checksum for decision in here)
    return dict(sorted(others.items())), outdated


def _look(
    session: Session,
    client: Client,
    prover: Prover,
    plain: Verified,
    problem: Problem | None,
) -> Verified:
    key, decision = plain.key, plain.decision
    if decision is None:
        return replace(plain, problem="no decision is stored for it")
    if decision.bad:
        return replace(plain, problem=decision.bad)
    tunables = session.tunables(client)
    if decision.digest != tunables[decision.index].digest:
        return replace(plain, problem="the winner's code has changed since; the next call tunes it again")
    if problem is None:
        return replace(plain, note="no fresh operands have this key: give a shape to verify it")
    try:
        inputs = random_inputs(client, problem)
    except OutOfMemoryError as error:
        return replace(plain, problem=f"it could not be measured: {error}")
    proof = prover.prove(client, {decision.index: tunables[decision.index]}, key, inputs)[decision.index]
    proven = replace(plain, proof=proof)
    if proof.passed is False:
        return replace(proven, problem=f"the winner {decision.name} is not right: {proof.reason}")
    try:
        if _refuses(tunables[decision.index], inputs):
            note = f"{decision.name} is for other shapes of the key; for this one the next that takes it runs"
            return replace(proven, note=note)
        return _measured(session, client, prover, proven, decision, inputs)
    except (MeasurementError, UnsupportedError, DeviceFaultError, WorkError) as error:
        return replace(proven, problem=f"it could not be measured: {error}")


def _measured(
    session: Session,
    client: Client,
    prover: Prover,
    verified: Verified,
    decision: Decision,
    inputs: MatmulInputs,
) -> Verified:
    tunables = session.tunables(client)
    ranked = [tunables[evidence.index] for evidence in decision.ranking if evidence.index != decision.index]
    rivals = [tunable for tunable in ranked if not _refuses(tunable, inputs)][:1]
    times = _paired(client, prover, [tunables[decision.index], *rivals], inputs)
    median_s = median(times[0])
    if not rivals:
        none = "no other candidate with a time takes this shape" if ranked else "it has no runner-up"
        return replace(verified, median_s=median_s, note=none)
    rival = rivals[0].name
    differences = [mine - other for mine, other in zip(*times, strict=True)]
    comparison = paired_verdict(differences, decision.name, rival, first_wins_even=True)
    problem, note = _judged(comparison, rival, median_s, median(times[1]))
    return replace(
        verified,
        median_s=median_s,
        runner_up=rival,
        runner_up_s=median(times[1]),
        comparison=comparison,
        problem=problem,
        note=note,
    )


def _refuses(tunable: Tunable, inputs: MatmulInputs) -> bool:
    """Whether it is for other problems of the key only."""
    try:
        if tunable.prepare is not None:
            tunable.prepare(inputs)
    except UnsupportedError:
        return True
    return False


def _judged(comparison: TieBreak, rival: str, median_s: float, rival_s: float) -> tuple[str, str]:
    """The problem, or the note, that a runner-up deserves which is faster or looks so; else both empty."""
    if comparison.winner != rival:
        looks = f"{rival} has the smaller median, but not pair by pair: within noise"
        return "", looks if rival_s < median_s else ""
    share, sure = comparison.difference_s / median_s, f"confidence {comparison.sure}"
    if comparison.confidence < SURE:
        return "", f"{rival} looks faster by {share:.1%}: within noise ({sure})"
    if share <= MARGIN:
        return "", f"{rival} is faster by {share:.1%} ({sure}): less than the {MARGIN:.0%} that count"
    return f"{rival} is faster by {share:.0%} ({sure})", ""


def _paired(
    client: Client, prover: Prover, tunables: list[Tunable], inputs: MatmulInputs
) -> list[list[float]]:
    """Samples of one or two candidates, in pairs: A B B A B A A B …"""
    runs = [partial(tunable.fn, inputs) for tunable in tunables]
    for tunable in tunables:
        if tunable.prepare is not None:
            tunable.prepare(inputs)
    with prover.paused(client), client.exclusive():
        warm_s = [min(client.sample(run, 1) for _ in range(2)) for run in runs]
        repeats = [min(64, ceil(LEAST_WINDOW_S / seconds)) for seconds in warm_s]
        times: list[list[float]] = [[] for _ in runs]
        for pair in range(PAIRS):
            for which in in_turn(list(range(len(runs))), pair):
                times[which].append(client.sample(runs[which], repeats[which]))
    return times
