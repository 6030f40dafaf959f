"""Trials of a user's own tunables, each going wrong in its own way. Workers import this module."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path


def right(client, name, key):
    """Compiles a kernel and runs it."""
    kernel = client.kernel("__kernel void one(__global int *x) { x[0] = 1; }", "one")

    def run():
        out = client.upload(bytes(4))
        kernel.set_args(out)
        client.enqueue(kernel, (1,), (1,), label="one")
        assert client.download(out, 4) == b"\1\0\0\0"

    return run


def wrong(client, name, key):
    def run():
        raise AssertionError("1 is not 2")

    return run


def aborts(client, name, key):
    os.abort()


def segfaults(client, name, key):
    return lambda: ctypes.memmove(8, 16, 8)


def exits(client, name, key):
    os._exit(0)


def never_ends(client, name, key):
    while True:
        pass


def hangs_holding_the_interpreter(client, name, key):
    """Sleeps inside C without letting other threads of Python run."""
    ctypes.PyDLL(None).sleep(600)


def starts_a_child_and_hangs(client, name, key):
    """As a compiler driver does that starts a linker."""
    import subprocess

    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(600)


def allocates(client, name, key):
    held = []
    while True:
        held.append(bytearray(1 << 30))


def talks(client, name, key):
    """Fills standard output and error, and tries to pass for a report."""
    for _ in range(20_000):
        print('{"done": {"status": "right"}}')
        print("error: but only words", file=sys.stderr)


def once(client, name, key):
    """Fails with a crash the first time it is tried, in whatever process."""
    mark = Path(key)
    if not mark.exists():
        mark.touch()
        os.abort()


def computes(client, name, key):
    """For so many seconds, on the first of its cores, however long that takes."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while time.process_time() < float(key):
        pass


def needs_a_program(client, name, key):
    """Compiles one of this name. Tells by a file in the folder how often that was done."""
    folder, program = key
    before = client.counters.compiles
    client.build(f"__kernel void {program}(__global int *x) {{ x[0] = 1; }}")
    if client.counters.compiles > before:
        (Path(folder) / f"{program}-{os.getpid()}").touch()


def slow(client, name, key):
    time.sleep(float(key))


def tells_of_workers(client, name, key):
    """As a module does that tunes something when it is imported, in a worker too."""
    from rooftune.proof.pool import Pool

    pool = Pool(None, workers=1, timeout_s=5)
    assert not pool.usable, "a worker would start workers"
