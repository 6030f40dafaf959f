"""Callers' arrays as operands: numpy and pyopencl arrays as buffers and views, copied where they must be."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.client import Client
from ..errors import DtypeError
from .problem import Elem
from .shapes import View

# A view whose memory span is wider than this many times its elements is repacked rather than sent whole.
MAX_SPAN_RATIO = 2

_ELEMS = {"float16": Elem.F16, "float32": Elem.F32, "float64": Elem.F64, "bfloat16": Elem.BF16}
SUPPORTED = "float16, bfloat16, float32, float64"


@dataclass(frozen=True)
class Loaded:
    """An operand on the device. `keep` is host memory that must outlive the buffer."""

    buffer: cl.Buffer
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
        raise DtypeError(
            f"matmul of {dtype.name} arrays is not supported; allowed are {SUPPORTED}",
            hint="Convert with .astype(numpy.float32), or pass uint16 data with dtype='bf16'.",
        )
    return elem


def common_dtype(a: np.dtype[Any], b: np.dtype[Any], wanted: str | None) -> np.dtype[Any]:
    """The type both operands are promoted to, as numpy promotes; raises DtypeError where it cannot be had."""
    elems = {elem_of(a, wanted), elem_of(b, wanted)}
    if wanted == "bf16" and elems != {Elem.BF16}:
        raise DtypeError(f"dtype='bf16' is for uint16 data; the operands are {a.name} and {b.name}")
    if a == b:
        return a
    try:
        return np.result_type(a, b)
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
    array = _addressable(array)
    low, high = span_bytes(array.shape, array.strides, array.itemsize)
    base = array.__array_interface__["data"][0] + low
    memory = np.ctypeslib.as_array((ctypes.c_ubyte * (high - low)).from_address(base))
    where = cl.mem_flags.USE_HOST_PTR if client.profile.is_cpu else cl.mem_flags.COPY_HOST_PTR
    buffer = cl.Buffer(client.context, cl.mem_flags.READ_ONLY | where, hostbuf=memory)
    return Loaded(buffer, view_of(array.shape, array.strides, array.itemsize, -low), (array, memory))


def _addressable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    low, high = span_bytes(array.shape, array.strides, array.itemsize)
    aligned = array.flags.aligned and all(s % array.itemsize == 0 for s in array.strides)
    if aligned and array.dtype.isnative and high - low <= MAX_SPAN_RATIO * array.nbytes:
        return array
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def load_device(array: cl_array.Array) -> Loaded:
    """A pyopencl array as it is: its buffer, strides and byte offset, nothing copied."""
    buffer: Any = array.base_data
    return Loaded(buffer, view_of(array.shape, array.strides, array.dtype.itemsize, array.offset), array)


def overlaps(a: cl_array.Array, b: cl_array.Array) -> bool:
    """Whether two pyopencl arrays may share bytes."""
    if a.base_data != b.base_data:
        return False
    (a_low, a_high), (b_low, b_high) = (
        (x.offset + low, x.offset + high)
        for x in (a, b)
        for low, high in [span_bytes(x.shape, x.strides, x.dtype.itemsize)]
    )
    return a_low < b_high and b_low < a_high
