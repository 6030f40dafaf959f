"""Clients of the real OpenCL devices of this machine."""

from __future__ import annotations

import pytest
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices

DEVICES = [found for found in list_devices() if found.usable]


@pytest.fixture(params=DEVICES, ids=lambda found: f"{found.index}-{found.profile.driver}")
def client(request: pytest.FixtureRequest) -> Client:
    return Client(request.param.index)


@pytest.fixture
def any_client() -> Client:
    return Client(DEVICES[0].index)
