"""Huge pages for the buffers of CPU devices.

OpenCL runtimes lay buffers in pages of 4 KiB. numpy asks the system for huge ones, so its own products have
them. With matrices whose rows are some KiB long, each row is another page, and looking pages up takes a tenth
of a product's time.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import lru_cache

HUGE_BYTES = 2 << 20
LEAST_BYTES = HUGE_BYTES // 2
"""Smaller buffers would waste more memory than they take, and gain next to nothing."""

_COLLAPSE = 25  # MADV_COLLAPSE, since Linux 6.1, which `mmap` does not name: for memory that was used before


def room_for(nbytes: int) -> int:
    """The bytes in which a whole number of huge pages for so many lies, wherever those bytes begin."""
    return whole_pages(nbytes) + HUGE_BYTES


def whole_pages(nbytes: int) -> int:
    """The bytes of as many huge pages as hold so many."""
    return -(-nbytes // HUGE_BYTES) * HUGE_BYTES


def first_huge(address: int) -> int:
    """How far behind an address the next huge page begins."""
    return -address % HUGE_BYTES


def make_huge(address: int, nbytes: int) -> None:
    """Asks for huge pages from this address on, a multiple of HUGE_BYTES. The system may do otherwise."""
    advise = _madvise()
    if advise is not None:
        advise(address, whole_pages(nbytes), mmap.MADV_HUGEPAGE)
        advise(address, whole_pages(nbytes), _COLLAPSE)


def available() -> bool:
    """Whether this system can be asked."""
    return _madvise() is not None


@lru_cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        function = ctypes.CDLL(None).madvise
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    function.restype = ctypes.c_int
    found: Callable[[int, int, int], int] = function
    return found
