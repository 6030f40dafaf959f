"""A roofline drawn with characters.

Every line carries a letter and every point a number of its own; what they stand for is listed below. A
number stands at its point, or beside it where others are in the way, with room around it.
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
    level_text,
    line_mark,
    plain_number,
    point_mark,
    point_text,
    roof_text,
)
from .roofline import Level, Roof, Roofline

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ASCII = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++++++-|")
LEAST_COLUMNS, LEAST_ROWS = 50, 14
NEAR_COLUMNS, NEAR_ROWS = 8, 4
"""How far from its point a number may stand."""
NO_ROOM = " (no room on the drawing)"


def draw(roofline: Roofline, columns: int, rows: int, *, unicode: bool = True) -> str:
    """A title, the roofline in so many columns and rows, and below it the list of what is on it."""
    drawing = _Drawing(roofline, max(columns, LEAST_COLUMNS), max(rows, LEAST_ROWS), unicode)
    listed = [*drawing.levels(), *drawing.roofs(), *drawing.points()]
    title = f"Roofline of {roofline.device}, FLOP/s over {X_TITLE}"
    return "\n".join([title, *drawing.rows_of_text(), "", *listed])


class _Cells:
    """The characters inside the frame, and which of them are taken; (0, 0) is the lower left one."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.taken: set[tuple[int, int]] = set()

    def take(self, column: int, row: int, length: int) -> bool:
        """Whether so many characters are free there, with one to either side; then they are taken."""
        if not (0 <= row < self.rows and column >= 0 and column + length <= self.columns):
            return False
        if any((at, row) in self.taken for at in range(column - 1, column + length + 1)):
            return False
        self.taken |= {(at, row) for at in range(column, column + length)}
        return True

    def nearest(self, column: int, row: int, length: int) -> tuple[int, int] | None:
        """The nearest free place for so many characters, taken; None where none is near."""
        for right, up in _AROUND:
            if self.take(column + right, row + up, length):
                return column + right, row + up
        return None


_AROUND = sorted(
    ((c, r) for c in range(-NEAR_COLUMNS, NEAR_COLUMNS + 1) for r in range(-NEAR_ROWS, NEAR_ROWS + 1)),
    key=lambda step: (step[0] ** 2 + (2 * step[1]) ** 2, step),  # a character is twice as high as wide
)


class _Drawing:
    """plotext's figure, on which everything is placed by the logarithms of its coordinates."""

    def __init__(self, roofline: Roofline, columns: int, rows: int, unicode: bool) -> None:
        self.roofline, self.unicode = roofline, unicode
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
        for start, end in [*map(self._slope, roofline.levels), *map(self._roof, roofline.roofs)]:
            self._line(start, end)
        self.cells = _Cells(*self._inside())

    def rows_of_text(self) -> list[str]:
        text = _ANSI.sub("", plotext.build())
        if not self.unicode:
            text = text.translate(_ASCII)
        return [line.rstrip() for line in text.splitlines()]

    def levels(self) -> Iterator[str]:
        """The sloped lines: a rate is the intensity times the bandwidth, up to the highest roof."""
        for number, level in enumerate(self.roofline.levels):
            (x, y), (ridge, _) = self._slope(level)
            # a little further along for each level, so that close lines have their letters apart
            along = [share * (ridge - x) for share in _from(0.15 + 0.1 * (number % 5))]
            self._mark_line(line_mark(number), [(x + step, y + step) for step in along])
            yield f" {line_mark(number):>2}) {level_text(level)}"

    def roofs(self) -> Iterator[str]:
        """The level lines, each from where the fastest cache meets it."""
        for place, roof in enumerate(self.roofline.roofs, 1):
            mark = line_mark(len(self.roofline.levels) + place - 1)
            (x, y), (right, _) = self._roof(roof)
            self._mark_line(mark, [(right - s * (right - x), y) for s in _from(0.05 * place)])
            yield f" {mark:>2}) {roof_text(roof)}"

    def points(self) -> Iterator[str]:
        """Each point's number, at it or beside it."""
        for number, point in enumerate(self.roofline.points):
            mark = point_mark(number)
            place = self.cells.nearest(*self._cell(log10(point.intensity), log10(point.ops_per_s)), len(mark))
            if place is not None:
                self._write(mark, *place)
            yield f" {mark:>2}) {point_text(point)}{'' if place else NO_ROOM}"

    def _slope(self, level: Level) -> tuple[Place, Place]:
        slope, roof = log10(level.bytes_per_s), log10(self.roofline.top_ops_per_s)
        start, ridge = max(self.left, self.bottom - slope), min(self.right, roof - slope)
        return (start, start + slope), (ridge, ridge + slope)

    def _roof(self, roof: Roof) -> tuple[Place, Place]:
        height, fastest = log10(roof.ops_per_s), log10(self.roofline.levels[0].bytes_per_s)
        return (max(self.left, height - fastest), height), (self.right, height)

    def _line(self, start: Place, end: Place) -> None:
        marker = "braille" if self.unicode else "."
        plotext.plot([start[0], end[0]], [start[1], end[1]], marker=marker)

    def _mark_line(self, mark: str, places: list[Place]) -> None:
        """The letter at the first of these places on its line that is free."""
        cells = [self._cell(*place) for place in places]
        column, row = next((cell for cell in cells if self.cells.take(*cell, len(mark))), cells[0])
        self._write(mark, column, row)

    def _write(self, text: str, column: int, row: int) -> None:
        for offset, character in enumerate(text):
            x = self.left + (column + offset) * (self.right - self.left) / (self.cells.columns - 1)
            plotext.text(character, x, self.bottom + row * (self.top - self.bottom) / (self.cells.rows - 1))

    def _cell(self, x: float, y: float) -> tuple[int, int]:
        column = round((x - self.left) / (self.right - self.left) * (self.cells.columns - 1))
        return column, round((y - self.bottom) / (self.top - self.bottom) * (self.cells.rows - 1))

    def _inside(self) -> tuple[int, int]:
        """Columns and rows inside the frame: ticks and titles take of a drawing what they need."""
        lines = _ANSI.sub("", plotext.build()).splitlines()
        top = next(line for line in lines if "┌" in line)
        bottom = next(number for number, line in enumerate(lines) if "└" in line)
        return top.rindex("┐") - top.index("┌") - 1, bottom - lines.index(top) - 1


Place = tuple[float, float]
"""Logarithms of an intensity and a rate."""


def _from(share: float) -> list[float]:
    """Shares of a line's length: this one, then others until 0.95 and from 0.05."""
    later = [share + 0.04 * step for step in range(24)]
    return [0.05 + (s - 0.05) % 0.9 for s in later]
