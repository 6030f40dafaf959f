"""The client against every OpenCL runtime of this machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rooftune.device.binaries import BinaryCache
from rooftune.device.client import Client
from rooftune.device.opencl import cl
from rooftune.errors import BuildError, MeasurementError, OutOfMemoryError

ADD = """
__kernel void add(__global float *data, float what)
{
    data[get_global_id(0)] += what;
}
"""


def add(client: Client, buffer: cl.Buffer, n: int, what: float = 1.0, label: str | None = "Add") -> None:
    kernel = client.kernel(ADD, "add")
    kernel.set_args(buffer, np.float32(what))
    client.enqueue(kernel, (n,), (16,), label=label)


def floats(client: Client, buffer: cl.Buffer, n: int) -> np.ndarray:
    return np.frombuffer(client.download(buffer, 4 * n), np.float32)


def test_a_kernel_computes_and_is_counted(client: Client) -> None:
    buffer = client.upload(np.arange(64, dtype=np.float32))
    start = client.counters.snapshot()
    add(client, buffer, 64, 2.5)
    add(client, buffer, 64, 2.5, label=None)
    assert (floats(client, buffer, 64) == np.arange(64) + 5).all()
    assert client.counters.since(start).launches == {"Add": 1}


@pytest.mark.parametrize(
    ("global_size", "local_size"),
    [((4, 1, 1), (2, 1, 1)), ((1, 6, 1), (1, 3, 1)), ((4, 6), None), ((1, 1, 1), None), ((1, 1, 2), None)],
)
def test_a_repeated_launch_has_all_its_work_items(client: Client, global_size, local_size) -> None:
    buffer = client.upload(bytes(4))
    kernel = client.kernel("__kernel void count(__global int *n) { atomic_inc(n); }", "count")
    kernel.set_args(buffer)
    launch = client.launcher(kernel, global_size, local_size, client.queue)
    for _ in range(2):
        launch(None)
    assert np.frombuffer(client.download(buffer, 4), np.int32)[0] == 2 * np.prod(global_size)


def test_a_copy_moves_bytes_between_offsets(client: Client) -> None:
    source = client.upload(bytes(range(64)))
    target = client.upload(bytes(64))
    client.copy(target, source, 8, dst_offset=16, src_offset=4, label="CopyOutput")
    assert client.download(target, 32)[16:24] == bytes(range(4, 12))
    assert client.counters.launches["CopyOutput"] == 1


def test_a_program_is_compiled_once_and_loaded_from_disk_by_the_next_client(
    client: Client, tmp_path: Path
) -> None:
    first = Client(client.device, binaries=BinaryCache(tmp_path))
    first.build(ADD)
    first.build(ADD)
    assert first.counters.compiles == 1
    second = Client(client.device, binaries=BinaryCache(tmp_path))
    buffer = second.upload(np.zeros(32, np.float32))
    add(second, buffer, 32)
    assert (floats(second, buffer, 32) == 1).all()
    assert second.counters.compiles == 0


def test_a_damaged_binary_is_compiled_again(client: Client, tmp_path: Path) -> None:
    Client(client.device, binaries=BinaryCache(tmp_path)).build(ADD)
    (stored,) = tmp_path.rglob("*.bin")
    stored.write_bytes(stored.read_bytes()[:-7])
    again = Client(client.device, binaries=BinaryCache(tmp_path))
    again.build(ADD)
    assert again.counters.compiles == 1


def test_a_binary_the_driver_refuses_is_compiled_again(any_client: Client, tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    Client(any_client.device, binaries=cache).build(ADD)
    (stored,) = tmp_path.rglob("*.bin")
    cache.save(stored.stem, b"well kept, and no program at all")
    again = Client(any_client.device, binaries=cache)
    again.build(ADD)
    assert again.counters.compiles == 1


def test_options_tell_programs_apart(any_client: Client, tmp_path: Path) -> None:
    client = Client(any_client.device, binaries=BinaryCache(tmp_path))
    client.build(ADD)
    client.build(ADD, ("-DUNUSED=1",))
    assert client.counters.compiles == 2


@dataclass(frozen=True)
class Untouched:
    """A rewrite that changes nothing, and so can be applied to any runtime's binary."""

    def apply(self, binary: bytes) -> bytes:
        return binary


def test_a_rewritten_program_runs_and_is_kept_apart(client: Client, tmp_path: Path) -> None:
    own = Client(client.device, binaries=BinaryCache(tmp_path))
    own.build(ADD)
    kernel = own.kernel(ADD, "add", rewrite=Untouched())
    buffer = own.upload(np.zeros(16, np.float32))
    kernel.set_args(buffer, np.float32(3))
    own.enqueue(kernel, (16,), (16,))
    assert (floats(own, buffer, 16) == 3).all()
    assert own.counters.compiles == 2


def test_a_program_with_a_mistake_is_a_build_error_with_the_compilers_words(client: Client) -> None:
    with pytest.raises(BuildError, match="nonsense"):
        client.build("__kernel void k(__global int *p) { p[0] = nonsense; }")


def test_an_unknown_kernel_name_is_a_build_error(client: Client) -> None:
    with pytest.raises(BuildError):
        client.kernel(ADD, "subtract")


def test_more_memory_than_there_is_is_said_with_numbers(client: Client) -> None:
    with pytest.raises(OutOfMemoryError, match="1,125,899,906,842,624 bytes"):
        client.empty(1 << 50)


def test_empty_and_zero_sized_buffers_exist(client: Client) -> None:
    client.empty(0)
    assert client.download(client.upload(b""), 0) == b""


def test_a_sample_runs_the_work_so_often_and_says_device_seconds(client: Client) -> None:
    buffer = client.upload(np.zeros(1024, np.float32))
    seconds = client.sample(lambda: add(client, buffer, 1024), 7)
    assert 0 < seconds < 1
    assert (floats(client, buffer, 1024) == 7).all()
    assert client.counters.launches["Add"] == 7


def test_a_sample_leaves_the_gaps_between_executions_out(any_client: Client) -> None:
    pause = threading.Event()
    buffer = any_client.upload(np.zeros(64, np.float32))

    def slowly() -> None:
        add(any_client, buffer, 64)
        any_client.profiling_queue.finish()
        pause.wait(0.05)

    assert any_client.sample(slowly, 3) < 0.05


def test_one_execution_of_several_kernels_is_one_window(any_client: Client) -> None:
    buffer = any_client.upload(np.zeros(1 << 16, np.float32))

    def several() -> None:
        for _ in range(8):
            add(any_client, buffer, 1 << 16)

    single = min(any_client.sample(lambda: add(any_client, buffer, 1 << 16), 4) for _ in range(5))
    assert any_client.sample(several, 1) > single


def test_a_sample_of_nothing_is_a_measurement_error(client: Client) -> None:
    with pytest.raises(MeasurementError, match="nothing was enqueued"):
        client.sample(lambda: None)


def test_after_a_sample_work_goes_to_the_plain_queue_again_even_when_it_failed(any_client: Client) -> None:
    seen = []

    def fails() -> None:
        seen.append(any_client.current_queue)
        raise RuntimeError("a candidate gives up")

    with pytest.raises(RuntimeError, match="gives up"):
        any_client.sample(fails)
    assert seen == [any_client.profiling_queue]
    assert any_client.current_queue == any_client.queue


def test_threads_sample_and_compute_without_disturbing_one_another(client: Client) -> None:
    results: list[bool] = []

    def work(what: int) -> None:
        buffer = client.upload(np.zeros(256, np.float32))
        for _ in range(20):
            add(client, buffer, 256, float(what))
        client.sample(lambda: add(client, buffer, 256, float(what)), 5)
        results.append(bool((floats(client, buffer, 256) == 25 * what).all()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert client.counters.launches["Add"] == 100


def test_threads_that_need_the_same_program_compile_it_once(any_client: Client, tmp_path: Path) -> None:
    client = Client(any_client.device, binaries=BinaryCache(tmp_path))
    gate = threading.Barrier(4)

    def work() -> None:
        gate.wait()
        client.build(ADD)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.counters.compiles == 1


def test_two_clients_of_one_device_share_no_built_program(any_client: Client) -> None:
    other = Client(any_client.device)
    assert any_client.build(ADD) is not other.build(ADD)
    buffer = other.upload(np.zeros(16, np.float32))
    add(other, buffer, 16)
    assert (floats(other, buffer, 16) == 1).all()


def test_a_client_of_the_callers_context_computes_in_it(any_client: Client) -> None:
    context = cl.Context([any_client.device])
    queue = cl.CommandQueue(context)
    client = Client(queue=queue)
    assert client.context == context
    assert client.queue == queue
    add(client, client.upload(np.zeros(16, np.float32)), 16)


def test_a_buffer_is_read_for_a_block_and_may_be_written_afterwards(client: Client) -> None:
    buffer = client.upload(np.arange(64, dtype=np.float32))
    add(client, buffer, 64)
    with client.reading(buffer, 8, 16) as raw:
        assert raw.nbytes == 16
        assert (raw.view(np.float32) == [3, 4, 5, 6]).all()
    add(client, buffer, 64)
    assert (floats(client, buffer, 64) == np.arange(64) + 2).all()
    with client.reading(buffer, 0, 0) as nothing:
        assert nothing.size == 0


def test_an_address_is_the_same_twice(client: Client) -> None:
    one, other = client.upload(bytes(256)), client.upload(bytes(256))
    first, second, third = client.addresses([one, other, one])
    assert first == third != second and 0 not in (first, second)
    assert client.addresses([]) == []


def test_what_lies_behind_a_profile_is_the_device(client: Client) -> None:
    profile = client.profile
    assert profile.compute_units == client.device.max_compute_units
    assert profile.kind in ("cpu", "gpu", "accelerator")
    assert client.device_id == profile.id
    assert str(profile.compute_units) in client.device_id
