"""This machine's own memory: asked before arrays are made, since Linux kills who takes more than there is."""

from __future__ import annotations

from pathlib import Path

from ..errors import OutOfMemoryError

MEMINFO = Path("/proc/meminfo")


def available_bytes() -> int | None:
    """What programs can still take, swap included; None where the system doesn't say."""
    try:
        lines = MEMINFO.read_text().splitlines()
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return (fields["MemAvailable"] + fields.get("SwapFree", 0)) * 1024
    except (OSError, ValueError, LookupError):
        return None


def check_available(nbytes: int) -> None:
    """Raises OutOfMemoryError when this machine has fewer bytes left."""
    available = available_bytes()
    if available is not None and nbytes > available:
        raise OutOfMemoryError(
            f"this machine has no memory for {nbytes:,} bytes; {available:,} are available",
            hint="Compute a smaller problem, or end programs that hold memory.",
        )
