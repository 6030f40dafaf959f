"""A nursery: a process that has imported what every worker needs, and forks workers from it.

It never calls OpenCL: what that loads starts threads, and threads do not survive a fork. Should it have
threads all the same, a worker is a fresh interpreter instead. On Linux it ends with the thread that started
it, and its workers with it; elsewhere each ends when its input closes.

Requests come over its standard input, a socket, one at a time, each answered before the next. The first one
is there before it has imported anything: the process that has work may be too busy to ask in time.

    fork, with the other ends of each worker's input, output and errors   -> "forked", their process ids
    wait <process id> <seconds>     -> its exit code (of a signal: its number, negative), or "running"
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, NoReturn

FORKED = "forked"
INSIDE = "ROOFTUNE_PROOF_WORKER"
"""Set in workers: a module that a proof names may use us when it is imported, and must not start workers."""

ANSWER_TIMEOUT_S = 10.0
MOST_BYTES = 1000
"""Of a request, or an answer."""
MOST_FORKS = 64
"""Workers that one request asks for."""
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _run(module: str) -> list[str]:
    """A Python that runs this module of ours, with the modules that this process would find."""
    boot = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__.rpartition('.')[0]} import {module}"
    return [sys.executable, "-c", f"{boot}; {module}.main()", *module_paths()]


def module_paths() -> list[str]:
    """Where this process finds modules, wherever a worker is."""
    found = []
    for path in sys.path:
        with suppress(OSError, TypeError):  # the current folder is gone; or what is no path
            found.append(os.path.abspath(os.fsdecode(path)))
    return found


# --- in the process that has work ------------------------------------------------------------------


class Lost(Exception):
    """The nursery has ended, and its workers with it."""


class Nursery:
    """The nursery's handle. Not thread-safe.

    It begins with its first workers, each given one of `lines` to read. Once `reports` has something to read
    it has forked them, and only then, when `first` has returned them, may anything be asked. What it printed
    comes out of `printed`, which closes when it ends.
    """

    def __init__(self, lines: Sequence[bytes] = ()) -> None:
        """Starts it. Raises OSError where that is impossible."""
        if not sys.executable or getattr(sys, "frozen", False):  # frozen: it would be the program once more
            raise OSError("this Python has no interpreter to start")
        self.reports, theirs = socket.socketpair()
        self.reports.settimeout(ANSWER_TIMEOUT_S)
        self._lost = False
        self._begun: list[_Pipes] = []
        with theirs:
            self.process = subprocess.Popen(
                _run("nursery"),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, **_NO_THREADS, INSIDE: "1"},
            )
        assert self.process.stderr is not None
        self.printed: IO[bytes] = self.process.stderr
        try:
            self._begin(lines)
        except Lost:
            pass  # its closed output says so
        except BaseException:
            self.end()
            raise

    def _begin(self, lines: Sequence[bytes]) -> None:
        """Asks for workers, who find these lines in their inputs."""
        ends: list[int] = []
        try:
            for line in lines:
                pipes = _Pipes()
                self._begun.append(pipes)
                ends += pipes.theirs
                pipes.ours[0].write(line)
            self._send("fork", ends)
        except BaseException:
            self._forget_begun()
            raise
        finally:
            for end in ends:
                os.close(end)

    def first(self) -> list[Forked]:
        """The workers it was begun with. Raises Lost, or OSError where the system refuses."""
        try:
            return self._forked(self._answer())
        finally:
            self._forget_begun()

    def fork(self, line: bytes) -> Forked:
        """A new worker, with this line in its input. Raises Lost, or OSError where the system refuses."""
        self._begin([line])
        return self.first()[0]

    def _forked(self, answer: str) -> list[Forked]:
        what, *pids = answer.split()
        if what != FORKED:
            raise OSError(answer)
        begun, self._begun = self._begun, []
        return [Forked(self, int(pid), *pipes.ours) for pid, pipes in zip(pids, begun, strict=True)]

    def _forget_begun(self) -> None:
        for pipes in self._begun:
            for stream in pipes.ours:
                stream.close()
        self._begun = []

    def exit_code(self, pid: int, timeout_s: float) -> int | None:
        """How a worker ended, or None when it still runs after so many seconds. Raises Lost."""
        answer = self._ask(f"wait {pid} {min(timeout_s, ANSWER_TIMEOUT_S / 2)}")
        return None if answer == "running" else int(answer)

    def _ask(self, request: str) -> str:
        self._send(request)
        return self._answer()

    def _send(self, request: str, ends: Sequence[int] = ()) -> None:
        if self._lost:
            raise Lost("it was given up")
        self.signal(signal.SIGCONT)  # it may have been stopped with its workers
        with self._or_lost():
            socket.send_fds(self.reports, [request.encode()], list(ends))

    def _answer(self) -> str:
        with self._or_lost():
            answer = self.reports.recv(MOST_BYTES).decode()
        if not answer:
            self._lost = True
            raise Lost("it has ended")
        return answer

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        """An answer that does not come in time, or to one who was interrupted, must not be taken for that to
        the next request: then the nursery is given up."""
        try:
            yield
        except BaseException as error:
            self._lost = True
            self.signal(signal.SIGKILL)
            if isinstance(error, OSError):
                raise Lost(str(error)) from error
            raise

    def signal(self, number: int) -> None:
        """To it and what it started, but not to its workers."""
        if self.process.poll() is None:
            with suppress(OSError):
                os.killpg(self.process.pid, number)

    def end(self, timeout_s: float = 1.0) -> int | None:
        """Ends it at once; its workers have to be ended before."""
        self.signal(signal.SIGKILL)
        self.reports.close()
        self._forget_begun()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.process.returncode


class _Pipes:
    """A worker's input, output and errors: our ends, and its own until they are handed over."""

    def __init__(self) -> None:
        (jobs, give), (take, reports), (read, errors) = (os.pipe() for _ in range(3))
        self.ours: list[IO[bytes]] = [
            os.fdopen(give, "wb", 0),
            os.fdopen(take, "rb", 0),
            os.fdopen(read, "rb", 0),
        ]
        self.theirs = [jobs, reports, errors]


class Forked:
    """A worker: its pipes, and its end. It leads a process group of its own."""

    def __init__(
        self, nursery: Nursery, pid: int, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code: int | None = None
        self.orphaned = False
        """Whether the nursery has ended, so that nobody can tell how this one did."""
        self._nursery = nursery
        self._reaped = False

    def wait(self, timeout_s: float) -> None:
        """Until it has ended and its `exit_code` is known. That stays None for one that does not end."""
        if self._reaped:
            return
        try:
            self.exit_code = self._nursery.exit_code(self.pid, timeout_s)
            self._reaped = self.exit_code is not None
        except Lost:
            self._reaped = self.orphaned = True

    def signal(self, number: int) -> None:
        """To it and whatever it started. Its process id is its own until it was waited for."""
        if not self._reaped:
            with suppress(OSError):
                os.killpg(self.pid, number)


# --- in the nursery --------------------------------------------------------------------------------


def main() -> None:
    """Fork workers until the socket closes."""
    from .turns import shared_file
    from .worker import die_with_parent, end_group, load

    die_with_parent()
    turns = shared_file()
    requests = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    load()
    while True:
        request, ends, _, _ = socket.recv_fds(requests, MOST_BYTES, 3 * MOST_FORKS)
        if not request:
            end_group()
        what, *numbers = request.decode().split()
        forks = what == "fork"
        answer = _fork_each(requests, ends, turns) if forks else _wait(int(numbers[0]), float(numbers[1]))
        requests.sendall(answer.encode())


def _fork_each(requests: socket.socket, ends: list[int], turns: int | None) -> str:
    pids: list[int] = []
    try:
        while ends:
            pids.append(_fork(requests, ends[:3], ends[3:], turns))
            ends = ends[3:]
    except OSError as error:
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)
        return f"none: {error}"
    finally:
        for end in ends:
            os.close(end)
    return " ".join([FORKED, *map(str, pids)])


def _fork(requests: socket.socket, ends: list[int], others: list[int], turns: int | None) -> int:
    """A worker with these ends; `others` are not its own."""
    alone = _threads() == 1
    pid = os.fork()
    if pid == 0:
        for end in others:
            os.close(end)
        _become_worker(requests, ends, turns, imported=alone)
    with suppress(OSError):  # here too: it may be signalled by its group as soon as it is known
        os.setpgid(pid, pid)
    for end in ends:
        os.close(end)
    return pid


def _become_worker(requests: socket.socket, ends: list[int], turns: int | None, imported: bool) -> NoReturn:
    code = 1
    try:
        requests.close()
        os.setpgid(0, 0)
        for place, end in enumerate(ends):
            os.dup2(end, place)
            os.close(end)
        if not imported:
            os.execv(sys.executable, _run("worker"))
        from . import worker

        worker.main(turns)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()


def _wait(pid: int, timeout_s: float) -> str:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return "1"
        if ended:
            return str(os.waitstatus_to_exitcode(status))
        if time.monotonic() >= deadline_s:
            return "running"
        time.sleep(0.002)
