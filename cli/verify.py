"""`tune verify`: stored decisions proven and measured again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from .options import (
    BatchOption,
    Common,
    DtypeOption,
    PrecisionOption,
    ShapesArgument,
    check_of_shapes,
    common,
    parse_elem,
)
from .render import STARTING, emit, format_seconds, print_folded, say, status_line, warn

if TYPE_CHECKING:
    from rooftune.verified import Verified, VerifyReport

FOUND_SOMETHING = 4
EXAMPLES = "each line is a key, shown by the shape that was tuned, or by another where that is not known"
_NOT_THE_TUNED = "that was on another shape of the key, or it is not known on which"
DRIFTED_PERCENT = 3.0
"""A time that drifted by less is neither slower nor faster."""


@common()
def verify(
    common: Common,
    shapes: ShapesArgument = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Prove stored decisions for matrix products again and measure each winner against its runner-up.

    Without shapes: all for matrix products of this device, level and environment, each on the shape that was
    tuned, or on another of its key where that is not known; how many other tuners have is said. Says how far
    each winner's time has drifted on the shape that was tuned, and nothing of that on another; exits with 4
    if a winner is wrong, or no longer the fastest. Nothing stored is changed.
    """
    from rooftune.matmul.problem import Shape

    parsed = [Shape.parse(text) for text in shapes or ()]
    check_of_shapes(bool(shapes), dtype, batch, precision)
    elem = parse_elem(dtype, precision)
    settings = common.settings(precision)
    shown: list[Verified] = []

    def lines(found: Verified) -> Iterator[str]:
        if not (parsed or shown):
            yield EXAMPLES
        shown.append(found)
        yield from _lines(found)

    with status_line(STARTING) as status:
        from rooftune.session import Session
        from rooftune.verified import verify as verify_decisions

        session = Session(settings, measure=False, json_stdout=common.json, warn=status.above(warn))
        client = session.client(common.device)
        if not common.json:
            status.above(say)(f"device: {client.device_name} ({client.profile.platform})")
        report = verify_decisions(
            session,
            client,
            parsed,
            elem=elem,
            batch=batch,
            precision=precision,
            progress=lambda label, number, total: status.show(
                f"verifying {label}" + (f" ({number} of {total})" if total > 1 else "")
            ),
            done=lambda found: None if common.json else status.above(print_folded)(lines(found)),
        )
    if common.json:
        emit("verify", report.to_json())
    else:
        print_folded(_summary(report))
        if not report.decisions:
            current = " of today's candidates" if report.outdated else ""
            what = f"no decision for a matrix product{current}"
            say(f"{what} is stored here for this device at level {report.level}")
        if report.outdated:
            say(_outdated(report.outdated))
        if report.others:
            say(_not_verified(report.others))
    if not report.good:
        raise typer.Exit(FOUND_SOMETHING)


def _lines(found: Verified) -> Iterator[str]:
    if found.decision is None:
        yield f"{found.title}  {found.problem}"
        return
    right = {True: "right", False: "WRONG", None: "not proven"}[found.proof.passed if found.proof else None]
    parts = [f"{found.title}  {found.decision.name}: {right}"]
    if found.median_s is not None:
        drift = f" ({_drift(found.drift)})" if found.drift is not None else _tuned_on(found)
        parts.append(f"{format_seconds(found.median_s)}{drift}")
    if found.runner_up is not None:
        parts.append(f"runner-up {found.runner_up} {format_seconds(found.runner_up_s)}")
    yield ", ".join(parts)
    for remark in filter(None, (found.problem, found.note)):
        yield f"    {remark}"


def _summary(report: VerifyReport) -> Iterator[str]:
    """How many of the decisions are right, and how many times drifted, in a line; none for no decisions."""
    found = [each for each in report.decisions if each.decision is not None]
    if not found:
        return
    verdicts = [each.proof.passed if each.proof else None for each in found]
    right, wrong = verdicts.count(True), verdicts.count(False)
    counts = [(right, "still right"), (wrong, "WRONG"), (len(found) - right - wrong, "not proven")]
    said = ", ".join(f"{count} {what}" for count, what in counts if count)
    if right == len(found):
        said = "all still right" if right > 1 else "still right"
    beaten = sum(bool(each.problem) and each.comparison is not None for each in found)
    drifts = [each.drift for each in found if each.drift is not None]
    slower = sum(drift > DRIFTED_PERCENT for drift in drifts)
    faster = sum(drift < -DRIFTED_PERCENT for drift in drifts)
    drifted = ", ".join(
        f"{count} {what}" for count, what in ((slower, "slower"), (faster, "faster")) if count
    )
    not_compared = sum(bool(each.median_s and each.drift is None) for each in found)
    missing = len(report.decisions) - len(found)
    parts = [
        f"{len(found)} decision{'s' if len(found) > 1 else ''}: {said}",
        f"{beaten} no longer the fastest" if beaten else "",
        f"{drifted} than when tuned, by more than {DRIFTED_PERCENT:.0f}%" if drifted else "",
        f"{not_compared} not compared with when tuned: {_NOT_THE_TUNED}" if not_compared else "",
        f"{missing} shape{'s' if missing > 1 else ''} without a decision" if missing else "",
    ]
    yield "; ".join(filter(None, parts))


def _outdated(count: int) -> str:
    what, was, they = ("decision", "was", "it") if count == 1 else ("decisions", "were", "they")
    return (
        f"{count} {what} for matrix products {was} made for another list of candidates than today's, so "
        f"{they} {was} left out: the next call with such a shape tunes it anew. `tune cache ls` marks such "
        "with *, `tune cache rm ID` removes one"
    )


def _not_verified(others: dict[str, int]) -> str:
    from rooftune.store.browse import printable

    count, names = sum(others.values()), ", ".join(map(printable, others))
    what, are = ("decision", "is") if count == 1 else ("decisions", "are")
    tuners = "another tuner" if len(others) == 1 else "other tuners"
    return f"{count} {what} of {tuners} ({names}) {are} not verified: only those for matrix products are"


def _tuned_on(found: Verified) -> str:
    """That another shape was tuned, where one is known."""
    tuned = found.tuned_on
    if tuned is None:
        return ""
    batch = f" b{tuned['batch']}" if tuned["batch"] != 1 else ""
    return f" (tuned on {tuned['shape']}{batch})"


def _drift(percent: float) -> str:
    return f"{abs(percent):.1f}% {'slower' if percent > 0 else 'faster'} than when it was tuned"
