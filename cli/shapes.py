"""`tune shapes`: tunes shapes in order, in one process, and shows what each cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .options import BatchOption, Common, DtypeOption, PrecisionOption, common, parse_elem
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

if TYPE_CHECKING:
    from rooftune.device.counters import Counts
    from rooftune.shapes_run import ShapeRun

ShapesToTune = Annotated[
    list[str],
    typer.Argument(
        metavar="SHAPE",
        help="N for a square or MxNxK, then t (lhs) and/or T (rhs) for a transposed view: "
        "1024, 64x4096x1024, 1024T.",
        show_default=False,
    ),
]
ColdOption = Annotated[
    bool,
    typer.Option(
        "--cold", help="Forget these keys and this device's probe results, and replace them when done."
    ),
]
WarmOption = Annotated[
    bool, typer.Option("--warm", help="Refuse to measure: a key that is not known is an error.")
]
RepeatOption = Annotated[int, typer.Option("--repeat", metavar="N", min=0, help="Calls after the first.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say the winner, how good it is, and where the time went.")
]

UNFINISHED = 4


@common()
def shapes(
    common: Common,
    shapes: ShapesToTune,
    cold: ColdOption = False,
    warm: WarmOption = False,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
    repeat: RepeatOption = 20,
    verbose: VerboseOption = False,
) -> None:
    """Tune shapes in order and show what the first call and the next ones cost.

    A shape whose key is known, from this run or from the store, is not tuned again.
    """
    from rooftune.errors import UsageError
    from rooftune.matmul.problem import Shape

    if cold and warm:
        raise UsageError(
            "--cold and --warm exclude each other", hint="--cold measures anew, --warm refuses to."
        )
    parsed = [Shape.parse(text) for text in shapes]
    elem = parse_elem(dtype, precision)
    settings = common.settings(precision)

    with status_line(STARTING) as status:
        from rooftune.session import Session
        from rooftune.shapes_run import tune_shapes

        session = Session(
            settings,
            cold=cold,
            measure=not warm,
            forbidden_by="--warm",
            json_stdout=common.json,
            warn=status.above(warn),
            progress=lambda phase, done, total: status.progress(_DOING[phase], done, total),
            probing=status.probing,
        )
        if batch > 0:
            session.foresee(session.problem(shape, elem, batch, precision) for shape in parsed)
        client = session.client(common.device)
        if not common.json:
            status.above(say)(f"device: {client.device_name} ({client.profile.platform})")
        report = tune_shapes(
            session,
            client,
            parsed,
            elem=elem,
            batch=batch,
            repeat=repeat,
            precision=precision,
            done=lambda run: None if common.json else status.above(print_folded)(_lines(run, verbose)),
        )
        session.close(f"shapes {' '.join(shapes)}")
    if common.json:
        emit("shapes", report.to_json())
    else:
        _say_errors(report.shapes)
    if not report.complete:
        raise typer.Exit(UNFINISHED)


_DOING = {
    "operands": "making operands",
    "probe": "probing",
    "prove": "proving",
    "compile": "compiling",
    "measure": "measuring",
    "call": "calling",
}


def _lines(run: ShapeRun, verbose: bool) -> Iterator[str]:
    label = run.shape.label
    if run.error is not None:
        yield f"{label} failed"
        return
    if run.decision is None:
        yield f"{label} nothing to compute"
        return
    yield f"{label} first:{format_seconds(run.first_s):>13}  {_launches(run.first)}"
    if run.next_s:
        shown = run.to_json()["next"]
        times = f"min {format_seconds(shown['min_s'])} median {format_seconds(shown['median_s'])}"
        yield f"{label} next {len(run.next_s)}: {times}  {_launches(run.next)}"
    if verbose:
        yield from _details(run)


def _launches(counts: Counts) -> str:
    named = [f"{label}={count}" for label, count in sorted(counts.launches.items())]
    if counts.compiles:
        named.append(f"~compile={counts.compiles}")
    return f"launches={counts.total} [{', '.join(named)}]"


def _details(run: ShapeRun) -> Iterator[str]:
    decision = run.decision
    if decision is None:
        return
    share = f", {decision.roofline:.0%} of the roofline" if decision.roofline is not None else ""
    limit = f", limit {format_seconds(decision.limit_s)}" if decision.limit_s is not None else ""
    stopped = ", stopped early" if decision.short_circuit else ""
    speed = f"; next at {run.gflops:.1f} GFLOP/s" if run.gflops else ""
    median = format_seconds(decision.median_s)
    yield f"  {decision.name} ({run.source}): {median}{share}{limit}{stopped}{speed}"
    if run.source == "tuned":
        yield f"  time spent: {spent(decision.timings)}"
    elif run.waited_s is not None and run.waited_s >= WORTH_SAYING_S:
        yield f"  waited {format_seconds(run.waited_s)} for another process"


def _say_errors(runs: tuple[ShapeRun, ...]) -> None:
    for run in runs:
        if run.error is not None:
            say_error(f"{run.shape.label}: {run.error}")
