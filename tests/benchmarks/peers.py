"""The tuned choice against other ways to the same product on the same device, in one table.

    python -m tests.benchmarks.peers [--device TEXT] [--shapes 512,1000,1024,2048] [--level balanced]
                                     [--kernel-tuner PYTHON] [--json FILE]

numpy; CLBlast, where libclblast.so.1 is found; PyTorch, where it sees the GPU; and Kernel Tuner's brute
force over the parameters of our own blocked CPU kernel, where `--kernel-tuner` names a Python that has it
(a virtual environment of its own). A peer that is missing is a line that says so. Ours, numpy, CLBlast and
PyTorch are timed alike: wall seconds from the call to the synchronised result, operands in place, median
over alternating rows of calls. Kernel Tuner's figure is the mean of its device times, so ours is given on
that clock too.
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
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.cost import compute_ops
from rooftune.matmul.families import cpu as cpu_family
from rooftune.matmul.launch import KernelCall, Slot
from rooftune.matmul.problem import Elem, Problem, Shape
from rooftune.matmul.tunables import MatmulInputs
from rooftune.session import Session
from rooftune.shapes_run import random_inputs

from .regret import session_without_memory

CALLS = 5
ROWS = 3
PAUSE_S = 0.2
KT_ITERATIONS = 7
NUMBERS = ", const args_t args"
PARTS = ", __global acc_t *restrict parts"


@dataclass(frozen=True)
class Row:
    """One way to a product: seconds, what they are, and what was chosen or is missing."""

    shape: str
    who: str
    seconds: float | None
    clock: str = "wall"
    note: str = ""
    cost_s: float | None = None


def main() -> None:
    given = _arguments()
    client = Client(given.device)
    session = session_without_memory(given.level)
    rows: list[Row] = []
    for text in given.shapes.split(","):
        problem = Shape.parse(text).problem(Elem.F32)
        found = _compared(client, session, text, problem, given.kernel_tuner)
        _show(found, text, problem)
        rows += found
    if given.json:
        record = {"device": client.device_id, "rows": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(record, indent=1))


def _compared(
    client: Client, session: Session, text: str, problem: Problem, kernel_tuner: str | None
) -> list[Row]:
    inputs = random_inputs(client, problem)
    session.bounds(client, inputs)
    decision = session.decide(client, inputs).decision
    tunable = session.tunables(client)[decision.index]

    def ours() -> None:
        tunable.fn(inputs)
        client.sync()

    timed = _alternating({"rooftune": ours, **_peers(client, problem, inputs)})
    notes = {"rooftune": decision.name}
    device_s = median(client.sample(lambda: tunable.fn(inputs)) for _ in range(CALLS * ROWS))
    cost_s = decision.timings.compile_s + decision.timings.measure_s
    return [
        *(Row(text, who, seconds, note=notes.get(who, "")) for who, seconds in timed.items()),
        *_missing(client, problem, inputs, text),
        Row(text, "rooftune", device_s, "device", decision.name, cost_s),
        _kernel_tuner(client, problem, text, kernel_tuner),
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--shapes", default="512,1000,1024,2048")
    parser.add_argument("--level", default="balanced")
    parser.add_argument("--kernel-tuner", metavar="PYTHON", help="an interpreter that has kernel_tuner")
    parser.add_argument("--json", type=Path, help="where to write all results")
    return parser.parse_args()


def _show(rows: list[Row], text: str, problem: Problem) -> None:
    mine = {row.clock: row.seconds for row in rows if row.shape == text and row.who == "rooftune"}
    for row in (row for row in rows if row.shape == text):
        if row.seconds is None:
            print(f"{text:<14} {row.who:<13} -  {row.note}", flush=True)
            continue
        rate = compute_ops(problem) / row.seconds / 1e9
        cost = f", found in {row.cost_s:.2f} s" if row.cost_s is not None else ""
        print(
            f"{text:<14} {row.who:<13} {row.seconds * 1e3:9.3f} ms {row.clock:<6} {rate:9.1f} GFLOP/s "
            f"{row.seconds / (mine[row.clock] or row.seconds):6.2f}x  {row.note}{cost}",
            flush=True,
        )


def _alternating(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median wall seconds of each, in alternating rows of calls whose first does not count.

    Rows, not single calls: the threads of one library spin for a while when its call is over, and the next
    library must not be timed beside them.
    """
    times: dict[str, list[float]] = {who: [] for who in runs}
    for _ in range(ROWS):
        for who, run in runs.items():
            time.sleep(PAUSE_S)
            run()
            for _ in range(CALLS):
                start = time.perf_counter()
                run()
                times[who].append(time.perf_counter() - start)
    return {who: median(seconds) for who, seconds in times.items()}


# --- peers that are called -----------------------------------------------------------------------


def _peers(client: Client, problem: Problem, inputs: MatmulInputs) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {"numpy": _numpy(client, problem, inputs)}
    for who, make in (("CLBlast", _clblast), ("PyTorch", _torch)):
        run = make(client, problem, inputs)
        if not isinstance(run, str):
            found[who] = run
    return found


def _missing(client: Client, problem: Problem, inputs: MatmulInputs, text: str) -> list[Row]:
    """A line for each peer that is missing."""
    missing = {"CLBlast": _clblast(client, problem, inputs), "PyTorch": _torch(client, problem, inputs)}
    return [
        Row(text, who, None, note=f"skipped: {why}") for who, why in missing.items() if isinstance(why, str)
    ]


def _host(client: Client, problem: Problem, inputs: MatmulInputs) -> tuple[np.ndarray, np.ndarray]:
    def matrix(buffer: Any, rows: int, cols: int, transposed: bool) -> np.ndarray:
        values = np.frombuffer(client.download(buffer, rows * cols * 4), np.float32)
        return values.reshape(cols, rows).T if transposed else values.reshape(rows, cols)

    m, n, k = problem.m, problem.n, problem.k
    return (
        matrix(inputs.lhs, m, k, problem.lhs.col_stride != 1),
        matrix(inputs.rhs, k, n, problem.rhs.col_stride != 1),
    )


def _numpy(client: Client, problem: Problem, inputs: MatmulInputs) -> Callable[[], object]:
    a, b = _host(client, problem, inputs)
    out = np.empty((problem.m, problem.n), np.float32)
    return lambda: np.matmul(a, b, out=out)


def _torch(client: Client, problem: Problem, inputs: MatmulInputs) -> Callable[[], object] | str:
    if client.profile.is_cpu:
        return "the device is no GPU"
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    a, b = (torch.from_numpy(np.array(x)).cuda() for x in _host(client, problem, inputs))
    out = torch.empty(problem.m, problem.n, device="cuda")

    def run() -> None:
        torch.mm(a, b, out=out)
        torch.cuda.synchronize()

    return run


def _clblast(client: Client, problem: Problem, inputs: MatmulInputs) -> Callable[[], object] | str:
    try:
        library = ctypes.CDLL("libclblast.so.1")
    except OSError:
        return "libclblast.so.1 is not installed"
    row_major, no, yes = 101, 111, 112
    m, n, k = problem.m, problem.n, problem.k
    transposed = [operand.col_stride != 1 for operand in (problem.lhs, problem.rhs)]
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    queue = pointer(client.queue.int_ptr)
    arguments = (
        *(row_major, yes if transposed[0] else no, yes if transposed[1] else no, size(m), size(n), size(k)),
        *(ctypes.c_float(1), pointer(inputs.lhs.int_ptr), size(0), size(m if transposed[0] else k)),
        *(pointer(inputs.rhs.int_ptr), size(0), size(k if transposed[1] else n)),
        *(ctypes.c_float(0), pointer(inputs.out.int_ptr), size(0), size(n), ctypes.byref(queue), None),
    )

    def run() -> None:
        status = library.CLBlastSgemm(*arguments)
        if status:
            raise RuntimeError(f"CLBlastSgemm returned {status}")
        client.sync()

    try:
        run()
    except RuntimeError as error:
        return str(error)
    return run


# --- Kernel Tuner --------------------------------------------------------------------------------


def _kernel_tuner(client: Client, problem: Problem, text: str, python: str | None) -> Row:
    who = "Kernel Tuner"
    if python is None:
        return Row(text, who, None, note="skipped: no interpreter with it was named (--kernel-tuner)")
    if not client.profile.is_cpu:
        return Row(text, who, None, note="skipped: its parameters here are those of the CPU kernel")
    variants = cpu_variants(client, problem)
    if not variants:
        return Row(text, who, None, note="skipped: the CPU kernel takes no single launch for this shape")
    platforms, devices = _place(client)
    first = variants[0][1]
    job = {
        "kernel": first.name,
        "platform": platforms,
        "device": devices,
        "iterations": KT_ITERATIONS,
        "options": [],
        "operands": [problem.m * problem.k, problem.k * problem.n, problem.m * problem.n],
        "variants": [
            {"params": params, "source": _source(call), "groups": list(call.global_size)}
            for params, call in variants
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "job.json"), Path(folder, "result.json")
        asked.write_text(json.dumps(job))
        script = Path(__file__).with_name("kernel_tuner_run.py")
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path)}
        ran = subprocess.run(
            [python, str(script), str(asked), str(answered)],
            env=environment,
            capture_output=True,
            text=True,
        )
        wall_s = time.perf_counter() - began
        if ran.returncode or not answered.exists():
            last = (ran.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            return Row(text, who, None, note=f"failed: {last}")
        results = json.loads(answered.read_text())["results"]
    if not results:
        return Row(text, who, None, note="found no variant that ran")
    seconds, params = results[0]
    shown = " ".join(f"{name}={value}" for name, value in params.items())
    return Row(text, who, seconds, "device", f"best of {len(results)}: {shown}", wall_s)


def cpu_variants(client: Client, problem: Problem) -> list[tuple[dict[str, int], KernelCall]]:
    """Tiles of the blocked CPU kernel, each with its best division among work-items."""
    profile = client.profile
    floats = cpu_family.vector_floats(profile)
    found = []
    for vectors, rows, depth, panels, pack in product(
        (1, 2, 4), (4, 6, 8, 12), (256, 512, 1024), (1, 2, 4, 8), (0, 1)
    ):
        if not pack and panels > 1:
            continue
        tile = cpu_family.CpuTile(floats, vectors, rows, depth, panels, bool(pack), "in_place")
        try:
            blocks = cpu_family.block(problem, profile, tile)
            plan = cpu_family.plan(problem, profile, packed=bool(pack), tiles=tile, blocks=blocks)
        except UnsupportedError:
            continue
        if len(plan.calls) == 1 and all(
            isinstance(a, (Slot, np.generic, type(None))) for a in plan.calls[0].args
        ):
            params = {"NV": vectors, "MR": rows, "KC": depth, "PANELS": panels, "PACK_RHS": pack}
            found.append((params, plan.calls[0]))
    return found


def _source(call: KernelCall) -> str:
    """The program as one text: options as macros, and the argument of numbers fixed in it."""
    macros = []
    for option in call.options:
        if option.startswith("-D"):
            name, _, value = option[2:].partition("=")
            macros.append(f"#define {name} {value or 1}")
    given = next(arg for arg in call.args if isinstance(arg, np.void))
    numbers = ", ".join(str(x) for field in given for x in field)
    head, _, kernel = call.source.rpartition(NUMBERS)
    signature, opening, body = kernel.partition("\n{\n")
    fixed = f"    const args_t args = {{{numbers}}};\n    __global acc_t *parts = 0;\n"
    return "\n".join(macros) + "\n" + head + signature.replace(PARTS, "") + opening + fixed + body


def _place(client: Client) -> tuple[int, int]:
    """The platform's index and the device's inside it, as pyopencl counts them."""
    import pyopencl as cl

    for number, platform in enumerate(cl.get_platforms()):
        for index, device in enumerate(platform.get_devices()):
            if device == client.device:
                return number, index
    raise LookupError(client.device_name)


if __name__ == "__main__":
    main()
