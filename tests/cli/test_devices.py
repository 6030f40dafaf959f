"""`tune devices`, with the devices of this machine and with none."""

from __future__ import annotations

import pytest
from rooftune.device import discovery
from rooftune.device.discovery import Survey, list_devices

from .test_schema import fits


def test_every_device_is_shown_with_where_it_came_from(tune):
    ran = tune("devices")
    assert ran.code == 0
    for device in list_devices():
        assert f"{device.index}: {device.name}" in ran.out
        assert device.origin in ran.out
        assert all(issue in ran.out for issue in device.issues)
    assert ran.out.count("(default)") == 1


def test_the_json_fits_its_schema(tune):
    ran = tune("devices", "--json")
    fits("devices", ran.json)
    assert ran.json["default"] == 0
    assert [d["index"] for d in ran.json["devices"]] == list(range(len(list_devices())))


def test_the_default_follows_the_environment_variable(tune, monkeypatch):
    last = len(list_devices()) - 1
    monkeypatch.setenv("ROOFTUNE_DEVICE", str(last))
    assert tune("devices", "--json").json["default"] == last
    monkeypatch.setenv("ROOFTUNE_DEVICE", "no such device")
    ran = tune("devices")
    assert ran.code == 0
    assert "ROOFTUNE_DEVICE" in ran.err


@pytest.fixture
def nothing_here(monkeypatch):
    problem = "platform Broken shows no device."
    monkeypatch.setattr(discovery, "_surveyed", Survey((), (problem,), ()))


@pytest.mark.usefixtures("nothing_here")
def test_without_a_device_it_exits_with_3_and_says_how_to_get_one(tune):
    ran = tune("devices")
    assert ran.code == 3
    assert "no OpenCL device" in ran.err
    assert "platform Broken" in ran.err
    assert discovery.how_to_get_a_runtime() in ran.err
    assert ran.out == ""


@pytest.mark.usefixtures("nothing_here")
def test_without_a_device_the_json_is_an_error_with_a_hint(tune):
    ran = tune("devices", "--json")
    assert ran.code == 3
    assert ran.json["schema"] == "rooftune/devices/1"
    assert ran.json["error"]["code"] == "device"
    assert ran.json["error"]["hint"]
