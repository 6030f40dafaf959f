"""The user's cache folder, even after the OpenCL runtimes were given another one."""

from __future__ import annotations

import os
from pathlib import Path

_stand_ins: dict[str, Path | None] = {}


def user_cache_folder() -> Path | None:
    """rooftune's folder in the user's cache, not created; None where the user has no home."""
    now = os.environ.get("XDG_CACHE_HOME", "")
    if now in _stand_ins:
        return _stand_ins[now]
    import platformdirs

    try:
        folder = Path(platformdirs.user_cache_dir("rooftune", appauthor=False))
    except (OSError, RuntimeError, KeyError):
        return None
    return folder if folder.is_absolute() else None


def absolute(path: Path) -> Path:
    """The path from the root; as it is where the current folder was deleted."""
    try:
        return path.absolute()
    except OSError:
        return path


def stand_in_for_user_cache(folder: Path) -> None:
    """Have libraries of this process take `folder` for the user's cache folder, which cannot be written.

    It goes with the process, so nothing that should last may go there: `user_cache_folder` is not misled.
    """
    user = user_cache_folder()
    _stand_ins[str(folder)] = user
    os.environ["XDG_CACHE_HOME"] = str(folder)
