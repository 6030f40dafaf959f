"""pyopencl's errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager

from ..errors import BuildError, DeviceFaultError, OutOfMemoryError
from .opencl import cl

_ALLOCATION = {
    cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
    cl.status_code.OUT_OF_HOST_MEMORY,
    cl.status_code.INVALID_BUFFER_SIZE,
}
# After a kernel faulted, drivers answer with one of these: the queue or the whole context is lost.
_LOST = {cl.status_code.INVALID_COMMAND_QUEUE, cl.status_code.INVALID_CONTEXT, -9999, -9998}
_EXECUTION = {cl.status_code.OUT_OF_RESOURCES, cl.status_code.EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST}
LOG_CHARACTERS = 2000


@contextmanager
def _translating(
    candidate: str, nbytes: int = 0, *, memory: Set[int] = _ALLOCATION, faults: Set[int] = frozenset()
) -> Iterator[None]:
    """Codes in `memory` are a lack of memory, those of a lost device and those in `faults` a fault."""
    try:
        yield
    except cl.Error as error:
        if error.code in memory:
            raise out_of_memory(nbytes) from error
        if error.code in _LOST or error.code in faults:
            raise fault(error, candidate) from error
        raise


def allocating(nbytes: int) -> AbstractContextManager[None]:
    """Buffer creation: every lack of resources is a lack of memory."""
    return _translating("", nbytes, memory=_ALLOCATION | {cl.status_code.OUT_OF_RESOURCES})


def enqueuing(candidate: str) -> AbstractContextManager[None]:
    """A launch or copy: memory is sometimes only taken here, and a lost queue is noticed here."""
    return _translating(candidate)


def waiting(candidate: str) -> AbstractContextManager[None]:
    """Waiting for work: what fails here failed while running."""
    return _translating(candidate, faults=_EXECUTION)


@contextmanager
def building(name: str) -> Iterator[None]:
    """The compiler: its log belongs in the message, cut to its end."""
    try:
        yield
    except cl.Error as error:
        if error.code == cl.status_code.OUT_OF_HOST_MEMORY:
            raise out_of_memory(0) from error
        if error.code in _LOST:
            raise fault(error, name) from error
        log = str(error).rsplit("Build on <", 1)[-1].partition(">:")[2].strip() or str(error).strip()
        log = log.split("\n(options: ")[0].rstrip()  # pyopencl's own words; the candidate says as much
        if len(log) > LOG_CHARACTERS:
            log = "… " + log[-LOG_CHARACTERS:]
        raise BuildError(f"the OpenCL compiler refused the program{_of(name)}:{_own_lines(log)}") from error


def fault(error: cl.Error, candidate: str) -> DeviceFaultError:
    return DeviceFaultError(
        f"a kernel faulted while running{_of(candidate)} (OpenCL error {error.code}); the device is lost",
        hint="Start the program again: this process cannot use the device any more.",
    )


def out_of_memory(nbytes: int, limit_bytes: int = 0, how: str = "in one piece") -> OutOfMemoryError:
    wanted = f" for {nbytes:,} bytes" if nbytes else ""
    allowed = f"; it gives at most {limit_bytes:,} bytes {how}" if limit_bytes else ""
    return OutOfMemoryError(
        f"the device has no memory{wanted}{allowed}", hint="Free buffers, or compute a smaller problem."
    )


def _own_lines(log: str) -> str:
    """A log of several lines begins a line, or its columns would not fit those that point at them."""
    return f"\n{log}" if "\n" in log else f" {log}"


def _of(name: str) -> str:
    return f" ({name})" if name else ""
