"""A launch plan made ready on a device: kernels built once, arguments set in place, launched in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .launch import Arg, Blob, Counter, LaunchPlan, Scratch, Slot


class Launcher(Protocol):
    """What the executor needs of a device client."""

    def kernel(self, source: str, name: str, options: tuple[str, ...] = (), rewrite: Any = None) -> Any: ...

    def enqueue(
        self,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        *,
        queue: Any = None,
        wait_for: Any = None,
        label: str | None = None,
    ) -> Any: ...

    def launcher(
        self,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        queue: Any,
        *,
        quiet: bool = False,
    ) -> Callable[[Any], Any]: ...

    def allocate(self, nbytes: int) -> Any: ...

    def addresses(self, buffers: Sequence[Any]) -> list[int]: ...

    def upload(self, data: bytes) -> Any: ...


Operands = tuple[Any, Any, Any]
"""The buffers of lhs, rhs and out."""

Launch = Callable[[Any], Any]
"""launch(wait_for) -> event"""

MOST_BLOB_SETS = 4
"""Blobs hold device addresses, so the buffers they are for are kept: those of this many calls at most."""

_ORDER = {Slot.LHS: 0, Slot.RHS: 1, Slot.OUT: 2}


class Prepared:
    """A plan's kernels and scratch buffers, for one thread and one queue.

    Kernels hold their arguments, so two threads need two of these. Scratch buffers are used by every
    launch, so two queues need two as well. `chained` is for out-of-order queues: each kernel then waits
    for the one before, and a call that shares scratch buffers for the one before it.
    """

    def __init__(self, client: Launcher, plan: LaunchPlan, chained: bool = False) -> None:
        self._client = client
        self.plan = plan
        self._chained = chained
        self._before: list[Any] = []
        self.bound: object = None
        """Who bound these buffers last, for one who keeps them bound between calls; `bind` clears it."""
        self.own_bytes = plan.own_bytes
        self._scratch = [client.allocate(nbytes) for nbytes in plan.scratch_bytes]
        self._counters: list[Any] = []
        self._kernels = [client.kernel(c.source, c.name, c.options, c.rewrite) for c in plan.calls]
        self._places = [_Places(call.args) for call in plan.calls]
        self._has_blobs = any(places.blobs for places in self._places)
        self._bound_blobs: list[tuple[Operands, dict[int, Any]]] = []
        for kernel, call in zip(self._kernels, plan.calls, strict=True):
            for position, arg in enumerate(call.args):
                if not isinstance(arg, (Slot, Blob)):
                    kernel.set_arg(position, self._lasting(arg))

    def _lasting(self, arg: Arg) -> Any:
        """What the kernel is given for an argument that is the same in every call."""
        if isinstance(arg, Scratch):
            return self._scratch[arg.index]
        if isinstance(arg, Counter):
            self._counters.append(self._client.upload(bytes(4 * arg.numbers)))
            return self._counters[-1]
        return arg

    def bind(self, lhs: Any, rhs: Any, out: Any) -> Prepared:
        """Has every kernel read and write these three buffers."""
        self.bound = None
        operands = (lhs, rhs, out)
        if self._has_blobs:
            self._bind_blobs(operands)
        for kernel, places in zip(self._kernels, self._places, strict=True):
            for position, which in places.slots:
                kernel.set_arg(position, operands[which])
        return self

    def enqueue(self, queue: Any = None, wait_for: Any = None) -> list[Any]:
        """Enqueue the launches in order; the first waits for `wait_for`. Returns their events."""
        events: list[Any] = []
        waits = [*(wait_for or ()), *self._before]
        for kernel, call in zip(self._kernels, self.plan.calls, strict=True):
            event = self._client.enqueue(
                kernel, call.global_size, call.local_size, queue=queue, wait_for=waits or None
            )
            events.append(event)
            waits = [event] if self._chained else []
        self._note(waits)
        return events

    def steady(self, queue: Any, *, quiet: bool = False) -> Launch:
        """`launch(wait_for) -> event` on one queue, for what is bound, with no more work than it takes.

        It raises the OpenCL library's own errors. Only its last kernel has an event, on in-order queues;
        `quiet` says that none is wanted at all, and it may return None.
        """
        last = len(self.plan.calls) - 1
        launches = [
            self._client.launcher(
                kernel,
                call.global_size,
                call.local_size,
                queue,
                quiet=not self._chained and (quiet or i < last),
            )
            for i, (kernel, call) in enumerate(zip(self._kernels, self.plan.calls, strict=True))
        ]
        if len(launches) == 1 and not (self._chained or self._has_blobs):
            return launches[0]

        def launch(wait_for: Any) -> Any:
            waits = [*(wait_for or ()), *self._before]
            event = None
            for enqueue in launches:
                event = enqueue(waits or None)
                waits = [event] if self._chained else []
            self._note(waits)
            return event

        return launch

    def _note(self, last: list[Any]) -> None:
        if (self._scratch or self._counters) and self._chained:
            self._before = last

    def _bind_blobs(self, operands: Operands) -> None:
        blobs = next((blobs for known, blobs in self._bound_blobs if known == operands), None)
        if blobs is None:
            blobs = self._make_blobs(operands)
            self._bound_blobs = [*self._bound_blobs[1 - MOST_BLOB_SETS :], (operands, blobs)]
        for kernel, places in zip(self._kernels, self._places, strict=True):
            for position, blob in places.blobs:
                kernel.set_arg(position, blobs[id(blob)])

    def _make_blobs(self, operands: Operands) -> dict[int, Any]:
        slots: dict[Slot | Scratch, Any] = {slot: operands[which] for slot, which in _ORDER.items()}
        slots.update((Scratch(i), buffer) for i, buffer in enumerate(self._scratch))
        made = {id(blob): blob for places in self._places for _, blob in places.blobs}
        needs = list(dict.fromkeys(need for blob in made.values() for need in blob.needs))
        addresses = dict(zip(needs, self._client.addresses([slots[n] for n in needs]), strict=True))
        return {name: self._client.upload(blob.build(addresses)) for name, blob in made.items()}


class _Places:
    """Which arguments of a kernel change from call to call."""

    def __init__(self, args: Sequence[Arg]) -> None:
        self.slots = [(i, _ORDER[arg]) for i, arg in enumerate(args) if isinstance(arg, Slot)]
        self.blobs = [(i, arg) for i, arg in enumerate(args) if isinstance(arg, Blob)]


def prepare(client: Launcher, plan: LaunchPlan, *, chained: bool = False) -> Prepared:
    """Build a plan's kernels and make its scratch buffers; `chained` for an out-of-order queue."""
    return Prepared(client, plan, chained)
