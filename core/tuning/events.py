"""What happened while tuning, for people and scripts; nothing looks decisions up by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import MeasurementError, RooftuneError, UnsupportedError
from .typed import check_types, is_number

_NUMBERS = ("TuningStep", "RooflineExceeded")
_CHANGES = ("SlowedDown", "SpedUp")


class ProofFailed(Exception):
    """A candidate was shown to be wrong, or its proof did not end; the message says which."""


@dataclass(frozen=True)
class Event:
    """`kind` happened to the candidate `name`; `value` is plain JSON data: seconds, a reason, details."""

    kind: str
    name: str
    value: Any = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Event:
        """Raises ValueError where `value` is not what events of its kind have."""
        event = check_types(cls(**data), kind=str, name=str)
        value = event.value
        if event.kind in _NUMBERS:
            fits = is_number(value)
        elif event.kind in _CHANGES:
            fits = isinstance(value, dict) and all(is_number(value.get(n)) for n in ("ratio", "agree", "of"))
        else:
            fits = True
        if not fits:
            raise ValueError(f"the event {event.kind} has the value {str(value)[:50]!r}")
        return event


def reason_of(error: BaseException) -> str:
    """An error as one reason in words; errors that are not ours keep their type's name."""
    text = str(error).strip()
    if isinstance(error, _OURS) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


_OURS = (RooftuneError, UnsupportedError, MeasurementError, ProofFailed)
