"""Waiting for one event, by looking at it first or not."""

from __future__ import annotations

import pyopencl as cl
import pytest
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.device.watching import watch, worth_watching


@pytest.mark.parametrize("watches", [True, False])
def test_wait_returns_when_the_event_has_completed(client: Client, watches: bool) -> None:
    client.watches = watches
    source = "__kernel void fill(__global int *p) { for (int i = 0; i < 100000; i++) p[i] = i; }"
    event = client.run(source, "fill", (1,), (1,), client.empty(400000))
    client.wait(event)
    assert event.command_execution_status == cl.command_execution_status.COMPLETE


def test_an_event_that_never_completes_is_watched_for_a_moment_only(any_client: Client) -> None:
    pending = cl.UserEvent(any_client.context)
    watch(pending)
    pending.set_status(cl.command_execution_status.COMPLETE)
    watch(pending)


def test_only_cpus_whose_threads_sleep_are_watched() -> None:
    pocl, intel = "Portable Computing Language", "Intel(R) OpenCL"
    assert worth_watching(DeviceProfile("any", platform=pocl, kind="cpu"))
    assert not worth_watching(DeviceProfile("any", platform=intel, kind="cpu"))
    assert not worth_watching(DeviceProfile("any", platform=pocl, kind="gpu"))
