"""Composition: configuration, store, probes, prover and tuner of a process.

The one module of core that knows the probes.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from weakref import WeakSet

from .config import Config, DecisionsConfig, load_config
from .device import forked
from .device.client import Client
from .device.opencl import cl
from .errors import DeviceFaultError, UsageError
from .foresight import TUNER, matmul_keys, problem_of, surely_new
from .log import log_sinks
from .matmul.cost import compute_ops, moved_bytes
from .matmul.hot import HotPath, Memory
from .matmul.hot_numpy import NumpyHotPath
from .matmul.nvidia.detect import detect_units
from .matmul.problem import Elem, Problem, Shape
from .matmul.tunables import ENTRY, MatmulCandidates, MatmulInputs
from .proof.pool import Pool
from .proof.prover import Prover
from .spec.launch import key_of
from .spec.spec import KernelSpec
from .store.cold import ColdDecisions, ColdProbes
from .store.history import History
from .store.stores import Store, open_store
from .tuning.bounds import Bound, Bounds
from .tuning.context import TuningContext
from .tuning.level import Level
from .tuning.samples import BenchSettings
from .tuning.tunable import TunableSet
from .tuning.tuner import LocalTuner, Outcome

if TYPE_CHECKING:
    from .probes.report import ProbeReport
    from .probes.roofline import Roofline


def say(text: str) -> None:
    """A warning for the user, on stderr."""
    print(f"rooftune: {text}", file=sys.stderr)


class Session:
    """What calls of one process share: configuration, store, clients and the tuner's memory.

    `cold` forgets stored decisions and probe results and replaces them; `measure=False` refuses to
    tune, and names `forbidden_by` as what to leave out. `json_stdout` keeps stdout for JSON: a decisions
    sink on stdout then goes to stderr. `warn`, `progress` (phase, done, total) and `probing` (which probe,
    about how many seconds until all that are due are done) are never called while something is measured.
    `store` is this configuration's, open already, and `workers` were started already, to prove candidates.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        cold: bool = False,
        measure: bool = True,
        forbidden_by: str = "measure=False",
        json_stdout: bool = False,
        warn: Callable[[str], None] = say,
        progress: Callable[[str, int, int], object] = lambda *_: None,
        probing: Callable[[str, float], object] = lambda *_: None,
        store: Store | None = None,
        workers: Pool | None = None,
    ) -> None:
        self.config = config if config is not None else load_config()
        self.warn = warn
        for warning in self.config.warnings:
            warn(warning)
        self.store: Store = store or open_store(self.config, warn=warn)
        self.history = History(self.store.records)
        self.decisions = ColdDecisions(self.store.decisions) if cold else self.store.decisions
        self.probes = ColdProbes(self.store.probes) if cold else self.store.probes
        self.level = Level.parse(self.config.autotune.level)
        self.prover = Prover(self.store.proofs, self.config.proof, workers, warn)
        self.context = self._context(measure, json_stdout, progress)
        self.context.forbidden_by = forbidden_by
        self.probing = probing
        self.tuner = LocalTuner(TUNER, self.context)
        self.hot = HotPath(self.tuner, ENTRY)
        self.hot_numpy = NumpyHotPath(self.tuner, ENTRY)
        self._clients: dict[object, Client] = {}
        self._candidates: dict[int, MatmulCandidates] = {}
        self._lock = threading.RLock()
        _sessions.add(self)

    # --- devices -------------------------------------------------------------------------------

    def client(self, device: str | int | None = None) -> Client:
        """The client of a device (default: the preferred one), opened once. Raises DeviceError."""
        forked.check()
        with self._lock:
            if device not in self._clients:
                self._clients[device] = _with_working_units(Client(device))
                self.prover.opened(self._clients[device])
            return self._clients[device]

    def client_for(self, queue: cl.CommandQueue | None = None, context: cl.Context | None = None) -> Client:
        """The client that computes in the caller's own context; the default client without one."""
        forked.check()
        if queue is not None:
            context = queue.context
        if context is None:
            return self.client()
        with self._lock:
            known = next((c for c in self._clients.values() if c.context == context), None)
            if known is None:
                known = _with_working_units(Client(context=context, queue=queue))
                self._clients[context.int_ptr] = known
            return known

    def problem(
        self, shape: Shape, elem: Elem = Elem.F32, batch: int = 1, precision: str | None = None
    ) -> Problem:
        """The problem of a shape, with this session's precision for f32 unless one is given."""
        return problem_of(self.config, shape, elem, batch, precision)

    # --- matmul --------------------------------------------------------------------------------

    def foresee(self, problems: Iterable[Problem], device: str | int | None = None) -> None:
        """Starts proof workers before `device` is opened, when one of these will surely have to be tuned.

        Opening the device takes about as long as a worker needs to start. Sure is what has no decision for
        any device.
        """
        if not self._clients and self._unknown(TUNER, matmul_keys(problems, self.level)):
            self.prover.expect(device)

    def foresee_kernel(
        self,
        spec: KernelSpec,
        sizes: Iterable[tuple[int, ...]],
        client: Client | None = None,
        device: str | int | None = None,
    ) -> None:
        """The same for problem sizes of a kernel; with a client its workers start."""
        if not self._unknown(spec.tuner, (key_of(size, self.level) for size in sizes)):
            return
        if client is not None:
            self.prover.of(client).warm_up()
        elif not self._clients:
            self.prover.expect(device)

    def _unknown(self, tuner: str, keys: Iterable[Any]) -> bool:
        """Whether one of these keys will surely have to be tuned."""
        return self.context.measure and surely_new(self.decisions, tuner, self.level, keys)

    def candidates(self, client: Client) -> MatmulCandidates:
        """The matmul candidates on this client's device, built once."""
        with self._lock:
            if id(client) not in self._candidates:
                self._candidates[id(client)] = MatmulCandidates(client, self._forget_launches)
            return self._candidates[id(client)]

    def tunables(self, client: Client) -> TunableSet:
        """The same candidates as the tuner's set."""
        bounds = partial(self.bounds, client)
        build = partial(self.candidates(client).tunables, self.level, bounds, partial(bounds, again=True))
        return self.tuner.init(client, lambda _client: build())

    def execute(self, client: Client, inputs: MatmulInputs) -> Any:
        """Runs the decided candidate, tuning the key if it is new. Enqueued, not waited for."""
        return self.tuner.execute(client, self.tunables(client), inputs)

    def decide(self, client: Client, inputs: MatmulInputs) -> Outcome:
        """The decision for these inputs, tuning if there is none."""
        return self.tuner.decide(client, self.tunables(client), inputs)

    def condemn(self, client: Client, inputs: MatmulInputs, error: Exception) -> DeviceFaultError:
        """The error to raise when what `execute` ran was found later to have lost the device."""
        return self.tuner.condemn(client, self.tunables(client), inputs, error)

    def bounds(self, client: Client, inputs: MatmulInputs, *, again: bool = False) -> Bounds | None:
        """The roofline of a problem on this device, from probed peaks (probed now where not stored).

        `again`: they are probed once more, and the better counts.
        """
        from .probes.peaks import peaks_for

        problem = inputs.problem
        nbytes = moved_bytes(problem)
        elem, precision = problem.elem.value, problem.precision
        peaks = peaks_for(client, self.probes, elem, precision, nbytes, progress=self.probing, again=again)
        threshold = self.level.threshold
        return Bounds(
            (
                Bound("compute", compute_ops(problem), peaks.ops_per_s, threshold),
                Bound("memory", nbytes, peaks.bytes_per_s, threshold),
            ),
            peaks.launch_window_s,
            peaks.plain_ops_per_s,
        )

    def bounds_for(
        self, client: Client, ops: int, nbytes: int, elem: Elem = Elem.F32, *, again: bool = False
    ) -> Bounds:
        """The least time this work takes on the device; what is 0 bounds nothing. `again` as in `bounds`."""
        from .probes.peaks import peaks_for

        if ops < 0 or nbytes < 0:
            raise UsageError(
                f"a roofline of {ops} operations and {nbytes} bytes", hint="Give 0 or more of each."
            )
        peaks = peaks_for(
            client, self.probes, elem.value, "full", max(nbytes, 1), progress=self.probing, again=again
        )
        threshold = self.level.threshold
        bounds = [
            Bound(name, amount, peak, threshold)
            for name, amount, peak in (
                ("compute", ops, peaks.ops_per_s),
                ("memory", nbytes, peaks.bytes_per_s),
            )
            if amount
        ]
        return Bounds(tuple(bounds), peaks.launch_window_s)

    def probe(
        self,
        client: Client,
        what: str = "all",
        **options: Any,
    ) -> ProbeReport:
        """What the device can do, measured or from the store; `options` are those of `probe_device`."""
        from .probes.report import probe_device

        return probe_device(client, self.probes, what, progress=self.probing, **options)

    def roofline(
        self,
        client: Client,
        shapes: Sequence[Shape] = (),
        *,
        elem: Elem = Elem.F32,
        batch: int = 1,
        precision: str | None = None,
    ) -> tuple[Roofline, list[str]]:
        """The device's roofline with stored decisions, and the shapes that have none.

        Without shapes: every decision of the environment for this device.
        """
        from .decided import roofline_decisions
        from .probes.prober import Prober
        from .probes.roofline import build_roofline

        decided, missing = roofline_decisions(self, client, shapes, elem, batch, precision)
        return build_roofline(Prober(client, self.probes, progress=self.probing), decided), missing

    def close(self, what: str) -> None:
        """Writes down what the session did (`what`, for people), and lets go of the store.

        What a cold session forgot and has measured anew is replaced now and no sooner: one that was
        interrupted leaves it as it was.
        """
        if isinstance(self.probes, ColdProbes):
            self.probes.replace_old()
        with self._lock:
            for client in dict.fromkeys(self._clients.values()):
                launches = sum(client.counters.launches.values())
                self.history.ended(what, client.device_name, launches, client.compilations)
        self.store.close()

    def _forget_launches(self) -> None:
        self.hot.forget()
        self.hot_numpy.forget()

    # --- around the tuner ----------------------------------------------------------------------

    def _context(
        self, measure: bool, json_stdout: bool, progress: Callable[[str, int, int], object]
    ) -> TuningContext:
        bench = self.config.bench
        settings = BenchSettings(
            min_samples=bench.min_samples,
            max_samples=bench.max_samples,
            short_circuit_samples=bench.short_circuit_samples,
            speed_factor=bench.speed_factor,
            adaptive=bench.adaptive,
            budget_s=bench.budget_s,
        )
        return TuningContext(
            level=self.level,
            settings=settings,
            short_circuit=not self.config.autotune.disable_short_circuit,
            environment=self.config.environment.name,
            measure=measure,
            store=self.decisions,
            prover=self.prover,
            sinks=_sinks(self.config.decisions, json_stdout),
            decided=[*log_sinks(self.config.logger, json_stdout), self.history.decided],
            warn=self.warn,
            progress=progress,
        )


def _with_working_units(client: Client) -> Client:
    """The client, its profile naming only those units that a trial build bears out."""
    client.profile = replace(client.profile, units=detect_units(client))
    return client


def _sinks(config: DecisionsConfig, json_stdout: bool) -> list[Callable[[dict[str, Any]], object]]:
    sinks: list[Callable[[dict[str, Any]], object]] = []
    if config.stdout:
        sinks.append(partial(_print_record, sys.stderr if json_stdout else sys.stdout))
    if config.stderr:
        sinks.append(partial(_print_record, sys.stderr))
    if config.file is not None:
        sinks.append(partial(_append_record, config.file))
    return sinks


def _print_record(stream: TextIO, record: dict[str, Any]) -> None:
    print(json.dumps(record), file=stream, flush=True)


def _append_record(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


_sessions: WeakSet[Session] = WeakSet()


def _forked() -> None:
    """What is known to run must not be enqueued in a forked process either: the long way says why."""
    for session in list(_sessions):
        session._forget_launches()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

current: Session | None = None
"""The process's session, once there is one."""

calls = Memory()
"""What each thread remembers of the calls of that session."""

_default_lock = threading.Lock()


def default_session() -> Session:
    """The session of `rooftune.matmul`, made at the first call from the configuration found then."""
    global current, calls
    if current is not None:
        return current
    with _default_lock:
        if current is None:
            current = Session()
            calls = current.hot.memory
            atexit.register(current.close, f"calls from {Path((sys.argv or [''])[0]).name or 'Python'}")
        return current
