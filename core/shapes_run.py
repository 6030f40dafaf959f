"""Tuning a list of shapes in order, in one process, and what it cost: the work of `tune shapes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from .device.client import Client
from .device.memory import check_available
from .errors import UsageError, WorkError
from .matmul.arrays import device_array
from .matmul.cost import compute_ops
from .matmul.key import MatmulAutotuneKey
from .matmul.operation import of_device_arrays, request_of
from .matmul.problem import Elem, Problem, Shape
from .matmul.tunables import MatmulInputs
from .session import Session
from .tuned_run import Cost, cost_of, failed

REPEAT = 20


@dataclass(frozen=True)
class ShapeRun:
    """One shape, and what its first call and the next ones cost."""

    shape: Shape
    problem: Problem
    key: MatmulAutotuneKey
    cost: Cost

    @property
    def gflops(self) -> float | None:
        """Giga-operations a second of the fastest later call."""
        next_s = self.cost.next_s
        return compute_ops(self.problem) / min(next_s) / 1e9 if next_s else None

    def to_json(self) -> dict[str, Any]:
        shape = self.shape
        return {
            "shape": shape.text,
            "m": shape.m,
            "n": shape.n,
            "k": shape.k,
            "batch": self.problem.batch,
            "dtype": str(self.problem.elem),
            "key": self.key.to_json(),
            "gflops": self.gflops,
            **self.cost.to_json(),
        }


@dataclass(frozen=True)
class ShapesReport:
    """All shapes of one run, in order."""

    device: str
    environment: str
    level: str
    shapes: tuple[ShapeRun, ...]

    @property
    def complete(self) -> bool:
        return all(run.cost.error is None for run in self.shapes)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "shapes": [run.to_json() for run in self.shapes],
        }


def tune_shapes(
    session: Session,
    client: Client,
    shapes: Sequence[Shape],
    *,
    elem: Elem = Elem.F32,
    batch: int = 1,
    repeat: int = REPEAT,
    precision: str | None = None,
    begin: Callable[[str], object] = lambda label: None,
    done: Callable[[ShapeRun], object] = lambda run: None,
) -> ShapesReport:
    """Tunes the shapes in order on random operands; `begin` is called with each one's label, `done` after it.

    A shape that no candidate can compute, or that is cold where measuring is not allowed, has its
    `error` set and does not stop the others. Raises UsageError for a wrong batch or repeat.
    """
    if batch < 1 or repeat < 0:
        raise UsageError(f"batch is {batch} and repeat {repeat}; batch must be at least 1, repeat at least 0")
    session.tunables(client)  # once per device, not part of any shape
    runs = []
    for shape in shapes:
        problem = session.problem(shape, elem, batch, precision)
        begin(shape.label)
        runs.append(_run(session, client, shape, problem, repeat))
        done(runs[-1])
    environment = session.config.environment.name
    return ShapesReport(client.device_name, environment, str(session.level), tuple(runs))


def random_inputs(client: Client, problem: Problem, seed: int = 0) -> MatmulInputs:
    """Random operands for a problem of fresh operands, on the device. Raises OutOfMemoryError."""
    sizes = [operand.size_bytes for operand in (problem.lhs, problem.rhs, problem.out)]
    client.check_fits(*sizes)
    check_available(sum(sizes) if client.profile.is_cpu else max(sizes))
    rng = np.random.default_rng(seed)
    lhs, rhs, out = (client.allocate(nbytes) for nbytes in sizes)
    for operand, buffer in ((problem.lhs, lhs), (problem.rhs, rhs)):
        if operand.size_bytes:
            client.write(buffer, _random(rng, operand.size_bytes, problem.elem))
    return MatmulInputs(problem, lhs, rhs, out)


def _random(rng: np.random.Generator, nbytes: int, elem: Elem) -> np.ndarray[Any, Any]:
    count = nbytes // elem.size_bytes
    if elem is Elem.F64:
        return rng.random(count) * 2 - 1
    values = rng.random(count, np.float32) * 2 - 1
    if elem is Elem.F16:
        return values.astype(np.float16)
    if elem is Elem.BF16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def _run(session: Session, client: Client, shape: Shape, problem: Problem, repeat: int) -> ShapeRun:
    key = MatmulAutotuneKey.build(problem, session.level)
    if 0 in (shape.m, shape.n, shape.k):
        return ShapeRun(shape, problem, key, Cost(source="memory"))
    try:
        session.context.progress("operands", 0, 1)
        inputs = random_inputs(client, problem)
        cost = cost_of(
            session,
            client,
            lambda: session.decide(client, inputs),
            lambda: session.execute(client, inputs),
            repeat,
            again=_call(session, client, inputs),
        )
    except WorkError as error:
        cost = failed(error)
    return ShapeRun(shape, problem, key, cost)


def _call(session: Session, client: Client, inputs: MatmulInputs) -> Callable[[], object]:
    """The product of these operands as programs call it: of device arrays, into one, and waited for."""
    problem, precision = inputs.problem, inputs.problem.precision
    operands = ((problem.lhs, inputs.lhs), (problem.rhs, inputs.rhs), (problem.out, inputs.out))
    a, b, out = (device_array(client.queue, operand, buffer) for operand, buffer in operands)
    dtype = "bf16" if problem.elem is Elem.BF16 else None
    request = request_of(precision=precision, dtype=dtype, client=client)

    def call() -> None:
        event = session.hot.launch(a, b, out, precision, dtype, client, None, None)
        if not isinstance(event, cl.Event):
            event = of_device_arrays(session, a, b, out, request)[1]
        client.wait(event)

    return call
