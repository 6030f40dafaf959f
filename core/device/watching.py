"""Waiting for short work without going to sleep first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .opencl import cl
from .profile import DeviceProfile

BRIEF_S = 300e-6
"""Work that lasts longer is slept for: looking at it takes time from the threads that do it."""

_COMPLETE = cl.command_execution_status.COMPLETE
_give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None)


def worth_watching(profile: DeviceProfile) -> bool:
    """Whether waking a thread that sleeps costs more here than looking at the event.

    So it is with PoCL on a CPU, whose threads and the caller's wake one another. Intel's runtime has a
    caller that sleeps help with the work.
    """
    return profile.is_cpu and profile.platform.startswith("Portable")


def watch(event: cl.Event) -> None:
    """Returns when the event has completed or failed, or after BRIEF_S; other threads go first."""
    end_s = time.perf_counter() + BRIEF_S
    while event.command_execution_status > _COMPLETE and time.perf_counter() < end_s:
        _give_way()
