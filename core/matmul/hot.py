"""The short way for a product seen before: from the arrays straight to its launch.

Each thread remembers the launches it made ready, so nothing here takes a lock. What is not
remembered, or fails, goes the long way through the tuner, which knows how to fall back.

There are two memories. One knows launches by what arrays look like: shapes, strides, offsets, types.
The other knows the very arrays of a call, and with them that nothing need be looked at again; it lets
go of a call as soon as one of its arrays ends, and so keeps no buffer alive.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import ref

import pyopencl as cl
from pyopencl.array import Array

from ..device.client import Client, belongs, is_out_of_order
from ..tuning.tuner import LocalTuner
from .executor import Prepared

MOST_REMEMBERED = 512
"""Launches, and calls, that a thread remembers; then it begins anew."""

_PARENT = cl.mem_info.ASSOCIATED_MEMOBJECT


class Lane:
    """A queue as one thread uses it, and the thread's latest event there.

    On an in-order queue that one need not be waited for. More are not kept: the driver would have to
    make new events from fresh memory, which is slower, and others' events may keep host arrays alive.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue = queue
        self.chained = is_out_of_order(queue)
        self.latest: cl.Event | None = None

    def pending(self, events: Sequence[cl.Event]) -> list[cl.Event]:
        """Those of the events that the next command on this queue must name."""
        if self.chained:
            return list(events)
        return [event for event in events if event is not self.latest]


class Remembered:
    """A launch made ready for arrays of one description."""

    __slots__ = ("client", "context", "disjoint", "lane", "launch", "prepared", "quiet", "revision")

    def __init__(self, client: Client, prepared: Prepared, lane: Lane, revision: int, disjoint: bool) -> None:
        self.client = client
        self.context = client.context
        self.prepared = prepared
        self.launch = prepared.steady(lane.queue)
        self.quiet = prepared.steady(lane.queue, quiet=True)
        self.lane = lane
        self.revision = revision
        self.disjoint = disjoint


class Call:
    """A launch for the very arrays of one call, which are known to suit it."""

    __slots__ = (
        "a",
        "a_events",
        "b",
        "b_events",
        "context",
        "ends",
        "in_order",
        "lane",
        "launch",
        "lhs",
        "out",
        "out_events",
        "prepared",
        "queue",
        "quiet",
        "revision",
        "rhs",
        "tally",
    )  # fmt: skip

    def __init__(self, remembered: Remembered, a: Array, b: Array, out: Array, label: str) -> None:
        self.lane = remembered.lane
        self.prepared = remembered.prepared
        self.revision = remembered.revision
        self.launch = remembered.launch
        self.quiet = remembered.quiet
        self.queue = remembered.lane.queue
        self.context = remembered.context
        self.in_order = not remembered.lane.chained
        self.tally = remembered.client.counters.tally(label)
        self.lhs, self.rhs, self.out = a.base_data, b.base_data, out.base_data
        self.a: Any = None
        self.b: Any = None
        self.ends: Any = None
        self.a_events: list[cl.Event] | None = None
        self.b_events: list[cl.Event] | None = None
        self.out_events: list[cl.Event] | None = None


class _Memory(threading.local):
    def __init__(self) -> None:
        self.launches: dict[tuple[Any, ...], Remembered] = {}
        self.calls: dict[tuple[Any, ...], Call] = {}
        self.latest: dict[int, Call] = {}
        """By out: its latest call without options, which is mostly its next one too."""
        self.lanes: dict[int, Lane] = {}


class HotPath:
    """What the threads of one session remember."""

    def __init__(self, tuner: LocalTuner, label: str) -> None:
        self._decisions = tuner.decisions
        self._label = label
        self._memory = _Memory()

    def launch(
        self,
        a: Any,
        b: Any,
        out: Any,
        precision: str | None,
        dtype: str | None,
        client: Client | None,
        queue: cl.CommandQueue | None,
        wait_for: Sequence[cl.Event] | None,
        quiet: bool = False,
    ) -> cl.Event | bool | None:
        """Enqueues the product if its launch is remembered, and returns its event; else does nothing.

        `out.events` then holds that one event, which completes after all it held before. With `quiet` there
        may be no event, and `out.events` stays: it returns True.
        """
        memory = self._memory
        plain = queue is None and precision is None and dtype is None and client is None
        call = memory.latest.get(id(out)) if plain else None
        if call is None or call.a() is not a or call.b() is not b:
            call = memory.calls.get((id(a), id(b), id(out), id(queue), precision, dtype, client))
            if plain and call is not None:
                memory.latest[id(out)] = call
        if (
            call is None
            or call.revision != self._decisions.revision
            or a.base_data is not call.lhs
            or b.base_data is not call.rhs
            or out.base_data is not call.out
            or (queue is None and a.queue is not call.queue)
        ):
            call = self._recall(a, b, out, precision, dtype, client, queue)
            if call is None:
                return None
        before, known = out.events, call.out_events
        waits = wait_for
        if wait_for and not _all_belong(wait_for, call.context):
            return None  # the long way says what is wrong
        unchanged = before == known and a.events == call.a_events and b.events == call.b_events
        if not unchanged:
            waits = self._waits(call, a.events, b.events, before, wait_for)
        prepared = call.prepared
        try:
            if prepared.bound is not call:
                prepared.bind(call.lhs, call.rhs, call.out).bound = call
            event: cl.Event | None = call.quiet(waits) if quiet else call.launch(waits)
        except (cl.Error, RuntimeError):  # pyopencl's for an event that is none is a plain RuntimeError
            self.forget()
            return None
        call.tally.count += 1
        if event is None:
            return True
        call.lane.latest = event
        if unchanged and known:
            before[0] = known[0] = event
        else:
            before[:] = [event]
            call.out_events = [event] if call.in_order else None
        return event

    def _waits(
        self,
        call: Call,
        a_events: list[cl.Event],
        b_events: list[cl.Event],
        out_events: list[cl.Event],
        wait_for: Sequence[cl.Event] | None,
    ) -> list[cl.Event]:
        waits = [*call.lane.pending((*a_events, *b_events, *out_events)), *(wait_for or ())]
        if call.in_order:  # what this call waited for, the next one need not
            call.a_events, call.b_events = list(a_events), list(b_events)
        return waits

    def _recall(
        self,
        a: Any,
        b: Any,
        out: Any,
        precision: str | None,
        dtype: str | None,
        client: Client | None,
        queue: cl.CommandQueue | None,
    ) -> Call | None:
        """The call for arrays not met before, if they look like some that were and suit its launch."""
        if not (type(a) is type(b) is type(out) is Array):
            return None
        on = a.queue if queue is None else queue
        known = self._memory.launches.get(key_of(a, b, out, precision, dtype, client, on))
        if known is None or known.revision != self._decisions.revision:
            return None
        buffers: tuple[Any, ...] = (a.base_data, b.base_data, out.base_data)
        lhs, rhs, target = buffers
        context = known.context
        if not (a.context == context and b.context == context and out.context == context):
            return None
        if not known.disjoint and target in (lhs, rhs):
            return None
        if not all(isinstance(buffer, cl.MemoryObjectHolder) for buffer in buffers):
            return None
        if any(buffer.get_info(_PARENT) for buffer in buffers):
            return None  # parts of one larger buffer may overlap
        calls = self._memory.calls
        if len(calls) >= MOST_REMEMBERED:
            self._forget_calls()
        key = (id(a), id(b), id(out), id(queue), precision, dtype, client)
        latest, place = self._memory.latest, id(out)

        def ended(_: object) -> None:
            gone = calls.pop(key, None)
            if gone is None:
                return
            if latest.get(place) is gone:
                del latest[place]
            if gone.prepared.bound is gone:
                gone.prepared.bound = None

        call = calls[key] = Call(known, a, b, out, self._label)
        call.a, call.b, call.ends = ref(a, ended), ref(b, ended), ref(out, ended)
        return call

    def remember(
        self,
        key: tuple[Any, ...],
        client: Client,
        prepared: Prepared,
        queue: cl.CommandQueue,
        *,
        disjoint: bool,
    ) -> None:
        """`key` from `key_of`; `disjoint`: out shares no byte with an operand even in the same buffer."""
        memory = self._memory
        if len(memory.launches) >= MOST_REMEMBERED:
            self.forget()
        lane = memory.lanes.get(id(queue))
        if lane is None:
            lane = memory.lanes[id(queue)] = Lane(queue)
        revision = self._decisions.revision
        memory.launches[key] = Remembered(client, prepared, lane, revision, disjoint)

    def forget(self) -> None:
        """Lets go of all this thread remembers."""
        self._forget_calls()
        self._memory.launches.clear()
        self._memory.lanes.clear()

    def _forget_calls(self) -> None:
        for call in self._memory.calls.values():
            call.prepared.bound = None
        self._memory.calls.clear()
        self._memory.latest.clear()


def _all_belong(events: object, context: cl.Context) -> bool:
    return isinstance(events, list | tuple) and all(belongs(event, context) for event in events)


def key_of(
    a: Array, b: Array, out: Array, precision: str | None, dtype: str | None, client: Client | None,
    queue: cl.CommandQueue | None,
) -> tuple[Any, ...]:  # fmt: skip
    """What a launch is remembered by. The queue counts as the object it is, which is kept."""
    return (
        a.shape, a.strides, a.offset, a.dtype, b.shape, b.strides, b.offset, b.dtype,
        out.shape, out.strides, out.offset, out.dtype, precision, dtype, client, id(queue),
    )  # fmt: skip
