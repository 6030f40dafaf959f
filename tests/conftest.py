"""Isolation: no test reads or writes the user's configuration, caches or stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("rooftune", deadline=None)  # what runs beside a test must not fail it
settings.load_profile("rooftune")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the minutes-long forms of tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="minutes-long form; run with --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One writable home for the whole run, so that compiled kernels are kept from test to test."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def isolated(shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CUBECL_") or name in ("ROOFTUNE_DEVICE", "COLUMNS"):
            monkeypatch.delenv(name)
    os.unsetenv("COLUMNS")  # readline, which pytest imports, sets it past os.environ
    monkeypatch.setenv("HOME", str(shared_home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_home / ".cache"))
    monkeypatch.setenv("POCL_CACHE_DIR", str(shared_home / "pocl"))
    monkeypatch.chdir(tmp_path)
