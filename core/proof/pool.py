"""Workers that prove candidates, kept for the life of the process; one that dies takes nothing with it.

A nursery forks them. One thread of ours starts it, has it fork, hands out jobs, reads reports and watches the
clock. It also is the thread whose end Linux takes for the end of the parent, so it never ends before the
process does.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import IO, Any

from ..config import ProofConfig
from ..waiting import DEVICE, waiting
from .cores import cores
from .nursery import INSIDE, MOST_FORKS, Forked, Lost, Nursery, module_paths
from .outcome import Outcome
from .starved import Starvation

START_TIMEOUT_S = 60.0
"""What importing and opening the device may last, on a busy machine."""

KEPT_OUTPUT_BYTES = 2000
"""How much of what a worker printed is kept, for the reason of its death."""

PATIENCE = 10
"""So many time limits is what anything may last, however busy the machine."""

LEAST_PUT_OFF_S = 0.02

MAX_FAILED_STARTS = 3
MAX_LOST_NURSERIES = 3

MOST_WORKERS = 4
EARLY_WORKERS = 2
"""How many are started before it is known what there is to prove, where there are cores for them."""

_DURING = {"build": "while it was compiled", "check": "after it ran"}
_TELLING = re.compile(r"\berror\b|\bassert|\bfatal|\bcannot\b", re.IGNORECASE)


@dataclass
class Ticket:
    """A job handed in; `wait()` gives its outcome. `crashed`: a worker died of it, perhaps blamelessly.

    While its worker is `held_up`, because somebody measures on the device, those who wait for it count as
    waiting for the device too.
    """

    job: dict[str, Any]
    outcome: Outcome | None = None
    crashed: bool = False
    held_up: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self) -> Outcome:
        with self._changed:
            while not self.done:
                if self.held_up:
                    with waiting(DEVICE):
                        self._changed.wait_for(lambda: self.done or not self.held_up)
                else:
                    self._changed.wait_for(lambda: self.done or self.held_up)
        assert self.outcome is not None
        return self.outcome

    def resolve(self, outcome: Outcome) -> None:
        with self._changed:
            if self.outcome is None:
                self.outcome = outcome
            self._changed.notify_all()

    def hold_up(self, held_up: bool) -> None:
        with self._changed:
            self.held_up = held_up
            self._changed.notify_all()

    @property
    def done(self) -> bool:
        return self.outcome is not None

    @property
    def programs(self) -> str:
        """Names what has to be compiled for it; empty where that is not known."""
        return str(self.job.get("programs", ""))


@dataclass
class Usage:
    """What workers did for this process: how many were started, their launches and compilations.

    `wall_s` is how long this process waited for proofs, wherever they ran.
    """

    workers: int = 0
    launches: int = 0
    compiles: int = 0
    wall_s: float = 0.0

    def since(self, before: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


@dataclass(eq=False)
class _Worker:
    process: Forked
    phase: str = "start"
    case: str = ""
    greeted: bool = False
    ready: bool = False
    served: int = 0
    ticket: Ticket | None = None
    programs: str = ""
    """Of its latest job."""
    deadline_s: float = 0.0
    latest_s: float = 0.0
    """Until when the deadline may be put off."""
    starvation: Starvation | None = None
    put_off_s: float = 0.0
    unread: bytes = b""
    printed: bytes = b""


@dataclass(eq=False)
class _Cradle:
    """The nursery, and how far it is."""

    nursery: Nursery
    deadline_s: float
    greeted: bool
    """Whether the workers it was begun with know their device."""
    loaded: bool = False
    printed: bytes = b""


class Pool:
    """At most `workers` processes on one device. Thread-safe.

    `hello` says which device, `timeout_s` what one compilation, and one run, may last. A pool without a
    hello gets ready all the same until `introduce` brings it: `expected` is what was asked for, and its
    workers open the device that a client would open for it.
    """

    def __init__(
        self,
        hello: dict[str, Any] | None,
        *,
        workers: int,
        timeout_s: float,
        expected: dict[str, Any] | None = None,
    ) -> None:
        self.hello = hello
        self.expected = expected
        self.size = workers
        self.timeout_s = timeout_s
        self.usage = Usage()
        self.unavailable = _why_not()
        self._lock = threading.RLock()
        self._waiting: deque[Ticket] = deque()
        self._workers: list[_Worker] = []
        self._cradle: _Cradle | None = None
        self._wanted = 0
        self._failed_starts = 0
        self._lost_nurseries = 0
        self._any_was_ready = False
        self._pausers: set[object] = set()
        self._paused_at_s = 0.0
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._owner = os.getpid()
        self._other_cores = max(1, cores() - 1)
        """One is for the process that has work, which imports, opens the device, and checks."""
        self._closed = False
        atexit.register(self.close)

    # --- what callers do ---------------------------------------------------------------------------

    def warm_up(self, workers: int | None = None) -> None:
        """Start workers now, so that they are ready when the first job comes."""
        if not self.usable:
            return
        with self._lock:
            self._wanted = max(self._wanted, min(self.size, workers or self.size))
        self._wake()

    def introduce(self, hello: dict[str, Any]) -> None:
        """Say which device, where that was not known when workers were started."""
        with self._lock:
            self.hello = hello
            started = bool(self._wanted)
        if started:
            self._wake()

    def submit(self, job: dict[str, Any]) -> Ticket:
        """Hand in a job. Jobs are begun in the order they came."""
        ticket = Ticket(job)
        with self._lock:
            if not self.usable:
                ticket.resolve(Outcome("unavailable", self.unavailable or "the workers were ended"))
                return ticket
            self._waiting.append(ticket)
            self._wanted = max(self._wanted, min(self.size, self._useful_workers()))
        self._wake()
        return ticket

    def cancel(self, tickets: Iterable[Ticket]) -> None:
        """Nobody wants these any more: those that run are ended, so that they disturb nothing."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            unwanted = [ticket for ticket in tickets if not ticket.done]
            for ticket in unwanted:
                ticket.resolve(Outcome("unavailable", "not needed any more"))
            for worker in list(self._workers):
                if worker.ticket in unwanted:
                    self._remove(worker)
        self._wake()

    @property
    def usable(self) -> bool:
        return not (self._closed or self.unavailable) and os.getpid() == self._owner

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Workers stand still inside the block, whatever they are doing; their clocks too.

        Enter it holding the device exclusively: a worker stopped while it holds the device shared would
        never give it back.
        """
        if os.getpid() != self._owner:  # a forked child has no workers
            yield
            return
        pauser = object()
        try:  # an interruption of the pausing itself must not leave them standing
            self._pause(pauser)
            yield
        finally:
            self._resume(pauser)

    def close(self) -> None:
        """End all workers at once. Jobs that were not finished end as unavailable."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
            for worker in workers:
                worker.process.signal(signal.SIGKILL)
            for ticket in (*self._waiting, *(w.ticket for w in workers if w.ticket)):
                ticket.resolve(Outcome("unavailable", "the workers were ended"))
            self._waiting.clear()
            for worker in workers:
                worker.process.wait(1.0)
            if self._cradle is not None:
                self._cradle.nursery.end()
        self._wake()
        atexit.unregister(self.close)

    # --- pausing -----------------------------------------------------------------------------------

    def _pause(self, pauser: object) -> None:
        with self._lock:
            if not self._pausers:
                self._paused_at_s = time.monotonic()
            self._pausers.add(pauser)
            if len(self._pausers) == 1:
                for started in self._started():
                    started.signal(signal.SIGSTOP)

    def _resume(self, pauser: object) -> None:
        with self._lock:
            if pauser not in self._pausers:
                return
            self._pausers.remove(pauser)
            if self._pausers:
                return
            stood_s = time.monotonic() - self._paused_at_s
            for worker in self._workers:
                worker.deadline_s += stood_s
                worker.latest_s += stood_s
            if self._cradle is not None:
                self._cradle.deadline_s += stood_s
            for started in self._started():
                started.signal(signal.SIGCONT)
        self._wake()

    def _started(self) -> list[Forked | Nursery]:
        nurseries = [self._cradle.nursery] if self._cradle is not None else []
        return [*(worker.process for worker in self._workers), *nurseries]

    # --- the thread --------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._lock:
            if self._thread is None and self.usable:
                self._start_thread()
        with suppress(OSError):  # full: it will wake anyway
            os.write(self._wake_in, b"\0")

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name="rooftune-proof", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system allows no more
            self._give_up(f"workers cannot be watched over: {error}")
            return
        self._thread = thread

    def _serve(self) -> None:
        """Until the process ends. A defect of ours must not leave anybody waiting for a verdict."""
        try:
            self._loop()
        except Exception as error:
            with self._lock:
                self._give_up(f"workers failed: {type(error).__name__}: {error}")

    def _loop(self) -> None:
        while True:
            with self._lock:
                if not self._closed and not self._pausers:
                    self._staff()
                    self._greet()
                    self._hand_out()
                wait_s = self._next_deadline_s()
            for key, _ in self._selector.select(wait_s):
                self._read(key)
            with self._lock:
                if not self._pausers:
                    self._end_late()

    def _staff(self) -> None:
        if len(self._workers) >= self._wanted or self.unavailable:
            return
        try:
            if self._cradle is None:
                self._cradle = self._start_nursery()
            while self._cradle.loaded and self._first_line and len(self._workers) < self._wanted:
                forked = self._cradle.nursery.fork(self._first_line)
                self._welcome([forked], greeted=self.hello is not None)
        except Lost:
            self._lose_nursery()
        except OSError as error:
            self._give_up(f"a worker cannot be started: {error}")

    @property
    def _first_line(self) -> bytes:
        """What a worker begins with: the hello, or the expected device. Empty: neither is known yet."""
        if self.hello is not None:
            return _line({"hello": self.hello})
        return _line({"expect": self.expected}) if self.expected else b""

    def _start_nursery(self) -> _Cradle:
        first = min(self._wanted - len(self._workers), MOST_FORKS) if self._first_line else 0
        nursery = Nursery([self._first_line] * first)
        cradle = _Cradle(nursery, time.monotonic() + START_TIMEOUT_S, greeted=self.hello is not None)
        self._selector.register(nursery.reports, selectors.EVENT_READ, cradle)
        self._selector.register(nursery.printed, selectors.EVENT_READ, cradle)
        return cradle

    def _welcome(self, forked: Iterable[Forked], *, greeted: bool) -> None:
        for process in forked:
            worker = _Worker(process)
            self._workers.append(worker)
            for stream in (process.stdout, process.stderr):
                self._selector.register(stream, selectors.EVENT_READ, worker)
            if greeted:
                self._count_in(worker)
            if self._pausers:
                process.signal(signal.SIGSTOP)

    def _lose_nursery(self) -> None:
        """It has ended. Its workers end too, each when that is seen, and then there is another."""
        cradle, self._cradle = self._cradle, None
        if cradle is None:
            return
        if not cradle.loaded:
            self._selector.unregister(cradle.nursery.reports)
        code = cradle.nursery.end()
        if not cradle.loaded:
            killed = code is not None and code < 0
            reason = f"a worker {_how_it_ended(code)} at its start{_said(cradle.printed)}"
            self._failed_start(reason, once_more=killed)
            return
        self._lost_nurseries += 1
        if self._lost_nurseries >= MAX_LOST_NURSERIES:
            self._give_up(f"the process that starts workers was ended {self._lost_nurseries} times")

    def _greet(self) -> None:
        for worker in self._workers:
            if self.hello is not None and not worker.greeted:
                self._send(worker, {"hello": self.hello})
                self._count_in(worker)

    def _count_in(self, worker: _Worker) -> None:
        """It knows its device."""
        worker.greeted = True
        worker.deadline_s = time.monotonic() + START_TIMEOUT_S
        self.usage.workers += 1

    def _send(self, worker: _Worker, message: dict[str, Any]) -> None:
        with suppress(OSError):  # it is dead: its closed output says so
            worker.process.stdin.write(_line(message))

    def _hand_out(self) -> None:
        for ticket in list(self._waiting):
            worker = None if ticket.done else self._free_for(ticket)
            if worker is None and not ticket.done:
                continue
            self._waiting.remove(ticket)
            if worker is not None:
                self._hand_over(ticket, worker)

    def _hand_over(self, ticket: Ticket, worker: _Worker) -> None:
        worker.ticket, worker.programs = ticket, ticket.programs
        worker.phase, worker.case = "build", ""
        worker.starvation, worker.put_off_s = Starvation(worker.process.pid), 0.0
        self._allow(worker)
        self._send(worker, {"job": ticket.job, "path": module_paths()})

    def _free_for(self, ticket: Ticket) -> _Worker | None:
        """A worker for it, best the one that has its programs; none while that one is busy and cores are few.

        What is compiled and computed for one candidate serves the next one of the same programs.
        """
        with_them = [w for w in self._workers if ticket.programs and w.programs == ticket.programs]
        busy = sum(w.ticket is not None for w in self._workers)
        if any(w.ticket is not None for w in with_them) and busy >= self._other_cores:
            return None
        free = [w for w in (*with_them, *self._workers) if w.ready and w.ticket is None]
        return free[0] if free else None

    def _useful_workers(self) -> int:
        """As many as there are jobs; or, where that is more than cores, one for all that share programs."""
        tickets = [*self._waiting, *(w.ticket for w in self._workers if w.ticket is not None)]
        different = {ticket.programs or id(ticket) for ticket in tickets}
        return min(len(tickets), max(len(different), self._other_cores))

    def _next_deadline_s(self) -> float | None:
        if self._pausers:
            return None
        times = [w.deadline_s for w in self._workers if self._timed(w)]
        if self._cradle is not None and not self._cradle.loaded:
            times.append(self._cradle.deadline_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _timed(self, worker: _Worker) -> bool:
        """Whether its clock runs: not while it idles, or waits for its hello, another one or the device."""
        if not worker.ready:
            return worker.greeted
        return worker.ticket is not None and worker.phase not in ("wait", "turn")

    def _end_late(self) -> None:
        now_s = time.monotonic()
        cradle = self._cradle
        if cradle is not None and not cradle.loaded and cradle.deadline_s <= now_s:
            cradle.nursery.signal(signal.SIGKILL)  # its closed output says the rest
            cradle.deadline_s = now_s + START_TIMEOUT_S
        for worker in list(self._workers):
            if not self._timed(worker) or worker.deadline_s > now_s or self._put_off(worker, now_s):
                continue
            worker.process.signal(signal.SIGKILL)
            if not worker.ready:
                self._remove(worker)
                self._failed_start(f"a worker was not ready after {START_TIMEOUT_S:g} s")
                continue
            what = {"build": "its compilation", "run": "its run"}.get(worker.phase, "its check")
            self._finish(worker, Outcome("timeout", f"{what} outlasted {self.timeout_s:g} s", worker.case))
            self._remove(worker)

    def _allow(self, worker: _Worker, limits: int = 1) -> None:
        """So many time limits from now on."""
        now_s = time.monotonic()
        worker.deadline_s = now_s + limits * self.timeout_s
        worker.latest_s = now_s + PATIENCE * self.timeout_s

    def _put_off(self, worker: _Worker, now_s: float) -> bool:
        """Puts a deadline off by what its worker has waited for a core. What hangs asleep waits for none, and
        what loops without end has its core's share of the limit and then no more."""
        if worker.starvation is None:
            return False
        waited_s = worker.starvation.waited_s - worker.put_off_s
        more_s = min(waited_s, worker.latest_s - now_s)
        if more_s < LEAST_PUT_OFF_S:
            return False
        worker.put_off_s += more_s
        worker.deadline_s = now_s + more_s
        return True

    def _read(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            os.read(self._wake_out, 4096)
            return
        if isinstance(key.data, _Cradle):
            self._read_nursery(key.data, key.fileobj)
            return
        worker: _Worker = key.data
        stream: IO[bytes] = key.fileobj  # type: ignore[assignment]
        data = os.read(stream.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(stream)
            stream.close()
        with self._lock:
            if stream is worker.process.stderr:
                worker.printed = (worker.printed + data)[-KEPT_OUTPUT_BYTES:]
            elif data:
                *lines, worker.unread = (worker.unread + data).split(b"\n")
                for line in lines:
                    with suppress(ValueError, KeyError, TypeError):  # not a line of ours
                        self._report(worker, json.loads(line))
            elif worker in self._workers:
                self._ended(worker)

    def _read_nursery(self, cradle: _Cradle, stream: Any) -> None:
        with self._lock:
            nursery = cradle.nursery
            if stream is not nursery.printed:
                self._read_first(cradle)
                return
            data = os.read(nursery.printed.fileno(), 1 << 16)
            cradle.printed = (cradle.printed + data)[-KEPT_OUTPUT_BYTES:]
            if data:
                return
            self._selector.unregister(nursery.printed)
            nursery.printed.close()
            if cradle is self._cradle:
                self._lose_nursery()

    def _read_first(self, cradle: _Cradle) -> None:
        """It is loaded, and has forked the workers that it was begun with. Or it has ended."""
        try:
            workers = cradle.nursery.first()
        except Lost:
            return  # its closed output says the rest
        except OSError as error:
            self._give_up(f"a worker cannot be started: {error}")
            workers = []
        cradle.loaded = True
        self._selector.unregister(cradle.nursery.reports)  # answers from now on, to who asks
        self._welcome(workers, greeted=cradle.greeted)

    def _report(self, worker: _Worker, message: dict[str, Any]) -> None:
        # A check is our own arithmetic: only a busy machine makes it slow.
        self._allow(worker, PATIENCE if message.get("phase") == "check" else 1)
        if "ready" in message:
            worker.ready = self._any_was_ready = True
        elif "unavailable" in message:
            self._give_up(message["unavailable"])
        elif "phase" in message:
            worker.phase, worker.case = message["phase"], message["case"]
            if worker.ticket is not None:
                worker.ticket.hold_up(worker.phase == "wait")
        elif "stale" in message and worker.ticket is not None:
            ticket, worker.ticket = worker.ticket, None
            self._again(ticket)
            self._remove(worker)
        elif "done" in message:
            worker.served += 1
            self.usage.launches += message["launches"]
            self.usage.compiles += message["compiles"]
            outcome = Outcome.from_json(message["done"])
            self._finish(worker, outcome)
            if outcome.status not in ("right", "unsupported", "build", "skipped"):
                self._remove(worker)  # what a wrong kernel wrote elsewhere must not hit the next one

    def _ended(self, worker: _Worker) -> None:
        """Its output closed without a word: it died, or was killed by somebody else."""
        worker.process.wait(5.0)
        self._remove(worker)
        code = worker.process.exit_code
        how = _how_it_ended(code)
        if worker.process.orphaned:  # it died with the nursery
            if worker.ticket is not None:
                self._again(worker.ticket)
        elif not worker.ready:
            killed = code is not None and code < 0
            self._failed_start(f"a worker {how} at its start{_said(worker.printed)}", once_more=killed)
        elif worker.ticket is not None and worker.served and not worker.ticket.crashed:
            worker.ticket.crashed = True  # of what an earlier candidate left behind, perhaps
            self._again(worker.ticket)
        else:
            doing = _DURING.get(worker.phase, "while it ran")
            reason = f"the worker {how} {doing}{_said(worker.printed)}"
            self._finish(worker, Outcome("crash", reason, worker.case))

    def _again(self, ticket: Ticket) -> None:
        ticket.hold_up(False)
        if self.unavailable:
            ticket.resolve(Outcome("unavailable", self.unavailable))
            return
        self._waiting.appendleft(ticket)
        self._wanted = min(self.size, self._wanted + 1)

    def _finish(self, worker: _Worker, outcome: Outcome) -> None:
        ticket, worker.ticket = worker.ticket, None
        if ticket is not None:
            ticket.resolve(outcome)

    def _remove(self, worker: _Worker) -> None:
        worker.process.signal(signal.SIGKILL)
        if worker in self._workers:
            self._workers.remove(worker)
            # A new one is started when there is work for it, not merely to fill the place.
            jobs = len(self._waiting) + sum(w.ticket is not None for w in self._workers)
            self._wanted = min(self._wanted, max(jobs, len(self._workers)))
        with suppress(OSError):
            worker.process.stdin.close()
        worker.process.wait(5.0)

    def _failed_start(self, reason: str, *, once_more: bool = False) -> None:
        """Gives up at the first where none ever was ready; `once_more`: somebody else may have ended it."""
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS or not (self._any_was_ready or once_more):
            self._give_up(reason)
        self._wanted = min(self.size, len(self._waiting))

    def _give_up(self, reason: str) -> None:
        """Workers don't work here: nobody waits for one any more."""
        self.unavailable = self.unavailable or reason
        for worker in list(self._workers):
            self._finish(worker, Outcome("unavailable", reason))
            self._remove(worker)
        if self._cradle is not None:
            self._cradle.nursery.signal(signal.SIGKILL)
        while self._waiting:
            self._waiting.popleft().resolve(Outcome("unavailable", reason))


def _line(message: dict[str, Any]) -> bytes:
    return (json.dumps(message) + "\n").encode()


def _why_not() -> str:
    """Why workers are not to be tried here at all, or empty."""
    if os.name != "posix":
        return "workers need a POSIX system"
    return "this is a worker itself" if INSIDE in os.environ else ""


def pool_for(config: ProofConfig, expected: dict[str, Any] | None = None) -> Pool:
    """A pool as configured that does not know its device yet."""
    workers = config.workers or min(MOST_WORKERS, cores())
    return Pool(None, workers=workers, timeout_s=config.timeout_s, expected=expected)


def early_pool(config: ProofConfig, device: str | int | None) -> Pool | None:
    """A pool whose first workers are started at once; None where proofs are not run in workers.

    `device` is what the client will be asked for. It opens while workers do, and takes about as long.
    """
    if config.mode != "worker":
        return None
    pool = pool_for(config, {"device": device})
    pool.warm_up(min(EARLY_WORKERS, max(1, cores() - 1)))
    return pool


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "ended, nobody saw how,"
    if code >= 0:
        return f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        return "was killed by the system, most likely for want of memory"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _said(printed: bytes) -> str:
    """The line of what it printed that tells most: a crash's stack and advice say nothing."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
    telling = [line for line in lines if _TELLING.search(line)]
    return f": {telling[0][:300]}" if telling else ""
