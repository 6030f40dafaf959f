"""Words and places that the terminal's and the files' drawing of a roofline share."""

from __future__ import annotations

from math import floor, log10
from string import ascii_uppercase

from .roofline import Level, Point, Roof

X_TITLE = "operations per byte"
Y_TITLE = "operations per second"
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def rate(value: float, unit: str) -> str:
    """A rate in three digits: 351 GFLOP/s, 4.31 TB/s."""
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1.0, ""))
    scaled = value / scale
    digits = 0 if scaled >= 100 else 1 if scaled >= 10 else 2
    return f"{scaled:.{digits}f} {prefix}{unit}"


def size(nbytes: int) -> str:
    """Bytes in binary units: 64 KiB."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:g} {unit}"
    return f"{nbytes} B"


def roof_text(roof: Roof) -> str:
    return f"{roof.label}: {rate(roof.ops_per_s, 'FLOP/s')}"


def level_text(level: Level) -> str:
    where = "memory" if level.is_memory else f"sets up to {size(level.up_to_bytes)}"
    return f"{where}: {rate(level.bytes_per_s, 'B/s')}"


def point_text(point: Point) -> str:
    share = share_text(point, "of its roofline")
    rated = f"{point.name}: {rate(point.ops_per_s, 'FLOP/s')}"
    return ", ".join([rated, *([share] if share else []), point.shown_winner])


def share_text(point: Point, of: str = "", then: str = "when decided") -> str:
    """The share of the peaks of now, and where it is another, that of the peaks when it was decided."""
    if point.share is None:
        return ""
    before = f" ({point.decided_share:.0%} {then})" if point.moved else ""
    return f"{point.share:.0%} {of}".strip() + before


def decades(low: float, high: float) -> list[float]:
    """The powers of ten inside a span; every second or third where there are many."""
    first, last = floor(log10(low)) + 1, floor(log10(high))
    step = max(1, -(-(last - first + 1) // 7))
    return [10.0**power for power in range(first, last + 1, step)]


def plain_number(value: float) -> str:
    """A power of ten as people write it: 0.01, 1, 1000."""
    return f"{value:g}" if value < 1e5 else f"1e{round(log10(value))}"


def axis_rate(value: float) -> str:
    """A power of ten as a tick of the rate axis: 10 G, 1 T."""
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1.0, ""))
    return f"{value / scale:g} {prefix}".strip()


def line_mark(number: int) -> str:
    """The letter of the n-th line: A to Z, then AA, AB."""
    letter = ascii_uppercase[number % 26]
    return letter if number < 26 else line_mark(number // 26 - 1) + letter


def point_mark(number: int) -> str:
    """The number of the n-th point, from 1."""
    return str(number + 1)
