"""The library's functions: what the command prints, as values. Documented for users of `import rooftune`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from . import session as sessions
from .device.opencl import cl
from .errors import UsageError
from .matmul.hot import Array
from .matmul.operation import matmul as compute
from .matmul.operation import of_device_arrays, request_of
from .matmul.problem import Elem, Shape
from .session import Session, default_session
from .tuning.bounds import Bounds
from .units import kind_text

if TYPE_CHECKING:
    from pathlib import Path

    from .device.client import Client
    from .spec.kernel import TunedKernel


F = TypeVar("F", bound=Callable[..., Any])


def _repeated(matmul: F) -> F:
    """`matmul`, but a call without options that was made before is repeated right away.

    Its options are one mapping here, since filling in the defaults of seven keywords takes longer than all
    else that is done before the call is found.
    """

    @wraps(matmul)
    def repeated(a: Any, b: Any, *, out: Any = None, **options: Any) -> Any:
        if not options:
            again = sessions.calls.again.get(id(out))
            if again is not None and again(a, b, out):
                return out
        return matmul(a, b, out=out, **options)

    return repeated  # type: ignore[return-value]


@_repeated
def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    dtype: str | None = None,
    precision: str | None = None,
    client: Client | None = None,
    queue: cl.CommandQueue | None = None,
    wait_for: Sequence[cl.Event] | None = None,
    event: bool = True,
) -> Any:
    """The matrix product of two arrays, by the kernel tuned for this device, shape, layout and type.

    Shapes follow numpy.matmul: 1-D operands count as a row and a column, batch axes broadcast. Two
    numpy arrays give a numpy array, and the call returns when it is computed. Two pyopencl arrays
    give a pyopencl array: nothing is copied to the host, and the work is enqueued, not waited for.

    Element types are float16, bfloat16 (of ml_dtypes), float32 and float64; mixed types are promoted
    as numpy promotes. `dtype="bf16"` takes uint16 arrays as bfloat16 data. Accumulation is in float32
    (float64 for float64). `precision` is for float32: "full" (the default; error no worse than that of
    plain float32 multiply-adds) or "tf32". `out`, of the product's own shape and
    type, takes the result; where it overlaps an operand or has
    strides that no kernel writes, the result goes through a temporary. `queue` is where the work is
    enqueued (default: the first operand's own), after `wait_for` and after the events that the arrays
    carry; a new key is tuned on these operands first, and that waits for those events here. As pyopencl's
    own operations do, it leaves the event of its work in the result's `events`: one that completes after
    all that were there. `enqueue_matmul` returns that event. A queue may be
    out-of-order. `client` computes on a device opened before. `event=False`, with `out`, says that no event
    is wanted for products met before: on NVIDIA devices that spares 2 µs of a launch. Nothing but the
    queue's own order then tells when the result is there.

    The first call with a new key measures candidates, for seconds; the decision is stored.

    Raises UsageError (a ValueError) for shapes that do not multiply, DtypeError (a TypeError) for
    other element types, DeviceError without a device, WorkError when no candidate can run.
    """
    session = sessions.current or default_session()
    if out is not None and session.hot.launch(
        a, b, out, precision, dtype, client, queue, wait_for, not event
    ):
        return out
    if wait_for is None:
        result = session.hot_numpy.multiply(a, b, precision, dtype, client, queue, out)
        if result is not None:
            return result
    asked = {"precision": precision, "dtype": dtype, "client": client, "queue": queue, "wait_for": wait_for}
    return compute(session, a, b, out=out, **asked)


def enqueue_matmul(
    queue: cl.CommandQueue,
    a: Array,
    b: Array,
    out: Array,
    *,
    dtype: str | None = None,
    precision: str | None = None,
    client: Client | None = None,
    wait_for: Sequence[cl.Event] | None = None,
) -> cl.Event:
    """Enqueues the product of two pyopencl arrays into `out`, and returns its event.

    Like `matmul` with `out` and `queue`, in the manner of pyopencl's own enqueue functions. The event
    completes with the product, whatever number of kernels it takes.

    Raises what `matmul` raises, and UsageError when an argument is not a pyopencl array.
    """
    session = default_session()
    event = session.hot.launch(a, b, out, precision, dtype, client, queue, wait_for)
    if isinstance(event, cl.Event):
        return event
    for name, array in (("a", a), ("b", b), ("out", out)):
        if not isinstance(array, Array):
            raise UsageError(
                f"{name} is {kind_text(array)}; enqueue_matmul takes pyopencl arrays",
                hint="matmul() takes numpy arrays as well.",
            )
    request = request_of(precision=precision, dtype=dtype, client=client, queue=queue, wait_for=wait_for)
    return of_device_arrays(session, a, b, out, request)[1]


def tune(
    shapes: Sequence[str | int],
    *,
    dtype: str = "f32",
    batch: int = 1,
    precision: str | None = None,
    repeat: int = 20,
    device: str | int | None = None,
    session: Session | None = None,
) -> dict[str, Any]:
    """Tunes shapes in order on random operands; what `tune shapes --json` prints, without its schema.

    A shape is a number for a square or text such as "64x4096x1024T". Raises UsageError for a wrong
    shape, type or number, DeviceError without a device; a shape that could not be computed has its
    "error" set.
    """
    from .shapes_run import tune_shapes

    session = session or default_session()
    given = [shapes] if isinstance(shapes, str | int) else shapes
    parsed = [Shape.parse(str(shape)) for shape in given]
    return tune_shapes(
        session,
        session.client(device),
        parsed,
        elem=Elem.parse(dtype),
        batch=batch,
        repeat=repeat,
        precision=precision,
    ).to_json()


def decisions(
    shapes: Sequence[str | int] = (),
    *,
    dtype: str = "f32",
    device: str | int | None = None,
    session: Session | None = None,
) -> list[dict[str, Any]]:
    """Stored decisions, one record each, as `tune decisions` prints them.

    All of the environment, or those of the shapes' keys on a device (the default one).
    """
    from .decided import stored_records

    session = session or default_session()
    parsed = [Shape.parse(str(shape)) for shape in shapes]
    return stored_records(session, parsed, elem=Elem.parse(dtype), device=device)


def devices() -> list[dict[str, Any]]:
    """The OpenCL devices found, as `tune devices --json` lists them."""
    from .device.discovery import list_devices

    return [device.to_json() for device in list_devices()]


def probe(
    what: str = "all",
    *,
    dtype: str | None = None,
    access: str | None = None,
    working_set_bytes: int | None = None,
    cold_reads: bool = False,
    sweep: bool = False,
    fresh: bool = False,
    device: str | int | None = None,
    session: Session | None = None,
) -> dict[str, Any]:
    """Measures, or recalls, what a device can do; what `tune probe --json` prints, without its schema.

    `what` is "compute" (operations a second of `dtype`, or of all), "bandwidth" (bytes a second of
    `access`: read, write or copy, over a working set of so many bytes), "launch-overhead" (seconds) or
    "all". `fresh` measures again what is stored. A probe without a value has "error" set. Raises
    UsageError for wrong names and sizes, DeviceError without a device.
    """
    session = session or default_session()
    return session.probe(
        session.client(device),
        what,
        dtype=dtype,
        access=access,
        working_set_bytes=working_set_bytes,
        cold_reads=cold_reads,
        sweep=sweep,
        fresh=fresh,
    ).to_json()


def bounds_for(
    client: Client, *, ops: int = 0, nbytes: int = 0, dtype: str = "f32", session: Session | None = None
) -> Bounds:
    """The least time `ops` operations of `dtype` and `nbytes` moved bytes take: bounds for one's own kernels.

    For `TunableSet.with_bounds`. `ops` counts a multiply-add as two; `nbytes` counts each input and
    output once. What is 0 bounds nothing. The device's peaks are probed now where they are not stored.
    Raises DtypeError for a type without probes, UsageError for a negative number.
    """
    session = session or default_session()
    return session.bounds_for(client, ops, nbytes, Elem.parse(dtype))


def kernel(
    name: str | Path,
    *,
    client: Client | None = None,
    device: str | int | None = None,
    session: Session | None = None,
) -> TunedKernel:
    """A kernel described in a file, to be called with its best configuration.

    `name` is the path of a specification, or the name of one that `tune kernel` has tuned in this
    environment: it was stored with its source then. Its page tells what a specification says.

        add = rooftune.kernel("vector_add")
        event = add(c, a, b, n, problem_size=n)

    Raises SpecError (a ValueError) for a specification that is wrong, UsageError for an unknown name.
    """
    from .spec.kernel import TunedKernel
    from .spec.registry import find_spec

    session = session or default_session()
    return TunedKernel(session, client or session.client(device), find_spec(session.store, name))
