"""A worker: a process that proves candidates and may die of it. A nursery forks it, its modules imported.

Jobs come in and reports go out as lines of JSON, over the pipes that were its standard input and output.
What kernels and compilers print goes to standard error, whose end the pool keeps. It ends when its input
closes, whatever it is doing: a thread of its own watches the input, and on Linux the kernel ends it with its
parent.

    in    {"expect": {"device": text}}      not always: the device as it was asked for, to be opened already
          {"hello": {"device_id", "location", "memory_bytes"}}            once
          {"job": {…}, "path": where modules are found}                one at a time
    out   {"ready": true} | {"unavailable": reason}
          {"stale": true}                              a module that it imported has changed: ask another one
          {"phase": "build" | "turn" | "wait" | "run" | "check", "case": name}  as it goes; in turn and wait
                                                       it waits for another worker, or for the device
          {"done": outcome, "launches": n, "compiles": n}
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ..device.client import Client
    from .kernel_trial import KernelTrials
    from .operands import KeptOperands
    from .trial import Outcome, Phase
    from .turns import Turns

PR_SET_PDEATHSIG = 1


def main(turns: int | None = None) -> None:
    """Serve jobs until the input closes. `turns`: a file whose locks all workers of a pool share."""
    die_with_parent()
    jobs, reports = _take_pipes()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_watch, args=(jobs, inbox), daemon=True).start()
    report = _Reporter(reports)
    from .turns import Turns

    binaries = Turns(turns, report.in_turn)
    try:
        client = _open(inbox, binaries)
    except Exception as error:
        report({"unavailable": f"{type(error).__name__}: {error}"})
        return
    from .operands import KeptOperands

    report({"ready": True})
    kernels: list[KernelTrials] = []
    kept, imported = KeptOperands(), _Imported()
    message = _next(inbox, client)
    while True:
        job, sys.path[:] = message["job"], message["path"]
        if imported.changed():
            report({"stale": True})
            return
        before = client.counters.snapshot()
        outcome = serve(client, job, report.phase, kernels, kept, imported)
        used = client.counters.since(before)
        report({"done": outcome.to_json(), "launches": used.total, "compiles": used.compiles})
        message = inbox.get()


def serve(
    client: Client,
    job: dict[str, Any],
    phase: Phase,
    kernels: list[KernelTrials],
    kept: KeptOperands,
    imported: _Imported,
) -> Outcome:
    """Prove what the job names: a matmul candidate, a kernel's configuration, a user's trial on a key.

    `kernels` keeps what the next configuration of the same kernel needs as well, `kept` operands for the
    next candidate, `imported` is told of the modules that the job brought with it.
    """
    from .suite import problem_from_json
    from .trial import Outcome, judged, prove

    if "kernel" in job:
        from .kernel_trial import KernelTrials

        kernels[:] = kernels or [KernelTrials(client)]
        return kernels[0](job, phase=phase, hold=client.shared)
    importlib.invalidate_caches()
    try:
        subject = resolve(job.get("trial") or job["table"])
    except (ImportError, AttributeError) as error:
        return Outcome("unavailable", f"a worker cannot import it: {error}")
    finally:
        imported.note()
    if "trial" in job:
        return judged(partial(own_trial, client, subject, job["name"], job["key"], phase), "", 1)
    candidate = next(c for c in subject if c.name == job["name"])
    problem = problem_from_json(job["problem"])
    return prove(
        client, candidate, problem, with_suite=job["suite"], phase=phase, hold=client.shared, kept=kept
    )


def own_trial(client: Client, trial: Callable[..., Any], name: str, key: Any, phase: Phase) -> None:
    """A user's trial: whatever it raises when it runs means that the result is wrong."""
    from ..errors import RooftuneError, UnsupportedError
    from .check import WrongResult

    phase("build", "")
    run = trial(client, name, key)
    phase("wait", "")
    with client.shared():
        phase("run", "")
        try:
            if callable(run):
                run()
        except (RooftuneError, UnsupportedError, WrongResult, MemoryError):
            raise
        except Exception as error:
            raise WrongResult(f"{type(error).__name__}: {error}") from error
        client.sync()


def resolve(reference: str) -> Any:
    """What "module:attribute" refers to."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _Imported:
    """The files of modules that jobs had imported: a changed one, edited and loaded anew by who has work,
    would be proven as it was before."""

    def __init__(self) -> None:
        self._before = set(sys.modules)
        self._files: dict[str, tuple[int, int] | None] = {}

    def note(self) -> None:
        for name in set(sys.modules) - self._before:
            self._before.add(name)
            path = getattr(sys.modules[name], "__file__", None)
            if path:
                self._files[path] = _stamp(path)

    def changed(self) -> bool:
        return any(_stamp(path) != stamp for path, stamp in self._files.items())


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def load() -> None:
    """Import what is the same for every device. Nothing here may call OpenCL."""
    from ..device import client, discovery  # noqa: F401
    from ..matmul.candidates import CANDIDATES  # noqa: F401
    from . import kernel_trial, suite, trial, turns  # noqa: F401


def _open(inbox: queue.SimpleQueue[dict[str, Any]], binaries: Turns) -> Client:
    """The client of the device that the hello names: the expected one, if it is that."""
    from ..device.client import Client
    from ..device.discovery import list_devices, location_of

    message, expected = inbox.get(), None
    if "expect" in message:
        with suppress(Exception):  # whoever asked for it will say what is wrong
            expected = Client(message["expect"]["device"], binaries=binaries)
        message = _next(inbox, expected)
    hello = message["hello"]
    same = [d for d in list_devices() if d.usable and d.profile.id == hello["device_id"]]
    if not same:
        raise LookupError(f"the device {hello['device_id']} is not visible to a worker")
    devices = [d.device for d in same if d.device is not None]
    chosen = next((d for d in devices if location_of(d) == hello["location"]), devices[0])
    _limit_memory(hello["memory_bytes"])
    if expected is not None and expected.device == chosen:
        return expected
    return Client(chosen, binaries=binaries)


IDLE_S = 0.1
"""No job for so long, and none is about to come: on few cores who has one is still opening the device."""


def _next(inbox: queue.SimpleQueue[dict[str, Any]], client: Client | None) -> dict[str, Any]:
    """The next message. While there is none the compiler is loaded, which the first job does otherwise.

    Not once there was a job: then others may be busy with what came of it.
    """
    with suppress(queue.Empty):
        return inbox.get(timeout=IDLE_S)
    if client is not None:
        client.warm_up()
    return inbox.get()


class _Reporter:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._case = ""

    def __call__(self, message: dict[str, Any]) -> None:
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def phase(self, what: str, case: str) -> None:
        self._case = case
        self({"phase": what, "case": case})

    def in_turn(self, waits: bool) -> None:
        """Whether it waits until another worker has compiled what it needs as well."""
        self.phase("turn" if waits else "build", self._case)


def _take_pipes() -> tuple[TextIO, TextIO]:
    """Keep the pipes for ourselves; anything else in this process reads nothing and prints to stderr."""
    jobs = os.fdopen(os.dup(0), "r", encoding="utf-8")
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return jobs, reports


def _watch(jobs: TextIO, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    with suppress(Exception):
        for line in jobs:
            inbox.put(json.loads(line))
    end_group()


def end_group() -> None:
    """End this process at once, and what it started (compilers, linkers), without asking anybody."""
    with suppress(Exception):
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
    os._exit(1)


def die_with_parent() -> None:
    """Ask Linux to end this process with the thread that started it; elsewhere the closed input does."""
    if sys.platform != "linux":
        return
    with suppress(Exception):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # No core files, and when memory runs out let the kernel end this process rather than the user's.
    with suppress(Exception):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _limit_memory(limit_bytes: int) -> None:
    """On a CPU device buffers are this process's memory, so a limit on it makes too much fail cleanly."""
    if limit_bytes <= 0:
        return
    with suppress(Exception):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


if __name__ == "__main__":
    main()
