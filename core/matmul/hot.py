"""The short way for a product seen before: from the arrays straight to its launch.

Each thread remembers the launches it made ready, so nothing here takes a lock. What is not
remembered, or fails, goes the long way through the tuner, which knows how to fall back.

There are two memories. One knows launches by what arrays look like: shapes, strides, offsets, types.
The other knows the very arrays of a call, and with them that nothing need be looked at again; it lets
go of a call as soon as one of its arrays ends, and so keeps no buffer alive. A call without options has
a function that repeats it, `again`: the shortest way, which sees only whether everything is as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import pyopencl as cl
from pyopencl.array import Array

from ..device.client import Client, belongs, is_out_of_order
from ..tuning.tuner import LocalTuner
from .arrays import overlaps, whole_of
from .executor import Prepared

MOST_REMEMBERED = 512
"""Launches, and calls, that a thread remembers; then it begins anew."""

FAILURES = (cl.Error, RuntimeError)
"""What a launch raises: pyopencl's error for an event that is none is a plain RuntimeError."""


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


Again = Callable[[Any, Any, Any], bool]
"""again(a, b, out) repeats a call if these are its arrays and nothing has changed; else it does nothing."""


def _not_again(a: Any, b: Any, out: Any) -> bool:
    return False


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
    """A launch for the very arrays of one call, which are known to suit it.

    The lists of events are those the arrays had after it, on an in-order queue: what need not be waited
    for again. They stay the same objects, and match nothing until they are known.
    """

    __slots__ = (
        "a",
        "a_events",
        "again",
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
        self.again: Again = _not_again
        self.a_events: list[Any] = [None]
        self.b_events: list[Any] = [None]
        self.out_events: list[Any] = [None]

    def end(self) -> None:
        """No longer remembered: nothing refers to it any more, and it holds nothing bound."""
        self.again = _not_again
        if self.prepared.bound is self:
            self.prepared.bound = None


class Memory(threading.local):
    """What a thread remembers."""

    def __init__(self) -> None:
        self.launches: dict[tuple[Any, ...], Remembered] = {}
        self.calls: dict[tuple[Any, ...], Call] = {}
        self.latest: dict[int, Call] = {}
        """By out: its latest call without options, which is mostly its next one too."""
        self.again: dict[int, Again] = {}
        """By out: the function that repeats that call."""
        self.lanes: dict[int, Lane] = {}


class HotPath:
    """What the threads of one session remember."""

    def __init__(self, tuner: LocalTuner, label: str) -> None:
        self.decisions = tuner.decisions
        self._label = label
        self.memory = Memory()

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
        memory = self.memory
        plain = queue is None and precision is None and dtype is None and client is None
        call = memory.latest.get(id(out)) if plain else None
        if call is None or call.a() is not a or call.b() is not b:
            try:
                call = memory.calls.get((id(a), id(b), id(out), id(queue), precision, dtype, client))
            except TypeError:  # what can't be a key was never right: the long way says what is wrong
                return None
        if (
            call is None
            or call.revision != self.decisions.revision
            or a.base_data is not call.lhs
            or b.base_data is not call.rhs
            or out.base_data is not call.out
            or (queue is None and a.queue is not call.queue)
        ):
            call = self._recall(a, b, out, precision, dtype, client, queue)
            if call is None:
                return None
        if plain and memory.latest.get(id(out)) is not call:
            if call.again is _not_again:
                call.again = _again(self, call)
            memory.latest[id(out)], memory.again[id(out)] = call, call.again
        return self.enqueue(call, a, b, out, wait_for, quiet)

    def enqueue(
        self,
        call: Call,
        a: Array,
        b: Array,
        out: Array,
        wait_for: Sequence[cl.Event] | None = None,
        quiet: bool = False,
    ) -> cl.Event | bool | None:
        """Repeats a call of these arrays, which suit it. Returns what `launch` does."""
        if wait_for and not _all_belong(wait_for, call.context):
            return None  # the long way says what is wrong
        before, known = out.events, call.out_events
        waits = wait_for
        unchanged = before == known and a.events == call.a_events and b.events == call.b_events
        if not unchanged:
            waits = self._waits(call, a.events, b.events, before, wait_for)
        prepared = call.prepared
        try:
            if prepared.bound is not call:
                prepared.bind(call.lhs, call.rhs, call.out).bound = call
            event: cl.Event | None = call.quiet(waits) if quiet else call.launch(waits)
        except FAILURES:
            self.forget()
            return None
        call.tally.count += 1
        if event is None:
            return True
        call.lane.latest = event
        before[:] = [event]
        if call.in_order:
            known[:] = before
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
            call.a_events[:], call.b_events[:] = a_events, b_events
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
        known = self.memory.launches.get(key_of(a, b, out, precision, dtype, client, on))
        if known is None or known.revision != self.decisions.revision:
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
        if any(whole_of(buffer) for buffer in buffers) and (overlaps(out, a) or overlaps(out, b)):
            return None  # parts of one larger buffer
        calls = self.memory.calls
        if len(calls) >= MOST_REMEMBERED:
            self._forget_calls()
        key = (id(a), id(b), id(out), id(queue), precision, dtype, client)
        latest, again, place = self.memory.latest, self.memory.again, id(out)

        def ended(_: object = None) -> None:
            gone = calls.pop(key, None)
            if gone is None:
                return
            if latest.get(place) is gone:
                again.pop(place, None)
                latest.pop(place, None)
            gone.end()

        ended()  # the one of the same arrays as they were
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
        memory = self.memory
        if len(memory.launches) >= MOST_REMEMBERED:
            self.forget()
        lane = memory.lanes.get(id(queue))
        if lane is None:
            lane = memory.lanes[id(queue)] = Lane(queue)
        revision = self.decisions.revision
        memory.launches[key] = Remembered(client, prepared, lane, revision, disjoint)

    def forget(self) -> None:
        """Lets go of all this thread remembers."""
        self._forget_calls()
        self.memory.launches.clear()
        self.memory.lanes.clear()

    def _forget_calls(self) -> None:
        self.memory.again.clear()
        self.memory.latest.clear()
        for call in self.memory.calls.values():
            call.end()
        self.memory.calls.clear()


def _again(path: HotPath, call: Call) -> Again:
    """The function that repeats a call.

    What it must be sure of are variables of its own, which are the quickest to read: every tenth of a
    microsecond here is two where a device's threads fall asleep between launches, as PoCL's do.
    """
    a_ref, b_ref, lhs, rhs, target, queue = call.a, call.b, call.lhs, call.rhs, call.out, call.queue
    a_events, b_events, out_events = call.a_events, call.b_events, call.out_events
    decisions, revision = path.decisions, call.revision
    prepared, launch, tally, lane = call.prepared, call.launch, call.tally, call.lane

    def again(a: Any, b: Any, out: Any) -> bool:
        if (
            a_ref() is not a
            or b_ref() is not b
            or a.base_data is not lhs
            or b.base_data is not rhs
            or out.base_data is not target
            or a.queue is not queue
            or decisions.revision != revision
        ):
            return False
        if (
            a.events != a_events
            or b.events != b_events
            or out.events != out_events
            or prepared.bound is not call
        ):
            return path.enqueue(call, a, b, out) is not None
        try:
            event = launch(None)
        except FAILURES:
            path.forget()
            return False
        tally.count += 1
        out.events[0] = out_events[0] = lane.latest = event
        return True

    return again


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
