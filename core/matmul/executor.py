"""A launch plan made ready on a device: kernels built once, buffers bound, launches enqueued in order."""

from __future__ import annotations

from typing import Any, Protocol

from .launch import Arg, Blob, KernelCall, LaunchPlan, Scratch, Slot


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

    def empty(self, nbytes: int) -> Any: ...

    def address(self, buffer: Any) -> int: ...

    def upload(self, data: bytes) -> Any: ...


class Prepared:
    """A plan's kernels and scratch buffers, for one thread: kernels hold their arguments."""

    def __init__(self, client: Launcher, plan: LaunchPlan) -> None:
        self._client = client
        self._plan = plan
        self._kernels = [client.kernel(c.source, c.name, c.options, c.rewrite) for c in plan.calls]
        self._scratch = [client.empty(nbytes) for nbytes in plan.scratch_bytes]
        self._kept: list[Any] = []

    def bind(self, lhs: Any, rhs: Any, out: Any) -> Prepared:
        """Set every kernel's arguments for these three buffers."""
        slots: dict[Slot | Scratch, Any] = {Slot.LHS: lhs, Slot.RHS: rhs, Slot.OUT: out}
        slots.update((Scratch(i), buffer) for i, buffer in enumerate(self._scratch))
        self._kept = [lhs, rhs, out]
        blobs: dict[int, Any] = {}
        for kernel, call in zip(self._kernels, self._plan.calls, strict=True):
            kernel.set_args(*(self._value(arg, slots, blobs) for arg in call.args))
        return self

    def _value(self, arg: Arg, slots: dict[Slot | Scratch, Any], blobs: dict[int, Any]) -> Any:
        if isinstance(arg, (Slot, Scratch)):
            return slots[arg]
        if not isinstance(arg, Blob):
            return arg
        if id(arg) not in blobs:
            addresses = {need: self._client.address(slots[need]) for need in arg.needs}
            blobs[id(arg)] = self._client.upload(arg.build(addresses))
            self._kept.append(blobs[id(arg)])
        return blobs[id(arg)]

    def enqueue(self, queue: Any = None, wait_for: Any = None) -> list[Any]:
        """Enqueue the launches in order; the first waits for `wait_for`. Returns their events."""
        events: list[Any] = []
        for kernel, call in zip(self._kernels, self._plan.calls, strict=True):
            events.append(self._launch(kernel, call, queue, None if events else wait_for))
        return events

    def _launch(self, kernel: Any, call: KernelCall, queue: Any, wait_for: Any) -> Any:
        return self._client.enqueue(kernel, call.global_size, call.local_size, queue=queue, wait_for=wait_for)


def prepare(client: Launcher, plan: LaunchPlan) -> Prepared:
    """Build a plan's kernels and make its scratch buffers."""
    return Prepared(client, plan)
