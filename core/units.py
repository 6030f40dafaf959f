"""Times in words."""

from __future__ import annotations

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def time_text(seconds: float, digits: int = 3) -> str:
    """A time in the unit that suits it, with so many digits: 32.2µs."""
    scale, unit = next((each for each in _UNITS if abs(seconds) >= each[0]), (1e-9, "ns"))
    return f"{seconds / scale:.{digits}g}{unit}"
