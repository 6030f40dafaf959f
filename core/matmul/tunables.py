"""The matmul candidates on one device, as the tuner sees them: runnable, with their launches prepared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyopencl as cl

from ..device.client import Client, is_out_of_order
from ..errors import OutOfMemoryError, UnsupportedError
from ..proof.output import OutputCheck
from ..proof.subject import MatmulProof
from ..tuning.bounds import Bounds
from ..tuning.foresight import NOTHING_FORESEEN, Foresight
from ..tuning.level import Level
from ..tuning.tunable import Tunable, TunableSet, TuneGroup
from .candidates import CANDIDATES, Candidate
from .example import named
from .executor import Prepared, prepare
from .floor import floor_s, foresight
from .groups import tune_groups
from .key import MatmulAutotuneKey
from .launch import LaunchPlan
from .problem import Problem

MAX_PREPARED = 128
"""Prepared launches a thread keeps."""

MOST_SCRATCH_SHARE = 8
"""Their scratch buffers take at most the device's memory divided by this."""

ENTRY = "MatmulEntry"
"""Counts one call of a candidate, whatever number of kernels it launches."""


class _ThreadTable(threading.local):
    def __init__(self) -> None:
        self.table: OrderedDict[tuple[str, Problem, cl.CommandQueue], Prepared] = OrderedDict()
        self.latest: Prepared | None = None


@dataclass(frozen=True)
class MatmulInputs:
    """A problem and the buffers that hold its operands and take its result."""

    problem: Problem
    lhs: cl.Buffer
    rhs: cl.Buffer
    out: cl.Buffer


class MatmulCandidates:
    """Runs candidates on one device. Shared by threads: each thread has its own kernels.

    `dropped()` is called when launches of this thread were let go to free their scratch buffers.
    """

    def __init__(self, client: Client, dropped: Callable[[], object] = lambda: None) -> None:
        self.client = client
        self._dropped = dropped
        self._thread = _ThreadTable()
        self._most_scratch_bytes = client.profile.memory_bytes // MOST_SCRATCH_SHARE or 1 << 30

    def prepared(self, candidate: Candidate, problem: Problem) -> Prepared:
        """The candidate's launches for this problem on the thread's current queue, compiled.

        Raises UnsupportedError before any compile, OutOfMemoryError for its scratch buffers.
        """
        table, queue = self._thread.table, self.client.current_queue
        if queue is self.client.profiling_queue:  # never busy at the same time as the plain one
            queue = self.client.queue
        key = (candidate.name, problem, queue)
        found = table.get(key)
        if found is not None:
            table.move_to_end(key)
            return found
        plan = candidate.plan(problem, self.client.profile)
        self._make_room(plan.own_bytes)
        chained = is_out_of_order(queue)
        try:
            found = prepare(self.client, plan, chained=chained)
        except OutOfMemoryError:
            if not table:
                raise
            self._make_room(self._most_scratch_bytes)
            found = prepare(self.client, plan, chained=chained)
        table[key] = found
        return found

    def _make_room(self, own_bytes: int) -> None:
        """Lets go of the launches used longest ago, until the new one's own buffers fit."""
        table = self._thread.table
        before = len(table)
        held = sum(prepared.own_bytes for prepared in table.values())
        while table and (len(table) >= MAX_PREPARED or held + own_bytes > self._most_scratch_bytes):
            held -= table.popitem(last=False)[1].own_bytes
        if len(table) < before:
            self._dropped()

    def run(self, candidate: Candidate, inputs: MatmulInputs) -> cl.Buffer:
        """Enqueues one product on the client's current queue; returns the output buffer."""
        prepared = self._thread.latest = self.prepared(candidate, inputs.problem)
        prepared.bind(inputs.lhs, inputs.rhs, inputs.out)
        prepared.enqueue()
        self.client.counters.count_launch(ENTRY)
        return inputs.out

    @property
    def latest(self) -> Prepared | None:
        """What this thread ran last."""
        return self._thread.latest

    def floor_s(self, name: str, inputs: MatmulInputs, bounds: Bounds | None) -> float | None:
        """Seconds a candidate certainly needs; None where unknown, also for one that refuses the problem."""
        _, plan = self._planned(name, inputs.problem)
        return floor_s(plan, bounds, self.client.profile) if plan is not None else None

    def foresight(self, name: str, inputs: MatmulInputs) -> Foresight:
        """What is foreseen of a candidate; nothing where it refuses the problem."""
        family, plan = self._planned(name, inputs.problem)
        if plan is None:
            return NOTHING_FORESEEN
        return foresight(plan, inputs.problem, self.client.profile, family)

    def _planned(self, name: str, problem: Problem) -> tuple[str, LaunchPlan | None]:
        """A candidate's family and launches; no launches where it refuses the problem or was added."""
        candidate = next((candidate for candidate in CANDIDATES if candidate.name == name), None)
        if candidate is None:
            return "", None
        try:
            return candidate.family, candidate.plan(problem, self.client.profile)
        except UnsupportedError:
            return candidate.family, None

    def tunables(
        self,
        level: Level,
        bounds: Callable[[MatmulInputs], Bounds | None],
        bounds_again: Callable[[MatmulInputs], Bounds | None] | None = None,
    ) -> TunableSet:
        """All candidates as a set for the tuner, in the order of the table."""
        again = bounds_again or bounds
        tunables = TunableSet(
            key=lambda inputs: MatmulAutotuneKey.build(inputs.problem, level),
            inputs=lambda _key, inputs: self._measuring(inputs),
        ).with_bounds(lambda _key, inputs: bounds(inputs), lambda _key, inputs: again(inputs))
        check = OutputCheck(self.client)
        tunables.with_check(check, check.ahead)
        tunables.with_floor(lambda _key, inputs, tunable: self.floor_s(tunable.name, inputs, bounds(inputs)))
        tunables.with_foresight(lambda _key, inputs, tunable: self.foresight(tunable.name, inputs))
        tunables.with_problem(lambda _key, inputs: named(inputs.problem))
        groups = tune_groups(self.client.profile)
        for candidate in CANDIDATES:
            tunables.with_tunable(self._tunable(candidate, groups))
        return tunables

    def _tunable(self, candidate: Candidate, groups: Mapping[str, TuneGroup]) -> Tunable:
        return candidate.tunable(
            lambda inputs: self.run(candidate, inputs),
            self.client.profile,
            groups,
            prepare=lambda inputs: self.prepared(candidate, inputs.problem),
            proof=MatmulProof(candidate),
        )

    def _measuring(self, inputs: MatmulInputs) -> MatmulInputs:
        """The caller's operands with an output of our own, so that measuring never touches the caller's."""
        out = inputs.problem.out
        extent = 1 + sum(s * (n - 1) for n, s in zip(out.shape, out.strides, strict=True))
        nbytes = out.offset_bytes + extent * out.elem.size_bytes
        return replace(inputs, out=self.client.allocate(nbytes))
