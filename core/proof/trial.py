"""One candidate tried on products of our own: the same code in a worker and in the user's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..device.client import Client
from ..errors import BuildError, DeviceFaultError, OutOfMemoryError, RooftuneError, UnsupportedError
from ..matmul.cost import compute_ops
from ..matmul.executor import Prepared, prepare
from ..matmul.problem import Problem
from .check import WrongResult
from .operands import GUARD_BYTES, UNWRITTEN, KeptOperands, Operands, buffer_bytes, check_guards, matrix_in
from .outcome import Outcome as Outcome
from .subject import Candidate
from .suite import provable, suite

ENTRY = "ProofEntry"
"""Counts one run of a candidate that is being proven."""

SMALL_OPS = 1 << 27
"""Products of fewer operations are run twice, and their operands checked for having been written to."""


class Phase(Protocol):
    """Told what comes next (build, wait, run or check), and of which case."""

    def __call__(self, what: str, case: str) -> object: ...


class TooLarge(Exception):
    """The operands themselves find no room beside the caller's."""


def judged(run: Callable[[], object], case: str, cases: int) -> Outcome:
    """Runs it, and says how it ended. Only interruptions pass through."""
    try:
        run()
        return Outcome("right", "", case, cases)
    except UnsupportedError as error:
        return Outcome("unsupported", str(error), case, cases)
    except TooLarge as error:
        return Outcome("skipped", str(error), case, cases)
    except WrongResult as error:
        return Outcome("wrong", str(error), case, cases)
    except BuildError as error:
        return Outcome("build", str(error), case, cases)
    except (OutOfMemoryError, MemoryError) as error:
        return Outcome("memory", str(error) or "out of memory", case, cases)
    except DeviceFaultError as error:
        return Outcome("fault", str(error), case, cases)
    except RooftuneError as error:
        return Outcome("error", str(error), case, cases)
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {error}", case, cases)


def try_candidate(
    client: Client,
    candidate: Candidate,
    cases: Iterable[tuple[str, Problem]],
    *,
    phase: Phase,
    hold: Callable[[], AbstractContextManager[object]],
    kept: KeptOperands,
) -> Outcome:
    """Proves a candidate on each problem it accepts; the first failure ends it.

    `hold` is entered for what runs on the device; compiling and checking happen outside of it.
    """
    refused = skipped = ""
    done = 0
    for name, problem in cases:
        trial = Trial(client, candidate, problem, kept)
        outcome = judged(partial(trial, partial(phase, case=name), hold), name, done + 1)
        if outcome.status == "unsupported":
            refused = outcome.reason
        elif outcome.status == "skipped":
            skipped = outcome.reason
        elif outcome.status != "right":
            return replace(outcome, reason=f"{outcome.reason} ({name}: {describe(problem)})")
        else:
            done += 1
    if done or skipped:
        return Outcome("right", skipped, cases=done)
    return Outcome("unsupported", refused)


AT_HAND = "the problem itself"


def prove(
    client: Client,
    candidate: Candidate,
    problem: Problem,
    *,
    with_suite: bool,
    phase: Phase,
    hold: Callable[[], AbstractContextManager[object]],
    kept: KeptOperands | None = None,
) -> Outcome:
    """Proves a candidate on the suite (unless that was done before) and on the problem at hand.

    `kept` has operands for the next candidate as well.
    """
    cases = suite(candidate, problem, client.profile) if with_suite else []
    stand_in = provable(problem)
    cases.append((AT_HAND if stand_in is problem else f"one like it, {describe(stand_in)}", stand_in))
    return try_candidate(client, candidate, cases, phase=phase, hold=hold, kept=kept or KeptOperands())


def describe(problem: Problem) -> str:
    """A problem in a few words: extents, type, layouts."""
    shape = f"{problem.m}x{problem.n}x{problem.k}"
    if problem.batch > 1:
        shape = f"{problem.batch} of {shape}"
    layouts = [n for n, op in (("lhs", problem.lhs), ("rhs", problem.rhs)) if op.row_stride < op.col_stride]
    return " ".join([shape, str(problem.elem), *(f"{name} transposed" for name in layouts)])


class Trial:
    """One candidate on one problem, with operands of our own."""

    def __init__(self, client: Client, candidate: Candidate, problem: Problem, kept: KeptOperands) -> None:
        self.client = client
        self.candidate = candidate
        out = replace(problem.out, offset_bytes=problem.out.offset_bytes + GUARD_BYTES)
        self.problem = replace(problem, out=out)
        self.kept = kept
        self.small = compute_ops(problem) < SMALL_OPS

    def __call__(
        self, phase: Callable[[str], object], hold: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Raises what went wrong: UnsupportedError, BuildError, WrongResult, …"""
        phase("build")
        plan = self.candidate.plan(self.problem, self.client.profile)
        operands = self.kept.of(self.problem)
        prepared = prepare(self.client, plan)
        phase("wait")
        with hold(), self.client.naming(self.candidate.name):
            phase("run")
            buffers = [self._upload(raw) for raw in (operands.lhs, operands.rhs)]
            # Twice: what a kernel leaves behind in its scratch buffers must not change the next result.
            results = [self._run(prepared, *buffers) for _ in range(2 if self.small else 1)]
            read_only = [self._bytes(b, b.size) for b in buffers] if self.small else []
        phase("check")
        operands.verify()
        self._check(results[0], operands)
        if not np.array_equal(results[0], results[-1]):
            self._check(results[-1], operands)
        for name, before, after in zip(("lhs", "rhs"), (operands.lhs, operands.rhs), read_only, strict=False):
            if not np.array_equal(before, after):
                raise WrongResult(f"it wrote to {name}, which it may only read")

    def _upload(self, raw: NDArray[np.uint8]) -> Any:
        try:
            return self.client.upload(raw)
        except OutOfMemoryError as error:
            raise TooLarge(f"not run on the problem itself: {error}") from error

    def _run(self, prepared: Prepared, lhs: Any, rhs: Any) -> NDArray[np.uint8]:
        """The bytes of the output's buffer after a run into unwritten memory."""
        client = self.client
        unwritten = np.full(buffer_bytes(self.problem.out), UNWRITTEN, np.uint8)
        out = self._upload(unwritten)
        prepared.bind(lhs, rhs, out)
        prepared.enqueue()
        client.counters.count_launch(ENTRY)
        client.sync()
        return self._bytes(out, unwritten.nbytes)

    def _bytes(self, buffer: Any, nbytes: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.client.download(buffer, nbytes), np.uint8)

    def _check(self, out: NDArray[np.uint8], operands: Operands) -> None:
        check_guards(out, self.problem.out)
        operands.reference.check(matrix_in(out, self.problem.out))
