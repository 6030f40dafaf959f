"""Launches that ask for no event.

NVIDIA's driver spends 2 µs of the device's time on the event of a launch, and the next launch waits for
it; pyopencl always asks for one. The OpenCL function behind it does not need to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .opencl import cl

Launch = Callable[[Sequence[cl.Event] | None], Any]


def quiet_launcher(
    kernel: cl.Kernel,
    global_size: tuple[int, ...],
    local_size: tuple[int, ...] | None,
    queue: cl.CommandQueue,
    otherwise: Launch,
) -> Launch:
    """`launch(None)` launches without an event and returns None.

    `otherwise` is the launch with an event. It is taken where something is to be waited for, where the
    OpenCL function can't be reached, and where it fails: it then says why.
    """
    enqueue = _enqueue_function()
    if enqueue is None:
        return otherwise
    sizes = (ctypes.c_size_t * len(global_size))(*global_size)
    groups = None if local_size is None else (ctypes.c_size_t * len(local_size))(*local_size)
    fixed = (queue.int_ptr, kernel.int_ptr, len(global_size), None, sizes, groups, 0, None, None)

    def launch(wait_for: Sequence[cl.Event] | None) -> Any:
        # `otherwise` also keeps the kernel and the queue alive.
        if wait_for or enqueue(*fixed):
            return otherwise(wait_for)
        return None

    return launch


@lru_cache
def _enqueue_function() -> Callable[..., int] | None:
    """clEnqueueNDRangeKernel of the very library that pyopencl is linked to; None where it isn't found."""
    try:
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError, TypeError):
        return None
    handle, sizes = ctypes.c_void_p, ctypes.c_void_p
    function.argtypes = [handle, handle, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint, handle, handle]
    function.restype = ctypes.c_int
    found: Callable[..., int] = function
    return found
