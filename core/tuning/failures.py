"""What a user is told when no candidate ran, or one of them lost the device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from weakref import WeakSet

from ..errors import DeviceFaultError, OutOfMemoryError, WorkError
from .context import TuningClient
from .decision import Decision, Evidence
from .events import reason_of
from .tunable import TunableSet

SHOWN = 3
"""So many different reasons are told."""

FAULT_HINT = (
    "Nothing more can run on this device in this process. The next process tunes again without the candidate."
)


ACQUITTED_HINT = (
    "Nothing more can run on this device in this process. `tune verify` proves every stored decision in a "
    "process of its own and finds the one to blame."
)


LOST_HINT = "Start the program again: this process cannot use the device any more."


class LostDevices:
    """Clients whose device was lost in this process: no candidate tried on them later is to blame."""

    def __init__(self) -> None:
        self._clients: WeakSet[TuningClient] = WeakSet()

    def add(self, client: TuningClient) -> None:
        self._clients.add(client)

    def check(self, client: TuningClient) -> None:
        """Raises DeviceFaultError for a lost one, also where that was not noticed yet."""
        if client in self._clients:
            raise DeviceFaultError(
                f"{client.device_name} was lost earlier in this process, so nothing is tuned on it",
                hint=LOST_HINT,
            )
        try:
            client.sync()
        except DeviceFaultError as error:
            self.add(client)
            reason = f"{client.device_name} was lost before anything was tuned on it: {reason_of(error)}"
            raise DeviceFaultError(reason, hint=LOST_HINT) from error


def not_its_fault(name: str, error: BaseException) -> str:
    """What is said of a candidate that was there when the device was lost, and is right alone."""
    return (
        f"the device was lost when candidate {name} was run: {reason_of(error)}. In a process of its own it "
        "is right, so other work on this device is to blame, and its decision stays"
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
    device: str, evidence: Mapping[int, Evidence], memory_error: OutOfMemoryError | None, tunables: TunableSet
) -> WorkError:
    """Why none of the candidates tried could be measured, in their own words; equal words once."""
    called = tunables.called
    if memory_error is not None:
        return OutOfMemoryError(
            f"no {called} has enough memory on {device}: {memory_error}",
            hint="Free memory on the device or make the problem smaller. Nothing stored was discarded.",
        )
    alike: dict[str, list[Evidence]] = {}
    for each in evidence.values():
        if each.outcome in ("error", "fault"):
            alike.setdefault(_kind(each.reason), []).append(each)
    refused = sum(e.outcome == "unsupported" for e in evidence.values())
    reasons = [_shared(same, called, len(alike) == 1 and not refused) for same in [*alike.values()][:SHOWN]]
    if len(alike) > SHOWN:
        reasons.append(f"and {sum(map(len, [*alike.values()][SHOWN:]))} more failed")
    if refused:
        reasons.append(f"{refused} refused the problem")
    between = "\n" if any("\n" in reason for reason in reasons) else "; "
    said = between.join(reasons) or "none is meant for this key"
    return WorkError(f"no {called} ran on {device}: {said}", hint=tunables.hint)


def _shared(same: list[Evidence], called: str, are_all: bool) -> str:
    """One reason, and whose it is."""
    first = same[0]
    if len(same) == 1:
        return f"{first.name}: {first.reason}"
    whose = f"all {len(same)} {called}s tried" if are_all else f"{first.name} and {len(same) - 1} more"
    differ = not _is_log(first.reason) and len({each.reason for each in same}) > 1
    return f"{whose}{f', such as {first.name}' if differ and are_all else ''}: {first.reason}"


def _is_log(reason: str) -> bool:
    return "OpenCL compiler" in reason


def _kind(reason: str) -> str:
    """Equal for reasons that differ in the compiler's names for the source only, or in the values found."""
    without_files = _TEMPORARY.sub("", reason)
    return without_files if _is_log(reason) else _NUMBER.sub("#", without_files)


_TEMPORARY = re.compile(r"\S+(?=:\d+:\d+:)|/tmp/\S+")
_NUMBER = re.compile(r"[-+]?(?:\b\d[\d.,]*(?:e[-+]?\d+)?|\bnan\b|\binf\b)", re.IGNORECASE)
