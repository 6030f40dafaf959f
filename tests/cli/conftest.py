"""Running the command inside the test process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Ran(NamedTuple):
    """What a run of the command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def tune(capsys) -> Callable[..., Ran]:
    """tune("keys", "1024", "--json") -> exit code, stdout, stderr."""
    from rooftune.cli.app import main

    def run(*args: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        return Ran(stop.value.code or 0, *capsys.readouterr())

    return run
