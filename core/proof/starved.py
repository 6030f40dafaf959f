"""How long a process was ready to run and had no core: on a busy machine that is no sign that it hangs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Starvation:
    """Of one process, from now on. Zero where the system does not say: only Linux does."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._before = self._waited_ns()

    @property
    def waited_s(self) -> float:
        """Seconds that the thread waited for a core that waited longest."""
        waited = (ns - self._before.get(thread, 0) for thread, ns in self._waited_ns().items())
        return max(waited, default=0) * 1e-9

    def _waited_ns(self) -> dict[str, int]:
        found: dict[str, int] = {}
        with suppress(OSError):
            for task in self._tasks.iterdir():
                with suppress(OSError, ValueError, IndexError):  # it has ended; or no account is kept
                    found[task.name] = int((task / "schedstat").read_text().split()[1])
        return found
