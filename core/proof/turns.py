"""Workers of one pool that need the same program: one compiles it, the others then load what it saved.

Several compilations at once keep every core busy with the same work, when operands could be made there. The
turns are locks on bytes of one file, which Linux takes back from a worker that dies.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..device.binaries import BinaryCache

try:
    import fcntl
except ImportError:  # not a POSIX system: there are no workers either
    fcntl = None  # type: ignore[assignment]

PLACE_DIGITS = 15
"""Of a program's key, in hex: its byte of the file. Two programs on the same one merely take turns."""


def shared_file() -> int | None:
    """A file for the locks, for processes that inherit it; None where none can be made."""
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("rooftune-turns")
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError:
        return None


class Turns(BinaryCache):
    """A worker's cache of binaries. `tell` is told when it waits for its turn (True), and when it has it."""

    def __init__(self, file: int | None, tell: Callable[[bool], object]) -> None:
        super().__init__()
        self._file = file
        self._tell = tell

    @contextmanager
    def turn(self, key: str) -> Iterator[bool]:
        if self._file is None:
            yield False
            return
        place = int(key[:PLACE_DIGITS], 16)
        waited = self._take(place)
        try:
            yield waited
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)

    def _take(self, place: int) -> bool:
        """Whether it had to be waited for."""
        assert self._file is not None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            return False
        except OSError:
            self._tell(True)
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, place)
        self._tell(False)
        return True
