"""The matmul candidates on one device, as the tuner sees them: runnable, with their launches prepared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyopencl as cl

from ..device.client import Client
from ..proof.output import OutputCheck
from ..proof.subject import MatmulProof
from ..tuning.bounds import Bounds
from ..tuning.level import Level
from ..tuning.tunable import Tunable, TunableSet, TuneGroup
from .candidates import CANDIDATES, Candidate
from .executor import Prepared, prepare
from .groups import tune_groups
from .key import MatmulAutotuneKey
from .problem import Problem

MAX_PREPARED = 128
"""Prepared launches a thread keeps; each may hold scratch buffers as large as the operands."""

ENTRY = "MatmulEntry"
"""Counts one call of a candidate, whatever number of kernels it launches."""


@dataclass(frozen=True)
class MatmulInputs:
    """A problem and the buffers that hold its operands and take its result."""

    problem: Problem
    lhs: cl.Buffer
    rhs: cl.Buffer
    out: cl.Buffer


class MatmulCandidates:
    """Runs candidates on one device. Shared by threads: each thread has its own kernels."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._thread = threading.local()

    def prepared(self, candidate: Candidate, problem: Problem) -> Prepared:
        """The candidate's launches for this problem, compiled. Raises UnsupportedError before any compile."""
        table: OrderedDict[tuple[str, Problem], Prepared] | None = getattr(self._thread, "table", None)
        if table is None:
            table = self._thread.table = OrderedDict()
        key = (candidate.name, problem)
        found = table.get(key)
        if found is None:
            found = prepare(self.client, candidate.plan(problem, self.client.profile))
            table[key] = found
            if len(table) > MAX_PREPARED:
                table.popitem(last=False)
        else:
            table.move_to_end(key)
        return found

    def run(self, candidate: Candidate, inputs: MatmulInputs) -> cl.Buffer:
        """Enqueues one product on the client's current queue; returns the output buffer."""
        prepared = self.prepared(candidate, inputs.problem)
        prepared.bind(inputs.lhs, inputs.rhs, inputs.out)
        prepared.enqueue()
        self.client.counters.count_launch(ENTRY)
        return inputs.out

    def tunables(self, level: Level, bounds: Callable[[MatmulInputs], Bounds | None]) -> TunableSet:
        """All candidates as a set for the tuner, in the order of the table."""
        tunables = TunableSet(
            key=lambda inputs: MatmulAutotuneKey.build(inputs.problem, level),
            inputs=lambda _key, inputs: self._measuring(inputs),
        ).with_bounds(lambda _key, inputs: bounds(inputs))
        tunables.with_check(OutputCheck(self.client))
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
        return replace(inputs, out=self.client.empty(nbytes))
