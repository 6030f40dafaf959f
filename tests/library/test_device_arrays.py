"""pyopencl arrays: the short way for calls met before, and that it never differs from the long one."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rooftune.device.client import Client
from rooftune.device.quiet import quiet_launcher
from rooftune.errors import DeviceFaultError, DtypeError, UsageError
from rooftune.matmul.operation import Request, matmul, of_device_arrays
from rooftune.tuning.tunable import Tunable, TunableSet

from .conftest import DEVICES, by_device, only, session_in

OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
rng = np.random.default_rng(5)


def call(session, a, b, out, *, queue=None, wait_for=None):
    """What rooftune.matmul does with out given: the short way, else the long one. Says which it took."""
    again = session.hot.memory.again.get(id(out))
    if queue is None and not wait_for and again is not None and again(a, b, out):
        return "short"
    if session.hot.launch(a, b, out, None, None, None, queue, wait_for):
        return "short"
    matmul(session, a, b, out=out, queue=queue, wait_for=wait_for)
    return "long"


def filled(queue, *shape):
    return cl_array.to_device(queue, rng.random(shape, np.float32))


def close(out, a, b):
    return np.allclose(out.get(), a.get() @ b.get(), rtol=1e-5, atol=1e-6)


@pytest.fixture
def queue(plain, found):
    return cl.CommandQueue(plain.client().context)


@by_device
def test_a_call_met_before_takes_the_short_way(plain, queue):
    a, b, out = filled(queue, 9, 5), filled(queue, 5, 7), cl_array.zeros(queue, (9, 7), np.float32)
    assert call(plain, a, b, out) == "long"
    for _ in range(3):
        out.fill(0)
        assert call(plain, a, b, out) == "short"
        assert close(out, a, b)


@by_device
def test_a_repeated_call_sees_what_changed_since(plain, queue):
    a, b, out = filled(queue, 9, 5), filled(queue, 5, 7), cl_array.zeros(queue, (9, 7), np.float32)
    for _ in range(3):
        call(plain, a, b, out)
    again = plain.hot.memory.again[id(out)]
    assert again(a, b, out) and not again(b, a, out) and not again(a, b, a)
    entries = plain.client().counters.snapshot()

    gate = cl.UserEvent(queue.context)
    b.add_event(gate)
    assert again(a, b, out), "an event more is waited for"
    assert out.events[-1].command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert again(a, b, out) and close(out, a, b)

    other = filled(queue, 5, 7)
    b.base_data, before = other.base_data, b.base_data
    assert not again(a, b, out), "another buffer"
    assert call(plain, a, b, out) == "short" and close(out, a, other)
    assert not again(a, b, out), "the call was made anew"
    b.base_data = before
    assert call(plain, a, b, out) == "short" and close(out, a, b)

    again = plain.hot.memory.again[id(out)]
    a.queue = cl.CommandQueue(queue.context)
    assert not again(a, b, out), "another queue"
    a.queue = queue
    plain.tuner.decisions.revision += 1
    assert not again(a, b, out), "another decision"
    call(plain, a, b, out)
    assert plain.client().counters.since(entries).launches == {"MatmulEntry": 5}


@by_device
def test_other_arrays_of_the_same_shapes_take_the_short_way_too(plain, queue):
    first = [filled(queue, 6, 6) for _ in range(3)]
    call(plain, *first)
    for _ in range(4):
        a, b, out = (filled(queue, 6, 6) for _ in range(3))
        assert call(plain, a, b, out) == "short"
        assert close(out, a, b)
        assert call(plain, *first) == "short"
        assert close(first[2], first[0], first[1])


@by_device
def test_the_long_way_in_between_does_not_leave_its_buffers_bound(plain, queue):
    a, b, out = (filled(queue, 6, 6) for _ in range(3))
    call(plain, a, b, out)
    call(plain, a, b, out)
    others = [filled(queue, 6, 6) for _ in range(3)]
    matmul(plain, others[0], others[1], out=others[2])
    out.fill(0)
    assert call(plain, a, b, out) == "short"
    assert close(out, a, b) and close(others[2], others[0], others[1])


@by_device
def test_nothing_keeps_the_callers_arrays_alive(plain, queue):
    a, b, out = (filled(queue, 6, 6) for _ in range(3))
    for _ in range(3):
        call(plain, a, b, out)
    ends = [weakref.ref(x) for x in (a, b, out)]
    known = len(plain.hot.memory.calls)
    queue.finish()
    del a, b, out
    gc.collect()
    assert [end() for end in ends] == [None] * 3
    assert len(plain.hot.memory.calls) == known - 1


@by_device
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_views_and_offsets_into_one_buffer(plain, found, data):
    """Operands and out at any place of one buffer: apart, touching, overlapping, transposed."""
    queue = plain.client().queue
    m, n, k = (data.draw(st.integers(1, 5)) for _ in range(3))
    host = rng.random(120, np.float32)
    pool = cl_array.to_device(queue, host)

    def view(rows, columns):
        start = data.draw(st.integers(0, 90))
        if data.draw(st.booleans()):
            return pool[start : start + rows * columns].reshape(columns, rows).T, (start, rows, columns, True)
        return pool[start : start + rows * columns].reshape(rows, columns), (start, rows, columns, False)

    def at(place):
        start, rows, columns, transposed = place
        part = host[start : start + rows * columns]
        return part.reshape(columns, rows).T if transposed else part.reshape(rows, columns)

    (a, a_at), (b, b_at), (out, out_at) = view(m, k), view(k, n), view(m, n)
    for _ in range(3):
        expected = (at(a_at) @ at(b_at)).copy()
        call(plain, a, b, out)
        at(out_at)[...] = expected
        assert np.allclose(pool.get(), host, rtol=1e-5, atol=1e-6)


def skip_where_parts_outlive_their_buffer(queue):
    if "NVIDIA" in queue.device.vendor:
        pytest.skip("the driver (580.159.04) lets go of a buffer before its parts, and then the process ends")


def thirds_of_a_buffer(queue):
    """A buffer, and three square arrays that are parts of it, one after another, filled."""
    align = queue.device.mem_base_addr_align // 8
    n = int((align // 4) ** 0.5)
    store = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 3 * align)
    parts = [store.get_sub_region(i * align, n * n * 4) for i in range(3)]
    arrays = [cl_array.Array(queue, (n, n), np.float32, data=part) for part in parts]
    for array in arrays:
        array.set(rng.random((n, n), np.float32))
    return store, arrays


@by_device
def test_parts_of_one_buffer_that_overlap(plain, queue):
    skip_where_parts_outlive_their_buffer(queue)
    align = queue.device.mem_base_addr_align // 8
    store = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * align)
    n = int((2 * align // 4) ** 0.5)
    size = n * n * 4

    def array(region):
        return cl_array.Array(queue, (n, n), np.float32, data=region)

    apart = [array(store.get_sub_region(i * 2 * align, size)) for i in range(2)]
    other = filled(queue, n, n)
    for part in apart:
        part.set(rng.random((n, n), np.float32))
    shifted = array(store.get_sub_region(align, size))
    for _ in range(2):
        expected = apart[0].get() @ other.get()
        call(plain, apart[0], other, shifted)
        assert np.allclose(shifted.get(), expected, rtol=1e-5)


@by_device
def test_parts_of_one_buffer_that_lie_apart_take_the_short_way(plain, queue):
    skip_where_parts_outlive_their_buffer(queue)
    _store, (a, b, out) = thirds_of_a_buffer(queue)
    ways = [call(plain, a, b, out) for _ in range(3)]
    assert ways == ["long", "short", "short"]
    assert np.allclose(out.get(), a.get() @ b.get(), rtol=1e-5)


@by_device
def test_parts_of_a_buffer_let_go_of(plain, queue):
    skip_where_parts_outlive_their_buffer(queue)
    (a, b, out), (c, d, _) = (thirds_of_a_buffer(queue)[1] for _ in range(2))
    assert [call(plain, a, b, out) for _ in range(3)][-1] == "short"
    assert np.allclose(out.get(), a.get() @ b.get(), rtol=1e-5)
    call(plain, c, d, out)
    assert np.allclose(out.get(), c.get() @ d.get(), rtol=1e-5)
    call(plain, a, b, c)  # Intel's runtime doesn't say that a and c are parts of two buffers
    assert np.allclose(c.get(), a.get() @ b.get(), rtol=1e-5)
    expected = a.get() @ b.get()
    call(plain, a, b, a)
    assert np.allclose(a.get(), expected, rtol=1e-5)


@by_device
def test_events_are_kept_as_pyopencl_keeps_them(plain, queue):
    a, b, out = (filled(queue, 6, 6) for _ in range(3))
    gate = cl.UserEvent(queue.context)
    for _ in range(2):
        call(plain, a, b, out)
    a.add_event(gate)
    _, event = of_device_arrays(plain, a, b, out, Request())
    assert out.events == [event]
    assert event.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    gate = cl.UserEvent(queue.context)
    event = plain.hot.launch(a, b, out, None, None, None, None, [gate])
    assert event is not None and out.events == [event]
    assert event.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    out.finish()
    assert close(out, a, b)


@by_device
def test_without_events_products_are_computed_in_the_queues_order(plain, queue, monkeypatch):
    def launcher(client, kernel, global_size, local_size, queue, *, quiet=False):
        launch = partial(cl.enqueue_nd_range_kernel, queue, kernel, global_size, local_size, None)
        return quiet_launcher(kernel, global_size, local_size, queue, launch) if quiet else launch

    monkeypatch.setattr(Client, "launcher", launcher)
    a, b, out = filled(queue, 9, 5), filled(queue, 5, 7), cl_array.zeros(queue, (9, 7), np.float32)
    quiet = partial(plain.hot.launch, a, b, out, None, None, None, None, None, True)
    assert quiet() is None, "not met before"
    call(plain, a, b, out)
    before = plain.client().counters.snapshot()
    for _ in range(3):
        out.fill(0)
        assert quiet()
        held = list(out.events)
        assert quiet() is True, "nothing is to be waited for"
        assert out.events == held
        assert close(out, a, b)
    assert sum(plain.client().counters.since(before).launches.values()) == 6
    assert call(plain, a, b, out) == "short" and isinstance(out.events[-1], cl.Event)


@by_device
def test_queues_take_turns_by_the_arrays_events(plain, queue):
    """A chain of products on three queues, one of them out-of-order, with nothing but events between."""
    context = queue.context
    queues = [queue, cl.CommandQueue(context), cl.CommandQueue(context, properties=OUT_OF_ORDER)]
    hosts = [rng.random((40, 40), np.float32) / 20 for _ in range(2)]
    x, w = (cl_array.to_device(queue, host) for host in hosts)
    y, expected = cl_array.empty_like(x), hosts[0]
    for step in range(30):
        call(plain, x, w, y, queue=queues[step % 3])
        x, y, expected = y, x, expected @ hosts[1]
    assert np.allclose(x.get(), expected, rtol=1e-3, atol=1e-6)


@by_device
def test_an_out_of_order_queue_runs_a_product_of_several_kernels_in_order(found, tmp_path):
    session = session_in(tmp_path)
    client = session.client(found.index)
    only(session, client, "matmul_split_k")
    queue = cl.CommandQueue(client.context, properties=OUT_OF_ORDER)
    a, b = filled(client.queue, 4, 4096), filled(client.queue, 4096, 4)
    outs = [cl_array.zeros(client.queue, (4, 4), np.float32) for _ in range(2)]
    client.sync()
    for step in range(12):
        call(session, a, b, outs[step % 2], queue=queue)
    queue.finish()
    for out in outs:
        assert np.allclose(out.get(), a.get() @ b.get(), rtol=1e-4)


@by_device
def test_out_that_no_kernel_writes_goes_through_a_temporary(plain, queue):
    a, b = filled(queue, 6, 6), filled(queue, 6, 6)
    store = filled(queue, 6, 6)
    for _ in range(2):
        assert call(plain, a, b, store.T) == "long"
        assert np.allclose(store.get().T, a.get() @ b.get(), rtol=1e-5)
    expected = a.get() @ a.get()
    call(plain, a, a, a)
    assert np.allclose(a.get(), expected, rtol=1e-5)


@by_device
def test_more_batch_axes_than_kernels_walk(plain, queue):
    a, b = rng.random((2, 1, 3, 1, 2, 4), np.float32), rng.random((1, 2, 1, 2, 4, 3), np.float32)
    got = matmul(plain, cl_array.to_device(queue, a), cl_array.to_device(queue, b))
    assert np.allclose(got.get(), a @ b, rtol=1e-5)


@by_device
def test_empty_products_and_vectors(plain, queue):
    def zeros(*shape):
        return cl_array.zeros(queue, shape, np.float32)

    out = filled(queue, 3, 5)
    matmul(
        plain, cl_array.empty(queue, (3, 0), np.float32), cl_array.empty(queue, (0, 5), np.float32), out=out
    )
    assert not out.get().any()
    assert matmul(plain, zeros(0, 3), zeros(3, 4)).shape == (0, 4)
    x = filled(queue, 7)
    dot = matmul(plain, x, x)
    assert dot.shape == () and np.allclose(dot.get(), x.get() @ x.get())


@by_device
def test_types_are_promoted_on_the_device(plain, queue):
    a = filled(queue, 4, 4)
    b = cl_array.to_device(queue, rng.random((4, 4)))
    got = matmul(plain, a, b)
    assert got.dtype == np.float64 and np.allclose(got.get(), a.get() @ b.get())
    with pytest.raises(DtypeError, match="int32"):
        matmul(plain, a, cl_array.zeros(queue, (4, 4), np.int32))
    foreign = cl_array.to_device(queue, np.ones((4, 4), ">f4"))
    with pytest.raises(DtypeError, match="byte order"):
        matmul(plain, foreign, foreign)


@by_device
def test_contexts_are_not_mixed(plain, queue, found):
    other = cl.Context([found.device])
    elsewhere = cl.CommandQueue(other)
    a, b, out = (filled(queue, 6, 6) for _ in range(3))
    call(plain, a, b, out)
    call(plain, a, b, out)
    with pytest.raises(UsageError, match="different OpenCL contexts"):
        call(plain, a, filled(elsewhere, 6, 6), out)
    with pytest.raises(UsageError, match="out belongs"):
        call(plain, a, b, filled(elsewhere, 6, 6))
    with pytest.raises(UsageError, match="different places"):
        matmul(plain, a, b.get())
    with pytest.raises(UsageError, match="out is an ndarray; for these operands it must be a pyopencl array"):
        matmul(plain, a, b, out=out.get())


@by_device
def test_two_contexts_of_one_device_compute_side_by_side(found, tmp_path):
    session = session_in(tmp_path)
    contexts = [cl.Context([found.device]) for _ in range(2)]
    queues = [cl.CommandQueue(context) for context in contexts]
    for queue in queues:
        only(session, session.client_for(queue), "matmul_naive")
    trios = [[filled(queue, 6, 6) for _ in range(3)] for queue in queues]
    for _ in range(3):
        for trio in trios:
            call(session, *trio)
            assert close(trio[2], *trio[:2])


@pytest.mark.skipif(len(DEVICES) < 2, reason="one device only")
def test_two_devices_in_one_process(tmp_path):
    session = session_in(tmp_path)
    clients = [session.client(found.index) for found in DEVICES[:2]]
    for client in clients:
        only(session, client, "matmul_naive")
    trios = [[filled(client.queue, 6, 6) for _ in range(3)] for client in clients]
    for turn in range(3):
        for trio in trios:
            assert call(session, *trio) == ("long" if turn == 0 else "short")
            assert close(trio[2], *trio[:2])


def breakable(session, client, error):
    """A winner that raises `error()` while `state["broken"]`, and a second candidate."""
    whole = session.candidates(client).tunables(session.level, lambda inputs: None)
    real = {t.name: t for t in whole.tunables}
    state = {"broken": False}

    def winner(inputs):
        if state["broken"]:
            raise error()
        return real["matmul_naive"].fn(inputs)

    tunables = TunableSet(key=whole.key, inputs=whole.inputs)
    tunables.with_tunable(Tunable("winner", winner))
    tunables.with_tunable(Tunable("second", real["matmul_simple_unit_min_tile_size"].fn))
    session.tuner.init(client, lambda _: tunables)
    return state


@by_device
def test_a_launch_that_fails_on_the_short_way_falls_back(found, tmp_path, monkeypatch):
    session = session_in(tmp_path)
    client = session._clients[None] = session.client(found.index)
    warned = []
    session.context.warn = warned.append
    state = breakable(session, client, lambda: RuntimeError("no resources"))
    a, b, out = (filled(client.queue, 64, 64) for _ in range(3))
    call(session, a, b, out)
    assert call(session, a, b, out) == "short"
    session.hot._forget_calls()
    for known in session.hot.memory.launches.values():
        known.launch = partial(_refused, client.queue, known.prepared._kernels[0])
    state["broken"] = True
    out.fill(0)
    assert call(session, a, b, out) == "long"
    assert close(out, a, b)
    assert call(session, a, b, out) in ("long", "short")
    assert close(out, a, b)


@by_device
def test_a_fault_found_on_the_short_way_names_the_candidate(found, tmp_path):
    session = session_in(tmp_path)
    client = session._clients[None] = session.client(found.index)
    state = breakable(session, client, lambda: DeviceFaultError("lost"))
    a, b, out = (filled(client.queue, 48, 48) for _ in range(3))
    call(session, a, b, out)
    session.hot.forget()
    winner = session.decide(client, _inputs(session, client, a, b, out)).tunable.name
    state["broken"] = True
    if winner != "winner":
        pytest.skip("the other candidate was faster")
    with pytest.raises(DeviceFaultError, match="winner"):
        call(session, a, b, out)


def _refused(queue, kernel, wait_for):
    """A launch that the driver refuses."""
    return cl.enqueue_nd_range_kernel(queue, kernel, (1 << 20, 1, 1), (1 << 20, 1, 1))


def _inputs(session, client, a, b, out):
    from rooftune.matmul.arrays import load_device
    from rooftune.matmul.problem import Elem
    from rooftune.matmul.shapes import multiply
    from rooftune.matmul.tunables import MatmulInputs

    lhs, rhs, target = (load_device(x) for x in (a, b, out))
    problem = multiply(lhs.view, rhs.view).problem(Elem.F32, "full", target.view)
    return MatmulInputs(problem, lhs.buffer, rhs.buffer, target.buffer)


@by_device
def test_calls_are_counted_on_both_ways_and_threads_add_up(plain, queue):
    counters = plain.client().counters
    a, b = filled(queue, 5, 5), filled(queue, 5, 5)
    start = counters.snapshot()

    def work():
        out = cl_array.empty(queue, (5, 5), np.float32)
        for _ in range(10):
            call(plain, a, b, out)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.since(start).launches == {"MatmulEntry": 40}
