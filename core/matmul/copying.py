"""Moving an array to another layout on the device: repacked operands and outputs no candidate can write."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
import pyopencl as cl

from ..device.client import Client
from .problem import Elem, row_major
from .shapes import View

_INTEGER = {2: "ushort", 4: "uint", 8: "ulong"}


def strided_copy(
    client: Client,
    elem: Elem,
    source: tuple[cl.Buffer, View],
    target: tuple[cl.Buffer, View],
    *,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
    label: str = "CopyOperand",
) -> cl.Event:
    """Copies `source` to `target`, of equal shapes and any strides; enqueued, not waited for."""
    shape = source[1].shape
    triples = np.array([shape, source[1].strides, target[1].strides], np.int64).T
    text = (files("rooftune.matmul") / "kernels" / "strided_copy.cl").read_text()
    options = (f"-DELEM={_INTEGER[elem.size_bytes]}", f"-DRANK={len(shape)}")
    kernel = client.kernel(text, "strided_copy", options)
    offsets = [np.int64(view.offset_bytes // elem.size_bytes) for _, view in (source, target)]
    axes = client.upload(np.ascontiguousarray(triples).tobytes())
    kernel.set_args(source[0], offsets[0], target[0], offsets[1], axes)
    count = int(np.prod(shape, dtype=np.int64))
    return client.enqueue(kernel, (count,), None, queue=queue, wait_for=wait_for, label=label)


def repacked(
    client: Client, elem: Elem, source: tuple[cl.Buffer, View], *, queue: cl.CommandQueue | None = None
) -> tuple[cl.Buffer, View]:
    """A row-major copy of `source` in a buffer of its own."""
    shape = source[1].shape
    buffer = client.empty(int(np.prod(shape, dtype=np.int64)) * elem.size_bytes)
    target = (buffer, View(shape, row_major(shape)))
    strided_copy(client, elem, source, target, queue=queue)
    return target
