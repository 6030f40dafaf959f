"""A worker may die, hang or talk; the next one goes on, and none is left when nobody needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rooftune.proof.nursery import Lost
from rooftune.proof.pool import Pool
from rooftune.proof.prover import _hello

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need a POSIX system")


def job(name, key=""):
    return {"trial": f"tests.adversaries.trials:{name}", "name": name, "key": key}


@pytest.fixture
def pool(client, strays):
    pool = Pool(_hello(client), workers=2, timeout_s=1.5)
    yield pool
    pool.close()


def test_each_misdeed_is_told_and_the_others_are_right(pool):
    names = ("right", "aborts", "wrong", "never_ends", "exits", "segfaults", "right")
    tickets = [pool.submit(job(name)) for name in names]
    told = [(t.wait().status, t.wait().reason) for t in tickets]
    assert [status for status, _ in told] == ["right", "crash", "wrong", "timeout", "crash", "crash", "right"]
    reasons = [reason for _, reason in told]
    assert "SIGABRT" in reasons[1]
    assert "1 is not 2" in reasons[2]
    assert "outlasted 1.5 s" in reasons[3]
    assert "exit code 0" in reasons[4]
    assert "SIGSEGV" in reasons[5]
    assert pool.usage.launches == 2
    assert pool.usage.workers >= 4


@pytest.fixture
def busy_core():
    """The first of our cores has two others on it that never rest."""
    core = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(2)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who waited for a core")
def test_on_a_busy_machine_who_waits_for_a_core_has_more_time(pool, busy_core):
    began_s = time.monotonic()
    assert pool.submit(job("computes", "1.2")).wait().status == "right"
    assert time.monotonic() - began_s > 1.5, "nothing was shown: it had the core to itself"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who waited for a core")
def test_what_never_ends_or_sleeps_is_ended_on_a_busy_machine_too(pool, busy_core):
    began_s = time.monotonic()
    tickets = [pool.submit(job("slow", "60")), pool.submit(job("computes", "1000"))]
    assert tickets[0].wait().status == "timeout"
    assert time.monotonic() - began_s < 10
    assert tickets[1].wait().status == "timeout"
    assert "outlasted 1.5 s" in tickets[1].wait().reason
    assert time.monotonic() - began_s < 30


def test_a_program_that_several_need_is_compiled_once(client, strays, tmp_path, monkeypatch):
    monkeypatch.setattr("rooftune.proof.pool.cores", lambda: 4)
    pool = Pool(_hello(client), workers=3, timeout_s=20)
    name = f"several_need_{os.getpid()}"
    tickets = [pool.submit(job("needs_a_program", (str(tmp_path), name))) for _ in range(3)]
    assert [t.wait().status for t in tickets] == ["right"] * 3
    assert pool.usage.workers == 3
    assert len(list(tmp_path.iterdir())) == 1
    pool.close()


def with_programs(*programs):
    return [{**job("slow", "0.5"), "programs": name} for name in programs]


@pytest.mark.parametrize(
    ("cores", "programs", "workers"),
    [(2, "aaa", 1), (2, "abb", 2), (4, "aaa", 3), (4, "abcd", 4), (3, "aaaa", 2)],
)
def test_where_cores_are_few_one_worker_proves_all_that_share_programs(
    cores, programs, workers, client, strays, monkeypatch
):
    monkeypatch.setattr("rooftune.proof.pool.cores", lambda: cores)
    pool = Pool(_hello(client), workers=4, timeout_s=20)
    tickets = [pool.submit(work) for work in with_programs(*programs)]
    assert [t.wait().status for t in tickets] == ["right"] * len(programs)
    assert pool.usage.workers == workers
    pool.close()


def test_a_worker_that_has_the_programs_is_asked_first(client, strays, monkeypatch):
    monkeypatch.setattr("rooftune.proof.pool.cores", lambda: 2)
    pool = Pool(_hello(client), workers=2, timeout_s=20)
    while {worker.programs for worker in pool._workers} != {"a", "b"}:  # one may have done both
        for ticket in [pool.submit(work) for work in with_programs("a", "b")]:
            ticket.wait()
    had = {worker.programs: worker.process.pid for worker in pool._workers}
    for name in ("b", "a", "b"):
        pool.submit(with_programs(name)[0]).wait()
        assert {worker.programs: worker.process.pid for worker in pool._workers} == had
    pool.close()


def test_too_much_memory_is_said_to_be_that(client, strays):
    pool = Pool({**_hello(client), "memory_bytes": 5 << 29}, workers=1, timeout_s=20)
    outcome = pool.submit(job("allocates")).wait()
    pool.close()
    assert outcome.status == "memory"


def test_talk_is_not_a_report(pool):
    assert pool.submit(job("talks")).wait().status == "right"


def test_a_crash_in_a_used_worker_is_tried_once_more(pool, tmp_path):
    assert pool.submit(job("right")).wait().status == "right"
    assert pool.submit(job("once", str(tmp_path / "mark"))).wait().status == "right"


def test_a_worker_that_holds_the_interpreter_in_c_is_ended_too(pool):
    assert pool.submit(job("hangs_holding_the_interpreter")).wait().status == "timeout"


def test_what_a_worker_started_ends_with_it(pool, strays):
    assert pool.submit(job("starts_a_child_and_hangs")).wait().status == "timeout"
    pool.close()
    time.sleep(0.2)
    assert strays() == []


def test_a_device_workers_cannot_see_makes_them_unavailable(client, strays):
    pool = Pool({**_hello(client), "device_id": "no such device"}, workers=2, timeout_s=5)
    outcome = pool.submit(job("right")).wait()
    assert outcome.status == "unavailable"
    assert "no such device" in outcome.reason
    assert pool.submit(job("right")).wait().status == "unavailable"
    assert not pool.usable


def test_without_an_interpreter_to_start_they_are_unavailable(client, monkeypatch, strays):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    pool = Pool(_hello(client), workers=1, timeout_s=5)
    assert pool.submit(job("right")).wait().status == "unavailable"


def test_paused_workers_stand_still_and_their_clocks_too(pool, strays):
    pool.submit(job("right")).wait()
    ticket = pool.submit(job("slow", "0.8"))
    time.sleep(0.2)
    with pool.paused():
        for _ in range(50):
            states = [state(pid) for pid in strays()]
            if set(states) == {"T"}:
                break
            time.sleep(0.01)
        assert set(states) == {"T"}
        time.sleep(2)
        assert not ticket.done
    assert ticket.wait().status == "right"


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_what_is_cancelled_ends_and_the_rest_goes_on(pool):
    pool.submit(job("right")).wait()
    slow, waiting = pool.submit(job("slow", "60")), pool.submit(job("right"))
    time.sleep(0.2)
    pool.cancel([slow])
    assert slow.wait().status == "unavailable"
    assert waiting.wait().status == "right"


def test_closing_ends_workers_at_once(pool, strays):
    tickets = [pool.submit(job("slow", "60")) for _ in range(2)]
    time.sleep(1.5)
    began = time.monotonic()
    pool.close()
    assert all(t.wait().status == "unavailable" for t in tickets)
    assert time.monotonic() - began < 2
    time.sleep(0.1)
    assert strays() == []


def test_a_forked_child_has_no_workers_and_ends_none(pool, strays):
    assert pool.submit(job("right")).wait().status == "right"
    before = strays()
    child = os.fork()
    if child == 0:
        with pool.paused():
            refused = pool.usable
        pool.close()
        os._exit(1 if refused else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert strays() == before
    assert pool.submit(job("right")).wait().status == "right"


def test_a_defect_of_the_pool_leaves_nobody_waiting(pool, monkeypatch):
    assert pool.submit(job("right")).wait().status == "right"
    monkeypatch.setattr(pool, "_hand_out", lambda: 1 // 0)
    assert pool.submit(job("right")).wait().status == "unavailable"
    assert "ZeroDivisionError" in pool.unavailable


PARENT = """
import sys, time
from rooftune.device.client import Client
from rooftune.proof.nursery import Lost
from rooftune.proof.pool import Pool
from rooftune.proof.prover import _hello
pool = Pool(_hello(Client()), workers=2, timeout_s=100)
trials = "tests.adversaries.trials:"
tickets = [pool.submit({"trial": trials + name, "name": name, "key": ""}) for name in sys.argv[1:]]
time.sleep(2.5)
print("working", flush=True)
tickets[0].wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(number, strays):
    names = ("hangs_holding_the_interpreter", "never_ends")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdout is not None
    parent.stdout.readline()
    assert len(strays()) >= 3
    parent.send_signal(number)
    parent.wait(10)
    for _ in range(30):
        if not strays():
            break
        time.sleep(0.1)
    assert strays() == []


def nursery_of(strays):
    """Its process id: it was started by this process, workers by it."""
    return next(pid for pid in strays() if parent_of(pid) == os.getpid())


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_when_the_nursery_is_killed_another_one_goes_on(pool, strays):
    assert pool.submit(job("right")).wait().status == "right"
    ticket = pool.submit(job("slow", "1"))
    time.sleep(0.2)
    os.kill(nursery_of(strays), signal.SIGKILL)
    assert ticket.wait().status == "right"
    assert pool.submit(job("right")).wait().status == "right"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_nursery_killed_between_jobs_is_replaced(pool, strays):
    assert pool.submit(job("right")).wait().status == "right"
    os.kill(nursery_of(strays), signal.SIGKILL)
    tickets = [pool.submit(job("right")) for _ in range(3)]
    assert [ticket.wait().status for ticket in tickets] == ["right"] * 3


def test_a_nursery_that_has_threads_starts_fresh_interpreters(client, strays, monkeypatch, tmp_path):
    """A thread begun before ours stands for one that a driver's library started when it was loaded."""
    (tmp_path / "sitecustomize.py").write_text(THREAD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    pool = Pool(_hello(client), workers=1, timeout_s=5)
    assert pool.submit(job("right")).wait().status == "right"
    commands = {Path(f"/proc/{pid}/cmdline").read_bytes() for pid in strays()}
    assert any(b"import worker" in command for command in commands)
    pool.close()


THREAD = """
import os, sys, threading, time
from importlib import machinery, util
others = [path for path in sys.path if path != os.path.dirname(__file__)]
elsewhere = machinery.PathFinder.find_spec("sitecustomize", others)
if elsewhere is not None:
    elsewhere.loader.exec_module(util.module_from_spec(elsewhere))
if "import nursery" in " ".join(sys.orig_argv):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


def test_workers_that_expect_another_device_open_the_right_one(client, strays):
    pool = Pool(None, workers=1, timeout_s=5, expected={"device": "no such device"})
    pool.warm_up()
    pool.introduce(_hello(client))
    assert pool.submit(job("right")).wait().status == "right"
    pool.close()


def test_workers_open_what_is_expected_while_nobody_knows_the_device_yet(client, strays):
    pool = Pool(None, workers=2, timeout_s=5, expected={"device": None})
    pool.warm_up(1)
    time.sleep(2)
    assert len(strays()) == 2 and pool.usage.workers == 0
    pool.introduce(_hello(client))
    assert pool.submit(job("right")).wait().status == "right"
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_job_whose_nursery_is_killed_again_and_again_is_not_to_blame(pool, strays):
    assert pool.submit(job("right")).wait().status == "right"
    ticket = pool.submit(job("slow", "60"))
    killed = set()
    deadline_s = time.monotonic() + 30
    while not ticket.done and time.monotonic() < deadline_s:
        time.sleep(0.2)
        workers = [pid for pid in strays() if parent_of(pid) != os.getpid()]
        if workers and parent_of(workers[0]) not in killed:
            killed.add(parent_of(workers[0]))
            os.kill(parent_of(workers[0]), signal.SIGKILL)
    outcome = ticket.wait()
    assert outcome.status == "unavailable"
    assert "3 times" in outcome.reason
    assert pool.submit(job("right")).wait().status == "unavailable"


def test_the_answer_to_one_who_was_interrupted_is_not_taken_for_another(pool, monkeypatch):
    assert pool.submit(job("right")).wait().status == "right"
    nursery = pool._cradle.nursery
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patched:
        patched.setattr(nursery, "reports", Interrupted(nursery.reports))
        nursery.exit_code(os.getpid(), 0)
    with pytest.raises(Lost):
        nursery.fork(b"")
    assert [pool.submit(job("right")).wait().status for _ in range(3)] == ["right"] * 3


class Interrupted:
    """A socket at which Ctrl-C arrives when the answer is waited for."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def recv(self, size):
        raise KeyboardInterrupt


def test_an_interruption_while_workers_are_paused_leaves_none_standing(pool, monkeypatch):
    assert pool.submit(job("right")).wait().status == "right"
    with monkeypatch.context() as patched:
        patched.setattr(pool, "_started", interrupt)
        with pytest.raises(KeyboardInterrupt), pool.paused():
            pass
    assert pool.submit(job("right")).wait().status == "right"


def interrupt():
    raise KeyboardInterrupt


def test_where_no_thread_can_be_started_workers_are_unavailable(client, monkeypatch, strays):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    pool = Pool(_hello(client), workers=1, timeout_s=5)
    monkeypatch.setattr("threading.Thread.start", refuse)
    outcomes = [pool.submit(job("right")).wait() for _ in range(2)]
    assert [outcome.status for outcome in outcomes] == ["unavailable"] * 2
    assert "thread" in outcomes[0].reason


def test_a_worker_starts_no_workers(pool):
    outcome = pool.submit(job("tells_of_workers")).wait()
    assert outcome.status == "right", outcome.reason


def test_a_frozen_program_is_not_started_again_as_a_worker(client, monkeypatch, strays):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    pool = Pool(_hello(client), workers=1, timeout_s=5)
    assert pool.submit(job("right")).wait().status == "unavailable"


def test_a_module_that_was_found_or_edited_later_is_proven_as_it_is_now(pool, tmp_path, monkeypatch):
    assert pool.submit(job("right")).wait().status == "right"
    module = tmp_path / "edited_later.py"
    module.write_text("def trial(client, name, key): raise AssertionError('not yet')")
    work = {"trial": "edited_later:trial", "name": "trial", "key": ""}
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "not yet" in pool.submit(work).wait().reason
    module.write_text("from tests.adversaries.trials import right as trial")
    assert pool.submit(work).wait().status == "right"
    assert pool.submit(work).wait().status == "right"
    module.write_text("def trial(client, name, key): raise AssertionError('no more')")
    assert "no more" in pool.submit(work).wait().reason


def test_places_of_modules_that_are_none_are_left_out(pool, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["", None, b"/bytes", tmp_path, *sys.path])
    assert pool.submit(job("right")).wait().status == "right"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("which", ["nursery", "worker"])
def test_what_is_killed_at_its_start_is_started_again(which, client, strays):
    pool = Pool(_hello(client), workers=1, timeout_s=10)
    ticket = pool.submit(job("right"))
    victim = None
    while victim is None and not ticket.done:
        ours = {pid: parent_of(pid) == os.getpid() for pid in strays()}
        victim = next((pid for pid, direct in ours.items() if direct == (which == "nursery")), None)
    os.kill(victim, signal.SIGKILL)
    assert ticket.wait().status == "right"
    assert pool.usable
    pool.close()
