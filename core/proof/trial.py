"""One candidate tried on products of our own: the same code in a worker and in the user's process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..device.client import Client
from ..errors import BuildError, DeviceFaultError, OutOfMemoryError, RooftuneError, UnsupportedError
from ..matmul.cost import compute_ops
from ..matmul.executor import Prepared, prepare
from ..matmul.problem import Problem
from .check import WrongResult
from .operands import (
    GUARD_BYTES,
    KeptOperands,
    Operands,
    Raw,
    Ready,
    buffer_bytes,
    check_guards,
    matrix_in,
    unwritten,
)
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
        return Outcome("fault", error.message, case, cases)  # its hint is for whose process this is
    except RooftuneError as error:
        return Outcome("error", str(error), case, cases)
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {error}", case, cases)


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

    What it is tried on is made while its programs are compiled. `kept` has operands for the next candidate as
    well. `hold` is entered for what runs on the device; compiling and checking happen outside of it.
    """
    stand_in = provable(problem)
    at_hand = AT_HAND if stand_in is problem else f"one like it, {describe(stand_in)}"

    def cases() -> Iterator[tuple[str, Problem]]:
        if with_suite:
            yield from suite(candidate, problem, client.profile)
        yield at_hand, stand_in

    ready = (kept or KeptOperands()).ahead(cases)

    def compile_all() -> None:
        phase("build", at_hand)
        for call in candidate.plan(problem, client.profile).calls:
            client.build(call.source, call.options, call.rewrite)
        phase("check", at_hand)

    built = judged(compile_all, at_hand, 0)
    if built.status != "right":
        return _told(built, at_hand, problem)
    return _try_all(client, candidate, ready, phase=phase, hold=hold)


def _try_all(
    client: Client,
    candidate: Candidate,
    ready: Ready,
    *,
    phase: Phase,
    hold: Callable[[], AbstractContextManager[object]],
) -> Outcome:
    """Each problem that the candidate accepts; the first failure ends it."""
    refused = skipped = ""
    done = 0
    kernels = SameKernels(client)
    for name, problem, operands in ready:
        trial = Trial(kernels, candidate, problem, operands)
        outcome = judged(partial(trial, partial(phase, case=name), hold), name, done + 1)
        if outcome.status == "unsupported":
            refused = outcome.reason
        elif outcome.status == "skipped":
            skipped = outcome.reason
        elif outcome.status != "right":
            return _told(outcome, name, problem)
        else:
            done += 1
        phase("check", name)  # of the next one, the operands are waited for
    if done or skipped:
        return Outcome("right", skipped, cases=done)
    return Outcome("unsupported", refused)


def _told(outcome: Outcome, case: str, problem: Problem) -> Outcome:
    """The outcome, its reason with the problem it happened on."""
    if outcome.status in ("unsupported", "skipped"):
        return outcome
    return replace(outcome, reason=f"{outcome.reason} ({case}: {describe(problem)})")


def describe(problem: Problem) -> str:
    """A problem in a few words: extents, type, layouts."""
    shape = f"{problem.m}x{problem.n}x{problem.k}"
    if problem.batch > 1:
        shape = f"{problem.batch} of {shape}"
    layouts = [n for n, op in (("lhs", problem.lhs), ("rhs", problem.rhs)) if op.row_stride < op.col_stride]
    return " ".join([shape, str(problem.elem), *(f"{name} transposed" for name in layouts)])


class SameKernels:
    """A client whose kernels serve one case after another: each sets all arguments anew.

    Two launches of one case never share one.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._made: dict[tuple[Any, ...], list[Any]] = {}
        self._taken: Counter[tuple[Any, ...]] = Counter()

    def for_next_case(self) -> SameKernels:
        self._taken.clear()
        return self

    def kernel(self, *which: Any) -> Any:
        made, number = self._made.setdefault(which, []), self._taken[which]
        self._taken[which] += 1
        if number == len(made):
            made.append(self.client.kernel(*which))
        return made[number]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


class Trial:
    """One candidate on one problem, with operands of our own."""

    def __init__(
        self, kernels: SameKernels, candidate: Candidate, problem: Problem, operands: Operands
    ) -> None:
        self.kernels = kernels
        self.client = kernels.client
        self.candidate = candidate
        out = replace(problem.out, offset_bytes=problem.out.offset_bytes + GUARD_BYTES)
        self.problem = replace(problem, out=out)
        self.operands = operands
        self.small = compute_ops(problem) < SMALL_OPS

    def __call__(
        self, phase: Callable[[str], object], hold: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Raises what went wrong: UnsupportedError, BuildError, WrongResult, …"""
        phase("build")
        plan = self.candidate.plan(self.problem, self.client.profile)
        prepared = prepare(self.kernels.for_next_case(), plan)
        given = (self.operands.lhs, self.operands.rhs)
        phase("wait")
        with hold(), self.client.naming(self.candidate.name):
            phase("run")
            buffers = [self._placed(raw) for raw in given]
            # Twice: what a kernel leaves behind in its scratch buffers must not change the next result.
            results = [self._run(prepared, *buffers) for _ in range(2 if self.small else 1)]
            apart = self.small and not self.client.profile.is_cpu
            after = [self._read(buffer, raw) for buffer, raw in zip(buffers, given, strict=True) if apart]
        phase("check")
        for name, was, is_now in zip(("lhs", "rhs"), given, after, strict=False):
            if not np.array_equal(was, is_now):
                raise WrongResult(f"it wrote to {name}, which it may only read")
        self.operands.verify()
        self._check(results[0])
        if not all(np.array_equal(results[0], other) for other in results[1:]):
            self._check(results[-1])

    def _placed(self, raw: Raw) -> Any:
        """The bytes as a buffer; on a CPU device the kernel works on this very memory."""
        try:
            return self.client.upload(raw, in_place=True)
        except OutOfMemoryError as error:
            raise TooLarge(f"not run on the problem itself: {error}") from error

    def _run(self, prepared: Prepared, lhs: Any, rhs: Any) -> Raw:
        """The bytes of the output's buffer after a run into unwritten memory."""
        client = self.client
        result = unwritten(buffer_bytes(self.problem.out))
        out = self._placed(result)
        prepared.bind(lhs, rhs, out)
        prepared.enqueue()
        client.counters.count_launch(ENTRY)
        client.sync()
        return self._read(out, result)

    def _read(self, buffer: Any, placed: Raw) -> Raw:
        """The bytes that a buffer made of `placed` holds now: there, where the device shares that memory."""
        in_place = self.client.profile.is_cpu
        result = placed if in_place else np.empty_like(placed)
        self.client.read_into(result, buffer, in_place=in_place)
        return result

    def _check(self, out: Raw) -> None:
        check_guards(out, self.problem.out)
        self.operands.reference.check(matrix_in(out, self.problem.out))
