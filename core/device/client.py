"""One device: its context, queues, compiler, counters. The only place that compiles and enqueues.

Importing this module imports pyopencl.
"""

from __future__ import annotations

import hashlib
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BuildError, MeasurementError, OutOfMemoryError, UsageError
from ..matmul.launch import Rewrite
from . import discovery, faults, forked, pages
from .arguments import KernelArguments
from .binaries import BinaryCache, binary_key
from .counters import Counters
from .lock import device_lock
from .opencl import cl
from .profile import DeviceProfile
from .quiet import quiet_launcher
from .watching import watch, worth_watching

_ADDRESS_SOURCE = """
__kernel void address(__global const uchar *buffer, __global ulong *result, uint place)
{
    result[place] = (ulong)buffer;
}
"""


_ASLEEP_SOURCE = """
__kernel void asleep(uint microseconds)
{
    for (uint i = 0; i < microseconds; i++) asm volatile("nanosleep.u32 1000;" : : : "memory");
}
"""
_MOST_ASLEEP_S = 0.05
_LONG_LAUNCH_S = 100e-6
"""Launches that take longer than this are enqueued before the one ahead has ended."""


class _ThreadState(threading.local):
    def __init__(self) -> None:
        self.queue: cl.CommandQueue | None = None
        self.events: list[cl.Event] | None = None
        self.candidate = ""
        self.waits: list[cl.Event] | None = None
        self.chained = False
        self.latest: cl.Event | None = None
        self.kernels: dict[tuple[str, str, tuple[str, ...]], KernelArguments] = {}
        self.address_kernel: cl.Kernel | None = None


class Client:
    """A device opened for computing. Safe to share between threads; kernels it hands out are not.

    `device` is an index, a part of a name or platform, or a pyopencl device; with none of them the
    default device is taken. A pyopencl `context` or `queue` of the caller's is used as it is.
    Raises DeviceError when no device matches.
    """

    def __init__(
        self,
        device: str | int | cl.Device | None = None,
        *,
        context: cl.Context | None = None,
        queue: cl.CommandQueue | None = None,
        binaries: BinaryCache | None = None,
    ) -> None:
        forked.opened()
        if queue is not None:
            context = queue.context
            device = queue.device
        elif context is not None and not isinstance(device, cl.Device):
            device = context.devices[0]
        if not isinstance(device, cl.Device):
            found = discovery.choose_device(device).device
            assert found is not None
            device = found
        self.device: cl.Device = device
        self.profile: DeviceProfile = discovery.profile_of(device)
        self.context: cl.Context = context if context is not None else cl.Context([device])
        self.queue: cl.CommandQueue = queue if queue is not None else cl.CommandQueue(self.context, device)
        self.profiling_queue: cl.CommandQueue = cl.CommandQueue(
            self.context, device, properties=cl.command_queue_properties.PROFILING_ENABLE
        )
        self.shares_host_memory = self.profile.is_cpu and _has_system_svm(device)
        """Whether kernels may be given plain host addresses (fine-grained system SVM)."""
        self.at_rest: Callable[[], AbstractContextManager[object]] = nullcontext
        self.watches = worth_watching(self.profile)
        """Whether short work is best waited for by looking at its event."""
        self.counters = Counters()
        self.compilations: deque[tuple[str, float]] = deque(maxlen=1000)
        """The newest runs of the compiler: kernel names, seconds."""
        self._programs: dict[tuple[str, tuple[str, ...], Rewrite | None], cl.Program] = {}
        self._building: dict[tuple[str, tuple[str, ...], Rewrite | None], threading.Lock] = {}
        self._guard = threading.Lock()
        self._compiler_loaded = False
        self._binaries = binaries if binaries is not None else BinaryCache()
        features = _cpu_features(self.profile.kind)
        self._binary_device = f"{self.profile.id}|{self.profile.opencl_version}|{features}"
        self._lock = device_lock(f"{self.profile.id}|{discovery.location_of(device)}")
        self._thread = _ThreadState()

    def __repr__(self) -> str:
        return f"Client({self.device_name!r})"

    @cached_property
    def writes_through(self) -> bool:
        """Whether a buffer over host memory holds its results there when they are done, mapped or not.

        OpenCL promises it of mapped buffers only, but mapping and unmapping are two more commands, which
        take longer than a small product. A CPU device that computes in that very memory is told by what it
        fills, aligned and not.
        """
        return self.profile.is_cpu and all(_fills_in_place(self.queue, offset) for offset in (0, 4, 16))

    @property
    def device_id(self) -> str:
        """Equal for equal devices with equal drivers; names what is stored."""
        return self.profile.id

    @property
    def device_name(self) -> str:
        return self.profile.name

    @property
    def current_queue(self) -> cl.CommandQueue:
        """Where this thread's work goes: the profiling queue inside `sample`, else the plain one."""
        return self._thread.queue or self.queue

    # --- programs -----------------------------------------------------------------------------

    def build(self, source: str, options: Sequence[str] = (), rewrite: Rewrite | None = None) -> cl.Program:
        """The built program, from memory, from disk, or from the compiler. Raises BuildError."""
        key = (source, tuple(options), rewrite)
        program = self._programs.get(key)
        if program is not None:
            return program
        with self._guard:
            lock = self._building.setdefault(key, threading.Lock())
        with lock:
            program = self._programs.get(key)
            if program is None:
                program = self._build(*key)
                self._programs[key] = program
        return program

    def warm_up(self) -> None:
        """Loads the compiler and starts the device's threads, unless something was compiled already.

        A tiny kernel is compiled and run, and nothing of it kept.
        """
        if self._compiler_loaded:
            return
        self._compiler_loaded = True
        source = "__kernel void warm_up(__global int *unused) { unused[0] = 0; }"
        with faults.building("warm_up"):
            program = _quiet_build(_uncached_program(self.context, source), (), [self.device])
            kernel = cl.Kernel(program, "warm_up")
        unused = self.empty(4)  # a kernel does not keep its arguments alive
        kernel.set_args(unused)
        with faults.waiting(""):
            cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,))
            self.queue.finish()

    def kernel(
        self, source: str, name: str, options: Sequence[str] = (), rewrite: Rewrite | None = None
    ) -> cl.Kernel:
        """A new kernel object. Kernels hold their arguments, so each thread needs its own."""
        program = self.build(source, options, rewrite)
        with faults.building(name):
            try:
                return cl.Kernel(program, name)
            except cl.LogicError as error:
                if error.code != cl.status_code.INVALID_KERNEL_NAME:
                    raise
                names = _kernel_names(program) or "none"
                raise BuildError(f"the program has no kernel '{name}'; its kernels: {names}") from error

    def _build(self, source: str, options: tuple[str, ...], rewrite: Rewrite | None) -> cl.Program:
        key = binary_key(source, options, rewrite, self._binary_device)
        program = self._stored(key, options)
        if program is not None:
            return program
        with self._binaries.turn(key) as waited:
            program = self._stored(key, options) if waited else None
            return program or self._compiled(key, source, options, rewrite)

    def _stored(self, key: str, options: tuple[str, ...]) -> cl.Program | None:
        stored = self._binaries.load(key)
        if stored is None:
            return None
        try:
            return self._from_binary(stored, options)
        except (cl.Error, ValueError):
            self._binaries.forget(key)
            return None

    def _compiled(
        self, key: str, source: str, options: tuple[str, ...], rewrite: Rewrite | None
    ) -> cl.Program:
        began_s = time.perf_counter()
        self._compiler_loaded = True
        with faults.building(""):
            program, binary = self._compile(source, options, rewrite)
        self.counters.count_compile()
        self.compilations.append((_kernel_names(program), time.perf_counter() - began_s))
        if binary:
            self._binaries.save(key, binary)
        return program

    def _compile(
        self, source: str, options: tuple[str, ...], rewrite: Rewrite | None
    ) -> tuple[cl.Program, bytes]:
        program = _quiet_build(_uncached_program(self.context, source), options, [self.device])
        binary = self._binary_of(program)
        if rewrite is None:
            return program, binary
        changed = rewrite.apply(binary)
        return self._from_binary(changed, options), changed

    def _from_binary(self, binary: bytes, options: tuple[str, ...]) -> cl.Program:
        return _quiet_build(cl.Program(self.context, [self.device], [binary]), options, None)

    def _binary_of(self, program: cl.Program) -> bytes:
        devices = list(program.devices)
        return bytes(program.binaries[devices.index(self.device)])

    # --- work ---------------------------------------------------------------------------------

    def enqueue(
        self,
        kernel: cl.Kernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *,
        queue: cl.CommandQueue | None = None,
        wait_for: Sequence[cl.Event] | None = None,
        label: str | None = None,
    ) -> cl.Event:
        """Launch a kernel whose arguments are set. Does not wait.

        `label` counts the launch under that name. Raises OutOfMemoryError, DeviceFaultError, or
        pyopencl's own error when the driver refuses the launch.
        """
        forked.check()
        thread = self._thread
        with faults.enqueuing(thread.candidate):
            event = cl.enqueue_nd_range_kernel(
                queue or thread.queue or self.queue,
                kernel,
                tuple(global_size),
                None if local_size is None else tuple(local_size),
                wait_for=self._waits(wait_for),
            )
        return self._note(event, label)

    def run(
        self,
        source: str,
        name: str,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *args: Any,
        options: Sequence[str] = (),
        label: str | None = None,
    ) -> cl.Event:
        """Builds a kernel, sets its arguments and launches it on this thread's current queue. Does not wait.

        What was built before is used again. Arguments are buffers, pyopencl arrays without an offset,
        numpy scalars, or pyopencl.LocalMemory. Raises BuildError, WorkError where the arguments are not
        those the kernel takes, and what `enqueue` raises.
        """
        kernels, key = self._thread.kernels, (source, name, tuple(options))
        kernel = kernels.get(key)
        if kernel is None:
            kernel = kernels[key] = KernelArguments(self.kernel(source, name, options), name, source)
        return self.enqueue(kernel.set(args), global_size, local_size, label=label)

    def launcher(
        self,
        kernel: cl.Kernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        queue: cl.CommandQueue,
        *,
        quiet: bool = False,
    ) -> Callable[[Sequence[cl.Event] | None], cl.Event]:
        """`launch(wait_for)`, with nothing left to be made ready: for a launch that is repeated.

        It counts nothing and raises pyopencl's own errors; who uses it counts and translates. A `quiet` one
        may return None instead of an event, where that spares the device time.
        """
        local = None if local_size is None else tuple(local_size)
        if self.profile.is_cpu:
            global_size, local = _without_ones(global_size, local)
        launch = partial(cl.enqueue_nd_range_kernel, queue, kernel, tuple(global_size), local, None)
        if not quiet or self.profile.capability is None:
            return launch
        return quiet_launcher(kernel, tuple(global_size), local, queue, launch)

    def copy(
        self,
        dst: cl.Buffer,
        src: cl.Buffer,
        nbytes: int,
        *,
        dst_offset: int = 0,
        src_offset: int = 0,
        queue: cl.CommandQueue | None = None,
        wait_for: Sequence[cl.Event] | None = None,
        label: str | None = None,
    ) -> cl.Event:
        """Copy bytes from buffer to buffer on the device. Does not wait."""
        thread = self._thread
        with faults.enqueuing(thread.candidate):
            event = cl.enqueue_copy(
                queue or thread.queue or self.queue,
                dst,
                src,
                byte_count=nbytes,
                src_offset=src_offset,
                dst_offset=dst_offset,
                wait_for=self._waits(wait_for),
            )
        return self._note(event, label)

    @property
    def last_event(self) -> cl.Event:
        """The event of what this thread enqueued last; a marker when it has enqueued nothing."""
        return self._thread.latest or self.marker()

    def check_events(self, events: Iterable[cl.Event]) -> None:
        """Raises UsageError for an event of another context, which the driver may not survive."""
        if not all(belongs(event, self.context) for event in events):
            raise UsageError(
                "wait_for holds an event of another OpenCL context than the operands",
                hint="Wait for it on the host first: event.wait().",
            )

    def wait_also(self, events: Sequence[cl.Event]) -> None:
        """Has this thread's next command wait for these too."""
        if events:
            self._thread.waits = [*(self._thread.waits or ()), *events]

    def allocating(self, nbytes: int) -> AbstractContextManager[None]:
        """Around the making of a buffer: failures are reported as OutOfMemoryError."""
        return faults.allocating(nbytes)

    def marker(self) -> cl.Event:
        """An event that completes after this thread's work on its current queue so far."""
        with faults.enqueuing(""):
            return cl.enqueue_marker(self.current_queue, wait_for=self._waits(None))

    def _waits(self, wait_for: Sequence[cl.Event] | None) -> Sequence[cl.Event] | None:
        """What the next command waits for: its own list, and what `using` was given."""
        waits = self._thread.waits
        return [*waits, *(wait_for or ())] if waits else wait_for

    def _note(self, event: cl.Event, label: str | None) -> cl.Event:
        thread = self._thread
        if label is not None:
            self.counters.count_launch(label)
        if thread.events is not None:
            thread.events.append(event)
        thread.latest = event
        if thread.chained:
            thread.waits = [event]
        elif thread.waits is not None:
            thread.waits = None
        return event

    def check_fits(self, *sizes_bytes: int) -> None:
        """Raises OutOfMemoryError when one of these buffers, or all of them, are more than the device has."""
        limit, memory = self.profile.max_alloc_bytes, self.profile.memory_bytes
        for nbytes in sizes_bytes:
            if limit and nbytes > limit:
                raise faults.out_of_memory(nbytes, limit)
        if memory and sum(sizes_bytes) > memory:
            raise faults.out_of_memory(sum(sizes_bytes), memory, "in all")

    def empty(self, nbytes: int) -> cl.Buffer:
        """A read-write buffer with undefined contents. Raises OutOfMemoryError."""
        self.check_fits(nbytes)
        with faults.allocating(nbytes):
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(1, nbytes))

    def allocate(self, nbytes: int) -> cl.Buffer:
        """The same to keep: a CPU device's lies in huge pages from 1 MiB on, where the system has them.

        The kernels for CPUs are 1.02 to 1.1 times as fast on operands that do. Making one takes 0.2 ms, and
        with PoCL waits for the kernel that runs just then, if that keeps all cores busy.
        pyopencl's arrays lie there with `allocator=client.allocate`. It may be a part of a larger buffer:
        OpenCL then lets it have no parts (`get_sub_region`). Raises OutOfMemoryError; WorkError in a forked
        process, where a device opened before would never answer.
        """
        forked.check()
        if not (self.profile.is_cpu and nbytes >= pages.LEAST_BYTES and pages.available()):
            return self.empty(nbytes)
        room = pages.room_for(nbytes)
        try:
            whole = self.empty(room)
        except OutOfMemoryError:
            return self.empty(nbytes)
        aside = cl.CommandQueue(self.context, self.device)  # what is enqueued need not be waited for
        with self.using(aside), self.reading(whole, 0, room) as memory:
            start = pages.first_huge(memory.ctypes.data)
            pages.make_huge(memory.ctypes.data + start, nbytes)
        aligned = start % (self.device.mem_base_addr_align // 8) == 0
        part = whole.get_sub_region(start if aligned else 0, nbytes)
        # Intel's runtime forgets a buffer let go of, even where a part of it lives on.
        part.whole = whole  # type: ignore[attr-defined]
        return part

    def upload(
        self, data: bytes | bytearray | memoryview | np.ndarray, *, in_place: bool = False
    ) -> cl.Buffer:
        """A buffer holding these bytes (of an array: its elements, row-major). Raises OutOfMemoryError.

        `in_place`: on a CPU device kernels work on the array itself, if that is contiguous and page-aligned.
        """
        array = np.ascontiguousarray(data) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        if array.nbytes == 0:
            return self.empty(0)
        self.check_fits(array.nbytes)
        with faults.allocating(array.nbytes):
            sharing = in_place and self.profile.is_cpu
            use = cl.mem_flags.USE_HOST_PTR if sharing else cl.mem_flags.COPY_HOST_PTR
            flags = cl.mem_flags.READ_WRITE | use
            return cl.Buffer(self.context, flags, hostbuf=array.reshape(-1).view(np.uint8))

    def download(self, buffer: cl.Buffer, nbytes: int, *, offset: int = 0) -> bytes:
        """The bytes of a buffer, after all work enqueued before it."""
        result = np.empty(nbytes, np.uint8)
        if nbytes:
            with faults.waiting(self._thread.candidate):
                cl.enqueue_copy(self.current_queue, result, buffer, src_offset=offset, is_blocking=True)
        return result.tobytes()

    def write(self, buffer: cl.Buffer, data: np.ndarray) -> None:
        """Has the array's bytes in the buffer. Waits. Raises OutOfMemoryError."""
        with faults.waiting(self._thread.candidate):
            cl.enqueue_copy(self.current_queue, buffer, data, is_blocking=True)

    def read_part(self, memory: np.ndarray, buffer: cl.Buffer, offset_bytes: int) -> None:
        """Waits for the work before, and has a part of the buffer in `memory`, which says how much."""
        with faults.waiting(self._thread.candidate):
            cl.enqueue_copy(self.current_queue, memory, buffer, src_offset=offset_bytes, is_blocking=True)

    @contextmanager
    def reading(self, buffer: cl.Buffer, offset_bytes: int, nbytes: int) -> Iterator[np.ndarray]:
        """The buffer's bytes for the length of the block, after the work before: on a CPU where they lie."""
        if not self.profile.is_cpu or nbytes == 0:
            memory = np.empty(nbytes, np.uint8)
            if nbytes:
                self.read_part(memory, buffer, offset_bytes)
            yield memory
            return
        queue = self.current_queue
        with faults.waiting(self._thread.candidate):
            mapped, _ = cl.enqueue_map_buffer(
                queue,
                buffer,
                cl.map_flags.READ,
                offset_bytes,
                (nbytes,),
                np.dtype(np.uint8),
                is_blocking=True,
            )
        try:
            yield mapped
        finally:
            with faults.waiting(self._thread.candidate):
                mapped.base.release(queue)
                queue.finish()

    def read_into(self, memory: np.ndarray, buffer: cl.Buffer, *, in_place: bool = False) -> None:
        """Waits for the work before, and has the buffer's bytes in `memory`.

        `in_place`: the buffer was made on this very memory (USE_HOST_PTR), so a mapping is enough.
        """
        with faults.waiting(self._thread.candidate):
            if not in_place:
                cl.enqueue_copy(
                    self.current_queue, memory, buffer, is_blocking=True, wait_for=self._waits(None)
                )
                return
            mapped, _ = cl.enqueue_map_buffer(
                self.current_queue,
                buffer,
                cl.map_flags.READ,
                0,
                memory.shape,
                memory.dtype,
                wait_for=self._waits(None),
                is_blocking=True,
            )
            mapped.base.release(self.current_queue)
            self.current_queue.finish()

    def addresses(self, buffers: Sequence[cl.Buffer]) -> list[int]:
        """The buffers' device addresses, as a kernel sees them. Waits once, for all of them."""
        if not buffers:
            return []
        kernel = self._thread.address_kernel
        if kernel is None:
            kernel = self._thread.address_kernel = self.kernel(_ADDRESS_SOURCE, "address")
        values = np.empty(len(buffers), np.uint64)
        result = self.empty(values.nbytes)
        kernel.set_arg(1, result)
        with faults.enqueuing(""):
            for place, buffer in enumerate(buffers):
                kernel.set_arg(0, buffer)
                kernel.set_arg(2, np.uint32(place))
                cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,))
        with faults.waiting(""):
            cl.enqueue_copy(self.queue, values, result, is_blocking=True)
        return values.tolist()

    def wait(self, event: cl.Event) -> None:
        """Wait for one event: the quickest way to a short product's result. Raises DeviceFaultError."""
        with faults.waiting(self._thread.candidate):
            if self.watches:
                watch(event)
            event.wait()

    def sync(self) -> None:
        """Wait for all work of both queues. Raises DeviceFaultError when a kernel faulted."""
        forked.check()
        with faults.waiting(self._thread.candidate):
            for queue in {self.queue, self.current_queue, self.profiling_queue}:
                queue.finish()

    @contextmanager
    def using(
        self, queue: cl.CommandQueue | None, wait_for: Sequence[cl.Event] | None = None
    ) -> Iterator[None]:
        """This thread's work inside the block goes to `queue` (None: unchanged), after `wait_for`.

        Commands run one after another even where the queue is out-of-order: each then waits for the
        one before. Other work on that queue is neither waited for nor held up.
        """
        thread = self._thread
        before = (thread.queue, thread.waits, thread.chained)
        thread.queue = queue or thread.queue
        thread.waits = [*(thread.waits or ()), *(wait_for or ())] or None
        thread.chained = is_out_of_order(self.current_queue)
        try:
            yield
        finally:
            thread.queue, thread.waits, thread.chained = before

    @contextmanager
    def naming(self, candidate: str) -> Iterator[None]:
        """Faults of this thread's work inside the block are reported with this candidate's name."""
        before = self._thread.candidate
        self._thread.candidate = candidate
        try:
            yield
        finally:
            self._thread.candidate = before

    # --- measuring ----------------------------------------------------------------------------

    def sample(self, fn: Callable[[], object], repeats: int = 1) -> float:
        """Device seconds per execution of `fn`, over `repeats` executions one after another.

        An execution's time is its own window on the device: from the start of the first kernel it
        enqueues to the end of the last. The gaps between executions don't count; on NVIDIA devices gaps
        within one that only wait for the host don't either, as they don't where work is enqueued ahead.
        `fn` enqueues through this client and does not wait. Raises MeasurementError for a window the
        device reports as zero or cannot resolve.
        """
        if repeats < 1:
            raise ValueError(f"repeats is {repeats}; at least 1 is needed")
        began_s = time.perf_counter()
        executions = self._executions(fn, repeats)
        took_s = time.perf_counter() - began_s
        seconds = sum(self._window_s(events) for events in executions) / repeats
        launches = max(len(events) for events in executions)
        if launches == 1 or seconds > launches * _LONG_LAUNCH_S or self.profile.capability is None:
            return seconds
        executions = self._executions(fn, repeats, asleep_s=2 * took_s)
        return sum(self._window_s(events) for events in executions) / repeats

    def _executions(
        self, fn: Callable[[], object], repeats: int, *, asleep_s: float = 0
    ) -> list[list[cl.Event]]:
        """The events of each execution, all complete. The first waits on the device for `asleep_s`."""
        thread = self._thread
        before = (thread.queue, thread.events, thread.waits, thread.chained)
        self.sync()
        executions: list[list[cl.Event]] = []
        try:
            thread.queue, thread.waits, thread.chained = self.profiling_queue, None, False
            if asleep_s:
                self.hold_back(self.profiling_queue, asleep_s)
            for _ in range(repeats):
                thread.events = []
                fn()
                executions.append(thread.events)
        finally:
            thread.queue, thread.events, thread.waits, thread.chained = before
            with faults.waiting(thread.candidate):
                self.profiling_queue.finish()
        return executions

    def hold_back(self, queue: cl.CommandQueue, seconds: float) -> None:
        """Has a queue wait, at most 50 ms, while the host enqueues what comes after. Counts no launch.

        For NVIDIA devices: the instruction is theirs.
        """
        kernel = self.kernel(_ASLEEP_SOURCE, "asleep")
        kernel.set_args(np.uint32(1e6 * min(seconds, _MOST_ASLEEP_S)))
        cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        queue.flush()

    def _window_s(self, events: list[cl.Event]) -> float:
        if not events:
            raise MeasurementError("nothing was enqueued, so there is nothing to measure")
        try:
            with faults.waiting(self._thread.candidate):
                window_ns = events[-1].profile.end - events[0].profile.start
        except cl.Error as error:
            raise MeasurementError(f"the device gives no times for this work ({error})") from error
        if window_ns <= 0:
            raise MeasurementError(f"the device reports a window of {window_ns} ns")
        return window_ns * 1e-9

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the device against other processes (of this user) and threads while inside the block.

        What `at_rest` is set to holds for as long: what else of this process would disturb a measurement.
        """
        with self._lock.held(), self.at_rest():
            yield

    def shared(self) -> AbstractContextManager[None]:
        """Inside the block nobody measures on the device; other processes may hold it shared as well."""
        return self._lock.held(shared=True)


def belongs(event: cl.Event, context: cl.Context) -> bool:
    """Whether it is an event, and of this context."""
    try:
        return isinstance(event, cl.Event) and bool(event.get_info(cl.event_info.CONTEXT) == context)
    except cl.Error:  # of a context that is gone
        return False


def is_out_of_order(queue: cl.CommandQueue) -> bool:
    """Whether commands of this queue may overtake one another."""
    return bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)


def _without_ones(
    global_size: Sequence[int], local_size: tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """The same launch in as few dimensions as it needs: a CPU's runtime is a little quicker then."""
    local = local_size or (1,) * len(global_size)
    needed = [i for i, extents in enumerate(zip(global_size, local, strict=True)) if extents != (1, 1)]
    dimensions = max(needed, default=0) + 1
    return tuple(global_size[:dimensions]), local_size and local_size[:dimensions]


def _fills_in_place(queue: cl.CommandQueue, offset_bytes: int) -> bool:
    """Whether host memory so many bytes behind a cache line is filled by filling a buffer over it."""
    room = np.zeros(2 * 4096, np.uint8)
    start = -room.ctypes.data % 64 + offset_bytes
    host = room[start : start + 4096]
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=host)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(1), 0, host.nbytes).wait()
    return bool(host.all())


def _has_system_svm(device: cl.Device) -> bool:
    try:
        return bool(device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)
    except (AttributeError, cl.Error):
        return False


def _uncached_program(context: cl.Context, source: str) -> cl.Program:
    """A program that pyopencl's own binary cache stays away from: ours counts what is compiled."""
    raw = getattr(getattr(cl, "_cl", None), "_Program", None)
    return cl.Program(context, source) if raw is None else cl.Program(raw(context, source))


def _kernel_names(program: cl.Program) -> str:
    try:
        return str(program.get_info(cl.program_info.KERNEL_NAMES))
    except cl.Error:
        return ""


def _quiet_build(
    program: cl.Program, options: tuple[str, ...], devices: list[cl.Device] | None
) -> cl.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)  # a log that is not empty, not an error
        return program.build(options=list(options), devices=devices)


@lru_cache(maxsize=2)
def _cpu_features(kind: str) -> str:
    """A CPU's instruction sets: binaries of a home folder shared by several machines must not mix."""
    if kind != "cpu":
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(features.encode()).hexdigest()[:16]
