"""`rooftune.matmul` on numpy arrays against numpy's own product, on a CPU device.

    python tests/benchmarks/numpy_path.py [--device TEXT] [--json] [--rounds 8] [SIZE...]

Each library runs in fresh processes of its own, A B B A B A A B …: the threads of one that wait for work
slow the other down when both live in one process. A process warms up, then times calls on the same operands
for a while, each into a new result as `a @ b` gives it; its figure is the median call. The ratio of a round
is numpy's figure by rooftune's: above 1, rooftune is faster. The results are compared once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median, quantiles

import numpy as np


def child(library: str, size: int, seconds: float, device: str | None) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.random((size, size), np.float32) for _ in range(2))
    if library == "numpy":
        multiply = np.matmul
    else:
        import rooftune as rt
        from rooftune.session import default_session

        session = default_session()
        session._clients[None] = session.client(device)
        multiply = rt.matmul
        assert np.allclose(multiply(a, b), a @ b, rtol=1e-4)
        time.sleep(0.5)  # numpy's threads go to sleep
    for _ in range(3):
        multiply(a, b)
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        began = time.perf_counter()
        multiply(a, b)
        times.append(time.perf_counter() - began)
    print(json.dumps(median(times)))


def timed(library: str, size: int, seconds: float, device: str | None) -> float:
    command = [sys.executable, __file__, "--child", library, "--seconds", str(seconds), str(size)]
    if device is not None:
        command += ["--device", device]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(result.stdout.splitlines()[-1])


def compare(size: int, rounds: int, seconds: float, device: str | None) -> dict[str, object]:
    from rooftune.tuning.ties import in_turn

    timed("rooftune", size, 0.0, device)  # tunes
    times: dict[str, list[float]] = {"numpy": [], "rooftune": []}
    for turn in range(rounds):
        for library in in_turn(["numpy", "rooftune"], turn):
            times[library].append(timed(library, size, seconds, device))
    ratios = [n / r for n, r in zip(times["numpy"], times["rooftune"], strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    return {
        "size": size,
        "numpy_s": median(times["numpy"]),
        "rooftune_s": median(times["rooftune"]),
        "ratio": {"median": middle, "quartiles": [low, high]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[16, 128, 512, 1024])
    parser.add_argument("--device")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing in one process")
    parser.add_argument("--child", choices=("numpy", "rooftune"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child, given.sizes[0], given.seconds, given.device)
        return
    results = [compare(size, given.rounds, given.seconds, given.device) for size in given.sizes]
    if given.json:
        print(json.dumps({"numpy": np.__version__, "results": results}))
        return
    for r in results:
        ratio = r["ratio"]
        low, high = ratio["quartiles"]
        print(
            f"{r['size']:>6}  numpy {r['numpy_s'] * 1e6:10.1f} us  rooftune {r['rooftune_s'] * 1e6:10.1f} us"
            f"  numpy/rooftune {ratio['median']:.3f} [{low:.3f}, {high:.3f}]"
        )


if __name__ == "__main__":
    main()
