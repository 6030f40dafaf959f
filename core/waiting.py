"""Waiting for others: told to whoever listens, and added up apart from the work it interrupts.

What blocks on another process or thread does so inside `waiting(what)`. Each thread's seconds are added up,
so that a part of the work timed with a Stopwatch holds none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

DEVICE = "another process that measures on this device"
THREAD = "another call of this process that measures on this device"
KEY = "another process that tunes the same key"
STORE = "another process that opens the same environment"
WRITER = "another process that writes to the same environment"

Listener = Callable[[str], AbstractContextManager[object]]


class _Tally(threading.local):
    waited_s = 0.0


_tally = _Tally()
_listener: Listener = nullcontext


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Around what blocks until `what` (in words) lets go."""
    began_s = perf_counter()
    try:
        with _listener(what):
            yield
    finally:
        _tally.waited_s += perf_counter() - began_s


def waited_s() -> float:
    """Seconds that this thread has waited so far."""
    return _tally.waited_s


class Stopwatch:
    """Seconds since it was made, those spent waiting apart."""

    def __init__(self) -> None:
        self._began_s, self._waited_s = perf_counter(), waited_s()

    @property
    def waited_s(self) -> float:
        return waited_s() - self._waited_s

    @property
    def worked_s(self) -> float:
        return perf_counter() - self._began_s - self.waited_s


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, each wait of the process is entered as `listener(what)`."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
