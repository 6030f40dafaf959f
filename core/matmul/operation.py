"""`matmul`: one product of the caller's arrays by the tuned candidate for its key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from ..device.client import Client
from ..errors import ArgumentError, DeviceFaultError, DtypeError, UnsupportedError, UsageError
from ..units import kind_text
from .arrays import Loaded, apart, common_dtype, elem_of, load_device, load_numpy, load_result, overlaps
from .copying import repacked, strided_copy
from .hot import key_of
from .problem import Elem, Problem, row_major
from .shapes import Product, View, multiply
from .tunables import MatmulInputs

if TYPE_CHECKING:
    from ..session import Session

PRECISIONS = ("full", "tf32")


@dataclass(frozen=True)
class Request:
    """What a caller asked for besides the operands; `precision` and `dtype` as given."""

    precision: str | None = None
    dtype: str | None = None
    client: Client | None = None
    queue: cl.CommandQueue | None = None
    wait_for: Sequence[cl.Event] = ()


@dataclass(frozen=True)
class Types:
    """The type both operands are brought to, as numpy and as candidates see it, and the precision."""

    dtype: np.dtype[Any]
    elem: Elem
    precision: str


def matmul(
    session: Session,
    a: Any,
    b: Any,
    *,
    out: Any = None,
    **asked: Any,
) -> Any:
    """See `rooftune.matmul`, which calls this with the process's session."""
    request = request_of(**asked)
    on_device = [isinstance(x, cl_array.Array) for x in (a, b)]
    if all(on_device):
        return of_device_arrays(session, a, b, out, request)[0]
    if any(on_device):
        raise UsageError(
            "matmul of a numpy array and a pyopencl array: the operands are in different places",
            hint="Send the numpy operand with pyopencl.array.to_device(queue, x) first.",
        )
    if request.wait_for and request.queue is None:
        raise UsageError("wait_for needs the queue to wait on", hint="Give queue= as well.")
    return _of_numpy(session, _array(a), _array(b), out, request)


def request_of(
    *,
    precision: str | None = None,
    dtype: str | None = None,
    client: Client | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> Request:
    """The request, after a look at what kind of thing each argument is. Raises ArgumentError."""
    for name, given, kind in (("client", client, Client), ("queue", queue, cl.CommandQueue)):
        if given is not None and not isinstance(given, kind):
            raise ArgumentError(f"{name} is {kind_text(given)}; it must be a {kind.__qualname__}")
    waits: tuple[Any, ...] = tuple(wait_for or ()) if isinstance(wait_for, Iterable | None) else (wait_for,)
    strange = [x for x in waits if not isinstance(x, cl.Event)]
    if strange:
        raise ArgumentError(f"wait_for holds {kind_text(strange[0])}; it must be a list of pyopencl events")
    return Request(precision, dtype, client, queue, waits)


def _array(operand: Any) -> np.ndarray[Any, Any]:
    """Raises ArgumentError for what numpy makes no plain array of numbers of."""
    if isinstance(operand, np.ma.MaskedArray):
        raise ArgumentError(
            "an operand is a masked array, and matmul knows no masks",
            hint="Give x.filled(0), or x.data to ignore the mask.",
        )
    try:
        return np.asarray(operand)
    except ValueError as error:
        raise UsageError(f"an operand is no array: {error}") from error


def _types(session: Session, a: np.dtype[Any], b: np.dtype[Any], request: Request) -> Types:
    precision = session.config.matmul.f32_precision if request.precision is None else request.precision
    if precision not in PRECISIONS:
        raise UsageError(f"precision '{precision}' is not known; allowed are {', '.join(PRECISIONS)}")
    if request.dtype not in (None, "bf16"):
        raise DtypeError(
            f"dtype={request.dtype!r} is not known; allowed is 'bf16', for uint16 data that holds bf16"
        )
    common = common_dtype(a, b, request.dtype)
    elem = elem_of(common, request.dtype)
    return Types(common, elem, precision if elem is Elem.F32 else "full")


def _check_device(client: Client, types: Types) -> None:
    if types.elem is Elem.F64 and not client.profile.has_f64:
        raise DtypeError(
            f"{client.device_name} has no float64", hint="Convert both operands with .astype(numpy.float32)."
        )


# --- numpy -------------------------------------------------------------------------------------


def _of_numpy(
    session: Session, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], out: Any, request: Request
) -> Any:
    types = _types(session, a.dtype, b.dtype, request)
    product = multiply(_numpy_view(a), _numpy_view(b))
    if out is not None:
        _check_out(out, np.ndarray, product, types.dtype)
        if not out.flags.writeable:
            raise UsageError("the array given as out is read-only", hint="Give one that can be written to.")
    direct = out is not None and out.flags.carray and not _shares(out, a) and not _shares(out, b)
    result = out if direct else np.empty(product.result_shape, types.dtype)
    if product.is_empty:
        result[...] = 0
    else:
        if request.client is None and request.queue is None:
            session.foresee([product.problem(types.elem, types.precision)])
        client = request.client or session.client_for(request.queue)
        _check_device(client, types)
        _fill(session, client, product, types, (a, b), result, request)
    if direct:
        return out
    if out is None:
        return result[()] if product.result_shape == () else result
    out[...] = result
    return out


def _shares(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return np.may_share_memory(a, b)


def _as(array: np.ndarray[Any, Any], types: Types) -> np.ndarray[Any, Any]:
    if array.dtype == types.dtype:
        return array
    if types.elem is Elem.BF16:  # bfloat16 and uint16 that holds it: the same bits
        return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).view(types.dtype)
    return array.astype(types.dtype)


def _numpy_view(array: np.ndarray[Any, Any]) -> View:
    return View(array.shape, tuple(s // array.itemsize for s in array.strides))


def _fill(
    session: Session,
    client: Client,
    product: Product,
    types: Types,
    operands: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    result: np.ndarray[Any, Any],
    request: Request,
) -> None:
    """Computes into `result`, a C-contiguous array, and waits for it."""
    client.check_events(request.wait_for)
    lhs, rhs = (load_numpy(client, _as(array, types)) for array in operands)
    placed = multiply(lhs.view, rhs.view)
    target = load_result(client, result, View(product.full_shape, row_major(product.full_shape)))
    revision = session.tuner.decisions.revision
    with client.using(request.queue, request.wait_for):
        simple, inputs = _run(session, client, placed, types, lhs, rhs, target)
        try:
            client.read_into(target.keep, target.buffer, in_place=client.profile.is_cpu)
        except DeviceFaultError as error:  # while it ran: the call that enqueued it saw nothing
            raise session.condemn(client, inputs, error) from error
    prepared = session.candidates(client).latest
    if simple and prepared and client.profile.is_cpu and session.tuner.decisions.revision == revision:
        given = (request.precision, request.dtype, request.client, request.queue)
        session.hot_numpy.remember(*operands, given, client, prepared, result)


# --- pyopencl arrays ---------------------------------------------------------------------------


def of_device_arrays(
    session: Session, a: cl_array.Array, b: cl_array.Array, out: Any, request: Request
) -> tuple[cl_array.Array, cl.Event]:
    """The product of two arrays on one device, enqueued, and the event it completes with."""
    queue = request.queue or a.queue or b.queue
    client = request.client or session.client_for(queue, a.context)
    queue = queue or client.queue
    if not a.context == b.context == client.context == queue.context:
        raise UsageError(
            "the operands belong to different OpenCL contexts, or to another than the client or queue",
            hint="Make both arrays, and the queue, in one context.",
        )
    types = _types(session, a.dtype, b.dtype, request)
    _check_device(client, types)
    product = multiply(load_device(a).view, load_device(b).view)
    if out is None:
        out = cl_array.empty(queue, product.result_shape, types.dtype)
    else:
        _check_out(out, cl_array.Array, product, types.dtype)
        if out.context != client.context:
            raise UsageError("out belongs to another OpenCL context than the operands")
    client.check_events(request.wait_for)
    waits = [*request.wait_for, *a.events, *b.events, *out.events]
    with client.using(queue, waits):
        if product.is_empty:
            event = _zero(client, out, types)
        else:
            event = _enqueue(session, client, queue, product, types, a, b, out, request)
    out.events[:] = [event]
    return out, event


def _enqueue(
    session: Session,
    client: Client,
    queue: cl.CommandQueue,
    product: Product,
    types: Types,
    a: cl_array.Array,
    b: cl_array.Array,
    out: cl_array.Array,
    request: Request,
) -> cl.Event:
    lhs, rhs = (_load(client, queue, x, types) for x in (a, b))
    product = multiply(lhs.view, rhs.view)
    target = load_device(out)
    target = Loaded(target.buffer, product.full_view(target.view), out)
    shared = overlaps(out, a) or overlaps(out, b)
    if not shared and _writable(target.view):
        revision = session.tuner.decisions.revision
        simple, _ = _run(session, client, product, types, lhs, rhs, target)
        if simple and types.dtype == a.dtype == b.dtype and session.tuner.decisions.revision == revision:
            _remember(session, client, queue, a, b, out, request)
        return client.last_event
    temporary = client.empty(int(np.prod(product.full_shape)) * types.elem.size_bytes)
    between = Loaded(temporary, View(product.full_shape, row_major(product.full_shape)))
    _run(session, client, product, types, lhs, rhs, between)
    source, destination = (between.buffer, between.view), (target.buffer, target.view)
    return strided_copy(client, types.elem, source, destination, label="CopyOutput")


def _load(client: Client, queue: cl.CommandQueue, array: cl_array.Array, types: Types) -> Loaded:
    """An operand in the common type. The conversion is enqueued, and the next command waits for it."""
    if array.dtype == types.dtype:
        return load_device(array)
    if types.elem is Elem.BF16:
        return load_device(array.view(types.dtype))
    converted = _dense(client, queue, array).astype(types.dtype)
    client.wait_also(converted.events)
    return load_device(converted)


def _dense(client: Client, queue: cl.CommandQueue, array: cl_array.Array) -> cl_array.Array:
    """The array on this queue, and without gaps: pyopencl converts nothing else."""
    if array.flags.forc:
        return array.with_queue(queue)
    loaded = load_device(array)
    buffer, _ = repacked(client, elem_of(array.dtype), (loaded.buffer, loaded.view))
    dense = cl_array.Array(queue, array.shape, array.dtype, data=buffer)
    dense.add_event(client.last_event)
    return dense


def _remember(
    session: Session,
    client: Client,
    queue: cl.CommandQueue,
    a: cl_array.Array,
    b: cl_array.Array,
    out: cl_array.Array,
    request: Request,
) -> None:
    """What ran just now will run again for such arrays, without the way it took to get here."""
    prepared = session.candidates(client).latest
    given = request.queue or a.queue
    if prepared is None or given is not queue:
        return
    key = key_of(a, b, out, request.precision, request.dtype, request.client, queue)
    disjoint = apart(out, a) and apart(out, b)
    session.hot.remember(key, client, prepared, queue, disjoint=disjoint)


def _check_out(out: Any, kind: type[Any], product: Product, dtype: np.dtype[Any]) -> None:
    if not isinstance(out, kind):
        library = "numpy" if kind is np.ndarray else "pyopencl"
        raise UsageError(f"out is {kind_text(out)}; for these operands it must be a {library} array")
    wrong_shape = tuple(out.shape) != product.result_shape
    if wrong_shape or out.dtype != dtype:
        kind_of_error = UsageError if wrong_shape else DtypeError
        raise kind_of_error(
            f"out has shape {tuple(out.shape)} and type {_type_name(out.dtype)}; "
            f"this product needs {product.result_shape} and {dtype.name}"
        )


def _type_name(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative else f"{dtype.name} in foreign byte order ({dtype.str})"


def _writable(view: View) -> bool:
    """Whether candidates can write it: unit column stride, then strides that never overlap."""
    reach = 1
    for position, (extent, stride) in enumerate(
        zip(reversed(view.shape), reversed(view.strides), strict=True)
    ):
        if extent == 1:
            continue
        if stride < reach or (position == 0 and stride != 1):
            return False
        reach = stride * extent
    return len(view.shape) <= 3 or _merged_axes(view) <= 2


def _merged_axes(view: View) -> int:
    """Batch axes left when those that follow one another in memory count as one."""
    axes = [(e, s) for e, s in zip(view.shape[:-2], view.strides[:-2], strict=True) if e > 1]
    breaks = sum(outer[1] != inner[0] * inner[1] for outer, inner in pairwise(axes))
    return min(len(axes), breaks + 1)


def _zero(client: Client, out: cl_array.Array, types: Types) -> cl.Event:
    """Zeros, where k is 0; nothing at all where the result is empty."""
    target = load_device(out)
    if 0 in target.view.shape:
        return client.marker()
    zero = client.upload(np.zeros(types.elem.size_bytes, np.uint8))
    source = View(target.view.shape, (0,) * len(target.view.shape))
    return strided_copy(client, types.elem, (zero, source), (target.buffer, target.view), label="CopyOutput")


# --- both --------------------------------------------------------------------------------------


def _run(
    session: Session, client: Client, product: Product, types: Types, lhs: Loaded, rhs: Loaded, out: Loaded
) -> tuple[bool, MatmulInputs]:
    """Enqueues the product on the current queue, tuning its key first if it is not known.

    Returns whether the operands were taken as they are, and what the tuner was given.
    """
    elem = types.elem
    for operand in (lhs, rhs, out):
        if operand.view.offset_bytes % elem.size_bytes:
            raise UsageError(
                f"an operand starts at byte {operand.view.offset_bytes} of its buffer, which is no multiple "
                f"of its element size, {elem.size_bytes}"
            )
    problem = product.problem(elem, types.precision, out.view)
    walkable = _walkable(problem)
    if not walkable:
        lhs, rhs = (
            _expanded(client, elem, view, loaded) for view, loaded in ((product.lhs, lhs), (product.rhs, rhs))
        )
        problem = multiply(lhs.view, rhs.view).problem(elem, types.precision, out.view)
    inputs = MatmulInputs(problem, lhs.buffer, rhs.buffer, out.buffer)
    session.execute(client, inputs)
    return walkable, inputs


def _walkable(problem: Problem) -> bool:
    try:
        problem.batch_walk()
    except UnsupportedError:
        return False
    return True


def _expanded(client: Client, elem: Elem, view: View, loaded: Loaded) -> Loaded:
    buffer, packed = repacked(client, elem, (loaded.buffer, view))
    return Loaded(buffer, packed, loaded.keep)
