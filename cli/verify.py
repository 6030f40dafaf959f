"""`tune verify`: stored decisions proven and measured again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from .options import BatchOption, Common, DtypeOption, PrecisionOption, ShapesArgument, common, parse_elem
from .render import STARTING, emit, format_seconds, print_folded, say, status_line, warn

if TYPE_CHECKING:
    from rooftune.verified import Verified

FOUND_SOMETHING = 4


@common()
def verify(
    common: Common,
    shapes: ShapesArgument = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Prove stored decisions again and measure each winner against its runner-up.

    Without shapes: all decisions of this device, level and environment. Says how far each winner's time
    has drifted; exits with 4 if a winner is wrong, or no longer the fastest. Nothing stored is changed.
    """
    from rooftune.matmul.problem import Shape

    parsed = [Shape.parse(text) for text in shapes or ()]
    elem = parse_elem(dtype, precision)
    settings = common.settings(precision)
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
            progress=lambda label: status.show(f"verifying {label}"),
            done=lambda found: None if common.json else status.above(print_folded)(_lines(found)),
        )
    if common.json:
        emit("verify", report.to_json())
    elif not report.decisions:
        say("no decision is stored here")
    if not report.good:
        raise typer.Exit(FOUND_SOMETHING)


def _lines(found: Verified) -> Iterator[str]:
    if found.decision is None:
        yield f"{found.shape}  {found.problem}"
        return
    right = {True: "right", False: "WRONG", None: "not proven"}[found.proof.passed if found.proof else None]
    parts = [f"{found.shape}  {found.decision.name}: {right}"]
    if found.median_s is not None:
        drift = f" ({_drift(found.drift)})" if found.drift is not None else ""
        parts.append(f"{format_seconds(found.median_s)}{drift}")
    if found.runner_up is not None:
        parts.append(f"runner-up {found.runner_up} {format_seconds(found.runner_up_s)}")
    yield ", ".join(parts)
    for remark in filter(None, (found.problem, found.note)):
        yield f"    {remark}"


def _drift(percent: float) -> str:
    return f"{abs(percent):.1f} % {'slower' if percent > 0 else 'faster'} than when it was tuned"
