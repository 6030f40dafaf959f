"""How results, progress and errors look. Results go to stdout; everything else goes to stderr."""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rooftune.tuning.bounds import Bound
    from rooftune.tuning.decision import Timings

_UNLIMITED_COLUMNS = 1000
WORTH_SAYING_S = 0.1
"""Less waiting than this is not worth a word."""
STARTING = "opening the device"
_ASCII = {"µ": "u", "×": "x", "…": "...", "→": "->", "–": "-", "≥": ">=", "≤": "<=", "≈": "~", "·": "*"}


def tolerate_any_encoding() -> None:
    """Let text through to terminals that know no Unicode: a near ASCII spelling, never an exception."""

    def spell(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        bad = error.object[error.start : error.end]
        return "".join(_ASCII.get(char, "?") for char in bad), error.end

    codecs.register_error("rooftune-ascii", spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="rooftune-ascii")


def columns(stream: TextIO) -> int:
    """The width to lay text out for: what COLUMNS says, else the terminal's.

    A pipe has none of its own: without COLUMNS lines stay whole there, so that grep sees them, and what is
    said on stderr always does, for log files.
    """
    if not stream.isatty() and (stream is sys.stderr or not os.environ.get("COLUMNS")):
        return _UNLIMITED_COLUMNS
    import shutil

    return max(shutil.get_terminal_size().columns, 20)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))  # set and not empty, as no-color.org has it
    return Console(file=stream, width=columns(stream), highlight=False, soft_wrap=False, no_color=plain)


def print_lines(lines: Iterable[str]) -> None:
    """Print result lines as they are, whatever the terminal's width."""
    for line in lines:
        print(line)


def print_folded(lines: Iterable[str], indent: str = "    ") -> None:
    """Print lines of prose, folded between words on a terminal that is too narrow for them."""
    for line in lines:
        print_lines(wrapped(line, indent))


def wrapped(line: str, indent: str = "", stream: TextIO | None = None) -> list[str]:
    """A line folded between words at the width of stdout (or `stream`); whole for a pipe.

    A word that is longer than a line, such as the parameters of a configuration, is folded at its commas.
    Of a text with line breaks, as compilers write them, the lines stay as they are after the first.
    """
    line, *more = line.split("\n")
    width = columns(stream or sys.stdout)
    if len(line) <= width:
        return [line, *more]
    text = line.lstrip(" ")
    own = line[: len(line) - len(text)]
    return [*_folded(text, width, own, indent), *more]


def _folded(text: str, width: int, first: str, indent: str) -> list[str]:
    """Lines of a text, `first` before the first one, `indent` before the others."""
    longest = width - max(len(first), len(indent))
    pieces = [
        piece
        for word in re.findall(r"\s+|\S+", text)
        for piece in (re.findall(r"[^,]*,|[^,]+", word) if len(word) > longest else [word])
    ]
    lines, line = [], first
    for piece in pieces:
        if len(line) + len(piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        if piece.strip() or line.strip():
            line += piece
    return [*lines, line.rstrip()]


def named_rows(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> Iterator[str]:
    """Lines of a table of names and figures, for stdout; the columns named in `right` are aligned right.

    Without rows there are none. A name, the first of a row, that is too long for the width has a line of its
    own: cut, names of many parts look alike. Figures are folded where even they are too wide.
    """
    table = [headings, *rows]
    if len(table) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = columns(sys.stdout) - sum(width + 1 for width in widths[1:])
    fitting = [len(row[0]) for row in table if len(row[0]) <= room]
    widths[0] = max(fitting, default=4)

    def laid_out(row: Sequence[str]) -> str:
        cells = zip(row, widths, headings, strict=True)
        return " ".join(f"{cell:>{w}}" if h in right else f"{cell:{w}}" for cell, w, h in cells).rstrip()

    for name, *figures in table:
        if len(name) > widths[0]:
            yield from wrapped(name, " " * _numbered(name))
            name = ""
        yield from wrapped(laid_out([name, *figures]), "    ")


def _numbered(name: str) -> int:
    """Where a name begins that may have a number before it."""
    found = re.match(r" *\d+ +", name)
    return found.end() if found else 2


def say(message: str) -> None:
    """A line for people on stderr."""
    for line in wrapped(message, stream=sys.stderr):
        print(line, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """A warning for people on stderr."""
    _styled("warning", "yellow", message)


def say_error(message: str, hint: str = "") -> None:
    """An error for people on stderr, and what to do about it."""
    _styled("error", "red", message)
    if hint:
        say(hint)


def _styled(word: str, colour: str, message: str) -> None:
    from rich.text import Text

    first, *rest = wrapped(f"{word}: {message}", stream=sys.stderr)
    text = Text.assemble((f"{word}:", f"bold {colour}"), first.removeprefix(f"{word}:"))
    console = _console(sys.stderr)
    console.print(text, soft_wrap=True)
    for line in rest:
        console.print(Text(line), soft_wrap=True)


def emit(command: str, payload: dict[str, Any]) -> None:
    """Print one JSON object, its schema first. NaN and infinity become null."""
    print(to_json({"schema": f"rooftune/{command}/1", **payload}, indent=2))


def emit_error(command: str, code: str, message: str, hint: str) -> None:
    """Print the JSON object of a command that failed."""
    emit(command, {"error": {"code": code, "message": message, "hint": hint}})


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text; NaN and infinity become null, since JSON has neither."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def format_seconds(seconds: float | None) -> str:
    """A time with three decimals in the unit that suits it: 1.912s, 2.021ms, 3.626µs; `-` for none."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= scale:
            return f"{seconds / scale:.3f}{unit}"
    return f"{seconds / 1e-9:.0f}ns"


def format_bytes(size_bytes: float | None) -> str:
    """A size in binary units: 12.0 MiB."""
    if size_bytes is None:
        return "-"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_rate(per_second: float | None, unit: str) -> str:
    """A rate with a decimal prefix: 204.3 GFLOP/s for unit FLOP/s."""
    if per_second is None or not math.isfinite(per_second):
        return "-"
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if per_second >= scale:
            return f"{per_second / scale:.1f} {prefix}{unit}"
    return f"{per_second:.1f} {unit}"


def format_bound(bound: Bound) -> str:
    """What a bound says: `12.0 MiB at 31.9 GB/s take 394.361µs`, `2.1 GFLOP at 178.3 GFLOP/s take 12.0ms`."""
    if bound.resource == "memory":
        amount, unit = format_bytes(bound.amount), "B/s"
    elif bound.resource == "compute":
        amount, unit = _count(bound.amount, "FLOP"), "FLOP/s"
    else:
        amount, unit = f"{bound.amount:.4g}", "/s"
    return f"{amount} at {format_rate(bound.peak_per_s, unit)} take {format_seconds(bound.least_s)}"


def _count(amount: float, unit: str) -> str:
    """An amount in four digits with a decimal prefix: 2.146 GFLOP."""
    scales = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
    prefix, scale = next((each for each in scales if amount >= each[1]), ("", 1.0))
    return f"{amount / scale:.4g} {prefix}{unit}"


class StatusLine:
    """One line on stderr that says what is going on, gone when done.

    While something is measured it is drawn only when that begins or ends: more would change what is
    measured. Else, and while others are waited for, seconds are counted in it. Where stderr is no terminal
    only who is waited for is said, once.
    """

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._text = ""
        self._counting = Event()
        self._since_s = 0.0
        self._awaited: set[str] = set()
        self._drawing = Lock()
        self._began_s: dict[str, float] = {}
        self.subject = ""
        """What the progress is of, where there are several: it begins the line."""

    def progress(self, phase: str, done: int, total: int, *, counting: bool = False) -> None:
        """So much of a phase is done; says the time left once a second of it has passed.

        `counting`: nothing is measured in it, so that its seconds may be counted.
        """
        if done == 0 or phase not in self._began_s:
            self._began_s[phase] = monotonic()
        count = f" {done}/{total}" if total > 1 else ""
        left = _time_left(monotonic() - self._began_s[phase], done, total)
        self.show(f"{self.subject}{phase}{count}{left}", counting=counting)

    def probing(self, what: str, left_s: float) -> None:
        """A probe is about to be measured; says the time left until all probes that are due are done."""
        self.show(f"{self.subject}probing {what}, about {max(1, round(left_s))} s left")

    def show(self, text: str, *, counting: bool = False) -> None:
        """Replace the line; with `counting` its seconds are counted from the second one on."""
        with self._drawing:
            if counting and not (self._counting.is_set() and text == self._text):
                self._since_s = monotonic()
            self._text = text
            self._draw(text)
        if counting and self._live:
            self._counting.set()
        else:
            self._counting.clear()

    def clear(self) -> None:
        """Remove the line."""
        self.show("")

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Seconds are counted inside."""
        if not self._live:
            yield
            return
        over = Event()
        timer = Thread(target=self._count, args=(over,), daemon=True)
        timer.start()
        try:
            yield
        finally:
            over.set()
            self._counting.set()  # wakes it up
            timer.join()

    def _count(self, over: Event) -> None:
        while self._counting.wait() and not over.wait(1.0):
            with self._drawing:
                seconds = round(monotonic() - self._since_s)
                if self._counting.is_set() and not self._awaited and seconds > 1:
                    self._draw(f"{self._text}, {seconds} s")

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Says inside, from the first second on, that `what` is waited for and how long already."""
        over = Event()
        timer = Thread(target=self._wait if self._live else self._tell, args=(what, over), daemon=True)
        timer.start()
        try:
            yield
        finally:
            over.set()
            timer.join()

    def _wait(self, what: str, over: Event) -> None:
        seconds = 0
        while not over.wait(1.0):
            seconds += 1
            with self._drawing:
                self._awaited.add(what)
                self._draw(f"waiting for {what}, {seconds} s")
        if seconds:
            with self._drawing:
                self._awaited.discard(what)
                self._draw(self._text)

    def _tell(self, what: str, over: Event) -> None:
        if not over.wait(1.0) and what not in self._awaited:
            self._awaited.add(what)
            say(f"waiting for {what}")

    def _draw(self, text: str) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K" + text[: columns(sys.stderr) - 1])
            sys.stderr.flush()

    def above(self, printer: Callable[[Any], object]) -> Callable[[Any], None]:
        """The printer, with the line out of its way."""

        def print_above(what: Any) -> None:
            self.clear()
            printer(what)

        return print_above


def _time_left(spent_s: float, done: int, total: int) -> str:
    if not done or done >= total or spent_s < 1:
        return ""
    return f", about {math.ceil(spent_s / done * (total - done))} s left"


def spent(timings: Timings) -> str:
    """Where the seconds of a tuning went; not what took none, and waiting only where it was felt."""
    return ", ".join(
        f"{name[:-2]} {format_seconds(seconds)}"
        for name, seconds in vars(timings).items()
        if seconds > 0 and (name != "wait_s" or seconds >= WORTH_SAYING_S)
    )


@contextmanager
def status_line(first: str = "") -> Iterator[StatusLine]:
    """A status line that says `first`, then what it is told, and who is waited for."""
    line = StatusLine(live=sys.stderr.isatty() and os.environ.get("TERM") != "dumb")
    line.show(first, counting=bool(first))
    from rooftune.waiting import listening

    try:
        with line.counted(), listening(line.waiting):
            yield line
    finally:
        line.clear()
