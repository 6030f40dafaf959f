"""rooftune on a CPU device against numpy's OpenBLAS, and against CLBlast on the same device.

    python -m tests.benchmarks.cpu_peers [--device TEXT] [--blocks 7] [--plans] [--each] [SHAPE[:TYPE]...]

Peers alternate in blocks, and each block is a fresh process that warms up, then times calls on the same
operands, synchronised one by one: within one process the spinning threads of one library slow the others
down. A block's figure is its median call, a ratio is the peer's figure by rooftune's of the same turn (above
1, rooftune is faster), and what is printed is the median of the ratios with their range. rooftune is the
tuned product, on operands that are on the device, allocated by its client, so that they lie in huge pages as
numpy's do; the first block tunes, and is not counted. numpy chooses its threads and kernel itself. Decisions
and compiled kernels are kept in a temporary folder, or in that of --keep. --plans adds the winner's kernels
enqueued directly, --small-pages the product of operands that the OpenCL runtime allocated, --each a line a
block: its figure, and how many cores were busy, which of OpenBLAS are those that spin as well.

Further figures (--more, alone without shapes after --only-more): f16 and bf16 products of 1024 against those
of f32, in turns in one process; a matrix times a vector and a vector times a matrix against the probed read
bandwidth (on device arrays, and on numpy operands used in place), and against the probe's own walk in turns
with them (of its walks the one with the higher median): the quartiles of the turns' ratios, and the best
turn of the one by the best of the other; and 64x64x64 called back to back: an empty kernel of the same
global size, the product's kernel enqueued directly, `matmul`, and what it is allowed to take.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

SHAPES = (
    "256 512 768 1000 1024 2048 4096x64x1024 64x4096x1024 128x128x8192 4096x4096x64 "
    "1024:f64 1024:f16 1024:bf16 1024T 1024t"
)
HALF_TYPES = ("f16", "bf16")
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
WARM_UP_S = 0.3
LEAST_CALLS = 5
VECTOR_CALLS = 5  # in a turn
ALSO = {"plan": "plan alone", "small": "in small pages"}
LONG_S = 2.0  # a block of calls that take seconds each stops here


def operands(shape: str, elem: str) -> tuple[np.ndarray, np.ndarray]:
    from rooftune.matmul.problem import Shape

    parsed = Shape.parse(shape)
    rng = np.random.default_rng(7)

    def draw(rows: int, cols: int, transposed: bool) -> np.ndarray:
        drawn = rng.random((cols, rows) if transposed else (rows, cols), np.float32)
        if elem == "bf16":
            stored: np.ndarray = (drawn.view(np.uint32) >> 16).astype(np.uint16)
        else:
            stored = drawn.astype(TYPES[elem])
        return stored.T if transposed else stored

    return draw(parsed.m, parsed.k, parsed.lhs_transposed), draw(parsed.k, parsed.n, parsed.rhs_transposed)


def timed(call: Callable[[], object], seconds: float) -> dict[str, Any]:
    """The median of single calls, after calls that are not counted."""
    end = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < end:
        call()
    times: list[float] = []
    cpu_s, start = time.process_time(), time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds or (len(times) < LEAST_CALLS and passed < LONG_S):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    busy = (time.process_time() - cpu_s) / (time.perf_counter() - start)
    return {"median_s": median(times), "min_s": min(times), "calls": len(times), "cores_busy": busy}


def numpy_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    a, b = operands(shape, elem)
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    result = timed(lambda: np.matmul(a, b, out=out), seconds)
    blas = [info for info in threadpool_info() if info["user_api"] == "blas"]
    described = [
        f"{x['internal_api']} {x['version']} {x.get('architecture')} x{x['num_threads']}" for x in blas
    ]
    return {**result, "what": ", ".join(described)}


def on_device(
    shape: str, elem: str, device: str | None, small_pages: bool = False
) -> tuple[Any, Any, Any, Any]:
    """(client, lhs, rhs, out) as arrays on the device."""
    import pyopencl.array as cl_array
    import rooftune as rt

    client = rt.Client(device)
    a, b = operands(shape, elem)
    allocator = None if small_pages else client.allocate

    def send(x: np.ndarray) -> Any:
        rows = np.ascontiguousarray(x if x.flags.c_contiguous else x.T)
        stored = cl_array.to_device(client.queue, rows, allocator=allocator)
        return stored if x.flags.c_contiguous else stored.T

    out = cl_array.empty(client.queue, (a.shape[0], b.shape[1]), a.dtype, allocator=allocator)
    return client, send(a), send(b), out


def rooftune_call(
    shape: str, elem: str, device: str | None, small_pages: bool = False
) -> Callable[[], None]:
    """The tuned product, synchronised, tuned by a first call."""
    import rooftune as rt

    client, a, b, out = on_device(shape, elem, device, small_pages)
    dtype = "bf16" if elem == "bf16" else None

    def call() -> None:
        rt.matmul(a, b, out=out, dtype=dtype, client=client)
        client.wait(out.events[-1])

    call()
    return call


def rooftune_block(
    shape: str, elem: str, seconds: float, device: str | None, small_pages: bool = False
) -> dict[str, Any]:
    call = rooftune_call(shape, elem, device, small_pages)
    return {**timed(call, seconds), "what": winner(shape, elem, device)}


def types_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    """Products of the half types against those of `elem`, call by call in turns."""
    from rooftune.tuning.ties import in_turn

    calls = {one: rooftune_call(shape, one, device) for one in (elem, *HALF_TYPES)}
    times: dict[str, list[float]] = {one: [] for one in calls}
    end = time.perf_counter() + max(3.0, 10 * seconds)
    while time.perf_counter() < end:
        for one in in_turn(list(calls), len(times[elem])):
            times[one].append(total_s(calls[one], 1))
    counted = {one: taken[LEAST_CALLS:] for one, taken in times.items()}
    return {
        one: {"median_s": median(taken), "by_first": quarters(taken, counted[elem])}
        for one, taken in counted.items()
    }


def winner(shape: str, elem: str, device: str | None) -> str:
    import rooftune as rt

    record = rt.decisions([shape], dtype=elem, device=device)[-1]
    names = [result["outcome"].get("Ok") for result in record["results"]]
    return next(str(ok["name"]) for ok in names if ok and ok["index"] == record["fastest_index"])


def plan_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    """The winner's kernels, enqueued directly."""
    from rooftune.matmul.executor import prepare
    from rooftune.matmul.problem import Elem, Shape

    client, a, b, out = on_device(shape, elem, device)
    name = winner(shape, elem, device)
    plan = candidate(name).plan(Shape.parse(shape).problem(Elem(elem)), client.profile)
    prepared = prepare(client, plan).bind(a.base_data, b.base_data, out.base_data)
    return {**timed(lambda: client.wait(prepared.enqueue()[-1]), seconds), "what": name}


def candidate(name: str) -> Any:
    from rooftune.matmul.candidates import CANDIDATES

    return next(c for c in CANDIDATES if c.name == name)


def clblast_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    library = ctypes.CDLL("libclblast.so.1")
    client, a, b, out = on_device(shape, elem, device)
    (m, k), n = a.shape, b.shape[1]
    names = {"f32": ("CLBlastSgemm", ctypes.c_float), "f64": ("CLBlastDgemm", ctypes.c_double)}
    name, scalar = names[elem]
    size, handle = ctypes.c_size_t, ctypes.c_void_p
    queue = handle(client.queue.int_ptr)

    def side(x: Any) -> tuple[ctypes.c_int, Any, Any, Any]:
        transposed = not x.flags.c_contiguous
        pitch = x.shape[0] if transposed else x.shape[1]
        return ctypes.c_int(112 if transposed else 111), handle(x.data.int_ptr), size(0), size(pitch)

    (turn_a, *rest_a), (turn_b, *rest_b) = side(a), side(b)

    def call() -> None:
        status = getattr(library, name)(
            ctypes.c_int(101), turn_a, turn_b, size(m), size(n), size(k), scalar(1), *rest_a, *rest_b,
            scalar(0), handle(out.data.int_ptr), size(0), size(n), ctypes.byref(queue), None,
        )  # fmt: skip
        assert status == 0, f"CLBlast returned {status}"
        client.queue.finish()

    call()
    return {**timed(call, seconds), "what": "CLBlast"}


def overhead_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    """Calls enqueued back to back, against an empty kernel of the same global size."""
    import pyopencl as cl
    import rooftune as rt
    from rooftune.matmul.executor import prepare
    from rooftune.matmul.problem import Elem, Shape

    client, a, b, out = on_device(shape, elem, device)

    def matmul() -> None:
        rt.matmul(a, b, out=out, client=client)

    matmul()
    name = winner(shape, elem, device)
    plan = candidate(name).plan(Shape.parse(shape).problem(Elem(elem)), client.profile)
    launch = prepare(client, plan).bind(a.base_data, b.base_data, out.base_data).steady(client.queue)
    call = plan.calls[0]
    empty = client.kernel("__kernel void empty(int x) {}", "empty")
    empty.set_args(np.int32(0))

    def direct() -> None:
        launch(None)

    def nothing() -> None:
        cl.enqueue_nd_range_kernel(client.queue, empty, call.global_size, call.local_size)

    ways = {"empty": nothing, "direct": direct, "matmul": matmul}
    per_call: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(40):
        for way, launch_once in ways.items():
            launch_once()
            client.queue.finish()
            began = time.perf_counter()
            for _ in range(200):
                launch_once()
            client.queue.finish()
            per_call[way].append((time.perf_counter() - began) / 200)
    peak_ops = float(rt.probe("compute", dtype=elem, device=device)["probes"][0]["value"])
    m, k, n = (*a.shape, b.shape[1])
    found = {f"{way}_s": median(times[5:]) for way, times in per_call.items()}
    arithmetic_s = m * n * (2 * k - 1) / peak_ops
    return {
        **found, "arithmetic_s": arithmetic_s, "allowed_s": 1.5 * found["empty_s"] + arithmetic_s,
        "what": name, "global_size": list(call.global_size),
    }  # fmt: skip


def vector_block(shape: str, elem: str, seconds: float, device: str | None) -> dict[str, Any]:
    """A matrix times a vector, against the probed bandwidth of reading as much, and against the probe's own
    walks taken in turns with it: the machine's bandwidth moves by a tenth between minutes."""
    import rooftune as rt
    from rooftune.probes.bandwidth import Mover, walks
    from rooftune.tuning.ties import in_turn

    client, a, b, out = on_device(shape, elem, device)
    lhs, rhs = operands(shape, elem)
    result = np.empty((lhs.shape[0], rhs.shape[1]), lhs.dtype)

    def on_arrays() -> None:
        rt.matmul(a, b, out=out, client=client)
        client.wait(out.events[-1])

    def in_place() -> None:
        rt.matmul(lhs, rhs, out=result, client=client)

    m, n, k = (int(x) for x in shape.split("x"))
    read_bytes, matrix_bytes = 4 * m * n * k, 4 * (m * k + k * n + m * n)
    on_arrays()
    in_place()
    probed = rt.probe("bandwidth", access="read", working_set_bytes=read_bytes, device=device)
    tried = walks(client.profile, "read", read_bytes)
    movers = [Mover(client, "read", read_bytes, walk) for walk in tried]
    sides: dict[str, Callable[[], float]] = {
        "device": lambda: matrix_bytes * VECTOR_CALLS / total_s(on_arrays, VECTOR_CALLS),
        "numpy": lambda: matrix_bytes * VECTOR_CALLS / total_s(in_place, VECTOR_CALLS),
        **{f"walk {i}": partial(walk_rate, mover) for i, mover in enumerate(movers)},
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    end = time.perf_counter() + max(3.0, 10 * seconds)
    while time.perf_counter() < end:
        for side in in_turn(list(sides), len(rates["device"])):
            rates[side].append(sides[side]())
    walk = max((rates[side] for side in sides if side.startswith("walk")), key=median)
    return {
        "what": winner(shape, elem, device),
        "probed": probed["probes"][0]["value"],
        **{way: beside(rates[way], walk) for way in ("device", "numpy")},
    }


def walk_rate(mover: Any) -> float:
    """Bytes a second of one of the probe's walks."""
    return float(mover.bytes_a_pass * VECTOR_CALLS / mover.sample(VECTOR_CALLS))


def beside(ours: list[float], walk: list[float]) -> dict[str, Any]:
    """Our bytes a second, and what they are of the walk's: turn by turn, and the best of either."""
    return {
        "median": median(ours), "in_turns": quarters(ours, walk), "best_by_best": max(ours) / max(walk)
    }  # fmt: skip


def total_s(call: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began


def quarters(ours: list[float], other: list[float]) -> list[float]:
    """The quartiles of the ratios, turn by turn."""
    return quantiles([one / two for one, two in zip(ours, other, strict=True)], n=4)


BLOCKS = {
    "rooftune": rooftune_block, "small": partial(rooftune_block, small_pages=True), "plan": plan_block,
    "numpy": numpy_block, "clblast": clblast_block,
    "overhead": overhead_block, "vector": vector_block, "types": types_block,
}  # fmt: skip


def block(kind: str, shape: str, elem: str, seconds: float, device: str | None, home: Path) -> dict[str, Any]:
    """One fresh process. Raises RuntimeError with what it said when it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.cpu_peers", "--child", kind, "--seconds", str(seconds)]
    command += ["--device", device] if device is not None else []
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    environment |= {"XDG_CACHE_HOME": str(home), "POCL_CACHE_DIR": str(home / "pocl")}
    (home / "pocl").mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*command, f"{shape}:{elem}"], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it died")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(
    shape: str, elem: str, peers: list[str], options: argparse.Namespace, home: Path
) -> dict[str, Any]:
    from rooftune.tuning.ties import in_turn

    device = options.device
    block("rooftune", shape, elem, 0.0, device, home)  # tunes, compiles
    also = [kind for kind, asked in (("plan", options.plans), ("small", options.small_pages)) if asked]
    turns: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("rooftune", *also, *peers)}
    for turn in range(options.blocks):
        for kind in in_turn(list(turns), turn):
            turns[kind].append(block(kind, shape, elem, options.seconds, device, home))
        if options.each:
            print(f"{turn + 1:>6}: {each(shape, turns)}", flush=True)
    row: dict[str, Any] = {
        "shape": shape, "type": elem, "median_s": median(x["median_s"] for x in turns["rooftune"]),
        "winner": turns["rooftune"][-1]["what"], "turns": turns,
    }  # fmt: skip
    for peer in peers:
        row[peer] = versus(turns[peer], turns["rooftune"])
        for kind in also:
            row[f"{kind}/{peer}"] = versus(turns[peer], turns[kind])
    return row


def versus(peer: list[dict[str, Any]], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """The peer's time by ours, turn by turn."""
    ratios = [one["median_s"] / own["median_s"] for one, own in zip(peer, ours, strict=True)]
    return {
        "median_s": median(one["median_s"] for one in peer),
        "ours_s": median(one["median_s"] for one in ours),
        "ratio": median(ratios), "least": min(ratios), "most": max(ratios), "what": peer[-1]["what"],
    }  # fmt: skip


def each(shape: str, turns: dict[str, list[dict[str, Any]]]) -> str:
    """The newest block of each kind: GFLOP/s, and how many cores were busy."""
    work = flops(shape)
    newest = {kind: blocks[-1] for kind, blocks in turns.items()}
    return ", ".join(
        f"{kind} {work / one['median_s'] / 1e9:.1f} ({one['cores_busy']:.1f} cores)"
        for kind, one in newest.items()
    )


def flops(shape: str) -> float:
    from rooftune.matmul.problem import Shape

    parsed = Shape.parse(shape)
    return 2.0 * parsed.m * parsed.n * parsed.k


def line(row: dict[str, Any], peers: list[str]) -> str:
    work = flops(row["shape"])
    text = f"{row['shape']:>14} {row['type']:>5} {work / row['median_s'] / 1e9:9.1f}"
    for peer in peers:
        one = row.get(peer)
        text += (
            f" {work / one['median_s'] / 1e9:9.1f} {one['ratio']:6.2f} ({one['least']:.2f}-{one['most']:.2f})"
            if one
            else f"{'-':>29}"
        )
    for kind, what in ALSO.items():
        for peer in peers:
            if other := row.get(f"{kind}/{peer}"):
                spread = f"{other['ratio']:.2f} ({other['least']:.2f}-{other['most']:.2f})"
                text += f"  {what} {work / other['ours_s'] / 1e9:.1f} {spread}"
    return f"{text}  {row['winner']}"


def has_clblast() -> bool:
    try:
        ctypes.CDLL("libclblast.so.1")
    except OSError:
        return False
    return True


def peers_of(elem: str, wanted: list[str]) -> list[str]:
    served = {"numpy": ("f32", "f64", "f16"), "clblast": ("f32", "f64")}
    return [peer for peer in wanted if elem in served[peer]]


def parent(options: argparse.Namespace) -> None:
    wanted = [peer for peer in options.peers.split(",") if peer != "clblast" or has_clblast()]
    heading = f"{'shape':>14} {'type':>5} {'GFLOP/s':>9}"
    print(
        heading + "".join(f" {peer:>9} {'ratio (range)':>18}" for peer in wanted) + "  candidate", flush=True
    )
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() if options.keep is None else nullcontext(options.keep) as folder:
        home = Path(folder)
        for text in [] if options.only_more else options.shapes:
            shape, _, elem = text.partition(":")
            elem = elem or "f32"
            row = compare(shape, elem, peers_of(elem, wanted), options, home)
            rows.append(row)
            print(line(row, wanted), flush=True)
        overhead, vectors, types = None, [], None
        if options.more or options.only_more:
            types = block("types", "1024", "f32", options.seconds, options.device, home)
            say_types("1024", types)
            overhead = block("overhead", "64", "f32", options.seconds, options.device, home)
            say_overhead(overhead)
            for shape in ("8192x1x8192", "1x8192x8192"):
                vectors.append(block("vector", shape, "f32", options.seconds, options.device, home))
                say_vector(shape, vectors[-1])
    for kernel in sorted({row["numpy"]["what"] for row in rows if "numpy" in row}):
        print(f"numpy: {kernel}")
    if options.json:
        found = {
            "blocks": options.blocks, "rows": rows, "overhead": overhead, "vectors": vectors, "types": types,
        }  # fmt: skip
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def say_vector(shape: str, found: dict[str, Any]) -> None:
    for way, where in (("device", "device arrays"), ("numpy", "numpy operands in place")):
        rate, (low, middle, high) = found[way]["median"], found[way]["in_turns"]
        best = found[way]["best_by_best"]
        print(
            f"{shape}, {where}: {rate / 1e9:.1f} GB/s, {rate / found['probed']:.2f} of the probed "
            f"{found['probed'] / 1e9:.1f} GB/s of reading; of the probe's walk in turns with it "
            f"{middle:.2f} ({low:.2f}-{high:.2f}), best by best {best:.2f} ({found['what']})",
            flush=True,
        )


def say_types(shape: str, found: dict[str, Any]) -> None:
    each = (
        f"{one} {1e3 * row['median_s']:.2f} ms, {row['by_first'][1]:.2f} "
        f"({row['by_first'][0]:.2f}-{row['by_first'][2]:.2f})"
        for one, row in found.items()
    )
    print(f"{shape} in turns, time by the first's: {'; '.join(each)}", flush=True)


def say_overhead(found: dict[str, Any]) -> None:
    shown = ", ".join(
        f"{name} {found[key] * 1e6:.2f}"
        for name, key in (
            ("empty kernel", "empty_s"), ("kernel directly", "direct_s"), ("matmul", "matmul_s"),
            ("allowed", "allowed_s"),
        )
    )  # fmt: skip
    print(f"64x64x64 back to back, us a call: {shown} ({found['what']})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", nargs="*", default=SHAPES.split(), metavar="SHAPE[:TYPE]")
    parser.add_argument("--device", help="index, or part of a name or platform")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of timed calls in a block")
    parser.add_argument("--peers", default="numpy", help="of numpy, clblast, with a comma")
    parser.add_argument(
        "--more", action="store_true", help="also the further figures: vectors, launch overhead"
    )
    parser.add_argument("--only-more", action="store_true", help="the further figures without the shapes")
    parser.add_argument("--plans", action="store_true", help="also the winner's kernels enqueued directly")
    parser.add_argument("--small-pages", action="store_true", help="also operands the runtime allocated")
    parser.add_argument("--each", action="store_true", help="a line a block")
    parser.add_argument("--keep", help="folder for decisions and compiled kernels, kept for the next run")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        shape, _, elem = options.shapes[0].partition(":")
        print(json.dumps(BLOCKS[options.child](shape, elem or "f32", options.seconds, options.device)))
    else:
        parent(options)


if __name__ == "__main__":
    main()
