"""Where the store is: the environment's name, its folder, its file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..folders import absolute, user_cache_folder

DEFAULT_NAME = "default"


@dataclass(frozen=True)
class Location:
    """A store's file, or None with the reason when there is no place for one."""

    path: Path | None
    problem: str = ""


def environment_name(text: str) -> str:
    """A name that is safe as a file name: characters outside `[A-Za-z0-9._-]` become `_`.

    Empty, or dots only: `default`.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)
    return name if name.strip(".") else DEFAULT_NAME


def environment_folder(path: str | Path, cwd: Path | None = None) -> Path | None:
    """The folder of the environments. `path` is "target", "local", "global" or an absolute folder.

    "target": `target/rooftune` beside the outermost Cargo.toml at or above the current folder; without
    one, the user's cache folder. None when there is no such folder (no home, the current folder was deleted).
    """
    if isinstance(path, Path):
        return path
    here = _current_folder() if cwd is None else absolute(cwd)
    if path == "local":
        return here
    if path == "target" and here is not None:
        crates = [folder for folder in (here, *here.parents) if _exists(folder / "Cargo.toml")]
        if crates:
            return crates[-1] / "target" / "rooftune"
    return user_cache_folder()


def locate(name: str, path: str | Path, cwd: Path | None = None) -> Location:
    """The file of environment `name` under the root that `path` stands for (see environment_folder)."""
    folder = environment_folder(path, cwd)
    if folder is None:
        return Location(None, "there is no home folder and no cache folder to keep decisions in")
    return Location(folder / f"{environment_name(name)}.db")


def substitute_for(path: Path) -> Path:
    """What is used instead of a file that is not ours: `<name>.rooftune.db` beside it."""
    return path.with_name(f"{path.stem}.rooftune.db")


def _current_folder() -> Path | None:
    try:
        return Path(os.getcwd())
    except OSError:
        return None


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
