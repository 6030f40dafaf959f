"""The short way for numpy operands on a CPU device: used where they lie, by a launch made ready before.

Only for the plain case: arrays of one type that kernels can read where they are, and a contiguous result
that overlaps none of them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyopencl as cl

from ..device.client import Client, is_out_of_order
from ..device.watching import watch
from ..tuning.tuner import LocalTuner
from .arrays import is_addressable, raw_bytes, span_bytes
from .executor import Prepared

MOST_REMEMBERED = 512
"""Launches that a thread remembers; then it begins anew."""

_READ = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
_WRITE = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR

Array = np.ndarray[Any, Any]


Span = tuple[int, int]
"""Where the memory of a view begins, in bytes from its first element, and how many there are."""


class RememberedNumpy:
    """A launch for operands of one description, and the result it needs."""

    __slots__ = (
        "client",
        "launch",
        "prepared",
        "queue",
        "result_dtype",
        "result_shape",
        "revision",
        "shared",
        "spans",
    )

    def __init__(
        self,
        client: Client,
        prepared: Prepared,
        queue: cl.CommandQueue,
        revision: int,
        result: tuple[tuple[int, ...], np.dtype[Any]],
        spans: tuple[Span | None, Span | None],
    ) -> None:
        self.client = client
        self.prepared = prepared
        self.launch = prepared.steady(queue)
        self.queue = queue
        self.revision = revision
        self.result_shape, self.result_dtype = result
        self.shared = client.shares_host_memory
        self.spans = spans

    def takes(self, out: Any, a: Array, b: Array) -> bool:
        """Whether the result can be computed in place of `out`."""
        return bool(
            type(out) is np.ndarray
            and out.shape == self.result_shape
            and out.dtype == self.result_dtype
            and out.flags.carray
            and not np.may_share_memory(out, a)
            and not np.may_share_memory(out, b)
        )

    def __call__(self, a: Array, b: Array, out: Array | None) -> Array:
        result = np.empty(self.result_shape, self.result_dtype) if out is None else out
        lhs, rhs = _memory(a, self.spans[0]), _memory(b, self.spans[1])
        if self.shared:
            _as_shared(self, lhs, rhs, result)
        else:
            _as_buffers(self, lhs, rhs, result)
        return result


def _as_shared(self: RememberedNumpy, a: Any, b: Any, result: Array) -> None:
    """The device reads and writes the host's memory by its addresses."""
    self.prepared.bind(cl.SVM(a), cl.SVM(b), cl.SVM(result))
    event = self.launch(None)
    if self.client.watches:
        watch(event)
    self.queue.finish()


def _memory(array: Array, span: Span | None) -> Any:
    """What pyopencl takes: the array, or its bytes where it has gaps or is read-only, which is refused."""
    if span is None and array.flags.writeable:
        return array
    return raw_bytes(array, *(span or (0, array.nbytes)))


def _as_buffers(self: RememberedNumpy, a: Any, b: Any, result: Array) -> None:
    context, queue = self.client.context, self.queue
    # Named, so that they outlive the launch: a kernel does not keep the buffers it was given.
    lhs, rhs = cl.Buffer(context, _READ, hostbuf=a), cl.Buffer(context, _READ, hostbuf=b)
    out = cl.Buffer(context, _WRITE, hostbuf=result)
    self.prepared.bind(lhs, rhs, out)
    event = self.launch(None)
    if self.client.watches:
        watch(event)
    if self.client.writes_through:
        event.wait()
        return
    mapped, _ = cl.enqueue_map_buffer(queue, out, cl.map_flags.READ, 0, result.shape, result.dtype)
    mapped.base.release(queue)
    queue.finish()


class _Memory(threading.local):
    def __init__(self) -> None:
        self.launches: dict[tuple[Any, ...], RememberedNumpy] = {}


class NumpyHotPath:
    """What the threads of one session remember of products of numpy arrays."""

    def __init__(self, tuner: LocalTuner, label: str) -> None:
        self._decisions = tuner.decisions
        self._label = label
        self._memory = _Memory()

    def multiply(
        self,
        a: Any,
        b: Any,
        precision: str | None,
        dtype: str | None,
        client: Client | None,
        queue: cl.CommandQueue | None,
        out: Any = None,
    ) -> Any:
        """The product, if its launch is remembered; else None, and nothing is done."""
        if not type(a) is type(b) is np.ndarray:
            return None
        try:
            known = self._memory.launches.get(_key(a, b, precision, dtype, client, queue))
        except TypeError:  # what can't be a key was never right: the long way says what is wrong
            return None
        if known is None or known.revision != self._decisions.revision:
            return None
        if not (a.flags.aligned and b.flags.aligned) or not (out is None or known.takes(out, a, b)):
            return None
        try:
            result = known(a, b, out)
        except cl.Error:
            self.forget()
            return None
        known.client.counters.count_launch(self._label)
        return result if known.result_shape or out is not None else result[()]

    def remember(
        self,
        a: Array,
        b: Array,
        given: tuple[str | None, str | None, Client | None, cl.CommandQueue | None],
        client: Client,
        prepared: Prepared,
        result: Array,
    ) -> None:
        """`given` are precision, dtype, client and queue as the caller gave them."""
        queue = given[3] or client.queue
        if not all(_is_plain(array, result.dtype) for array in (a, b)) or is_out_of_order(queue):
            return
        launches = self._memory.launches
        if len(launches) >= MOST_REMEMBERED:
            launches.clear()
        needed, spans = (result.shape, result.dtype), (_span(a), _span(b))
        launches[_key(a, b, *given)] = RememberedNumpy(
            client, prepared, queue, self._decisions.revision, needed, spans
        )

    def forget(self) -> None:
        """Lets go of all this thread remembers."""
        self._memory.launches.clear()


def _is_plain(array: Array, dtype: np.dtype[Any]) -> bool:
    known = type(array) is np.ndarray and array.dtype == dtype and dtype.kind == "f"
    return known and is_addressable(array)


def _span(array: Array) -> Span | None:
    """None for an array without gaps."""
    if array.flags.forc:
        return None
    low, high = span_bytes(array.shape, array.strides, array.itemsize)
    return low, high - low


def _key(
    a: Array, b: Array, precision: str | None, dtype: str | None, client: Client | None,
    queue: cl.CommandQueue | None,
) -> tuple[Any, ...]:  # fmt: skip
    return (a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, precision, dtype, client, queue)
