"""`matmul`: one product of the caller's arrays by the tuned candidate for its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.client import Client
from ..errors import DtypeError, UnsupportedError, UsageError
from .arrays import Loaded, common_dtype, elem_of, load_device, load_numpy, overlaps
from .copying import repacked, strided_copy
from .problem import Elem, Problem, row_major
from .shapes import Product, View, multiply
from .tunables import MatmulInputs

if TYPE_CHECKING:
    from ..session import Session

PRECISIONS = ("full", "tf32")


def matmul(
    session: Session,
    a: Any,
    b: Any,
    *,
    out: Any = None,
    dtype: str | None = None,
    precision: str | None = None,
    client: Client | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Any:
    """See `rooftune.matmul`, which calls this with the process's session."""
    precision = _precision(session, precision)
    if dtype not in (None, "bf16"):
        raise DtypeError(f"dtype={dtype!r} is not known; allowed is 'bf16', for uint16 data that holds bf16")
    on_device = [isinstance(x, cl_array.Array) for x in (a, b)]
    if all(on_device):
        return _of_device_arrays(session, a, b, out, dtype, precision, client, queue, wait_for)
    if any(on_device):
        raise UsageError(
            "matmul of a numpy array and a pyopencl array: the operands are in different places",
            hint="Send the numpy operand with pyopencl.array.to_device(queue, x) first.",
        )
    if wait_for is not None and queue is None:
        raise UsageError("wait_for needs the queue to wait on", hint="Give queue= as well.")
    a, b = np.asarray(a), np.asarray(b)
    client = client or session.client_for(queue)
    return _of_numpy(session, a, b, out, dtype, precision, client, queue, wait_for)


def _precision(session: Session, wanted: str | None) -> str:
    precision = wanted or session.config.matmul.f32_precision
    if precision not in PRECISIONS:
        raise UsageError(f"precision '{precision}' is not known; allowed are {', '.join(PRECISIONS)}")
    return precision


def _precision_of(elem: Elem, precision: str) -> str:
    return precision if elem is Elem.F32 else "full"


# --- numpy -------------------------------------------------------------------------------------


def _of_numpy(
    session: Session,
    a: np.ndarray[Any, Any],
    b: np.ndarray[Any, Any],
    out: Any,
    dtype: str | None,
    precision: str,
    client: Client,
    queue: cl.CommandQueue | None,
    wait_for: Sequence[cl.Event] | None,
) -> Any:
    common = common_dtype(a.dtype, b.dtype, dtype)
    elem = elem_of(common, dtype)
    a, b = a.astype(common, copy=False), b.astype(common, copy=False)
    product = multiply(_numpy_view(a), _numpy_view(b))
    if out is not None:
        _check_out(out, np.ndarray, product, common)
        if not out.flags.writeable:
            raise UsageError("the array given as out is read-only")
    direct = out is not None and out.flags.c_contiguous and not np.may_share_memory(out, a)
    direct = direct and not np.may_share_memory(out, b)
    result = out if direct else np.empty(product.result_shape, common)
    if product.is_empty:
        result[...] = 0
    else:
        _fill(session, client, product, elem, _precision_of(elem, precision), (a, b), result, queue, wait_for)
    if out is None or direct:
        return result[()] if product.result_shape == () and out is None else result
    out[...] = result
    return out


def _numpy_view(array: np.ndarray[Any, Any]) -> View:
    return View(array.shape, tuple(s // array.itemsize for s in array.strides))


def _fill(
    session: Session,
    client: Client,
    product: Product,
    elem: Elem,
    precision: str,
    operands: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    result: np.ndarray[Any, Any],
    queue: cl.CommandQueue | None,
    wait_for: Sequence[cl.Event] | None,
) -> None:
    """Computes into `result`, a C-contiguous array, and waits for it."""
    lhs, rhs = (load_numpy(client, array) for array in operands)
    placed = multiply(lhs.view, rhs.view)
    in_place = client.profile.is_cpu
    flags = cl.mem_flags.READ_WRITE
    memory = result.reshape(-1).view(np.uint8)
    if in_place:
        buffer = cl.Buffer(client.context, flags | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)
    else:
        buffer = client.empty(result.nbytes)
    target = Loaded(buffer, View(product.full_shape, row_major(product.full_shape)), memory)
    _run(session, client, placed, elem, precision, lhs, rhs, target, queue, wait_for)
    with client.using(queue):
        client.read_into(memory, buffer, in_place=in_place)


# --- pyopencl arrays ---------------------------------------------------------------------------


def _of_device_arrays(
    session: Session,
    a: cl_array.Array,
    b: cl_array.Array,
    out: Any,
    dtype: str | None,
    precision: str,
    client: Client | None,
    queue: cl.CommandQueue | None,
    wait_for: Sequence[cl.Event] | None,
) -> cl_array.Array:
    queue = queue or a.queue or b.queue
    client = client or session.client_for(queue, a.context)
    queue = queue or client.queue
    if not a.context == b.context == client.context:
        raise UsageError(
            "the operands belong to different OpenCL contexts, or to another than the client",
            hint="Make both arrays, and the queue, in one context.",
        )
    common = common_dtype(a.dtype, b.dtype, dtype)
    elem = elem_of(common, dtype)
    a, b = (x if x.dtype == common else x.astype(common, queue=queue) for x in (a, b))
    lhs, rhs = load_device(a), load_device(b)
    product = multiply(lhs.view, rhs.view)
    if out is None:
        out = cl_array.empty(queue, product.result_shape, common)
    else:
        _check_out(out, cl_array.Array, product, common)
    if 0 in product.full_shape:
        return out
    target = load_device(out)
    target = Loaded(target.buffer, product.full_view(target.view), out)
    shared = overlaps(out, a) or overlaps(out, b)
    if product.is_empty:
        _zero(client, elem, target, queue, wait_for)
        return out
    if not shared and _writable(target.view):
        events = [*(wait_for or ()), *a.events, *b.events, *out.events]
        _run(session, client, product, elem, _precision_of(elem, precision), lhs, rhs, target, queue, events)
        return out
    temporary = client.empty(int(np.prod(product.full_shape)) * elem.size_bytes)
    between = Loaded(temporary, View(product.full_shape, row_major(product.full_shape)))
    _run(session, client, product, elem, _precision_of(elem, precision), lhs, rhs, between, queue, wait_for)
    strided_copy(
        client,
        elem,
        (between.buffer, between.view),
        (target.buffer, target.view),
        queue=queue,
        label="CopyOutput",
    )
    return out


def _check_out(out: Any, kind: type[Any], product: Product, dtype: np.dtype[Any]) -> None:
    if not isinstance(out, kind):
        raise UsageError(
            f"out is a {type(out).__name__}; for these operands it must be a {kind.__qualname__}"
        )
    if tuple(out.shape) != product.result_shape or out.dtype != dtype:
        raise UsageError(
            f"out has shape {tuple(out.shape)} and type {out.dtype.name}; "
            f"this product needs {product.result_shape} and {dtype.name}"
        )


def _writable(view: View) -> bool:
    """Whether candidates can write it: unit column stride, then strides that never overlap."""
    shape, strides = view.shape, view.strides
    reach = 1
    for position, (extent, stride) in enumerate(zip(reversed(shape), reversed(strides), strict=True)):
        if extent == 1:
            continue
        if stride < reach or (position == 0 and stride != 1):
            return False
        reach = stride * extent
    return True


def _zero(
    client: Client, elem: Elem, target: Loaded, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] | None
) -> None:
    count = int(np.prod(target.view.shape))
    zeros = client.upload(np.zeros(count * elem.size_bytes, np.uint8))
    source = View(target.view.shape, row_major(target.view.shape))
    strided_copy(
        client,
        elem,
        (zeros, source),
        (target.buffer, target.view),
        queue=queue,
        wait_for=wait_for,
        label="CopyOutput",
    )


# --- both --------------------------------------------------------------------------------------


def _run(
    session: Session,
    client: Client,
    product: Product,
    elem: Elem,
    precision: str,
    lhs: Loaded,
    rhs: Loaded,
    out: Loaded,
    queue: cl.CommandQueue | None,
    wait_for: Sequence[cl.Event] | None,
) -> None:
    """Enqueues the product on `queue` (default: the client's), tuning its key first if it is not known."""
    for operand in (lhs, rhs, out):
        if operand.view.offset_bytes % elem.size_bytes:
            raise UsageError(
                f"an operand starts at byte {operand.view.offset_bytes} of its buffer, which is no multiple "
                f"of its element size, {elem.size_bytes}"
            )
    problem = product.problem(elem, precision, out.view)
    with client.using(queue, wait_for):
        if not _walkable(problem):
            lhs, rhs = (
                _expanded(client, elem, view, loaded)
                for view, loaded in ((product.lhs, lhs), (product.rhs, rhs))
            )
            problem = multiply(lhs.view, rhs.view).problem(elem, precision, out.view)
        session.execute(client, MatmulInputs(problem, lhs.buffer, rhs.buffer, out.buffer))


def _walkable(problem: Problem) -> bool:
    try:
        problem.batch_walk()
    except UnsupportedError:
        return False
    return True


def _expanded(client: Client, elem: Elem, view: View, loaded: Loaded) -> Loaded:
    buffer, packed = repacked(client, elem, (loaded.buffer, view))
    return Loaded(buffer, packed, loaded.keep)
