"""Times and kinds in words."""

from __future__ import annotations

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def time_text(seconds: float, digits: int = 3) -> str:
    """A time in the unit that suits it, with so many digits: 32.2µs."""
    scale, unit = next((each for each in _UNITS if abs(seconds) >= each[0]), (1e-9, "ns"))
    return f"{seconds / scale:.{digits}g}{unit}"


def kind_text(value: object) -> str:
    """What kind of thing a value is, with its article: an ndarray, a list."""
    return with_article(type(value).__name__)


def with_article(name: str) -> str:
    """A type's name as it is read aloud: an int32, an ndarray, a float."""
    return f"{'an' if name.lower().startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {name}"
