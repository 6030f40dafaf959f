"""Folders rooftune may write to, and what the OpenCL runtimes need of them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import platformdirs

from ..errors import WorkError
from ..folders import stand_in_for_user_cache

HALF_MADE = ".new-"
"""How names of files begin that are not yet what they will be."""
HALF_MADE_S = 3600.0
"""Older ones are nobody's any more."""

ROOM_BYTES = 1 << 20
"""What pyopencl's and PoCL's caches need at the least; on a full disk both fail as if at something else."""


def writable(folder: Path, room_bytes: int = 0) -> bool:
    """Whether files of so many bytes can be made in the folder, which is created if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            if room_bytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, room_bytes)
            return True
    except (OSError, RuntimeError):
        return False


def user_cache() -> Path | None:
    """The user's cache folder for rooftune, or None where it cannot be written."""
    try:
        folder = Path(platformdirs.user_cache_dir("rooftune", False))
    except (OSError, RuntimeError, KeyError):
        return None
    return folder if folder.is_absolute() and writable(folder) else None


@lru_cache(maxsize=1)
def process_temp() -> Path:
    """A folder that lives as long as this process. Raises WorkError where none can be made."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="rooftune-"))
    except OSError as error:
        raise WorkError(
            f"no folder can be written to, not even a temporary one ({error.strerror or error})",
            hint="Set TMPDIR to a folder with some room.",
        ) from error
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves its parent's folder alone
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def cache_folder(name: str, room_bytes: int = 0) -> Path:
    """A writable folder with that much room: below the user's cache folder, else for this process."""
    base = user_cache()
    if base is not None and writable(base / name, room_bytes):
        return base / name
    folder = process_temp() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def drop_half_made(folder: Path) -> None:
    """Delete what processes that were killed left half-made in one of our cache folders."""
    with suppress(OSError):
        for path in folder.glob(f"{HALF_MADE}*"):
            if time.time() - path.lstat().st_mtime < HALF_MADE_S:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def shared_lock_folder() -> Path:
    """One folder per user, the same for all of that user's processes, for lock files."""
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir()) / f"rooftune-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        owned = not hasattr(os, "getuid") or folder.lstat().st_uid == os.getuid()
    except OSError:
        owned = False
    return folder if owned and not folder.is_symlink() and writable(folder) else cache_folder("locks")


def give_runtimes_writable_caches() -> list[str]:
    """Point pyopencl and PoCL at writable cache folders where theirs are not; says what was changed.

    Without HOME and a passwd entry pyopencl cannot make a kernel, and PoCL with an unwritable cache
    folder shows no device at all, without a word.
    """
    notes = []
    try:
        home_cache = Path(platformdirs.user_cache_dir("pyopencl", False))
        usable = home_cache.is_absolute() and writable(home_cache, ROOM_BYTES)
    except (OSError, RuntimeError, KeyError):
        usable = False
    if not usable:
        stand_in_for_user_cache(cache_folder("runtimes", ROOM_BYTES))
        notes.append("the user's cache folder cannot be written; kernels are kept for this process only")
    asked = os.environ.get("POCL_CACHE_DIR")
    if asked and not writable(Path(asked), ROOM_BYTES):
        instead = str(cache_folder("pocl", ROOM_BYTES))
        os.environ["POCL_CACHE_DIR"] = instead
        notes.append(f"POCL_CACHE_DIR {asked} cannot be written; {instead} is used instead")
    elif not asked and not writable(_pocl_default(), ROOM_BYTES):
        os.environ["POCL_CACHE_DIR"] = str(cache_folder("pocl", ROOM_BYTES))
    return notes


def _pocl_default() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    if cache:
        return Path(cache) / "pocl"
    return Path(os.environ.get("HOME") or "/proc") / ".cache" / "pocl"
