"""The device lock between threads and processes; a process that dies lets go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rooftune.device.lock import DeviceLock, device_lock

HOLD = """
import sys, time
from rooftune.device.lock import device_lock
with device_lock(sys.argv[1]).held():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    return f"test device {tmp_path}"


def holder(name: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, name], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def try_for(lock: DeviceLock, seconds: float) -> threading.Event:
    """Set once the lock was held by another thread for a moment."""
    got = threading.Event()

    def work() -> None:
        with lock.held():
            got.set()

    threading.Thread(target=work, daemon=True).start()
    got.wait(seconds)
    return got


def test_one_name_is_one_lock(name: str) -> None:
    assert device_lock(name) is device_lock(name)
    assert device_lock(name) is not device_lock(name + "2")


def test_a_thread_may_take_it_again(name: str) -> None:
    lock = device_lock(name)
    with lock.held(), lock.held():
        assert not try_for(lock, 0.1).is_set()
    assert try_for(lock, 5).is_set()


def test_another_process_waits_and_a_killed_one_lets_go(name: str) -> None:
    process = holder(name)
    got = try_for(device_lock(name), 0.3)
    assert not got.is_set()
    process.kill()
    process.wait()
    assert got.wait(5)


def test_an_exception_lets_go(name: str) -> None:
    with pytest.raises(ValueError), device_lock(name).held():
        raise ValueError
    process = holder(name)
    process.kill()
    process.wait()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_holds_nothing_and_leaves_the_parents_lock(name: str) -> None:
    lock = device_lock(name)
    with lock.held():
        child = os.fork()
        if child == 0:
            time.sleep(2)
            os._exit(0)
        time.sleep(0.1)
    assert try_for(device_lock(name), 1).is_set()
    os.waitpid(child, 0)
