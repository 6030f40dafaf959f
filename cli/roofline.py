"""`tune roofline`: the device's roofline with the stored decisions on it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

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
from .render import STARTING, emit, print_folded, say, status_line, warn
from .tuning import UNFINISHED

PngOption = Annotated[
    Path | None,
    typer.Option(
        "--png", metavar="FILE", help="Draw into a PNG file as well (needs matplotlib: the extra `plot`)."
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Draw into an HTML file as well (needs matplotlib: the extra `plot`)."
    ),
]


@common()
def roofline(
    common: Common,
    shapes: ShapesArgument = None,
    png: PngOption = None,
    html: HtmlOption = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> int:
    """Draw the device's roofline, with this environment's decisions on it.

    Without shapes: every decision made on this device. Lines carry letters and decisions numbers, which are
    listed below the drawing. A decision's share is of the peaks known now; the share when it was decided,
    which other commands show, stands beside it where it differs. The first drawing measures the peaks and
    sweeps the bandwidth over all working sets, which takes up to a minute; later ones use what is stored.
    Exits with 4 if nothing is stored for one of the shapes.
    """
    from rooftune.matmul.problem import Shape

    check_of_shapes(bool(shapes), dtype, batch, precision)
    elem = parse_elem(dtype, precision)
    parsed = [Shape.parse(text) for text in shapes or ()]
    settings = common.settings(precision)

    files = [path for path in (png, html) if path is not None]
    with status_line(STARTING) as status:
        from rooftune.decided import tuning_command
        from rooftune.probes.plot_files import check_possible, write_html, write_png
        from rooftune.session import Session

        check_possible(files)
        session = Session(
            settings, json_stdout=common.json, warn=status.above(warn), probing=status.probing
        )
        client = session.client(common.device)
        if not common.json:
            status.above(say)(f"device: {client.device_name} ({client.profile.platform})")
        found, missing = session.roofline(
            client,
            parsed,
            elem=elem,
            batch=batch,
            precision=precision,
        )
        session.close("roofline")
    for problem in found.problems:
        warn(problem)
    for shape in missing:
        command = tuning_command(session, [Shape.parse(shape)], elem, batch, precision)
        warn(f"no decision is stored for {shape} {elem}; `{command}` makes one")
    if png is not None:
        write_png(found, png)
    if html is not None:
        write_html(found, html)
    written = [str(path) for path in files]
    unfinished = UNFINISHED if missing else 0
    if common.json:
        emit("roofline", {**found.to_json(), "missing": missing, "files": written})
        return unfinished
    from rooftune.probes.plot_terminal import draw

    size = shutil.get_terminal_size((100, 30))
    rows = min(32, size.lines - 2) if sys.stdout.isatty() else 28
    unicode = (sys.stdout.encoding or "").lower().startswith("utf") and os.environ.get("TERM") != "dumb"
    drawing = draw(found, min(size.columns - 1, 120), rows, unicode=unicode)
    print_folded(drawing.splitlines(), indent=" " * 5)
    for path in written:
        say(f"written: {path}")
    return unfinished
