"""Half-made files, `.NAME-PID` after the process that makes them, and what is left of killed ones."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

LEAST_AGE_S = 60.0
"""A younger file may be in the making by a process that cannot be seen from here (another container's)."""

_COMPANIONS = ("-journal", "-wal", "-shm")


def half_made(path: Path) -> Path:
    """A name that is free, for `path` while this process makes it."""
    name = f".{path.name}-{os.getpid()}"
    names = itertools.chain([name], (f"{name}.{number}" for number in itertools.count(1)))
    return next(free for each in names if not os.path.lexists(free := path.with_name(each)))


def reclaim(folder: Path, name: str, is_ours: Callable[[Path], bool]) -> None:
    """Delete what processes that are gone left half-made in a folder, with what SQLite keeps beside it.

    `name` is a pattern of the names they were to have. Only plain files that `is_ours` knows are touched.
    """
    for path, pid in list(_half_made_in(folder, re.compile(rf"\.(?:{name})-([1-9]\d*)(?:\.\d+)?"))):
        with suppress(OSError):
            if _is_gone(pid) and _is_old_file(path) and is_ours(path):
                for each in (path, *(path.with_name(path.name + end) for end in _COMPANIONS)):
                    each.unlink(missing_ok=True)


def _half_made_in(folder: Path, name: re.Pattern[str]) -> Iterator[tuple[Path, int]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = name.fullmatch(entry.name)
            if match is not None and entry.is_file(follow_symlinks=False):
                yield Path(entry.path), int(match[1])


def _is_old_file(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > LEAST_AGE_S


def _is_gone(pid: int) -> bool:
    if os.name != "posix":
        return False
    if pid == os.getpid():  # an earlier process of this number: what is made now is younger
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return False
    return False
