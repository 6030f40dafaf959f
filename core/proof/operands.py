"""Operands that a candidate is tried on, and the sums its output is compared with: made once for several.

A worker proves one candidate after another, often on the same problem, and for a large one random elements
and sums take longer than the candidate. On a CPU device a kernel runs in the worker's own memory, so what is
kept for the next candidate might have been written to by this one: a checksum is taken of it when it is made,
and compared after every run.

A thread makes them while the candidate's programs are compiled, and the sums with them.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..matmul.problem import Operand, Problem
from .check import Reference, WrongResult, random_elements, span, storage_dtype, view

GUARD_BYTES = 4096
"""Before and after every buffer's elements; a multiple of every alignment a kernel may count on."""

UNWRITTEN = 0xFF
"""Fills outputs, guards and gaps: NaN in every element type, and a NaN no arithmetic produces."""

KEPT_BYTES = 3 << 28
"""What a worker keeps for its next candidates, at the most: operands of 8192 x 8192 in f32."""

PAGE_BYTES = 4096
"""Buffers' memory begins at a multiple of this, so that a CPU device can compute on it where it is."""

NICENESS = 4
"""Of the thread that makes operands: on a busy machine the compiler is what is waited for."""

Raw = NDArray[np.uint8]
Cases = Iterable[tuple[str, Problem]]
"""Problems and their names."""
Ready = Iterator[tuple[str, Problem, "Operands"]]


class Operands:
    """The bytes of both operands' buffers: random elements, everything around and between them unwritten."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem = problem
        self.lhs, self.rhs = (_random(operand, rng) for operand in (problem.lhs, problem.rhs))
        self._rng = rng
        self._reference: Reference | None = None
        self._sums = [_checksum(raw) for raw in (self.lhs, self.rhs)]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    @property
    def reference(self) -> Reference:
        self.make_reference()
        assert self._reference is not None
        return self._reference

    def make_reference(self) -> None:
        """Once. What is written to the operands before that shows in their sums."""
        if self._reference is None:
            p = self.problem
            a, b = matrix_in(self.lhs, p.lhs), matrix_in(self.rhs, p.rhs)
            reference = Reference(a, b, p.elem, p.precision, self._rng)
            self._sums += [_checksum(array) for array in reference.arrays]
            self._reference = reference

    def verify(self) -> None:
        """Raise WrongResult if somebody wrote to what is kept here. On a CPU device kernels read the operands
        where they are; no kernel was ever given the rest."""
        changed = [_checksum(array) != wanted for array, wanted in zip(self._arrays, self._sums, strict=True)]
        for name, written in zip(("lhs", "rhs"), changed, strict=False):
            if written:
                raise WrongResult(f"it wrote to {name}, which it may only read")
        if any(changed):
            raise WrongResult("it wrote to memory of this process that it was not given")

    @property
    def _arrays(self) -> list[NDArray[np.generic]]:
        return [self.lhs, self.rhs, *(self._reference.arrays if self._reference else ())]


class KeptOperands:
    """Operands by problem; those used longest ago go when they grow too large.

    For one thread, and one of its own that makes operands ahead.
    """

    def __init__(self, rng: np.random.Generator | None = None, *, most_bytes: int = KEPT_BYTES) -> None:
        self._rng = rng or np.random.default_rng()
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[object, ...], Operands] = OrderedDict()
        self._making = threading.Lock()
        self._latest: object = None

    def ahead(self, cases: Callable[[], Cases]) -> Ready:
        """These cases with their operands, sums included, as they become ready, in this order.

        A thread lists and makes them while the caller does other work. It ends when the last was taken, or
        with the next call.
        """
        made: queue.SimpleQueue[tuple[str, Problem, Operands] | BaseException | None] = queue.SimpleQueue()
        self._latest = made
        thread = threading.Thread(
            target=self._make_ahead, args=(cases, made), name="rooftune-operands", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system allows no more
            return ((name, problem, self.of(problem)) for name, problem in cases())
        return _taken(made)

    def of(self, problem: Problem) -> Operands:
        """Operands for a problem; the layout of its output is no matter."""
        with self._making:
            key = (problem.lhs, problem.rhs, problem.precision)
            found = self._kept.get(key)
            if found is None:
                self._make_room(problem.lhs.size_bytes + problem.rhs.size_bytes)
                found = self._kept[key] = Operands(problem, self._rng)
            self._kept.move_to_end(key)
            found.make_reference()
            return found

    def _make_ahead(self, cases: Callable[[], Cases], made: queue.SimpleQueue[Any]) -> None:
        _give_way()
        try:
            for name, problem in cases():
                made.put((name, problem, self.of(problem)))
                if self._latest is not made:
                    return
            made.put(None)
        except BaseException as error:  # raised where it is waited for
            made.put(error)

    def _make_room(self, nbytes: int) -> None:
        held = sum(operands.nbytes for operands in self._kept.values())
        while self._kept and held + nbytes > self._most_bytes:
            held -= self._kept.popitem(last=False)[1].nbytes


def _taken(made: queue.SimpleQueue[tuple[str, Problem, Operands] | BaseException | None]) -> Ready:
    while (found := made.get()) is not None:
        if isinstance(found, BaseException):
            raise found
        yield found


def _give_way() -> None:
    """Has this thread run when others have nothing to do. Linux only: elsewhere the whole process would."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def buffer_bytes(operand: Operand) -> int:
    """What a buffer for the operand takes, a guard at its end included."""
    where = span(operand)
    used = operand.offset_bytes + (where.count - where.before) * operand.elem.size_bytes
    return -(-used // 64) * 64 + GUARD_BYTES


def matrix_in(raw: Raw, operand: Operand) -> NDArray[np.generic]:
    """The operand's elements as a (batch…, rows, columns) view of its buffer's bytes."""
    where, size = span(operand), operand.elem.size_bytes
    first = operand.offset_bytes - where.before * size
    count = (raw.nbytes - first) // size
    elements = raw[first : first + count * size].view(storage_dtype(operand.elem))
    return view(elements, where.before, operand)


def check_guards(raw: Raw, operand: Operand) -> None:
    """Raise WrongResult if a byte of an output's buffer outside its elements is not UNWRITTEN any more."""
    size = operand.elem.size_bytes
    nbytes = size * int(np.prod(operand.shape))
    if span(operand).count * size == nbytes:  # no gaps
        around = (raw[: operand.offset_bytes], raw[operand.offset_bytes + nbytes :])
        changed = sum(int(np.count_nonzero(part != UNWRITTEN)) for part in around)
        before = bool((around[0] != UNWRITTEN).any())
    else:
        rest = raw.copy()
        matrix_in(rest, operand).view(f"u{size}")[...] = np.iinfo(f"u{size}").max
        places = np.flatnonzero(rest != UNWRITTEN)
        changed = places.size
        before = bool(changed and places[0] < operand.offset_bytes)
    if changed:
        place = "before" if before else "after or between"
        raise WrongResult(f"it wrote {changed} bytes {place} the output's elements")


def unwritten(nbytes: int) -> Raw:
    """So many bytes of UNWRITTEN, from the beginning of a page on."""
    memory = np.empty(nbytes + PAGE_BYTES, np.uint8)
    start = -memory.ctypes.data % PAGE_BYTES
    raw = memory[start : start + nbytes]
    raw.fill(UNWRITTEN)
    return raw


def _random(operand: Operand, rng: np.random.Generator) -> Raw:
    raw = unwritten(buffer_bytes(operand))
    elements = matrix_in(raw, operand)
    distinct = tuple(slice(0, 1) if s == 0 else slice(None) for s in operand.strides)
    wanted = elements[distinct]
    wanted[...] = random_elements(wanted.size, operand.elem, rng).reshape(wanted.shape)
    return raw


def _checksum(array: NDArray[np.generic]) -> int:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.nbytes // 8 * 8
    return int(data[:whole].view(np.uint64).sum()) ^ hash(data[whole:].tobytes())
