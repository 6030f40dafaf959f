"""What a user is told when no candidate ran, or one of them lost the device."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DeviceFaultError, OutOfMemoryError, WorkError
from .decision import Decision, Evidence
from .events import reason_of

FAULT_HINT = (
    "Nothing more can run on this device in this process. The next process tunes again without the candidate."
)


def fault_reason(name: str, error: BaseException) -> str:
    """One sentence that names the candidate that lost the device."""
    return f"candidate {name} faulted while running: {reason_of(error)}"


class FaultWhileTuning(DeviceFaultError):
    """A candidate lost the device while it was measured. `decision` is bad and says so."""

    def __init__(self, message: str, *, hint: str, decision: Decision) -> None:
        super().__init__(message, hint=hint)
        self.decision = decision


def nothing_ran(
    device: str, evidence: Mapping[int, Evidence], memory_error: OutOfMemoryError | None
) -> WorkError:
    """Why none of the candidates tried could be measured, in their own words."""
    if memory_error is not None:
        return OutOfMemoryError(
            f"no candidate has enough memory on {device}: {memory_error}",
            hint="Free memory on the device or make the problem smaller. Nothing stored was discarded.",
        )
    failures = [f"{e.name}: {e.reason}" for e in evidence.values() if e.outcome in ("error", "fault")]
    refused = sum(e.outcome == "unsupported" for e in evidence.values())
    reasons = [*failures[:3], *([f"{refused} refused the problem"] if refused else [])]
    return WorkError(
        f"no candidate ran on {device}: {'; '.join(reasons) or 'none is meant for this key'}",
        hint="The reasons above are the candidates' own. Another device, type or shape may work.",
    )
