"""Buffers in huge pages, on every OpenCL runtime of this machine."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pyopencl.array as cl_array
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device import pages
from rooftune.device.client import Client
from rooftune.device.opencl import cl
from rooftune.errors import OutOfMemoryError

SMAPS = Path("/proc/self/smaps")
POLICY = Path("/sys/kernel/mm/transparent_hugepage/enabled")

SLOW_COPY = """
__kernel void slow_copy(__global const float *from, __global float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = from[i];
}
"""


@given(nbytes=st.integers(1, 1 << 40), address=st.integers(0, 1 << 47))
def test_the_room_holds_whole_huge_pages_wherever_it_begins(nbytes, address):
    start = pages.first_huge(address)
    whole = -(-nbytes // pages.HUGE_BYTES) * pages.HUGE_BYTES
    assert (address + start) % pages.HUGE_BYTES == 0
    assert start + whole <= pages.room_for(nbytes)


@pytest.mark.parametrize("nbytes", [0, 1, 4096, pages.LEAST_BYTES - 1, pages.LEAST_BYTES, (3 << 20) + 12])
def test_a_buffer_to_keep_holds_what_is_written(client: Client, nbytes: int) -> None:
    buffer = client.allocate(nbytes)
    assert buffer.size == max(1, nbytes)
    if nbytes:
        data = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
        client.write(buffer, data)
        assert client.download(buffer, nbytes) == data.tobytes()


def test_more_than_there_is_is_said_with_the_number_asked_for(client: Client) -> None:
    with pytest.raises(OutOfMemoryError, match=f"{1 << 50:,}"):
        client.allocate(1 << 50)


def huge_bytes(address: int) -> int:
    """How much of the mapping around an address lies in huge pages."""
    inside = False
    for line in SMAPS.read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            inside = begin <= address < end
        elif inside and first == "AnonHugePages:":
            return int(line.split()[1]) * 1024
    return 0


def test_a_large_one_of_a_cpu_lies_in_huge_pages(client: Client) -> None:
    if not client.profile.is_cpu:
        pytest.skip("a GPU's buffers lie in its own memory")
    if not POLICY.exists() or "[never]" in POLICY.read_text() or not SMAPS.exists():
        pytest.skip("this system has no transparent huge pages")
    buffer = client.allocate(16 << 20)
    client.write(buffer, np.ones(16 << 20, np.uint8))
    (address,) = client.addresses([buffer])
    assert address % pages.HUGE_BYTES == 0
    if huge_bytes(address) == 0:
        pytest.skip("the system has no huge page left")
    assert huge_bytes(address) >= 8 << 20


def test_one_let_go_of_lasts_until_the_work_on_it_has_ended(client: Client) -> None:
    n = 1 << 22
    kernel = client.kernel(SLOW_COPY, "slow_copy")
    target = client.allocate(4 * n)
    for turn in range(3):
        source = client.allocate(4 * n)
        client.write(source, np.full(n, turn, np.float32))
        kernel.set_args(source, target, np.int32(n))
        client.enqueue(kernel, (1,), (1,))
        kernel.set_arg(0, target)  # the kernel doesn't keep it either
        del source
        gc.collect()
        assert (np.frombuffer(client.download(target, 4 * n), np.float32) == turn).all()


def test_making_one_waits_for_nothing_enqueued(client: Client) -> None:
    gate = cl.UserEvent(client.context)
    opened = threading.Timer(20, gate.set_status, (cl.command_execution_status.COMPLETE,))
    opened.start()
    cl.enqueue_marker(client.queue, wait_for=[gate])
    client.queue.flush()
    client.allocate(2 << 20)
    assert gate.command_execution_status != cl.command_execution_status.COMPLETE
    opened.cancel()
    gate.set_status(cl.command_execution_status.COMPLETE)
    client.sync()


def test_it_is_an_allocator_of_pyopencls_arrays(client: Client) -> None:
    host = np.random.default_rng(0).random((700, 900), np.float32)
    array = cl_array.to_device(client.queue, host, allocator=client.allocate)
    assert isinstance(array.base_data, cl.Buffer)
    assert ((array + 1)[5:].get() == (host + 1)[5:]).all()


def test_the_whole_behind_a_part_can_be_asked_for(client: Client) -> None:
    if not client.profile.is_cpu or not pages.available():
        pytest.skip("only a CPU's buffers are parts")
    buffer = client.allocate(2 << 20)
    gc.collect()
    whole = buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    assert whole.size >= buffer.get_info(cl.mem_info.OFFSET) + buffer.size
