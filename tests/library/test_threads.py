"""Many threads, known and unknown shapes: right results, each key tuned once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from rooftune.matmul.operation import matmul
from rooftune.tuning.samples import BenchSettings
from rooftune.tuning.tunable import TunableSet

from .conftest import by_device, session_in

THREADS = 8
FEW = ("matmul_naive", "matmul_cpu_gemm", "matmul_simple_unit_min_tile_size")


def few_candidates(session, client):
    """Three candidates and few samples: what is tested is who tunes, not what wins."""
    session.context.settings = replace(BenchSettings(), min_samples=1, max_samples=1)
    whole = session.candidates(client).tunables(session.level, lambda inputs: None)
    tunables = TunableSet(key=whole.key, inputs=whole.inputs)
    for tunable in whole.tunables:
        if tunable.name in FEW:
            tunables.with_tunable(replace(tunable, memberships=[]))
    session.tuner.init(client, lambda _: tunables)


def mixed_calls(session, client, seconds, sizes):
    """Calls from all threads until the time is over; every result is compared. Returns what went wrong."""
    wrong: list[str] = []
    calls: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def work(number):
        rng = np.random.default_rng(number)
        queue = client.queue if number % 2 else cl.CommandQueue(client.context)
        while time.monotonic() < end and not wrong:
            m, n, k = (int(rng.choice(sizes)) for _ in range(3))
            a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
            expected = a @ b
            if rng.random() < 0.5:
                got = session.hot_numpy.multiply(a, b, None, None, None, None)
                got = matmul(session, a, b) if got is None else got
                check(got, expected, (m, n, k), "numpy")
                continue
            x, y = (cl_array.to_device(queue, h) for h in (a, b))
            out = cl_array.empty(queue, (m, n), np.float32)
            for _ in range(int(rng.integers(1, 4))):
                out.fill(np.nan)
                if session.hot.launch(x, y, out, None, None, None, None, None) is None:
                    matmul(session, x, y, out=out)
                check(out.get(), expected, (m, n, k), "device")

    def check(got, expected, shape, where):
        calls[where] += 1
        if not np.allclose(got, expected, rtol=1e-4):
            wrong.append(f"{where} {shape}: off by {np.abs(got - expected).max()}")

    def guarded(number):
        try:
            work(number)
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(calls.values()) > 0
    return wrong


def run(found, folder, seconds, sizes, prepare):
    session = session_in(folder)
    client = session._clients[None] = session.client(found.index)
    tuned: Counter[str] = Counter()
    session.context.sinks = [lambda record: tuned.update([str(record["key"])])]
    prepare(session, client)
    wrong = mixed_calls(session, client, seconds, sizes)
    assert not wrong, wrong[:3]
    assert tuned and set(tuned.values()) == {1}


@by_device
def test_eight_threads_agree(found, tmp_path):
    run(found, tmp_path, 2.0, [1, 20], few_candidates)


@pytest.mark.long
@by_device
def test_eight_threads_agree_for_a_minute(found, tmp_path):
    run(found, tmp_path, 60.0, [1, 2, 5, 16, 33, 64, 100, 130], lambda session, client: None)


FORKED = """
import os, signal, sys
import numpy as np
import rooftune as rt

a = np.ones((40, 40), np.float32)
rt.matmul(a, a)
client = rt.Client()
for deed in (lambda: rt.matmul(a, a), lambda: rt.matmul(a[:3], a), lambda: client.allocate(8 << 20)):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            deed()
        except rt.WorkError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert (rt.matmul(a, a) == 40).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_is_told_that_its_parents_device_does_not_work_there():
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
