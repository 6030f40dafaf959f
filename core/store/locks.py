"""Locks between processes that a dead process releases by dying: byte ranges of one file.

Where they cannot be had (no fcntl, a network folder without locks, a read-only folder) the work goes on
without.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from types import TracebackType

from ..waiting import waiting
from .entry import sha256

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

_POLL_S = 0.02
_MOST_FILES = 32
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EINTR)

# The kernel holds such locks per process, and drops all of a file's when any descriptor of it is closed. So
# each file (by device and inode) is opened once per process, stays open while anything is held on it, and the
# process keeps count of what it holds itself.
_files: dict[tuple[int, int], int] = {}
_held: set[tuple[int, int]] = set()
_guard = threading.Lock()


def _forget_after_fork() -> None:
    global _guard
    _guard = threading.Lock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


class Lock:
    """Held (`owned`), or not had within the time allowed. Releases on leaving a `with`, or by `release`."""

    def __init__(self, place: tuple[int, int] | None, owned: bool) -> None:
        self._place = place
        self.owned = owned

    def release(self) -> None:
        place, self._place = self._place, None
        self.owned = False
        if place is None:
            return
        with _guard:
            if place in _held:
                _held.discard(place)
                fcntl.lockf(place[0], fcntl.LOCK_UN, 1, place[1])

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(path: Path, name: str, wait_s: float, holder: str) -> Lock:
    """The lock called `name` of the lock file at `path`, waited for at most `wait_s` seconds.

    `owned` is False only when somebody else held it all that time; where locks cannot be had it is True.
    `holder` says in words who that may be.
    """
    byte = int(sha256(name)[:14], 16)
    place = _try(path, byte)
    if place is None and wait_s > 0:
        with waiting(holder):
            place = _try_until(time.monotonic() + wait_s, path, byte)
    return Lock(None, owned=False) if place is None else Lock(place or None, owned=True)


def _try_until(deadline: float, path: Path, byte: int) -> tuple[int, int] | tuple[()] | None:
    place = None
    while place is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        place = _try(path, byte)
    return place


def _try(path: Path, byte: int) -> tuple[int, int] | tuple[()] | None:
    """The place locked now; () when this file cannot be locked; None when somebody else holds it."""
    if fcntl is None:
        return ()
    with _guard:
        descriptor = _descriptor(path)
        if descriptor is None:
            return ()
        place = (descriptor, byte)
        if place in _held:
            return None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            return None if error.errno in _BUSY else ()
        _held.add(place)
        return place


def _descriptor(path: Path) -> int | None:
    """The file's one descriptor in this process; None when it cannot be had. The guard is held."""
    try:
        return _files[_identity(os.stat(path))]
    except (OSError, KeyError):
        pass  # not there yet, deleted meanwhile, or not opened yet
    _close_idle()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError:
        return None
    return _files.setdefault(_identity(os.fstat(descriptor)), descriptor)


def _close_idle() -> None:
    """Close the files on which nothing is held, when there are many."""
    if len(_files) < _MOST_FILES:
        return
    busy = {descriptor for descriptor, _ in _held}
    for identity, descriptor in list(_files.items()):
        if descriptor not in busy:
            os.close(descriptor)
            del _files[identity]


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
