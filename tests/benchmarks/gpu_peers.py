"""rooftune's kernels against cuBLAS (through PyTorch) on one NVIDIA GPU, in one process, on the same data.

    python -m tests.benchmarks.gpu_peers [--suite must|mixed] [--types f16 ...] [--shapes 1000 ...]
                                         [--candidates PART ...] [--blocks 3] [--json FILE]

Times are medians of device times in µs. Both sides are measured in turn, in blocks; a figure is the median of
its blocks. The columns:

    window   between events around one product: ours, ours less an empty kernel's window, cuBLAS's. Of a short
             product such a window is mostly the launch
    row      one product in an unbroken row of 100, launched while the device sleeps: ours with an event each
             (a call without options), ours without (event=False), cuBLAS's launched into a stream
    graph    cuBLAS's in a CUDA graph of 50
    stream   the ratio that counts: cuBLAS's row over our row without events where products take under 100 µs,
             else cuBLAS's window over ours; then its least and largest value among the blocks
    graph    cuBLAS's graph over our row without events

Errors are relative Frobenius norms against float64 over sampled rows. Products of a vector and a large matrix
are also given as bytes read a second, beside the probed read bandwidth, which leaves out an empty kernel's
window, and beside the probe's own walk, both measured alike and in turn (`gpu_reads`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from math import exp, log

import torch
from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.executor import Prepared
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Problem, Shape
from rooftune.probes.prober import Prober

from .gpu_reads import Alike, beside_the_walk
from .gpu_times import (
    TYPES,
    Case,
    cublas_graph,
    cublas_row,
    cublas_window,
    empty_times,
    graph_of,
    our_row,
    our_window,
)

SHORT_S = 100e-6
LARGE_BYTES = 64 << 20
MUST = {
    "f16": "1024 2048 4096 8192 4096T 4096t 4096tT 1000 1023 4001x4099x4103 16x8192x8192 1x8192x8192",
    "bf16": "1024 2048 4096 8192 4096T 4096t 4096tT 1000 1023 4001x4099x4103",
    "tf32": "1024 2048 4096 8192 1000 1023 4001x4099x4103",
    "f32": "1024 1000 1023 2048 4096 8192 4001x4099x4103 1x8192x8192",
}
MIXED = (
    "256 384 512 640 768 896 1024 1152 1536 1792 2048 2560 3072 3584 4096 5120 6144 "
    "128x4096x4096 4096x128x4096 4096x4096x128 64x8192x1024 8192x64x1024 512x512x8192 2048x2048x512 "
    "1024x4096x1024 "
    "16x4096x4096 32x8192x2048 1000 1500 3000 777 1111 2049 4000x1000x2000 511x1025x2047 "
    "1024T 2048T 4096t 3072tT 1x4096x4096 4096x1x4096"
)
GROUPS = f"{'':22} {'window':^23} {'row':^23} {'graph':^7} {'stream':^17} {'graph':^5}"
HEADING = (
    "type  shape               ours  -empty  cuBLAS   event   quiet  cuBLAS  cuBLAS  ratio least  most ratio"
    " TFLOP/s    error   cuBLAS  candidate"
)


@dataclass(frozen=True)
class Block:
    """One turn of both sides: seconds. The last four only of short products."""

    ours_s: float
    cublas_s: float
    ours_event_s: float | None = None
    ours_quiet_s: float | None = None
    cublas_stream_s: float | None = None
    cublas_graph_s: float | None = None

    @property
    def ratio(self) -> float:
        """cuBLAS's time over ours: launched in a row without events if short, else in their windows."""
        if self.ours_quiet_s is None or self.cublas_stream_s is None:
            return self.cublas_s / self.ours_s
        return self.cublas_stream_s / self.ours_quiet_s


@dataclass(frozen=True)
class Row:
    """One shape of one type: the medians of its blocks, and errors relative to float64."""

    type: str
    shape: str
    candidate: str
    median: Block
    least_ratio: float
    most_ratio: float
    ours_error: float
    cublas_error: float
    alike: tuple[Alike, Alike] | None = None

    @property
    def ratio(self) -> float:
        return self.median.ratio

    @property
    def graph_ratio(self) -> float | None:
        graph, quiet = self.median.cublas_graph_s, self.median.ours_quiet_s
        return None if graph is None or quiet is None else graph / quiet


def medians(blocks: list[Block]) -> Block:
    """Each time's median over the blocks."""
    columns = zip(*(vars(block).values() for block in blocks), strict=True)
    return Block(*(None if None in column else statistics.median(column) for column in columns))


def contenders(problem: Problem, client: Client, names: list[str]) -> Iterator[tuple[str, LaunchPlan]]:
    for candidate in CANDIDATES:
        if names and not any(part in candidate.name for part in names):
            continue
        try:
            yield candidate.name, candidate.plan(problem, client.profile)
        except UnsupportedError:
            continue


def fastest(case: Case, names: list[str]) -> tuple[str, Prepared] | None:
    """The candidate with the shortest window."""
    client, tried = case.client, []
    for name, plan in contenders(case.problem, client, names):
        try:
            prepared = case.bound(plan)
            rough_s = min(client.sample(prepared.enqueue) for _ in range(3))
        except Exception as problem:
            print(f"  {name}: {type(problem).__name__}: {str(problem)[:200]}", file=sys.stderr)
            continue
        tried.append((rough_s, name, prepared))
    if not tried:
        return None
    close = [entry for entry in tried if entry[0] < 1.3 * min(tried, key=lambda one: one[0])[0]]
    if len(close) > 1:
        rounds = [[our_window(client, prepared.enqueue) for _, _, prepared in close] for _ in range(3)]
        windows = [statistics.median(column) for column in zip(*rounds, strict=True)]
        close = [(window_s, *entry[1:]) for window_s, entry in zip(windows, close, strict=True)]
    return min(close, key=lambda one: one[0])[1:]


def turns(case: Case, prepared: Prepared, count: int) -> list[Block]:
    """Blocks of both sides in turn."""
    client = case.client
    graph = graph_of(case.cublas) if cublas_window(case.cublas) < SHORT_S else None
    launches = [prepared.steady(client.queue, quiet=quiet) for quiet in (False, True)]

    def block() -> Block:
        windows = our_window(client, prepared.enqueue), cublas_window(case.cublas)
        if graph is None:
            return Block(*windows)
        rows = [our_row(client, launch) for launch in launches]
        return Block(*windows, *rows, cublas_row(case.cublas), cublas_graph(graph))

    return [block() for _ in range(count)]


def measure(client: Client, kind: str, text: str, names: list[str], blocks: int) -> Row | None:
    case = Case(client, Shape.parse(text), *TYPES[kind])
    found = fastest(case, names)
    if found is None:
        return None
    name, prepared = found
    measured = turns(case, prepared, blocks)
    ratios = [block.ratio for block in measured]
    errors = case.our_error(prepared.enqueue), case.cublas_error()
    row = Row(kind, text, name, medians(measured), min(ratios), max(ratios), *errors)
    if matrix_bytes(row) < LARGE_BYTES:
        return row
    return replace(row, alike=beside_the_walk(client, prepared.enqueue, matrix_bytes(row)))


def line(row: Row, empty_s: float) -> str:
    shape, at = Shape.parse(row.shape), row.median
    seconds = (
        *(at.ours_s, at.ours_s - empty_s, at.cublas_s),
        *(at.ours_event_s, at.ours_quiet_s, at.cublas_stream_s, at.cublas_graph_s),
    )
    times = " ".join(f"{x * 1e6:7.1f}" if x else " " * 7 for x in seconds)
    ratios = f"{row.ratio:6.2f} {row.least_ratio:5.2f} {row.most_ratio:5.2f}"
    graph = f"{row.graph_ratio:5.2f}" if row.graph_ratio else " " * 5
    rate = 2 * shape.m * shape.n * shape.k / (at.ours_quiet_s or at.ours_s) * 1e-12
    errors = f"{row.ours_error:8.1e} {row.cublas_error:8.1e}"
    name = row.candidate.removeprefix("matmul_")
    return f"{row.type:5} {row.shape:16} {times} {ratios} {graph} {rate:7.1f} {errors}  {name}"


def matrix_bytes(row: Row) -> int:
    """Bytes of the matrix in a product with a vector; 0 of a product of two matrices."""
    shape = Shape.parse(row.shape)
    if 1 not in (shape.m, shape.n):
        return 0
    return max(shape.m, shape.n) * shape.k * TYPES[row.type][0].size_bytes


def reading(row: Row, empty: tuple[float, float, float], probed: dict[str, float]) -> str:
    """What a product with a vector reads a second, beside the probes."""
    nbytes, at = matrix_bytes(row), row.median
    ours = {"window": at.ours_s, "less an empty one": at.ours_s - empty[0], "row": at.ours_quiet_s}
    cublas = {"window": at.cublas_s, "row": at.cublas_stream_s, "graph": at.cublas_graph_s}

    def rates(times: dict[str, float | None]) -> str:
        return ", ".join(f"{name} {nbytes / s * 1e-12:.2f}" for name, s in times.items() if s)

    shares = ", ".join(
        f"{nbytes / ours['less an empty one'] / value:.2f} of {name}" for name, value in probed.items()
    )
    return f"  TB/s read: ours {rates(ours)}; cuBLAS {rates(cublas)}; less an empty window {shares}"


def alike(row: Row, probed: dict[str, float]) -> str:
    """The product and the probe's walk, measured in the same way."""
    assert row.alike is not None
    nbytes, (ours, walk) = matrix_bytes(row), row.alike
    best, stored = nbytes / ours.row_s, next(iter(probed.values()))
    return (
        f"  measured alike: best of rows {best * 1e-12:.2f}, {best / stored:.2f} of the probe's figure, "
        f"{walk.row_s / ours.row_s:.2f} of its walk ({nbytes / walk.row_s * 1e-12:.2f}); single launches "
        f"{nbytes / ours.single_s * 1e-12:.2f}, {walk.single_s / ours.single_s:.2f} of its walk "
        f"({nbytes / walk.single_s * 1e-12:.2f})"
    )


def probed_reads(prober: Prober, nbytes: int) -> dict[str, float]:
    """Bytes a second that the probes read: of a set as large as the matrix, and of memory not in a cache."""
    return {
        f"the probe over {nbytes >> 20} MiB": prober.bandwidth("read", nbytes).value,
        "the probe's cold reads": prober.bandwidth("read", state="cold").value,
    }


def mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


def summary(kind: str, rows: list[Row]) -> str:
    graphs = [row.graph_ratio or row.ratio for row in rows]
    means = f"{mean([row.ratio for row in rows]):.3f}, short ones against the graph {mean(graphs):.3f}"
    return f"{kind}: geometric mean of cuBLAS / ours over {len(rows)} shapes: {means}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=["must", "mixed"], default="must")
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--shapes", nargs="+", help="instead of the suite's")
    parser.add_argument("--candidates", nargs="+", default=[], help="parts of names; all candidates if none")
    parser.add_argument("--blocks", type=int, default=3, help="turns of both sides (default: 3)")
    parser.add_argument("--json", help="file for all figures")
    options = parser.parse_args()
    client = Client()
    prober = Prober(client)
    torch.manual_seed(0)
    empty = empty_times(client)
    now = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime())
    print(f"{client.device_name}, driver {client.profile.driver}, {now}")
    print(
        f"empty kernel, µs: window {empty[0] * 1e6:.2f}, in a row {empty[1] * 1e6:.2f} with events, "
        f"{empty[2] * 1e6:.2f} without; {options.blocks} blocks"
    )
    print(f"{GROUPS}\n{HEADING}")
    rows = []
    for kind in options.types:
        for text in options.shapes or (MUST[kind] if options.suite == "must" else MIXED).split():
            row = measure(client, kind, text, options.candidates, options.blocks)
            if row is None:
                print(f"{kind:5} {text:16} no candidate ran")
                continue
            rows.append(row)
            print(line(row, empty[0]), flush=True)
            if matrix_bytes(row) >= LARGE_BYTES:
                probed = probed_reads(prober, matrix_bytes(row))
                print(f"{reading(row, empty, probed)}\n{alike(row, probed)}", flush=True)
        of_kind = [row for row in rows if row.type == kind]
        if of_kind:
            print(summary(kind, of_kind))
    if options.json:
        record = {
            "device": client.device_name,
            "driver": client.profile.driver,
            "at": now,
            "empty_window_s": empty[0],
            "empty_event_s": empty[1],
            "empty_quiet_s": empty[2],
            "rows": [asdict(row) for row in rows],
        }
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
