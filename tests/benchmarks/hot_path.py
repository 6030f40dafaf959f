"""What `rooftune.matmul` adds to enqueuing the chosen kernels oneself through pyopencl.

    python tests/benchmarks/hot_path.py [--device TEXT] [--json] [--blocks 30] [SHAPE...]

Three ways, in blocks that take turns, on the same arrays with `out=` given: *direct* enqueues the
decided candidate's kernels, their arguments set once before; *rebinding* sets the three buffers before
each launch, as a program with changing buffers must; *matmul* calls the library. Each block times calls
one by one (synchronised) and a burst (enqueued together, then synchronised). The ratio of two ways is the
median over the blocks of the ratio inside a block, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import rooftune as rt
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.executor import prepare
from rooftune.matmul.problem import Shape
from rooftune.session import default_session
from rooftune.shapes_run import random_inputs
from rooftune.tuning.ties import in_turn

WAYS = ("direct", "rebinding", "matmul")
BURST = 50


def ways(client: Any, shape: str) -> tuple[str, dict[str, Callable[[], object]]]:
    """The decided candidate's name, and one call of each way."""
    session = default_session()
    problem = session.problem(Shape.parse(shape))
    rng = np.random.default_rng(1)
    arrays = [
        cl_array.to_device(client.queue, rng.random(operand.shape, np.float32))
        for operand in (problem.lhs, problem.rhs, problem.out)
    ]
    a, b, out = arrays
    decision = session.decide(client, random_inputs(client, problem)).decision
    rt.matmul(a, b, out=out)
    rt.matmul(a, b, out=out)
    name = session.tunables(client)[decision.index].name
    candidate = next(c for c in CANDIDATES if c.name == name)
    prepared = prepare(client, candidate.plan(problem, client.profile))
    prepared.bind(*(x.base_data for x in arrays))
    calls = [
        (kernel, call.global_size, call.local_size)
        for kernel, call in zip(prepared._kernels, prepared.plan.calls, strict=True)
    ]
    queue = client.queue

    def direct() -> None:
        for kernel, global_size, local_size in calls:
            cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)

    def rebinding() -> None:
        prepared.bind(a.base_data, b.base_data, out.base_data)
        direct()

    def matmul() -> None:
        rt.matmul(a, b, out=out)

    direct()
    client.sync()
    expected = a.get() @ b.get()
    assert np.allclose(out.get(), expected, rtol=1e-4, atol=1e-3)
    return name, {"direct": direct, "rebinding": rebinding, "matmul": matmul}


def one_by_one(client: Any, call: Callable[[], object], seconds: float) -> float:
    """Median seconds of a synchronised call."""
    finish, clock = client.queue.finish, time.perf_counter
    times = []
    end = clock() + seconds
    while clock() < end or len(times) < 5:
        began = clock()
        call()
        finish()
        times.append(clock() - began)
    return median(times)


def burst(client: Any, call: Callable[[], object], seconds: float) -> float:
    """Median seconds per call of a burst that is synchronised at its end."""
    finish, clock = client.queue.finish, time.perf_counter
    times = []
    end = clock() + seconds
    while clock() < end or len(times) < 3:
        began = clock()
        for _ in range(BURST):
            call()
        finish()
        times.append((clock() - began) / BURST)
    return median(times)


def compare(client: Any, shape: str, blocks: int, seconds: float) -> dict[str, Any]:
    name, calls = ways(client, shape)
    result: dict[str, Any] = {"shape": shape, "candidate": name, "device": client.device_name}
    for label, method in (("synchronised", one_by_one), ("burst", burst)):
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for block in range(blocks):
            for way in in_turn(list(WAYS), block):
                times[way].append(method(client, calls[way], seconds))
        result[label] = {way: median(values) for way, values in times.items()}
        for base in ("direct", "rebinding"):
            ratios = [m / d for m, d in zip(times["matmul"], times[base], strict=True)]
            low, middle, high = quantiles(ratios, n=4)
            result[label][f"matmul/{base}"] = {"median": middle, "quartiles": [low, high]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("shapes", nargs="*", default=["8", "64", "512"])
    parser.add_argument("--device")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.02, help="of one way in one block")
    given = parser.parse_args()
    client = default_session().client(given.device)
    if given.device is not None:
        default_session()._clients[None] = client
    results = [compare(client, shape, given.blocks, given.seconds) for shape in given.shapes]
    if given.json:
        where = {"device": client.device_name, "platform": client.profile.platform}
        print(json.dumps({**where, "results": results}))
        return
    print(f"{client.device_name} ({client.profile.platform})")
    for result in results:
        for label in ("synchronised", "burst"):
            r = result[label]
            shown = "  ".join(f"{way} {r[way] * 1e6:9.2f} us" for way in WAYS)
            ratios = "  ".join(
                f"matmul/{base} {r[f'matmul/{base}']['median']:.3f} "
                f"[{r[f'matmul/{base}']['quartiles'][0]:.3f}, {r[f'matmul/{base}']['quartiles'][1]:.3f}]"
                for base in ("direct", "rebinding")
            )
            print(f"{result['shape']:>5} {label:13} {shown}  {ratios}  ({result['candidate']})")


if __name__ == "__main__":
    main()
