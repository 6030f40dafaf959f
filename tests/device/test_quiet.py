"""Launches without events, on whatever OpenCL device there is."""

from __future__ import annotations

import numpy as np
import pytest
from rooftune.device import quiet
from rooftune.device.opencl import cl

SOURCE = "__kernel void add(__global int *p, int by) { p[get_global_id(0)] += by; }"


@pytest.fixture
def adder(client):
    buffer = client.upload(np.zeros(64, np.int32))
    kernel = client.kernel(SOURCE, "add")
    kernel.set_args(buffer, np.int32(3))
    return kernel, buffer


def values(client, buffer) -> np.ndarray:
    client.sync()
    return np.frombuffer(client.download(buffer, 256), np.int32)


def refuse(_):
    raise AssertionError("the launch with an event was taken")


def test_the_function_behind_pyopencl_is_found():
    assert quiet._enqueue_function() is not None


def test_a_quiet_launch_computes_and_returns_no_event(client, adder):
    kernel, buffer = adder
    launch = quiet.quiet_launcher(kernel, (64,), None, client.queue, refuse)
    assert launch(None) is None
    assert launch(None) is None
    assert (values(client, buffer) == 6).all()


def test_sizes_of_work_groups_are_passed_on(client, adder):
    kernel, buffer = adder
    quiet.quiet_launcher(kernel, (32,), (16,), client.queue, refuse)(None)
    assert values(client, buffer).tolist() == [3] * 32 + [0] * 32


def test_what_is_to_be_waited_for_takes_the_launch_with_an_event(client, adder):
    kernel, _ = adder
    waits = [cl.enqueue_marker(client.queue)]
    assert quiet.quiet_launcher(kernel, (64,), None, client.queue, lambda given: given)(waits) is waits


def test_a_refused_launch_is_told_by_the_one_with_an_event(client, adder):
    kernel, _ = adder
    ordinary = client.launcher(kernel, (60,), (16384 * 64,), client.queue)
    with pytest.raises(cl.Error):
        quiet.quiet_launcher(kernel, (60,), (16384 * 64,), client.queue, ordinary)(None)


def test_where_the_function_is_not_found_launches_have_events(client, adder, monkeypatch):
    monkeypatch.setattr(quiet, "_enqueue_function", lambda: None)
    kernel, buffer = adder
    launch = quiet.quiet_launcher(
        kernel, (64,), None, client.queue, client.launcher(kernel, (64,), None, client.queue)
    )
    assert isinstance(launch(None), cl.Event)
    assert (values(client, buffer) == 3).all()
