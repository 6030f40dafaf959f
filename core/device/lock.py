"""The device lock: one process of a user measures on a device at a time.

An advisory lock on a file, so a process that dies gives it back. Inside a process it is held by one
thread at a time, and that thread may take it again. Those who don't measure (proofs) hold it shared: at the
same time as one another, never while somebody measures.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..waiting import DEVICE, THREAD, waiting
from .places import shared_lock_folder

try:
    import fcntl
except ImportError:  # not a POSIX system: exclusive inside the process only
    fcntl = None  # type: ignore[assignment]


class DeviceLock:
    """Held by one thread of one process of this user."""

    def __init__(self, name: str) -> None:
        digest = hashlib.sha256(name.encode()).hexdigest()[:24]
        self.path = shared_lock_folder() / f"{digest}.lock"
        self._thread = threading.RLock()
        self._depth = 0
        self._file = -1

    @contextmanager
    def held(self, *, shared: bool = False) -> Iterator[None]:
        with self._turn():
            if self._depth == 0:
                self._acquire(shared)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._release()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """This thread's turn among those of the process."""
        if not self._thread.acquire(blocking=False):
            with waiting(THREAD):
                self._thread.acquire()
        try:
            yield
        finally:
            self._thread.release()

    def _acquire(self, shared: bool) -> None:
        if fcntl is None:
            return
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            try:
                fcntl.flock(self._file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                with waiting(DEVICE):
                    fcntl.flock(self._file, how)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


_locks: dict[str, DeviceLock] = {}
_guard = threading.Lock()


def device_lock(name: str) -> DeviceLock:
    """The lock of this name, one object per process."""
    with _guard:
        if name not in _locks:
            _locks[name] = DeviceLock(name)
        return _locks[name]


def _forget_after_fork() -> None:
    """A forked child holds nothing: it closes its copies, which leaves the parent's lock alone."""
    global _guard
    for lock in _locks.values():
        lock._release()
    _locks.clear()
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
