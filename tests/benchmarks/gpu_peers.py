"""rooftune's kernels against cuBLAS (through PyTorch) on one NVIDIA GPU, in one process, on the same data.

    python tests/benchmarks/gpu_peers.py --suite must --json results.json

Every figure is a median of device times: ours from OpenCL profiling events, cuBLAS's from CUDA events around
one product. Around a short product such windows hold mostly the launch itself, so there the time of one
product in a row of 100 is taken too. A row waits behind a kernel asleep while it is enqueued:

* event: ours, every product with an event of its own, as a call without options leaves it;
* quiet: ours without events, as `event=False` asks for;
* stream: cuBLAS's, torch.mm(..., out=) again and again, without events between them;
* graph: cuBLAS's inside a CUDA graph of 50.

The ratio of a short product is graph / quiet. The window and the row's time of an empty kernel are printed
first. Errors are relative Frobenius norms against float64 over sampled rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import exp, log

import numpy as np
import torch
from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.executor import Prepared, prepare
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Elem, Problem, Shape

TORCH = {Elem.F16: torch.float16, Elem.BF16: torch.bfloat16, Elem.F32: torch.float32}
SHORT_S = 100e-6
ROWS = 64
EMPTY = "__kernel void empty(__global uint *p) { if (get_global_size(0) == 7) p[0] = 1; }"
SLEEP = """
__kernel void sleep(__global uint *p, uint microseconds)
{
    for (uint i = 0; i < microseconds; i++) asm volatile("nanosleep.u32 1000;" : : : "memory");
}
"""
STREAM = 100
COVER_CYCLES = 6_000_000
TYPES = {
    "f16": (Elem.F16, "full"),
    "bf16": (Elem.BF16, "full"),
    "tf32": (Elem.F32, "tf32"),
    "f32": (Elem.F32, "full"),
}
MUST = {
    "f16": "1024 2048 4096 8192 4096T 4096t 4096tT 1000 1023 4001x4099x4103 16x8192x8192 1x8192x8192",
    "bf16": "1024 2048 4096 8192 4096T 4096t 4096tT 1000 1023 4001x4099x4103",
    "tf32": "1024 2048 4096 8192 1000 1023 4001x4099x4103",
    "f32": "1024 1000 1023 2048 4096 8192 4001x4099x4103 1x8192x8192",
}
HEADING = (
    "type  shape                ours   cuBLAS    event    quiet   stream    graph  ratio TFLOP/s"
    "    error   cuBLAS  candidate"
)
MIXED = (
    "256 384 512 640 768 896 1024 1152 1536 1792 2048 2560 3072 3584 4096 5120 6144 "
    "128x4096x4096 4096x128x4096 4096x4096x128 64x8192x1024 8192x64x1024 512x512x8192 2048x2048x512 "
    "1024x4096x1024 "
    "16x4096x4096 32x8192x2048 1000 1500 3000 777 1111 2049 4000x1000x2000 511x1025x2047 "
    "1024T 2048T 4096t 3072tT 1x4096x4096 4096x1x4096"
)


@dataclass(frozen=True)
class Row:
    """One shape of one type: seconds, and errors relative to float64."""

    type: str
    shape: str
    candidate: str
    ours_s: float
    cublas_s: float
    ours_event_s: float | None
    ours_quiet_s: float | None
    cublas_stream_s: float | None
    cublas_graph_s: float | None
    ours_error: float
    cublas_error: float

    @property
    def ratio(self) -> float:
        """cuBLAS's time over ours: in a row without events for short products, else between events."""
        if self.ours_quiet_s is None or self.cublas_graph_s is None:
            return self.cublas_s / self.ours_s
        return self.cublas_graph_s / self.ours_quiet_s


def event_seconds(run: Callable[[], object], count: int, asleep: int = 0) -> float:
    """Seconds of one execution between two events; `asleep` clock cycles cover the enqueueing."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if asleep:
        torch.cuda._sleep(asleep)
    start.record()
    for _ in range(count):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / count


def cublas_times(run: Callable[[], object]) -> tuple[float, float | None, float | None]:
    """Median seconds of one product between two events; where it is short, in a row and in a graph too."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    single = statistics.median(event_seconds(run, 1) for _ in range(20))
    if single >= SHORT_S:
        return single, None, None
    stream = statistics.median(event_seconds(run, STREAM, COVER_CYCLES) for _ in range(10))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(50):
            run()
    graph.replay()
    return single, stream, statistics.median(event_seconds(graph.replay, 1) / 50 for _ in range(10))


def our_time(client: Client, run: Callable[[], object], samples: int = 15) -> float:
    """Median device seconds of one execution, each sample at least 100 µs of them."""
    for _ in range(3):
        run()
    once = client.sample(run)
    repeats = max(1, min(64, round(100e-6 / once)))
    for _ in range(2):
        client.sample(run, repeats)
    return statistics.median(client.sample(run, repeats) for _ in range(samples))


def stream_time(client: Client, launch: Callable[[None], object]) -> float:
    """Median seconds of one execution in an unbroken row of them, on a plain queue."""
    buffer = client.empty(4)
    sleep = client.kernel(SLEEP, "sleep")

    def wall(count: int, microseconds: int) -> tuple[float, float]:
        sleep.set_args(buffer, np.uint32(microseconds))
        client.sync()
        start = time.perf_counter()
        client.enqueue(sleep, (1,), (1,), queue=client.queue)
        client.queue.flush()
        for _ in range(count):
            launch(None)
        enqueued = time.perf_counter() - start
        client.sync()
        return time.perf_counter() - start, enqueued

    cover = max(1000, round(2e6 * max(wall(STREAM, 1)[1] for _ in range(3))))
    full = statistics.median(wall(STREAM, cover)[0] for _ in range(7))
    return (full - statistics.median(wall(0, cover)[0] for _ in range(7))) / STREAM


def error(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    rows = torch.randint(0, a.shape[0], (min(ROWS, a.shape[0]),), device="cuda")
    want = a[rows].double() @ b.double()
    return ((got[rows].double() - want).norm() / want.norm()).item()


def host_bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().cpu().view(torch.uint8).numpy()


class Case:
    """One shape's operands, for both sides."""

    def __init__(self, client: Client, shape: Shape, elem: Elem, precision: str) -> None:
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
        return stored.T if transposed else stored, self.client.upload(host_bytes(stored).reshape(-1))

    def cublas(self) -> object:
        return torch.mm(self.a, self.b, out=self.c)

    def bound(self, plan: LaunchPlan) -> Prepared:
        return prepare(self.client, plan).bind(self.lhs, self.rhs, self.out)

    def our_error(self, run: Callable[[], object]) -> float:
        run()
        self.client.sync()
        raw = self.client.download(self.out, self.c.numel() * self.elem.size_bytes)
        values = torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).view(TORCH[self.elem])
        got = values.reshape(self.c.shape).cuda()
        return error(got, self.a, self.b)


def contenders(problem: Problem, client: Client, names: list[str]) -> Iterator[tuple[str, LaunchPlan]]:
    for candidate in CANDIDATES:
        if names and not any(part in candidate.name for part in names):
            continue
        try:
            yield candidate.name, candidate.plan(problem, client.profile)
        except UnsupportedError:
            continue


def measure(client: Client, kind: str, text: str, names: list[str]) -> Row | None:
    elem, precision = TYPES[kind]
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    case = Case(client, Shape.parse(text), elem, precision)
    best: tuple[float, str, Prepared] | None = None
    for name, plan in contenders(case.problem, client, names):
        try:
            prepared = case.bound(plan)
            rough = client.sample(prepared.enqueue)
            if best is not None and rough > 3 * best[0]:
                continue
            seconds = our_time(client, prepared.enqueue)
        except Exception as problem:
            print(f"  {name}: {type(problem).__name__}: {str(problem)[:200]}", file=sys.stderr)
            continue
        if best is None or seconds < best[0]:
            best = (seconds, name, prepared)
    if best is None:
        return None
    single, stream, graph = cublas_times(case.cublas)
    prepared = best[2]
    again = our_time(client, prepared.enqueue)  # next to the peer's measurement, on the same warm device
    event = quiet = None
    if graph is not None:
        event, quiet = (stream_time(client, prepared.steady(client.queue, quiet=q)) for q in (False, True))
    errors = case.our_error(prepared.enqueue), error(case.c, case.a, case.b)
    return Row(kind, text, best[1], min(best[0], again), single, event, quiet, stream, graph, *errors)


def empty_times(client: Client) -> tuple[float, float, float]:
    """Of an empty kernel: its window, and its time in a row with events and without."""
    kernel = client.kernel(EMPTY, "empty")
    buffer = client.empty(4)
    kernel.set_args(buffer)
    window = our_time(client, lambda: client.enqueue(kernel, (32,), (32,)), 30)
    row = (
        stream_time(client, client.launcher(kernel, (32,), (32,), client.queue, quiet=q))
        for q in (False, True)
    )
    return (window, *row)


def operations(row: Row) -> float:
    shape = Shape.parse(row.shape)
    return 2 * shape.m * shape.n * shape.k


def line(row: Row) -> str:
    rows = (row.ours_event_s, row.ours_quiet_s, row.cublas_stream_s, row.cublas_graph_s)
    in_rows = " ".join(f"{x * 1e6:8.1f}" if x else " " * 8 for x in rows)
    times = f"{row.ours_s * 1e6:8.1f} {row.cublas_s * 1e6:8.1f} {in_rows}"
    rate = operations(row) / row.ours_s * 1e-12
    errors = f"{row.ours_error:8.1e} {row.cublas_error:8.1e}"
    return f"{row.type:5} {row.shape:16} {times} {row.ratio:6.2f} {rate:7.1f} {errors}  {row.candidate}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=["must", "mixed"], default="must")
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--shapes", nargs="+", help="instead of the suite's")
    parser.add_argument("--candidates", nargs="+", default=[], help="parts of names; all candidates if none")
    parser.add_argument("--json", help="file for all figures")
    options = parser.parse_args()
    client = Client()
    torch.manual_seed(0)
    window, *empty = empty_times(client)
    now = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    print(f"{client.device_name}, driver {client.profile.driver}, {now}")
    print(
        f"empty kernel: window {window * 1e6:.2f} µs, in a row {empty[0] * 1e6:.2f} µs with events and "
        f"{empty[1] * 1e6:.2f} without; times in µs, ratios cuBLAS / ours"
    )
    print(HEADING)
    rows = []
    for kind in options.types:
        for text in options.shapes or (MUST[kind] if options.suite == "must" else MIXED).split():
            row = measure(client, kind, text, options.candidates)
            if row is None:
                print(f"{kind:5} {text:16} no candidate ran")
                continue
            rows.append(row)
            print(line(row), flush=True)
        ratios = [log(row.ratio) for row in rows if row.type == kind]
        if ratios:
            mean = exp(sum(ratios) / len(ratios))
            print(f"{kind}: geometric mean of cuBLAS / ours over {len(ratios)} shapes: {mean:.3f}")
    if options.json:
        record = {
            "device": client.device_name,
            "driver": client.profile.driver,
            "at": now,
            "empty_window_s": window,
            "empty_event_s": empty[0],
            "empty_quiet_s": empty[1],
            "rows": [asdict(row) for row in rows],
        }
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
