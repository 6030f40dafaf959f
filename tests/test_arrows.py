"""The direction of imports: cli -> probes -> core, and rooms that must not know of one another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PACKAGES = {"core": "rooftune", "probes": "rooftune.probes", "cli": "rooftune.cli"}


def modules() -> Iterator[tuple[str, Path]]:
    for folder, package in PACKAGES.items():
        for path in sorted((TOP / folder).rglob("*.py")):
            parts = path.relative_to(TOP / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def imported(name: str, path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file, by its full name."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


MODULES = {name: (path, set(imported(name, path))) for name, path in modules()}


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def offenders(room: str, *forbidden: str, but: tuple[str, ...] = ()) -> list[str]:
    return [
        f"{name} imports {target}"
        for name, (_, targets) in MODULES.items()
        if within(name, room) and not within(name, *but)
        for target in sorted(targets)
        if within(target, *forbidden)
    ]


COMPOSITION = "rooftune.session"


def test_core_knows_nothing_of_cli_and_probes_but_for_the_composition():
    outside = ("rooftune.cli", "rooftune.probes")
    assert not offenders("rooftune", *outside, but=(*outside, COMPOSITION))


def test_the_composition_says_so_in_its_first_line():
    if COMPOSITION in MODULES:
        assert "probes" in MODULES[COMPOSITION][0].read_text(encoding="utf-8").splitlines()[0]


def test_probes_know_nothing_of_cli():
    assert not offenders("rooftune.probes", "rooftune.cli")


def test_the_tuner_knows_nothing_of_devices_stores_and_products():
    rooms = ("rooftune.device", "rooftune.matmul", "rooftune.store", "rooftune.probes", "rooftune.proof")
    assert not offenders("rooftune.tuning", "pyopencl", "numpy", *rooms)


def test_the_store_knows_nothing_of_devices_and_products():
    assert not offenders("rooftune.store", "pyopencl", "numpy", "rooftune.device", "rooftune.matmul")


@pytest.mark.parametrize("name", ["key", "problem", "compare", "groups", "cost"])
def test_keys_and_plans_know_nothing_of_pyopencl(name):
    assert not offenders(f"rooftune.matmul.{name}", "pyopencl")


def test_every_package_and_kernel_is_installed():
    pyproject = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    listed = set(re.findall(r'"(rooftune[\w.]*)"', pyproject))
    packages = {name for name, (path, _) in MODULES.items() if path.name == "__init__.py"}
    assert packages <= listed
    for kernel in (TOP / "core").rglob("*.cl"):
        assert kernel.parent.name == "kernels"
