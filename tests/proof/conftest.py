"""A device to prove on, and a look at which processes are left."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rooftune.device.client import Client

MARK = "ROOFTUNE_TEST_MARK"


@pytest.fixture
def client(isolated: None) -> Client:
    return Client()


def marked(mark: str) -> list[int]:
    """Processes with the mark in their environment that are not zombies, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def strays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[int]]]:
    """Processes started in this test that still live; the test fails if any is left at its end."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield lambda: marked(mark)
    for _ in range(200):  # a driver may take seconds to end a process whose kernel never would
        if not marked(mark):
            return
        time.sleep(0.1)
    raise AssertionError(f"processes left: {marked(mark)}")
