"""Processes forked from one that had used OpenCL: the drivers' threads are not in them.

What is enqueued there is never computed, and who waits for it waits for ever. So it is refused.
"""

from __future__ import annotations

import os

from ..errors import WorkError


class _State:
    used = False
    """Whether a device was opened in this process."""

    lost = False
    """Whether it was, in the process that this one was forked from."""


def opened() -> None:
    """A device is being opened. Raises WorkError where that can't work."""
    check()
    _State.used = True


def check() -> None:
    """Raises WorkError in a process forked from one that had used OpenCL."""
    if _State.lost:
        raise WorkError(
            "this process was forked from one that had used OpenCL, whose threads do not exist here",
            hint="Use rooftune in the forked process alone; or start it with multiprocessing's 'spawn' or "
            "'forkserver' instead of 'fork'.",
        )


def _forked() -> None:
    _State.lost = _State.lost or _State.used


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
