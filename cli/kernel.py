"""`tune kernel`: tunes a kernel of one's own, described in a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Common, common
from .render import (
    STARTING,
    WORTH_SAYING_S,
    emit,
    format_seconds,
    print_folded,
    say,
    say_error,
    spent,
    status_line,
    warn,
)
from .shapes import _DOING as DOING
from .shapes import ColdOption, RepeatOption, WarmOption

if TYPE_CHECKING:
    from rooftune.kernel_run import SizeRun

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC.toml", help="The specification; or the name of one tuned before.", show_default=False
    ),
]
SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size", metavar="SIZE", help="Problem size instead of the file's: 4096 or 1024x1024. Repeatable."
    ),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show the fastest configurations, and where the time went.")
]

UNFINISHED = 4
SHOWN = 5


@common()
def kernel(
    common: Common,
    spec: SpecArgument,
    size: SizeOption = None,
    cold: ColdOption = False,
    warm: WarmOption = False,
    repeat: RepeatOption = 20,
    verbose: VerboseOption = False,
) -> None:
    """Tune an OpenCL kernel of your own over the parameters its specification names.

    The winner is stored like any decision, and the specification with it: `rooftune.kernel(NAME)` runs
    it from Python. Of many configurations only those that promise something are measured; at level full
    all of them are.
    """
    from rooftune.errors import UsageError

    if cold and warm:
        raise UsageError(
            "--cold and --warm exclude each other", hint="--cold measures anew, --warm refuses to."
        )
    settings = common.settings()
    named = not (spec.endswith(".toml") or "/" in spec)
    with status_line(STARTING) as status:
        from rooftune.kernel_run import parse_size, tune_kernel
        from rooftune.session import Session
        from rooftune.spec.registry import find_spec
        from rooftune.spec.spec import load_spec

        sizes = [parse_size(text) for text in size or ()]
        described = None if named else load_spec(spec)
        session = Session(
            settings,
            cold=cold,
            measure=not warm,
            forbidden_by="--warm",
            json_stdout=common.json,
            warn=status.above(warn),
            progress=lambda phase, done, total: status.progress(DOING[phase], done, total),
            probing=status.probing,
        )
        described = described or find_spec(session.store, spec)
        client = session.client(common.device)
        if not common.json:
            status.above(say)(f"device: {client.device_name} ({client.profile.platform})")
        report = tune_kernel(
            session,
            client,
            described,
            sizes,
            repeat=repeat,
            done=lambda run: None if common.json else status.above(print_folded)(_lines(run, verbose)),
        )
        session.close(f"kernel {spec}")
    if common.json:
        emit("kernel", report.to_json())
    else:
        for run in report.sizes:
            if run.error is not None:
                say_error(f"{run.label}: {run.error}")
    if not report.complete:
        raise typer.Exit(UNFINISHED)


def _lines(run: SizeRun, verbose: bool) -> Iterator[str]:
    decision = run.decision
    if decision is None:
        yield f"{run.label} failed"
        return
    launches = f"launches={run.first.total}"
    if run.first.compiles:
        launches += f" ~compile={run.first.compiles}"
    yield f"{run.label} first:{format_seconds(run.first_s):>13}  {launches}"
    if run.next_s:
        shown = run.to_json()["next"]
        times = f"min {format_seconds(shown['min_s'])} median {format_seconds(shown['median_s'])}"
        yield f"{run.label} next {len(run.next_s)}: {times}"
    share = f", {decision.roofline:.0%} of the roofline" if decision.roofline is not None else ""
    count = len(decision.evidence)
    stopped = ", stopped early" if decision.short_circuit else ""
    yield f"  {decision.name} ({run.source}): {format_seconds(decision.median_s)}{share}"
    yield f"  {run.measured} of {count} configurations measured{stopped}"
    if not verbose:
        return
    others = sorted(decision.ranking[1:], key=lambda evidence: evidence.median_s or 0.0)
    for evidence in others[: SHOWN - 1]:
        dropped = "  (dropped)" if evidence.outcome == "dropped" else ""
        yield f"    {format_seconds(evidence.median_s):>10}  {evidence.name}{dropped}"
    if run.source == "tuned":
        yield f"  time spent: {spent(decision.timings)}"
    elif run.waited_s is not None and run.waited_s >= WORTH_SAYING_S:
        yield f"  waited {format_seconds(run.waited_s)} for another process"
