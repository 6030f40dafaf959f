"""Is a file ours? Told from its first 100 raw bytes, before SQLite may touch it.

Opening a foreign database can already change it (a journal left by a crash is rolled back), so that is never
how we find out.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

APPLICATION_ID = 0x726F6674
"""Marks our files, in the header field SQLite keeps for that ("roft")."""

_MAGIC = b"SQLite format 3\0"
_VERSION_AT, _APPLICATION_AT = 60, 68


class FileKind(Enum):
    MISSING = "missing"
    NEW = "new"  # no bytes at all
    OURS = "ours"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Header:
    """What a file is; `schema` is the user_version of one of ours, `why` what makes one foreign."""

    kind: FileKind
    schema: int = 0
    why: str = ""


MOST_OPENED = 64
"""Files looked at whose descriptors are kept open."""

_opened: dict[tuple[int, int], int] = {}
_opening = threading.Lock()


def _first_bytes(path: Path, identity: tuple[int, int]) -> bytes:
    """The first 100 bytes, through a descriptor that stays open.

    On POSIX systems closing any descriptor of a file drops all locks that the process has on it, those of
    SQLite's open connections too: another process could then take the WAL away from under them.
    """
    if not hasattr(os, "pread"):
        with open(path, "rb") as file:
            return file.read(100)
    with _opening:
        if identity not in _opened:
            _let_go_of_some()
            _opened[identity] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(_opened[identity], 100, 0)


def _let_go_of_some() -> None:
    """Descriptors of files that were deleted are closed, and the oldest when there are very many."""
    if len(_opened) < MOST_OPENED // 2:
        return
    deleted = [identity for identity, each in _opened.items() if os.fstat(each).st_nlink == 0]
    oldest = [identity for identity in _opened if identity not in deleted]
    for identity in deleted + oldest[: max(len(oldest) - MOST_OPENED + 1, 0)]:
        os.close(_opened.pop(identity))


def read_header(path: Path) -> Header:
    """Look at a file without changing it. What cannot be read, or is no plain file, is foreign."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return Header(FileKind.FOREIGN, why="is no plain file")
        raw = _first_bytes(path, (found.st_dev, found.st_ino))
    except (FileNotFoundError, NotADirectoryError):
        return Header(FileKind.MISSING)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Header(FileKind.FOREIGN, why=f"cannot be read ({reason})")
    if not raw:
        return Header(FileKind.NEW)
    application = int.from_bytes(raw[_APPLICATION_AT : _APPLICATION_AT + 4], "big")
    if len(raw) < _APPLICATION_AT + 4 or not raw.startswith(_MAGIC) or application != APPLICATION_ID:
        return Header(FileKind.FOREIGN, why="is not a store of rooftune (or its first bytes are damaged)")
    return Header(FileKind.OURS, int.from_bytes(raw[_VERSION_AT : _VERSION_AT + 4], "big", signed=True))
