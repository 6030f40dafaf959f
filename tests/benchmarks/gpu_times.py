"""Device times of rooftune's plans and of cuBLAS (through PyTorch) in one process, on the same data.

Needs an NVIDIA GPU and PyTorch. Three clocks:

* a window: of profiling events (ours), between two CUDA events (cuBLAS), around one product;
* a row: one product in an unbroken row of 100, enqueued while a kernel before them sleeps;
* a graph: one product of 50 in a CUDA graph (cuBLAS only: OpenCL here has nothing like it).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rooftune.device.client import Client
from rooftune.matmul.executor import Prepared, prepare
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Elem, Shape

TORCH = {Elem.F16: torch.float16, Elem.BF16: torch.bfloat16, Elem.F32: torch.float32}
TYPES = {
    "f16": (Elem.F16, "full"),
    "bf16": (Elem.BF16, "full"),
    "tf32": (Elem.F32, "tf32"),
    "f32": (Elem.F32, "full"),
}
ROW = 100
GRAPH = 50
ROWS_CHECKED = 64
COVER_CYCLES = 6_000_000
EMPTY = "__kernel void empty(__global uint *p) { if (get_global_size(0) == 7) p[0] = 1; }"

Run = Callable[[], object]


def cuda_seconds(run: Run, count: int, asleep_cycles: int = 0) -> float:
    """Seconds of one execution of `count` between two events, all enqueued while the device sleeps."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if asleep_cycles:
        torch.cuda._sleep(asleep_cycles)
    start.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / count


def cublas_window(run: Run, samples: int = 20) -> float:
    """Median seconds between two events around one execution."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    return statistics.median(cuda_seconds(run, 1) for _ in range(samples))


def cublas_row(run: Run, samples: int = 10) -> float:
    """Median seconds of one execution in a row of them, launched into a stream."""
    return statistics.median(cuda_seconds(run, ROW, COVER_CYCLES) for _ in range(samples))


def graph_of(run: Run) -> torch.cuda.CUDAGraph:
    """A CUDA graph of 50 executions, replayed once."""
    run()  # what is made at a first call can't be made inside
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH):
            run()
    graph.replay()
    return graph


def cublas_graph(graph: torch.cuda.CUDAGraph, samples: int = 10) -> float:
    """Median seconds of one execution in the graph."""
    return statistics.median(cuda_seconds(graph.replay, 1) / GRAPH for _ in range(samples))


def our_window(client: Client, run: Run, samples: int = 15) -> float:
    """Median seconds of one execution by its profiling events, each sample at least 100 µs of them."""
    for _ in range(3):
        run()
    once = client.sample(run)
    repeats = max(1, min(64, round(100e-6 / once)))
    client.sample(run, repeats)
    return statistics.median(client.sample(run, repeats) for _ in range(samples))


def our_row(client: Client, launch: Callable[[None], object], samples: int = 7) -> float:
    """Median seconds of one execution in a row of them on a plain queue."""

    def wall(count: int, asleep_s: float) -> tuple[float, float]:
        client.sync()
        start = time.perf_counter()
        client.hold_back(client.queue, asleep_s)
        for _ in range(count):
            launch(None)
        enqueued = time.perf_counter() - start
        client.sync()
        return time.perf_counter() - start, enqueued

    cover_s = max(1e-3, 2 * max(wall(ROW, 1e-6)[1] for _ in range(3)))
    full = statistics.median(wall(ROW, cover_s)[0] for _ in range(samples))
    return (full - statistics.median(wall(0, cover_s)[0] for _ in range(samples))) / ROW


def empty_times(client: Client) -> tuple[float, float, float]:
    """Of an empty kernel: its window, and its time in a row with events and without."""
    kernel = client.kernel(EMPTY, "empty")
    buffer = client.empty(4)
    kernel.set_args(buffer)
    window = our_window(client, lambda: client.enqueue(kernel, (32,), (32,)), 30)
    with_events, quiet = (
        our_row(client, client.launcher(kernel, (32,), (32,), client.queue, quiet=q)) for q in (False, True)
    )
    return window, with_events, quiet


class Case:
    """One shape's operands, for both sides."""

    def __init__(self, client: Client, shape: Shape, elem: Elem, precision: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        self.client, self.elem = client, elem
        self.problem = shape.problem(elem, precision=precision)
        m, n, k = self.problem.m, self.problem.n, self.problem.k
        self.a, self.lhs = self._operand(m, k, shape.lhs_transposed)
        self.b, self.rhs = self._operand(k, n, shape.rhs_transposed)
        self.c = torch.empty(m, n, device="cuda", dtype=TORCH[elem])
        self.out = client.empty(m * n * elem.size_bytes)

    def _operand(self, rows: int, cols: int, transposed: bool) -> tuple[torch.Tensor, object]:
        shape = (cols, rows) if transposed else (rows, cols)
        stored = torch.randn(*shape, device="cuda").to(TORCH[self.elem])
        host = stored.cpu().view(torch.uint8).numpy().reshape(-1)
        return stored.T if transposed else stored, self.client.upload(host)

    def cublas(self) -> object:
        return torch.mm(self.a, self.b, out=self.c)

    def bound(self, plan: LaunchPlan) -> Prepared:
        return prepare(self.client, plan).bind(self.lhs, self.rhs, self.out)

    def our_error(self, run: Run, rows: int = ROWS_CHECKED) -> float:
        run()
        self.client.sync()
        raw = self.client.download(self.out, self.c.numel() * self.elem.size_bytes)
        values = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).view(TORCH[self.elem])
        return self._error(values.reshape(self.c.shape).cuda(), rows)

    def cublas_error(self, rows: int = ROWS_CHECKED) -> float:
        self.cublas()
        return self._error(self.c, rows)

    def _error(self, got: torch.Tensor, rows: int) -> float:
        """Relative Frobenius norm of the difference from float64, over so many rows."""
        count = self.a.shape[0]
        chosen = torch.arange(count) if rows >= count else torch.randint(0, count, (rows,))
        chosen = chosen.cuda()
        want = self.a[chosen].double() @ self.b.double()
        return ((got[chosen].double() - want).norm() / want.norm()).item()
