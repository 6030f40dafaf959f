"""The output of a candidate that has been measured, looked at once more before it may win."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device.client import Client
from ..matmul.problem import Operand
from .check import CallCheck, span, storage_dtype, view

MOST_BYTES = 1 << 32
"""Operands larger than this are not brought to the host."""


class OutputCheck:
    """A tunable set's check for matmul: `check(inputs, output)` raises WrongResult.

    It compares on the caller's own operands, which are read once for all candidates of a tuning.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: tuple[weakref.ref[Any], CallCheck] | None = None

    def __call__(self, inputs: Any, output: Any) -> None:
        if _checkable(inputs):
            self._on(inputs)(self._read(output, inputs.problem.out))

    def ahead(self, inputs: Any) -> None:
        """What needs no output: most of the work."""
        if _checkable(inputs):
            self._on(inputs)

    def _on(self, inputs: Any) -> CallCheck:
        problem, last = inputs.problem, self._last
        if last is None or last[0]() is not inputs:
            lhs, rhs = self._read(inputs.lhs, problem.lhs), self._read(inputs.rhs, problem.rhs)
            last = weakref.ref(inputs), CallCheck(lhs, rhs, problem.elem, problem.precision)
            self._last = last
        return last[1]

    def _read(self, buffer: Any, operand: Operand) -> NDArray[np.generic]:
        where, size = span(operand), operand.elem.size_bytes
        first = operand.offset_bytes - where.before * size
        raw = self._client.download(buffer, where.count * size, offset=first)
        return view(np.frombuffer(raw, storage_dtype(operand.elem)), where.before, operand)


def _checkable(inputs: Any) -> bool:
    problem = inputs.problem
    return sum(op.size_bytes for op in (problem.lhs, problem.rhs, problem.out)) <= MOST_BYTES
