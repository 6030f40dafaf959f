"""`tune version`: what is installed."""

from __future__ import annotations

import platform
from importlib import metadata

from .options import Common, common
from .render import emit, print_lines

_SHOWN = ("pyopencl", "numpy", "typer", "rich")


@common("json")
def version(common: Common) -> None:
    """Print the versions of rooftune, Python and the libraries it uses."""
    versions = installed()
    if common.json:
        emit("version", {"versions": versions})
    else:
        print_lines(f"{name} {number}" for name, number in versions.items())


def installed() -> dict[str, str]:
    """Version by name."""
    from rooftune import __version__

    versions = {"rooftune": __version__, "python": platform.python_version()}
    return versions | {name: _installed(name) for name in _SHOWN}


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
