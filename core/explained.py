"""A stored decision explained: key, plan, limit, evidence and verdict, as data and as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .decided import stored_decisions
from .errors import WorkError
from .matmul.candidates import CANDIDATES
from .matmul.key import MatmulAutotuneKey
from .matmul.planned import PlanView, view_plan
from .matmul.problem import Elem, Problem, Shape
from .session import Session
from .tuning.decision import Decision, Evidence
from .tuning.events import Event
from .tuning.ties import TieBreak

LOW_SHARE = 0.5
"""A winner below this share of the roofline makes one wonder."""

WIDE_SPREAD = 0.1
"""Samples of the winner whose middle half spreads over more than this share of their median do too."""

UNSURE = 0.9


@dataclass(frozen=True)
class Explanation:
    """Why a shape's decision is what it is."""

    shape: Shape
    problem: Problem
    key: MatmulAutotuneKey
    plan: PlanView
    decision: Decision

    @property
    def rounds_played(self) -> int:
        """How many rounds of the plan were reached."""
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
        if winner.digest != CANDIDATES[winner.index].digest:
            yield f"{winner.name} has changed since: the next call tunes the key anew"
        if decision.origin == "imported":
            yield "this was measured elsewhere and imported; only its winner's correctness was looked at here"
        for check in decision.checks:
            if not check.passed:
                yield f"{check.name} computes wrong results here or cannot be proven: {check.reason}"
        for event in decision.events:
            yield from _told(event)
        share, spread = decision.roofline, self.spread_of(winner)
        if share is not None and share < LOW_SHARE:
            yield (
                f"the winner reaches only {share:.0%} of the roofline: no candidate suits this problem here, "
                "or the machine was busier than when its peaks were probed"
            )
        if spread is not None and spread > WIDE_SPREAD:
            yield (
                f"the winner's samples spread over {spread:.0%} of their median: "
                "other work ran beside them, or the clock changed"
            )
        if decision.confidence is not None and decision.confidence < UNSURE:
            yield "the two best are too close to tell apart: another run may choose the other, at no loss"

    def key_reasons(self) -> Iterator[str]:
        """What the bucketing did to this problem."""
        d = self.key.definition
        level = self.decision.level
        for name, real, anchored in (
            ("m", self.problem.m, d.m),
            ("n", self.problem.n, d.n),
            ("k", self.problem.k, d.k),
        ):
            if real != anchored:
                yield f"{name} {real} falls in the bucket {anchored} of level {level}"
        for side, operand, factor in (
            ("lhs", self.problem.lhs, d.lhs_stride_factor),
            ("rhs", self.problem.rhs, d.rhs_stride_factor),
        ):
            row_bytes = max(operand.row_stride, operand.col_stride) * operand.elem.size_bytes
            yield f"{side} rows are {row_bytes} bytes apart: divisible by 2^{factor}"
        yield f"kind {self.key.analysis.kind.value}, scale {self.key.analysis.scale_global.value}"

    def verdict(self) -> str:
        """Why the winner won, in a sentence."""
        decision = self.decision
        rivals = [e for e in decision.ranking if e.index != decision.index]
        if not decision.measured:
            return f"{decision.name} is the only candidate; nothing was measured"
        if decision.short_circuit and decision.tie_break is not None:
            return f"one was inside the limit, so measuring stopped; {_pairs_told(decision.tie_break)}"
        if decision.short_circuit:
            return f"{decision.name} was inside the limit, so measuring stopped: good enough, not proven best"
        if not rivals:
            return f"{decision.name} was the only candidate that could be measured in the rounds reached"
        if decision.tie_break is not None:
            return _pairs_told(decision.tie_break)
        lead = (rivals[0].median_s or 0.0) / (decision.median_s or 1.0)
        return f"{decision.name} has the smallest median; {rivals[0].name} is next, {lead:.2f} times as long"

    def to_json(self) -> dict[str, Any]:
        decision = self.decision
        return {
            "shape": self.shape.text,
            "device": decision.device,
            "environment": decision.environment,
            "level": decision.level,
            "at": decision.at,
            "origin": decision.origin,
            "key": self.key.to_json(),
            "key_reasons": list(self.key_reasons()),
            "rounds": self.plan.to_json()["rounds"],
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
        f"{tie.winner} and {tie.loser} were too close to tell by their medians; {tie.pairs} pairs of samples "
        f"decided, by {tie.difference_s * 1e6:.1f} µs, confidence {tie.confidence:.0%}"
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
        raise WorkError(
            f"no decision is stored for {shape.text} on {client.device_name} at level {session.level}",
            hint=f"Tune it first: tune shapes {shape.text}",
        )
    plan = view_plan(shape.text, problem, client.profile, level=session.level)
    return Explanation(shape, problem, plan.key, plan, found[0])
