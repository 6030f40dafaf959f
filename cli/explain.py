"""`tune explain`: one decision from key to verdict, the page to read when something looks wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .options import BatchOption, Common, DtypeOption, PrecisionOption, common, parse_elem
from .plan import ShapeArgument
from .render import emit, format_bytes, format_rate, format_seconds, print_lines, print_table, wrapped

if TYPE_CHECKING:
    from rooftune.explained import Explanation


@common()
def explain(
    common: Common,
    shape: ShapeArgument,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Explain the decision stored for a shape: key, plan, limit, evidence, and why the winner won."""
    from rooftune.explained import explain as explain_shape
    from rooftune.matmul.problem import Shape
    from rooftune.session import Session

    parsed = Shape.parse(shape)
    elem = parse_elem(dtype, precision)
    session = Session(common.settings(precision), json_stdout=common.json)
    found = explain_shape(session, parsed, elem=elem, batch=batch, precision=precision, device=common.device)
    if common.json:
        emit("explain", found.to_json())
        return
    print_lines(_head(found))
    print_table(["candidate", "median", "spread", "n", "roofline", "outcome"], _rows(found), right=_RIGHT)
    print_lines(_foot(found))


_RIGHT = ["median", "spread", "n", "roofline"]


def _head(found: Explanation) -> Iterator[str]:
    decision = found.decision
    origin = ", imported" if decision.origin == "imported" else ""
    yield from wrapped(f"{found.shape.label} on {decision.device}", "    ")
    yield f"decided {decision.at} at level {decision.level}, environment {decision.environment}{origin}"
    yield ""
    yield from wrapped(f"Key  {found.key.short()}", "     ")
    for reason in found.key_reasons():
        yield f"     {reason}"
    yield ""
    yield from _plan(found)
    yield ""
    yield from _limit(found)
    yield ""


def _plan(found: Explanation) -> Iterator[str]:
    rounds = found.plan.rounds
    yield f"Plan {len(rounds)} rounds, {found.rounds_played} reached"
    for number, members in enumerate(rounds[: found.rounds_played], 1):
        whys = dict.fromkeys(f"{member.entry.group}: {member.entry.why}" for member in members)
        runnable = sum(not member.refusal for member in members)
        yield from wrapped(
            f"     round {number}, {len(members)} candidates, {runnable} run here ({'; '.join(whys)})",
            "       ",
        )


def _limit(found: Explanation) -> Iterator[str]:
    decision = found.decision
    if decision.bounds is None or not decision.bounds.bounds:
        yield "Limit none: no peak is known, so nothing stops early"
        return
    for bound in decision.bounds.bounds:
        memory = bound.resource == "memory"
        amount = format_bytes(bound.amount) if memory else f"{bound.amount:.4g} operations"
        peak = format_rate(bound.peak_per_s, "B/s" if memory else "FLOP/s")
        yield f"Roof {bound.resource}: {amount} at {peak} take {format_seconds(bound.least_s)}"
    if decision.limit_s is None:
        yield "     no limit at this level"
        return
    threshold = decision.bounds.bounds[0].threshold or 1.0
    window = format_seconds(decision.bounds.launch_window_s)
    yield (
        f"     limit {format_seconds(decision.limit_s)}: the longer of them / {threshold:g}, "
        f"plus {window} for a launch"
    )


def _rows(found: Explanation) -> Iterator[list[str]]:
    for e in found.evidence:
        share = found.decision.share_of(e)
        outcome = "winner" if e.index == found.decision.index else e.outcome
        yield [
            f"{e.index} {e.name.removeprefix('matmul_')}",
            format_seconds(e.median_s),
            format_seconds(e.statistics.iqr) if e.timed else "",
            str(len(e.samples)) if e.samples else "",
            f"{share:.0%}" if share is not None else "",
            ": ".join(filter(None, (outcome, e.reason))),
        ]


def _foot(found: Explanation) -> Iterator[str]:
    decision = found.decision
    yield ""
    yield from wrapped(f"Why  {found.verdict()}.", "     ")
    if decision.roofline is not None:
        yield from wrapped(f"     It reaches {decision.roofline:.0%} of the roofline.", "     ")
    if found.skipped:
        reasons = "; ".join(dict.fromkeys(e.reason for e in found.skipped))
        yield from wrapped(f"     {len(found.skipped)} candidates were not tried: {reasons}.", "       ")
    failed = [check for check in decision.checks if not check.passed]
    for check in failed:
        yield from wrapped(f"     {check.name} failed its check: {check.reason}", "       ")
    spent = ", ".join(f"{name[:-2]} {format_seconds(s)}" for name, s in vars(decision.timings).items())
    yield f"Cost {spent}"
