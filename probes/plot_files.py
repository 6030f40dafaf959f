"""A roofline drawn into a PNG or an HTML file, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from math import cos, hypot, log10, pi, sin
from pathlib import Path
from typing import Any

from rooftune.errors import UsageError, WorkError

from .plot_text import (
    X_TITLE,
    Y_TITLE,
    axis_rate,
    decades,
    level_text,
    line_mark,
    plain_number,
    point_mark,
    rate,
    roof_text,
    share_text,
)
from .roofline import Point, Roofline

_POINT_COLOURS = {"f32": "#c1440e", "f64": "#5b2a86", "f16": "#0b6e4f", "bf16": "#1f5fa8"}
_LINE = "#444444"
_PLOT_INCH, _LIST_INCH, _LIST_LENGTH = 8.2, 4.7, 69
"""Widths of the drawing and of a column of the list, and the most characters of a line in that."""
_PLOT_HINT = "It comes with the extra [plot]: pip install '.[plot]' in the clone, or pip install matplotlib."
_FOLDER_HINT = "Name a file in a folder that exists and that you can write to."


def check_possible(paths: Sequence[Path]) -> None:
    """Before anything is measured: WorkError without matplotlib, UsageError for a folder that is missing."""
    if paths:
        try:
            import matplotlib  # noqa: F401
        except ImportError as error:
            raise _no_matplotlib() from error
    for path in paths:
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}", hint=_FOLDER_HINT)


def _no_matplotlib() -> WorkError:
    return WorkError("drawing into a file needs matplotlib", hint=_PLOT_HINT)


def write_png(roofline: Roofline, path: Path) -> None:
    """Raises WorkError without matplotlib, UsageError when the file cannot be written."""
    _written(path, _rendered(roofline, "png"))


def write_html(roofline: Roofline, path: Path) -> None:
    """One file that needs nothing else: the drawing as SVG, and the points as a table."""
    svg = _rendered(roofline, "svg").decode()
    _written(path, _page(roofline, svg[svg.index("<svg") :]).encode())


def _written(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint=_FOLDER_HINT) from error


def _rendered(roofline: Roofline, kind: str) -> bytes:
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _no_matplotlib() from error
    with rc_context({"svg.hashsalt": "rooftune", "svg.fonttype": "none", "font.size": 10}):
        listed = len(roofline.points)
        columns = 1 if listed <= 30 else 2
        width_inch = _PLOT_INCH + columns * _LIST_INCH
        figure = Figure(figsize=(width_inch, 7), dpi=120, layout=None)
        FigureCanvasAgg(figure)
        _draw(figure, roofline, columns, titled=kind == "png")
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _draw(figure: Any, roofline: Roofline, columns: int, *, titled: bool) -> None:
    plot = _PLOT_INCH / figure.get_figwidth()
    axes = figure.add_axes((0.12 * plot, 0.09, 0.85 * plot, 0.84))
    x_span, y_span = roofline.span()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(x_span)
    axes.set_ylim(y_span)
    axes.set_xticks(decades(*x_span), [plain_number(x) for x in decades(*x_span)])
    axes.set_yticks(decades(*y_span), [axis_rate(y) for y in decades(*y_span)])
    axes.set_xlabel(f"arithmetic intensity: {X_TITLE} of operands and result")
    axes.set_ylabel(f"{Y_TITLE} (FLOP/s)")
    if titled:
        axes.set_title(f"Roofline of {roofline.device}", loc="left")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    figure.canvas.draw()  # fixes where data lies in pixels
    taken = _lines(axes, roofline, x_span, y_span)
    _points(figure, axes, roofline.points, taken)
    _lists(figure, roofline, plot, columns)


Pixels = tuple[float, float]


def _lines(
    axes: Any, roofline: Roofline, x_span: tuple[float, float], y_span: tuple[float, float]
) -> list[Pixels]:
    """Levels and roofs, each with a letter on its line; where the letters are, in pixels."""
    top, fastest = log10(roofline.top_ops_per_s), log10(roofline.levels[0].bytes_per_s)
    left, right, bottom = log10(x_span[0]), log10(x_span[1]), log10(y_span[0])
    letters: list[tuple[float, float]] = []
    for number, level in enumerate(roofline.levels, 1):
        slope = log10(level.bytes_per_s)
        start, ridge = max(left, bottom - slope), top - slope
        _line(axes, (left, left + slope), (ridge, top))
        x = start + (0.12 + 0.07 * (number % 5)) * (ridge - start)
        letters.append((x, x + slope))
    for place, roof in enumerate(roofline.roofs, 1):
        height = log10(roof.ops_per_s)
        _line(axes, (height - fastest, height), (right, height))
        letters.append((right - (0.005 + 0.022 * place) * (right - left), height))
    for number, (x, y) in enumerate(letters):
        axes.annotate(
            line_mark(number),
            (10**x, 10**y),
            ha="center",
            va="center",
            fontsize=8,
            zorder=4,
            bbox={"boxstyle": "circle,pad=0.25", "fc": "white", "ec": _LINE, "lw": 0.8},
        )
    return [tuple(axes.transData.transform((10**x, 10**y))) for x, y in letters]


def _line(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    xs, ys = zip(start, end, strict=True)
    axes.plot([10**x for x in xs], [10**y for y in ys], color=_LINE, linewidth=1.2, zorder=3)


def _points(figure: Any, axes: Any, points: Sequence[Point], taken: list[Pixels]) -> None:
    """Each point is a dot and a number, with a line between them where the number had to move away.

    Numbers keep off each other, the dots and the lines' letters.
    """
    from matplotlib.patheffects import withStroke

    dots = [tuple(axes.transData.transform((p.intensity, p.ops_per_s))) for p in points]
    taken = [*taken, *dots]
    scale = 72 / figure.dpi
    halo = withStroke(linewidth=3, foreground="white")
    for number, (point, (x, y)) in enumerate(zip(points, dots, strict=True)):
        colour = _POINT_COLOURS.get(point.dtype, "#000000")
        axes.plot([point.intensity], [point.ops_per_s], "o", color=colour, markersize=5, zorder=5)
        dx, dy = _free_offset(x, y, taken)
        taken.append((x + dx, y + dy))
        away = hypot(dx, dy) > _RINGS[0]
        axes.annotate(
            point_mark(number),
            (point.intensity, point.ops_per_s),
            xytext=(dx * scale, dy * scale),
            zorder=6,
            textcoords="offset points",
            fontsize=8,
            fontweight="bold",
            color=colour,
            ha="center",
            va="center",
            path_effects=[halo],
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6, "shrinkB": 2} if away else None,
        )


def _lists(figure: Any, roofline: Roofline, left: float, columns: int) -> None:
    """What letters and numbers stand for, right of the drawing."""
    peaks = [*map(level_text, roofline.levels), *map(roof_text, roofline.roofs)]
    lines = ["bandwidths and compute peaks", *(f"{line_mark(i)}  {text}" for i, text in enumerate(peaks))]
    figure.text(left, 0.93, "\n".join(lines), fontsize=8, va="top", linespacing=1.5)
    if not roofline.points:
        return
    first = 0.93 - 0.026 * (len(lines) + 1)
    figure.text(left, first, "decisions: rate, share of the roofline, kernel", fontsize=8, va="top")
    each = -(-len(roofline.points) // columns)
    step = min(0.026, (first - 0.03) / (each + 1))
    for number, point in enumerate(roofline.points):
        column, row = divmod(number, each)
        x, y = left + column * (1 - left) / columns, first - step * (row + 1)
        colour = _POINT_COLOURS.get(point.dtype, "#000000")
        text = f"{point_mark(number)})  {_short(point)}"
        figure.text(x, y, text, fontsize=8, va="top", color=colour)


def _short(point: Point) -> str:
    share = share_text(point, then="then")
    text = f"{point.name}  {rate(point.ops_per_s, 'FLOP/s')}  {share}  {point.shown_winner}"
    return text if len(text) <= _LIST_LENGTH else text[: _LIST_LENGTH - 1] + "…"


_RINGS = (16.0, 26.0, 36.0, 48.0, 62.0, 78.0, 96.0, 116.0)
"""Distances of a number from its dot, in pixels."""


def _free_offset(x: float, y: float, taken: Sequence[Pixels]) -> Pixels:
    """The first place around a dot, nearest first, that keeps its number clear of what is there."""
    for ring in _RINGS:
        for step in range(16):
            dx, dy = ring * sin(step * pi / 8), ring * cos(step * pi / 8)
            if all(abs(x + dx - a) > 20 or abs(y + dy - b) > 14 for a, b in taken):
                return dx, dy
    return 0.0, _RINGS[0]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
svg { width: 100%; height: auto; }
svg text { white-space: pre; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def _page(roofline: Roofline, svg: str) -> str:
    title = escape(f"Roofline of {roofline.device}")
    rows = "".join(
        "<tr>"
        f"<td class=number>{point_mark(number)}</td>"
        f"<td>{escape(point.label)}</td><td>{escape(point.dtype)}</td>"
        f"<td class=number>{point.intensity:.3g}</td>"
        f"<td class=number>{escape(rate(point.ops_per_s, 'FLOP/s'))}</td>"
        f"<td class=number>{share_text(point)}</td>"
        f"<td>{escape(point.shown_winner)}</td><td>{escape(point.at)}</td></tr>\n"
        for number, point in enumerate(roofline.points)
    )
    head = "".join(
        f"<th{' class=number' if name in ('Operations per byte', 'Rate', 'Share') else ''}>{name}</th>"
        for name in ("", "Product", "Type", "Operations per byte", "Rate", "Share", "Kernel", "Decided")
    )
    lines = "".join(
        f"<li>{escape(text)}</li>"
        for text in (*map(level_text, roofline.levels), *map(roof_text, roofline.roofs))
    )
    table = f"<h2>Decisions</h2>\n<table><tr>{head}</tr>\n{rows}</table>" if roofline.points else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{svg}\n"
        f"<h2>Bandwidths and compute peaks</h2>\n<ol type=A>{lines}</ol>\n"
        f"{table}\n</body>\n</html>\n"
    )
