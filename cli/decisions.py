"""`tune decisions`: stored decisions, one JSON record a line."""

from __future__ import annotations

from typing import Annotated

import typer

from .complete import one_of
from .options import (
    BatchOption,
    Common,
    PrecisionOption,
    ShapesArgument,
    check_of_shapes,
    common,
    parse_elem,
)
from .render import STARTING, print_lines, say, status_line, to_json, warn

DtypeFilter = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        autocompletion=one_of("f32", "f64", "f16", "bf16"),
        help="Element type of the shapes: f32, f64, f16 or bf16.",
    ),
]


@common()
def decisions(
    common: Common,
    shapes: ShapesArgument = None,
    dtype: DtypeFilter = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Print stored decisions as JSON Lines, one record a line.

    Without shapes: all of the environment, or those made at --level. With shapes: those of their keys on
    this device; exits with 4 if there is none.
    """
    from rooftune.decided import stored_records, tuning_command
    from rooftune.errors import WorkError
    from rooftune.matmul.problem import Shape
    from rooftune.session import Session

    check_of_shapes(bool(shapes), dtype, batch, precision)
    elem = parse_elem(dtype, precision)
    parsed = [Shape.parse(text) for text in shapes or ()]
    settings = common.settings(precision)
    with status_line(STARTING if parsed else "") as status:
        session = Session(settings, warn=status.above(warn))
        records = stored_records(
            session, parsed, elem=elem, device=common.device, batch=batch, precision=precision
        )
    if parsed and not records:
        texts = " ".join(shape.text for shape in parsed)
        raise WorkError(
            f"no decision is stored for {texts} on this device at level {session.level}",
            hint=f"Tune first: {tuning_command(session, parsed, elem, batch, precision)}",
        )
    if common.level is not None:
        records = [record for record in records if record["level"] == str(session.level)]
    print_lines(to_json(record) for record in records)
    if not records:
        say("no decision is stored here")
