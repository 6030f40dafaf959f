"""Whether what was read from JSON has the types it should have: a file may hold anything."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

T = TypeVar("T")
Kind = type | Literal["number", "number or null"]

MOST = 1e300
"""Numbers beyond this are none of ours, and arithmetic with them overflows."""


def is_number(value: Any) -> bool:
    """Whether it is a finite number that one can calculate with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -MOST < value < MOST


def check_types(thing: T, **kinds: Kind) -> T:
    """The same thing. Raises ValueError when an attribute is not of its kind."""
    for name, kind in kinds.items():
        value = getattr(thing, name)
        if not _is_of(kind, value):
            raise ValueError(f"its {name} is {str(value)[:50]!r}")
    return thing


def _is_of(kind: Kind, value: Any) -> bool:
    if kind in ("number", "number or null"):
        return is_number(value) or (value is None and kind == "number or null")
    return type(value) is kind
