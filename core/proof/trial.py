"""One candidate tried on products of our own: the same code in a worker and in the user's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..device.client import Client
from ..errors import BuildError, DeviceFaultError, OutOfMemoryError, UnsupportedError
from ..matmul.cost import compute_ops
from ..matmul.executor import Prepared, prepare
from ..matmul.problem import Operand, Problem
from .check import WrongResult, check_product, random_elements, span, storage_dtype, view
from .subject import Candidate
from .suite import provable, suite

GUARD_BYTES = 4096
"""Before and after every buffer's elements; a multiple of every alignment a kernel may count on."""

ENTRY = "ProofEntry"
"""Counts one run of a candidate that is being proven."""

UNWRITTEN = 0xFF
"""Fills outputs, guards and gaps: NaN in every element type, and a NaN no arithmetic produces."""

SMALL_OPS = 1 << 27
"""Products of fewer operations are run twice, and their operands checked for having been written to."""

Status = Literal[
    "right",
    "wrong",
    "build",
    "unsupported",
    "skipped",
    "memory",
    "fault",
    "error",
    "crash",
    "timeout",
    "unavailable",
]


class Phase(Protocol):
    """Told what comes next (build, wait, run or check), and of which case."""

    def __call__(self, what: str, case: str) -> object: ...


class TooLarge(Exception):
    """The operands themselves find no room beside the caller's."""


@dataclass(frozen=True)
class Outcome:
    """What a trial found. `case` is the problem it happened on, `cases` how many were run."""

    status: Status
    reason: str = ""
    case: str = ""
    cases: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        return cls(data["status"], data["reason"], data["case"], data["cases"])


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
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {error}", case, cases)


def try_candidate(
    client: Client,
    candidate: Candidate,
    cases: Iterable[tuple[str, Problem]],
    *,
    phase: Phase,
    hold: Callable[[], AbstractContextManager[object]],
) -> Outcome:
    """Proves a candidate on each problem it accepts; the first failure ends it.

    `hold` is entered for what runs on the device; compiling and checking happen outside of it.
    """
    rng = np.random.default_rng()
    refused = skipped = ""
    done = 0
    for name, problem in cases:
        trial = Trial(client, candidate, problem, rng)
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
) -> Outcome:
    """Proves a candidate on the suite (unless that was done before) and on the problem at hand."""
    cases = suite(candidate, problem, client.profile) if with_suite else []
    stand_in = provable(problem)
    cases.append((AT_HAND if stand_in is problem else f"one like it, {describe(stand_in)}", stand_in))
    return try_candidate(client, candidate, cases, phase=phase, hold=hold)


def describe(problem: Problem) -> str:
    """A problem in a few words: extents, type, layouts."""
    shape = f"{problem.m}x{problem.n}x{problem.k}"
    if problem.batch > 1:
        shape = f"{problem.batch} of {shape}"
    layouts = [n for n, op in (("lhs", problem.lhs), ("rhs", problem.rhs)) if op.row_stride < op.col_stride]
    return " ".join([shape, str(problem.elem), *(f"{name} transposed" for name in layouts)])


class Trial:
    """One candidate on one problem, with operands of its own."""

    def __init__(
        self, client: Client, candidate: Candidate, problem: Problem, rng: np.random.Generator
    ) -> None:
        self.client = client
        self.candidate = candidate
        out = replace(problem.out, offset_bytes=problem.out.offset_bytes + GUARD_BYTES)
        self.problem = replace(problem, out=out)
        self.rng = rng
        self.small = compute_ops(problem) < SMALL_OPS

    def __call__(
        self, phase: Callable[[str], object], hold: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Raises what went wrong: UnsupportedError, BuildError, WrongResult, …"""
        phase("build")
        plan = self.candidate.plan(self.problem, self.client.profile)
        lhs, rhs = self._operand(self.problem.lhs), self._operand(self.problem.rhs)
        prepared = prepare(self.client, plan)
        phase("wait")
        with hold(), self.client.naming(self.candidate.name):
            phase("run")
            buffers = [self._upload(raw) for raw in (lhs, rhs)]
            # Twice: what a kernel leaves behind in its scratch buffers must not change the next result.
            results = [self._run(prepared, *buffers) for _ in range(2 if self.small else 1)]
            kept = zip(buffers, (lhs, rhs), strict=True) if self.small else ()
            read_only = [self._bytes(buffer, raw.nbytes) for buffer, raw in kept]
        phase("check")
        for out in results:
            self._check(out, lhs, rhs)
        for name, before, after in zip(("lhs", "rhs"), (lhs, rhs), read_only, strict=False):
            if not np.array_equal(before, after):
                raise WrongResult(f"it wrote to {name}, which it may only read")

    def _operand(self, operand: Operand) -> NDArray[np.uint8]:
        """The bytes of an operand's buffer: random elements, everything around and between them unwritten."""
        where = span(operand)
        size = operand.elem.size_bytes
        first = operand.offset_bytes - where.before * size
        raw = np.full(_round_up(first + where.count * size) + GUARD_BYTES, UNWRITTEN, np.uint8)
        elements = view(_elements(raw, operand, first), where.before, operand)
        distinct = tuple(slice(0, 1) if s == 0 else slice(None) for s in operand.strides)
        wanted = elements[distinct]
        wanted[...] = random_elements(wanted.size, operand.elem, self.rng).reshape(wanted.shape)
        return raw

    def _upload(self, raw: NDArray[np.uint8]) -> Any:
        try:
            return self.client.upload(raw)
        except OutOfMemoryError as error:
            raise TooLarge(f"not run on the problem itself: {error}") from error

    def _unwritten(self) -> NDArray[np.uint8]:
        out = self.problem.out
        nbytes = _round_up(out.offset_bytes + span(out).count * out.elem.size_bytes) + GUARD_BYTES
        return np.full(nbytes, UNWRITTEN, np.uint8)

    def _run(self, prepared: Prepared, lhs: Any, rhs: Any) -> NDArray[np.uint8]:
        """The bytes of the output's buffer after a run into unwritten memory."""
        client = self.client
        unwritten = self._unwritten()
        out = self._upload(unwritten)
        prepared.bind(lhs, rhs, out)
        prepared.enqueue()
        client.counters.count_launch(ENTRY)
        client.sync()
        return self._bytes(out, unwritten.nbytes)

    def _bytes(self, buffer: Any, nbytes: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.client.download(buffer, nbytes), np.uint8)

    def _check(self, out: NDArray[np.uint8], lhs: NDArray[np.uint8], rhs: NDArray[np.uint8]) -> None:
        problem = self.problem
        matrix = _matrix(out, problem.out)
        _check_guards(out, matrix, problem.out)
        a, b = _matrix(lhs, problem.lhs), _matrix(rhs, problem.rhs)
        check_product(matrix, a, b, problem.elem, problem.precision, self.rng)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _elements(raw: NDArray[np.uint8], operand: Operand, first_bytes: int) -> NDArray[np.generic]:
    size = operand.elem.size_bytes
    count = (raw.nbytes - first_bytes) // size
    return raw[first_bytes : first_bytes + count * size].view(storage_dtype(operand.elem))


def _matrix(raw: NDArray[np.uint8], operand: Operand) -> NDArray[np.generic]:
    where = span(operand)
    first = operand.offset_bytes - where.before * operand.elem.size_bytes
    return view(_elements(raw, operand, first), where.before, operand)


def _check_guards(out: NDArray[np.uint8], matrix: NDArray[np.generic], operand: Operand) -> None:
    """Raise WrongResult if a byte outside the output's elements changed."""
    outside = np.ones(out.nbytes, np.bool_)
    size = operand.elem.size_bytes
    marks = np.lib.stride_tricks.as_strided(
        outside[operand.offset_bytes :], (*operand.shape, size), (*(s * size for s in operand.strides), 1)
    )
    marks[...] = False
    changed = np.flatnonzero((out != UNWRITTEN) & outside)
    if changed.size:
        first = int(changed[0])
        place = "before" if first < operand.offset_bytes else "after or between"
        raise WrongResult(f"it wrote {changed.size} bytes {place} the output's elements")
