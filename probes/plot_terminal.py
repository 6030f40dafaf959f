"""A roofline drawn with characters.

Every line and point carries one character on the drawing, and what it stands for is listed below:
labels of one character do not collide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log10

import plotext

from .plot_text import (
    X_TITLE,
    axis_rate,
    decades,
    grouped,
    level_text,
    mark,
    plain_number,
    point_text,
    roof_text,
)
from .roofline import Point, Roofline

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
LEAST_COLUMNS, LEAST_ROWS = 50, 14
_TICK_COLUMNS, _TICK_ROWS = 8, 5
"""What titles, ticks and frame take of a drawing."""


def draw(roofline: Roofline, columns: int, rows: int, *, unicode: bool = True) -> str:
    """A title, the roofline in so many columns and rows, and below it the list of what is on it."""
    drawing = _Drawing(roofline, max(columns, LEAST_COLUMNS), max(rows, LEAST_ROWS), unicode)
    listed = [*drawing.levels(), *drawing.roofs(), *drawing.points()]
    title = f"Roofline of {roofline.device}, FLOP/s over {X_TITLE}"
    return "\n".join([title, *drawing.rows_of_text(), "", *listed])


class _Drawing:
    """plotext's figure, on which everything is placed by the logarithms of its coordinates."""

    def __init__(self, roofline: Roofline, columns: int, rows: int, unicode: bool) -> None:
        self.roofline = roofline
        self.columns, self.rows, self.unicode = columns, rows, unicode
        x_span, y_span = roofline.span()
        self.left, self.right = log10(x_span[0]), log10(x_span[1])
        self.bottom, self.top = log10(y_span[0]), log10(y_span[1])
        plotext.clear_figure()
        plotext.theme("clear")
        plotext.limit_size(False, False)
        plotext.plot_size(columns, rows)
        plotext.xlim(self.left, self.right)
        plotext.ylim(self.bottom, self.top)
        x_ticks, y_ticks = decades(*x_span), decades(*y_span)
        plotext.xticks([log10(x) for x in x_ticks], [plain_number(x) for x in x_ticks])
        plotext.yticks([log10(y) for y in y_ticks], [axis_rate(y) for y in y_ticks])
        plotext.xlabel(X_TITLE)

    def rows_of_text(self) -> list[str]:
        text = _ANSI.sub("", plotext.build())
        if not self.unicode:
            text = text.translate(_ASCII)
        return [line.rstrip() for line in text.splitlines()]

    def levels(self) -> Iterator[str]:
        """The sloped lines: a rate is the intensity times the bandwidth, up to the highest roof."""
        roof = log10(self.roofline.top_ops_per_s)
        for number, level in enumerate(self.roofline.levels, 1):
            slope = log10(level.bytes_per_s)
            start, ridge = max(self.left, self.bottom - slope), min(self.right, roof - slope)
            if start < ridge:
                self._line((start, start + slope), (ridge, ridge + slope))
            # a little further along for each level, so that close lines have their numbers apart
            x = start + (0.15 + 0.1 * (number % 5)) * (ridge - start)
            plotext.text(str(number), x, x + slope)
            yield f"  {number}  {level_text(level)}"

    def roofs(self) -> Iterator[str]:
        """The level lines, each from where the fastest cache meets it."""
        fastest = log10(self.roofline.levels[0].bytes_per_s)
        for place, roof in enumerate(self.roofline.roofs, 1):
            number, height = len(self.roofline.levels) + place, log10(roof.ops_per_s)
            ridge = max(self.left, height - fastest)
            self._line((ridge, height), (self.right, height))
            plotext.text(str(number), self.right - 0.04 * place * (self.right - ridge), height)
            yield f"  {number}  {roof_text(roof)}"

    def points(self) -> Iterator[str]:
        """Points on one character of the drawing share a letter."""
        cells = [self._cell(point) for point in self.roofline.points]
        for number, group in enumerate(grouped(self.roofline.points, cells)):
            letter = mark(number)
            plotext.scatter([log10(group[0].intensity)], [log10(group[0].ops_per_s)], marker=letter)
            for point in group:
                yield f"  {letter}  {point_text(point)}"

    def _line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        marker = "braille" if self.unicode else "."
        plotext.plot([start[0], end[0]], [start[1], end[1]], marker=marker)

    def _cell(self, point: Point) -> tuple[int, int]:
        x = (log10(point.intensity) - self.left) / (self.right - self.left)
        y = (log10(point.ops_per_s) - self.bottom) / (self.top - self.bottom)
        return round(x * (self.columns - _TICK_COLUMNS)), round(y * (self.rows - _TICK_ROWS))
