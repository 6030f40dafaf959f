"""Callers' arrays as operands: numpy and pyopencl arrays as buffers and views, copied where they must be."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.client import Client
from ..errors import DtypeError, UsageError
from .problem import Elem, Operand
from .shapes import View

# A view whose memory span is wider than this many times its elements is repacked rather than sent whole.
MAX_SPAN_RATIO = 2

FORGOTTEN = "a buffer let go of"
"""In place of any such: parts of two different ones then count as overlapping where they might."""

_ELEMS = {"float16": Elem.F16, "float32": Elem.F32, "float64": Elem.F64, "bfloat16": Elem.BF16}
SUPPORTED = "float16, bfloat16, float32, float64"
_NAMES = {elem: name for name, elem in _ELEMS.items()}
_HINTS = {
    "b": "Convert with .astype(numpy.float32); for the boolean product compare the result with 0.",
    "iu": "Convert with .astype(numpy.float32), or float64 for integers above 2**24. "
    "uint16 data that holds bfloat16 needs dtype='bf16'.",
    "c": "Multiply the real and imaginary parts, each on its own.",
    "OSUVmM": "Convert to an array of numbers first.",
}


@dataclass(frozen=True)
class Loaded:
    """An operand on the device. `keep` is host memory that must outlive the buffer."""

    buffer: Any
    view: View
    keep: Any = None


def elem_of(dtype: np.dtype[Any], wanted: str | None = None) -> Elem:
    """Element type of an array; uint16 counts as bf16 when `wanted` is "bf16".

    Raises DtypeError (a TypeError) for anything else than f16, bf16, f32 and f64.
    """
    if wanted == "bf16" and dtype == np.uint16:
        return Elem.BF16
    elem = _ELEMS.get(dtype.name)
    if elem is None:
        hints = [hint for kinds, hint in _HINTS.items() if dtype.kind in kinds]
        raise DtypeError(
            f"matmul of {dtype.name} arrays is not supported; allowed are {SUPPORTED}",
            hint=(hints or ["Convert with .astype(numpy.float32)."])[0],
        )
    return elem


def device_array(queue: cl.CommandQueue, operand: Operand, buffer: cl.Buffer) -> cl_array.Array:
    """The operand that lies in a buffer as an array for `queue`; bf16 as uint16."""
    dtype = np.dtype("uint16" if operand.elem is Elem.BF16 else _NAMES[operand.elem])
    strides = tuple(stride * dtype.itemsize for stride in operand.strides)
    return cl_array.Array(
        queue, operand.shape, dtype, data=buffer, offset=operand.offset_bytes, strides=strides
    )


def common_dtype(a: np.dtype[Any], b: np.dtype[Any], wanted: str | None) -> np.dtype[Any]:
    """The type both operands are promoted to, as numpy promotes, in native byte order.

    With `wanted` "bf16": the first operand's type, bfloat16 or uint16. Raises DtypeError where there is none.
    """
    elems = {elem_of(a, wanted), elem_of(b, wanted)}
    if wanted == "bf16":
        if elems != {Elem.BF16}:
            raise DtypeError(
                f"dtype='bf16' is for uint16 data; the operands are {a.name} and {b.name}",
                hint="Leave dtype out, and give both operands the same type.",
            )
        return a.newbyteorder("=")
    if a == b:
        return a.newbyteorder("=")
    try:
        return np.result_type(a, b).newbyteorder("=")
    except TypeError:
        raise DtypeError(
            f"matmul of {a.name} and {b.name}: numpy has no common type for them",
            hint="Convert one operand to the other's type first.",
        ) from None


def view_of(
    shape: tuple[int, ...], strides_bytes: tuple[int, ...], itemsize: int, offset_bytes: int = 0
) -> View:
    return View(tuple(shape), tuple(s // itemsize for s in strides_bytes), offset_bytes)


def span_bytes(shape: tuple[int, ...], strides_bytes: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """First and one-past-last byte a view touches, relative to its first element; (0, 0) when empty."""
    if 0 in shape:
        return 0, 0
    reach = [s * (n - 1) for n, s in zip(shape, strides_bytes, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + itemsize


def load_numpy(client: Client, array: np.ndarray[Any, Any]) -> Loaded:
    """The array on the device: in place on CPU devices, else copied; repacked when its span is too wide."""
    if not is_addressable(array):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    low, high = span_bytes(array.shape, array.strides, array.itemsize)
    memory = _memory(array, low, high)
    where = cl.mem_flags.USE_HOST_PTR if client.profile.is_cpu else cl.mem_flags.COPY_HOST_PTR
    with client.allocating(high - low):
        buffer = cl.Buffer(client.context, cl.mem_flags.READ_ONLY | where, hostbuf=memory)
    return Loaded(buffer, view_of(array.shape, array.strides, array.itemsize, -low), (array, memory))


def load_result(client: Client, result: np.ndarray[Any, Any], view: View) -> Loaded:
    """A buffer for a C-contiguous result: on CPU devices the result's own memory. `keep` is that memory."""
    memory = result.reshape(-1).view(np.uint8)
    if not client.profile.is_cpu:
        return Loaded(client.empty(result.nbytes), view, memory)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    with client.allocating(result.nbytes):
        return Loaded(cl.Buffer(client.context, flags, hostbuf=memory), view, memory)


def _memory(array: np.ndarray[Any, Any], low: int, high: int) -> Any:
    """The bytes that the array touches, as something OpenCL takes."""
    if high - low == array.nbytes and array.flags.c_contiguous and array.dtype.kind == "f":
        return array
    return raw_bytes(array, low, high - low)


def raw_bytes(array: np.ndarray[Any, Any], low: int, count: int) -> Any:
    """`count` bytes from `low` bytes behind the first element on, as a buffer that may be written to."""
    return (ctypes.c_char * count).from_address(array.ctypes.data + low)


def is_addressable(array: np.ndarray[Any, Any]) -> bool:
    """Whether kernels can read it where it is: aligned, in native byte order, and with few gaps."""
    flags = array.flags
    if not flags.aligned or not array.dtype.isnative:
        return False
    low, high = span_bytes(array.shape, array.strides, array.itemsize)
    whole = all(stride % array.itemsize == 0 for stride in array.strides)
    return flags.forc or (whole and high - low <= MAX_SPAN_RATIO * array.nbytes)


def load_device(array: cl_array.Array) -> Loaded:
    """A pyopencl array as it is: its buffer, strides and byte offset, nothing copied.

    Raises UsageError for one that is in shared virtual memory, DtypeError for a foreign byte order.
    """
    buffer: Any = array.base_data
    if buffer is not None and not isinstance(buffer, cl.MemoryObjectHolder):
        raise UsageError(
            f"an array lies in {type(buffer).__name__}, not in a buffer",
            hint="Make it with pyopencl.array.to_device(queue, x), plain or with allocator=client.allocate.",
        )
    if not array.dtype.isnative:
        raise DtypeError(
            f"an array on the device has type {array.dtype.str}, which is not in native byte order",
            hint="Convert it on the host, with x.astype(x.dtype.newbyteorder('=')).",
        )
    return Loaded(buffer, view_of(array.shape, array.strides, array.dtype.itemsize, array.offset), array)


def overlaps(a: cl_array.Array, b: cl_array.Array) -> bool:
    """Whether two pyopencl arrays may share bytes. A part of a larger buffer counts as where it lies."""
    (a_root, a_low, a_high), (b_root, b_low, b_high) = (_place(a), _place(b))
    return a_root == b_root and a_low < b_high and b_low < a_high


def apart(a: cl_array.Array, b: cl_array.Array) -> bool:
    """Whether arrays of these offsets, shapes and strides share no byte even in the same buffer."""
    (a_low, a_high), (b_low, b_high) = (span_bytes(x.shape, x.strides, x.dtype.itemsize) for x in (a, b))
    return a.offset + a_high <= b.offset + b_low or b.offset + b_high <= a.offset + a_low


def _place(array: cl_array.Array) -> tuple[Any, int, int]:
    """The buffer an array lies in, and its first and one-past-last byte there."""
    root: Any = array.base_data
    low, high = (array.offset + end for end in span_bytes(array.shape, array.strides, array.dtype.itemsize))
    parent = whole_of(root) if root is not None else None
    if parent is None:
        return root, low, high
    shift = root.get_info(cl.mem_info.OFFSET)
    return parent, shift + low, shift + high


def whole_of(buffer: Any) -> Any:
    """The larger buffer that this one is a part of, or None; FORGOTTEN where the driver can't say which.

    Intel's runtime forgets a buffer that was let go of, though its parts live on.
    """
    try:
        return buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
    except cl.LogicError as error:
        if error.code != cl.status_code.INVALID_MEM_OBJECT:
            raise
        return FORGOTTEN
