"""What a trial found, as it travels from a worker to the process that asked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal[
    "right",
    "wrong",
    "build",
    "unsupported",
    "skipped",
    "memory",
    "fault",
    "error",
    "crash",
    "timeout",
    "unavailable",
]


@dataclass(frozen=True)
class Outcome:
    """What a trial found. `case` is the problem it happened on, `cases` how many were run."""

    status: Status
    reason: str = ""
    case: str = ""
    cases: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        return cls(data["status"], data["reason"], data["case"], data["cases"])
