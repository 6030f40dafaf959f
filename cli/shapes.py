"""`tune shapes`: tunes shapes in order, in one process, and shows what each cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from . import tuning
from .options import BatchOption, Common, DtypeOption, PrecisionOption, common, parse_elem
from .render import STARTING, status_line

if TYPE_CHECKING:
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
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say the winner, how good it is, and where the time went.")
]


@common()
def shapes(
    common: Common,
    shapes: ShapesToTune,
    cold: tuning.ColdOption = False,
    warm: tuning.WarmOption = False,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
    repeat: tuning.RepeatOption = 20,
    verbose: VerboseOption = False,
) -> None:
    """Tune shapes in order and show what the first call and the next ones cost.

    A shape whose key is known, from this run or from the store, is not tuned again.
    """
    from rooftune.foresight import problem_of
    from rooftune.matmul.problem import Shape

    tuning.check_cold_or_warm(cold, warm)
    parsed = [Shape.parse(text) for text in shapes]
    elem = parse_elem(dtype, precision)
    settings = common.settings(precision)

    with status_line(STARTING) as status:
        known = parsed if batch > 0 else []  # what is wrong with the batch is said by who computes it
        problems = [problem_of(settings, shape, elem, batch, precision) for shape in known]
        session = tuning.open_session(common, settings, status, cold, warm, problems)

        from rooftune.shapes_run import tune_shapes

        client = session.client(common.device)
        tuning.say_device(common, status, client)
        report = tune_shapes(
            session,
            client,
            parsed,
            elem=elem,
            batch=batch,
            repeat=repeat,
            precision=precision,
            begin=tuning.named_in(status, len(parsed)),
            done=tuning.shown_as_done(common, status, lambda run: _lines(run, verbose)),
        )
        session.close(f"shapes {' '.join(shapes)}")
    tuning.finish(common, "shapes", report, {run.shape.label: run.cost for run in report.shapes})


def _lines(run: ShapeRun, verbose: bool) -> Iterator[str]:
    label, cost = run.shape.label, run.cost
    if cost.error is not None:
        yield f"{label} failed"
        return
    if cost.decision is None:
        yield f"{label} nothing to compute"
        return
    yield from tuning.call_lines(label, cost)
    if verbose:
        speed = f"; next at {run.gflops:.1f} GFLOP/s" if run.gflops else ""
        yield f"  {tuning.winner_text(cost, cost.decision)}{speed}"
        yield from tuning.spent_lines(cost)
