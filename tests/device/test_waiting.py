"""Waiting for others is told to who listens, and stands apart from work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rooftune.device.lock import device_lock
from rooftune.proof.pool import Ticket
from rooftune.proof.trial import Outcome
from rooftune.store import locks
from rooftune.waiting import DEVICE, THREAD, Stopwatch, listening, waiting

from .test_lock import holder


class Heard:
    """A listener that keeps what was waited for, and lets go of what is waited for once it is told."""

    def __init__(self, let_go) -> None:
        self.words: list[str] = []
        self._let_go = let_go

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        self.words.append(what)
        threading.Timer(0.2, self._let_go).start()
        yield


def test_a_stopwatch_counts_waiting_apart() -> None:
    watch = Stopwatch()
    with waiting("somebody"):
        time.sleep(0.1)
    assert watch.waited_s >= 0.1
    assert watch.worked_s < watch.waited_s
    assert Stopwatch().waited_s == 0


def test_another_threads_waiting_is_not_ours() -> None:
    watch = Stopwatch()

    def work() -> None:
        with waiting("somebody"):
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert watch.waited_s == 0


def test_a_device_that_another_process_holds(tmp_path: Path) -> None:
    name = f"test device {tmp_path}"
    other = holder(name)
    heard, watch = Heard(other.kill), Stopwatch()
    with listening(heard), device_lock(name).held():
        pass
    assert heard.words == [DEVICE]
    assert watch.waited_s >= 0.2
    other.wait()


def test_a_device_that_another_thread_holds(tmp_path: Path) -> None:
    lock, held, over = device_lock(f"test device {tmp_path}"), threading.Event(), threading.Event()

    def hold() -> None:
        with lock.held():
            held.set()
            over.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    heard = Heard(over.set)
    with listening(heard), lock.held():
        pass
    assert heard.words == [THREAD]
    thread.join()


def test_a_free_device_is_not_waited_for(tmp_path: Path) -> None:
    heard, watch = Heard(lambda: None), Stopwatch()
    with listening(heard), device_lock(f"test device {tmp_path}").held():
        pass
    assert heard.words == [] and watch.waited_s == 0


def test_a_key_that_somebody_holds(tmp_path: Path) -> None:
    first = locks.acquire(tmp_path / "lock", "name", 0.0, "nobody")
    heard = Heard(first.release)
    with listening(heard), locks.acquire(tmp_path / "lock", "name", 10.0, "a friend") as second:
        assert second.owned
    assert heard.words == ["a friend"]


def test_a_proof_whose_worker_is_held_up() -> None:
    ticket = Ticket({})
    ticket.hold_up(True)

    def go_on() -> None:
        ticket.hold_up(False)
        threading.Timer(0.1, ticket.resolve, (Outcome("right"),)).start()

    heard, watch = Heard(go_on), Stopwatch()
    with listening(heard):
        assert ticket.wait().status == "right"
    assert heard.words == [DEVICE]
    assert watch.waited_s >= 0.2 and watch.worked_s >= 0.1
