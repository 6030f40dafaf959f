"""Specifications by name: what was tuned in an environment can be used without its files."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..folders import absolute
from ..store.stores import Store
from .spec import KERNEL, KernelSpec, load_spec, parse_spec, sources_of


def remember(store: Store, spec: KernelSpec) -> None:
    """Keeps a specification and its sources under its name, in place of any earlier one."""
    path = str(absolute(spec.path)) if spec.path is not None else None
    store.kernels.save(spec.name, {"text": spec.text, "sources": sources_of(spec), "path": path})


def is_path(text: str) -> bool:
    """Whether this names a specification's file, not a kernel."""
    return text.endswith(".toml") or "/" in text


def find_spec(store: Store, name: str | Path) -> KernelSpec:
    """The specification at a path, or the one kept under a name, which may have `kernel:` before it.

    Raises SpecError, UsageError.
    """
    text = str(name)
    if isinstance(name, Path) or is_path(text):
        return load_spec(name)
    row = store.kernels.load(text) or store.kernels.load(text.removeprefix(KERNEL))
    if row is None:
        known = ", ".join(store.kernels.names()) or "none yet"
        raise UsageError(
            f"no kernel '{text}' was tuned in this environment; there are: {known}",
            hint="Run `tune kernel SPEC.toml` first, or give the path of the specification.",
        )
    return parse_spec(row["text"], Path(row["path"]) if row["path"] else None, row["sources"])
