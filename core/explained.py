"""A stored decision explained: key, plan, limit, evidence and verdict, as data and as sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isclose
from typing import Any

from .decided import place_options, stored_decisions, tuning_command
from .device.client import Client
from .errors import UsageError, WorkError
from .kernel_run import parse_size
from .matmul.candidates import CANDIDATES
from .matmul.key import MatmulAutotuneKey
from .matmul.planned import PlanView, view_plan
from .matmul.problem import SHAPE_HINT, Elem, Problem, Shape
from .session import TUNER, Session
from .spec.kernel import digest_of, name_of
from .spec.launch import key_of, size_text
from .spec.registry import find_spec, is_path
from .spec.spec import KERNEL, KernelSpec, load_spec
from .store import browse
from .tuning.decision import Decision, Evidence
from .tuning.events import Event
from .tuning.level import Level
from .tuning.ties import TieBreak
from .tuning.tunable import key_text
from .units import time_text

LOW_SHARE = 0.5
"""A winner below this share of the roofline makes one wonder."""

WIDE_SPREAD = 0.1
"""Samples of the winner whose middle half spreads over more than this share of their median do too."""

UNSURE = 0.9


@dataclass(frozen=True)
class Explanation:
    """Why a decision is what it is.

    `subject` is the shape or the problem size as typed, `title` what is shown of it, `key` the key in a few
    words and `key_reasons` what the bucketing did. `plan` is None for tuners but that of matrix products,
    which have none to show; `current` has the digest of each of today's candidates, where those are known.
    """

    subject: str
    title: str
    key: str
    key_reasons: tuple[str, ...]
    decision: Decision
    plan: PlanView | None = None
    current: Mapping[str, str] | None = None
    called: str = "candidate"

    @property
    def rounds_played(self) -> int:
        """How many rounds of the plan were reached."""
        if self.plan is None:
            return 0
        tried = {e.index for e in self.decision.evidence if e.outcome != "skipped"}
        reached = [
            number
            for number, members in enumerate(self.plan.rounds, 1)
            if any(member.entry.index in tried for member in members)
        ]
        return max(reached, default=0)

    @property
    def evidence(self) -> list[Evidence]:
        """All candidates that were looked at: measured ones fastest first, then the others by index."""
        others = [e for e in self.decision.evidence if not e.timed and e.outcome != "skipped"]
        return [*self.decision.ranking, *others]

    @property
    def skipped(self) -> list[Evidence]:
        return [e for e in self.decision.evidence if e.outcome == "skipped"]

    def spread_of(self, e: Evidence) -> float | None:
        """The interquartile range of a candidate's samples as a share of their median."""
        return e.statistics.iqr / e.median_s if e.median_s else None

    def proof_of(self, e: Evidence) -> str:
        """Where a candidate was proven (worker or inline), "wrong", "checked" for its output alone, or ""."""
        check = next((check for check in self.decision.checks if check.name == e.name), None)
        if check is None:
            return ""
        return (check.where or "checked") if check.passed else "wrong"

    def reasons(self, chosen: Sequence[Evidence]) -> dict[str, list[str]]:
        """Why candidates are out, each reason with their names."""
        found: dict[str, list[str]] = {}
        for e in chosen:
            if e.reason:
                found.setdefault(e.reason, []).append(e.name)
        return found

    def signs(self) -> Iterator[str]:
        """What should make one look twice, worst first."""
        decision, winner = self.decision, self.decision.winner
        if decision.bad:
            yield f"this decision is not used any more: {decision.bad}"
        if self.current is not None and set(self.current) != {e.name for e in decision.evidence}:
            yield (
                f"this was made for another list of {self.called}s than today's: "
                "the next call tunes the key anew"
            )
        elif self.current is not None and winner.digest != self.current[winner.name]:
            yield f"{winner.name} has changed since: the next call tunes the key anew"
        if decision.origin == "imported":
            yield "this was measured elsewhere and imported; only its winner's correctness was looked at here"
        for check in decision.checks:
            if not check.passed:
                yield f"{check.name} computes wrong results here or cannot be proven: {check.reason}"
        for event in decision.events:
            yield from _told(event)
        right_s = decision.bounds.limit_s if decision.bounds else None
        if decision.limit_s and right_s and not isclose(decision.limit_s, right_s, rel_tol=1e-6):
            yield (
                f"its limit of {time_text(decision.limit_s)} is of peaks found wrong later: by those below "
                f"it is {time_text(right_s)}; tuned anew (--cold), the key gets the right one"
            )
        share, spread = decision.roofline, self.spread_of(winner)
        if share is not None and share < LOW_SHARE:
            yield (
                f"the winner reaches only {share:.0%} of the roofline: no {self.called} suits this problem "
                "here, or the machine was busier than when its peaks were probed"
            )
        if spread is not None and spread > WIDE_SPREAD:
            yield (
                f"the winner's samples spread over {spread:.0%} of their median: "
                "other work ran beside them, or the clock changed"
            )
        if decision.confidence is not None and decision.confidence < UNSURE:
            yield "the two best are too close to tell apart: another run may choose the other, at no loss"

    def verdict(self) -> str:
        """Why the winner won, in a sentence."""
        decision = self.decision
        rivals = [e for e in decision.ranking if e.index != decision.index]
        if not decision.measured:
            return f"{decision.name} is the only {self.called}; nothing was measured"
        if decision.short_circuit and decision.tie_break is not None:
            pairs = _pairs_told(decision.tie_break)
            return f"samples of one were inside the limit, so measuring stopped; {pairs}"
        if decision.short_circuit:
            return (
                f"samples of {decision.name} were inside the limit, so measuring stopped: "
                "good enough, not proven best"
            )
        if not rivals:
            return f"{decision.name} was the only candidate that could be measured in the rounds reached"
        if decision.tie_break is not None:
            return _pairs_told(decision.tie_break)
        lead = (rivals[0].median_s or 0.0) / (decision.median_s or 1.0)
        return f"{decision.name} has the smallest median; {rivals[0].name} is next, {lead:.2f} times as long"

    def to_json(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "tuner": decision.tuner,
            "shape": self.subject,
            "device": decision.device,
            "environment": decision.environment,
            "level": decision.level,
            "at": decision.at,
            "origin": decision.origin,
            "key": decision.key,
            "key_reasons": list(self.key_reasons),
            "rounds": self.plan.to_json()["rounds"] if self.plan is not None else [],
            "rounds_played": self.rounds_played,
            "bounds": decision.bounds.to_json() if decision.bounds else None,
            "limit_s": decision.limit_s,
            "short_circuit": decision.short_circuit,
            "winner": {
                "index": decision.index,
                "name": decision.name,
                "median_s": decision.median_s,
                "roofline": decision.roofline,
            },
            "verdict": self.verdict(),
            "signs": list(self.signs()),
            "confidence": decision.confidence,
            "evidence": [self._evidence_json(e) for e in self.evidence],
            "skipped": [{"index": e.index, "name": e.name, "reason": e.reason} for e in self.skipped],
            "checks": [{"name": c.name, "passed": c.passed, "reason": c.reason} for c in decision.checks],
            "spent": dict(vars(decision.timings)),
        }

    def _evidence_json(self, e: Evidence) -> dict[str, Any]:
        timed = e.statistics if e.timed else None
        return {
            "index": e.index,
            "name": e.name,
            "outcome": e.outcome,
            "reason": e.reason,
            "median_s": e.median_s,
            "iqr_s": timed.iqr if timed else None,
            "samples": list(e.samples),
            "repeats": e.repeats,
            "roofline": self.decision.share_of(e),
            "proof": self.proof_of(e),
            "kept": e.kept,
        }


def _pairs_told(tie: TieBreak) -> str:
    return (
        f"{tie.winner} and {tie.loser} were too close to tell apart at first; {tie.pairs} pairs of samples "
        f"decided, by {time_text(tie.difference_s)}, confidence {tie.sure}"
    )


def _told(event: Event) -> Iterator[str]:
    """The sentence for an event that a person should know of."""
    if event.kind == "RooflineExceeded":
        yield (
            f"{event.name} ran at {event.value:.2f} times the roofline, so a peak was probed too low: "
            "tune probe all --fresh"
        )
    elif event.kind in ("SlowedDown", "SpedUp"):
        ratio, slower = event.value["ratio"], event.kind == "SlowedDown"
        cause = "throttling, or other work" if slower else "its clock ramped up, or other work ended"
        yield (
            f"the machine {'slowed down' if slower else 'sped up'} while this was measured ({event.name} to "
            f"{ratio:.2f} times its first times, {event.value['agree']} of {event.value['of']} candidates "
            f"alike): {cause}"
        )


def explain(
    session: Session,
    shape: Shape,
    *,
    elem: Elem = Elem.F32,
    batch: int = 1,
    precision: str | None = None,
    device: str | int | None = None,
) -> Explanation:
    """The explanation of the decision stored for a shape. Raises WorkError when there is none."""
    client = session.client(device)
    problem = session.problem(shape, elem, batch, precision)
    found = list(stored_decisions(session, [problem], client))
    if not found:
        how = tuning_command(session, [shape], elem, batch, precision)
        raise _none_stored(session, client, f"{shape.text} {elem}", how)
    plan = view_plan(shape.text, problem, client.profile, level=session.level)
    return explained_product(shape, problem, plan, found[0])


def explained_product(shape: Shape, problem: Problem, plan: PlanView, decision: Decision) -> Explanation:
    """The explanation of a matrix product's decision."""
    reasons = tuple(_product_key_reasons(problem, plan.key, decision.level))
    current = {candidate.name: candidate.digest for candidate in CANDIDATES}
    title = f"{shape.label} {problem.elem}"
    return Explanation(shape.text, title, plan.key.short(), reasons, decision, plan, current)


def explain_own(
    session: Session, what: str, which: str | None = None, device: str | int | None = None
) -> Explanation:
    """The explanation of a decision of another tuner, such as that of a specified kernel.

    `what` is a specification's path, or a tuner's name as `tune cache ls` shows it; that of a specified
    kernel also without `kernel:`. `which` is a problem
    size, or the id of a decision or its beginning; needed where there are several decisions. Raises
    UsageError, SpecError, and WorkError where nothing is stored.
    """
    spec = load_spec(what) if is_path(what) else None
    stored = [item for item in browse.stored_decisions(session.store.database) if item.tuner != TUNER]
    tuner = spec.tuner if spec is not None else browse.find_tuner(stored, what)
    if tuner is None:
        names = ", ".join(dict.fromkeys(browse.printable(item.tuner) for item in stored)) or "none yet"
        raise UsageError(
            f"'{what}' is neither a shape nor a tuner with decisions here; those are: {names}",
            hint=f"{SHAPE_HINT} An own kernel is named by its SPEC.toml, or as `tune cache ls` does.",
        )
    client = session.client(device)
    here = [i for i in stored if i.tuner == tuner and _is_from(i, client.device_id, str(session.level))]
    if which is None and spec is not None and len(spec.problem_sizes) == 1:
        which = size_text(spec.problem_sizes[0])
    item = _chosen(here, which, session.level)
    name = browse.short_tuner(tuner)
    if item is None:
        options = ["--size", which] if which is not None and _size(which) else []
        command = shlex.join(["tune", "kernel", what, *options, *place_options(session)])
        again = command if tuner.startswith(KERNEL) else f"run the program that has the tuner '{name}'"
        if spec is not None and len(spec.configurations()) == 1:
            raise WorkError(
                f"{name} has one configuration: it is used untold, and no decision is stored",
                hint="Give its parameters more values to have a choice.",
            )
        raise _none_stored(session, client, f"{name} {which}" if which else name, again)
    if spec is None and tuner.startswith(KERNEL):
        with suppress(UsageError):  # decisions were imported, and what they are of is not known here
            spec = find_spec(session.store, name)
    return _explained_own(item, name, which, session.level, spec)


def _is_from(item: browse.StoredDecision, device_id: str, level: str) -> bool:
    return item.device_id == device_id and item.level == level and item.decision is not None


def _size(text: str | None) -> tuple[int, ...] | None:
    try:
        return parse_size(text) if text is not None else None
    except UsageError:
        return None


def _chosen(
    stored: Sequence[browse.StoredDecision], which: str | None, level: Level
) -> browse.StoredDecision | None:
    """The newest decision for a problem size, of an id, or the only one; None for none."""
    newest = {key_text(item.key): item for item in stored}
    size = _size(which)
    if which is None:
        if len(newest) > 1:
            raise UsageError(
                f"there are {len(newest)} decisions of this tuner: {_listed(newest.values())}",
                hint="Say which: give its id, or the problem size of a kernel from a file.",
            )
        return next(iter(newest.values()), None)
    if size is not None and key_text(key_of(size, level)) in newest:
        return newest[key_text(key_of(size, level))]
    of_id = [item for item in stored if item.id.startswith(which.lower())]
    own_key = not any(_of_size(item) for item in stored)  # no size can name one of these
    if (size is None or (own_key and stored)) and len(of_id) != 1:
        raise UsageError(
            f"'{which}' names no decision of this tuner; there are: {_listed(newest.values()) or 'none'}",
            hint="Give an id from `tune cache ls`; or of a kernel from a file its size, 4096 or 1024x1024.",
        )
    return of_id[0] if len(of_id) == 1 else None


def _of_size(item: browse.StoredDecision) -> bool:
    return isinstance(item.key, dict) and "problem_size" in item.key


_MOST_LISTED = 8


def _listed(stored: Iterable[browse.StoredDecision]) -> str:
    """Keys with the ids of their decisions."""
    texts = [f"{browse.own_key_text(item.key)} ({item.id[: browse.SHORT_ID]})" for item in stored]
    more = [f"and {len(texts) - _MOST_LISTED} more"] if len(texts) > _MOST_LISTED else []
    return ", ".join([*texts[:_MOST_LISTED], *more])


def _explained_own(
    item: browse.StoredDecision, name: str, which: str | None, level: Level, spec: KernelSpec | None
) -> Explanation:
    decision, key = item.decision, browse.own_key_text(item.key)
    assert decision is not None
    size = _size(which)
    reasons = []
    if size is not None and key_of(size, level) == item.key:
        for axis, real, bucket in zip("xyz", size, item.key["problem_size"], strict=False):
            if real != bucket:
                reasons.append(f"{axis} {real} falls in the bucket {bucket} of level {decision.level}")
    subject = size_text(size) if size is not None else key
    key = f"problem size {key}" if spec is not None else key
    current = {c: digest_of(spec, c) for c in map(name_of, spec.configurations())} if spec else None
    called = "configuration" if spec is not None else "candidate"
    return Explanation(subject, f"{name} {subject}", key, tuple(reasons), decision, None, current, called)


def _none_stored(session: Session, client: Client, what: str, how: str) -> WorkError:
    return WorkError(
        f"no decision is stored for {what} on {client.device_name} at level {session.level}",
        hint=f"Tune it first: {how}",
    )


def _product_key_reasons(problem: Problem, key: MatmulAutotuneKey, level: str) -> Iterator[str]:
    """What the bucketing did to a product."""
    d = key.definition
    for name, real, anchored in (("m", problem.m, d.m), ("n", problem.n, d.n), ("k", problem.k, d.k)):
        if real != anchored:
            yield f"{name} {real} falls in the bucket {anchored} of level {level}"
    for side, operand, factor in (
        ("lhs", problem.lhs, d.lhs_stride_factor),
        ("rhs", problem.rhs, d.rhs_stride_factor),
    ):
        row_bytes = max(operand.row_stride, operand.col_stride) * operand.elem.size_bytes
        yield f"{side} rows are {row_bytes} bytes apart: divisible by 2^{factor}"
    yield f"kind {key.analysis.kind.value}, scale {key.analysis.scale_global.value}"
