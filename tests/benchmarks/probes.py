"""The probes of one device beside what libraries reach on it, in one process and minute.

    python tests/benchmarks/probes.py --device H200 --json probes.json [--clpeak-launch-us 7.2]

A peak is worth something only if nothing beats it: the column RATIO is the probe over the library and must
not be below 1. Libraries: cuBLAS through PyTorch where a CUDA device is there, else numpy's BLAS in as
many threads as it likes. clpeak's launch latency is set beside ours when given. Exits with 1 when a
library beat a probe.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rooftune.device.client import Client
from rooftune.probes.peaks import compute_sources
from rooftune.probes.prober import Prober
from rooftune.probes.result import ProbeResult

SQUARES = (2048, 4096, 8192)
TYPES = (("f32", "full"), ("f32", "tf32"), ("f16", "full"), ("bf16", "full"), ("f64", "full"))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--clpeak-launch-us", type=float, help="clpeak's launch latency, microseconds")
    options.add_argument("--skip-sweep", action="store_true")
    given = options.parse_args()

    client = Client(given.device)
    prober = Prober(client, progress=lambda what, left_s: print(f"  measuring {what}", file=sys.stderr))
    print(f"device: {client.device_id}\nat: {time.strftime('%Y-%m-%d %H:%M:%S')}")
    print(f"command: {' '.join(sys.argv)}\n")
    peers = list(libraries(client))
    rows = [compared(prober, *peer) for peer in peers]
    print(f"{'PEAK':34} {'PROBE':>14} {'LIBRARY':>14} {'RATIO':>7}  {'SPREAD':>7}")
    for row in rows:
        shown = f"{row['library'] / 1e12:10.3f} Top" if row["library"] else "-"
        ratio = f"{row['ratio']:.3f}" if row["ratio"] else "-"
        probed = f"{row['probe'] / 1e12:10.3f} Top"
        print(f"{row['what']:34} {probed:>14} {shown:>14} {ratio:>7}  {row['spread']:7.1%}")
    print()
    for dtype, unit in prober.units():
        found = prober.compute(dtype, unit)
        print(f"{dtype + ' ' + unit:34} {found.value / 1e12:10.3f} Top {'':14} {found.spread:15.1%}")
    sizes = (None,) if client.profile.is_cpu else (128 << 20, None, 8 << 30)
    others = [prober.bandwidth(access, size) for size in sizes for access in ("read", "write", "copy")]
    others.append(prober.bandwidth("read", state="cold"))
    if not given.skip_sweep:
        others += prober.sweep("read")
    print()
    for found in others:
        print(f"{describe(found):40} {found.value / 1e9:10.1f} GB/s  {found.spread:7.1%}")
    launch = prober.launch()
    print(f"\nlaunch overhead, wall, plain queue       {launch.value * 1e6:8.2f} us  {launch.spread:7.1%}")
    print(f"launch overhead, wall, profiling queue   {launch.extra['profiled_s'] * 1e6:8.2f} us")
    print(f"event window of an empty kernel          {launch.extra['window_s'] * 1e6:8.2f} us")
    if given.clpeak_launch_us is not None:
        print(f"clpeak's launch latency                  {given.clpeak_launch_us:8.2f} us")
    if given.json:
        found = [result.to_json() for result in (*others, launch)]
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"device": client.device_id, "peaks": rows, "probes": found}, file, indent=2)
    return 1 if any(row["ratio"] and row["ratio"] < 1 for row in rows) else 0


def describe(found: ProbeResult) -> str:
    facts = found.facts
    return f"bandwidth {facts['access']} {facts['state']} {facts['working_set_bytes'] >> 10} KiB"


def compared(
    prober: Prober, elem: str, precision: str, library: Callable[[], float] | None
) -> dict[str, Any]:
    """The probe before and after the library, the larger: both see the same clocks."""
    before = roof(prober, elem, precision)
    reached = library() if library else 0.0
    prober.forget()
    after = roof(prober, elem, precision)
    best = max(before, after, key=lambda pair: pair[0])
    return {
        "what": f"{elem} {precision} ({best[1]})",
        "probe": best[0],
        "library": reached,
        "ratio": best[0] / reached if reached else None,
        "spread": best[2],
    }


def roof(prober: Prober, elem: str, precision: str) -> tuple[float, str, float]:
    found = [
        (result.value * share, f"{dtype} {unit}" + (" / 3" if share < 1 else ""), result.spread)
        for dtype, unit, share in sources(prober, elem, precision)
        for result in (prober.compute(dtype, unit),)
    ]
    return max(found)


def sources(prober: Prober, elem: str, precision: str) -> list[tuple[str, str, float]]:
    """What bounds the type, and the units of it that no candidate computes with: libraries may."""
    units = [(dtype, unit, 1.0) for dtype, unit in prober.units() if dtype == elem and unit != "plain"]
    return list(dict.fromkeys([*compute_sources(prober, elem, precision), *units]))


def libraries(client: Client) -> Iterator[tuple[str, str, Callable[[], float] | None]]:
    """Each type and precision with a function that gives the library's best operations a second."""
    torch = cuda()
    for elem, precision in TYPES:
        if elem == "f64" and not client.profile.has_f64:
            continue
        if torch is not None and client.profile.capability is not None:
            yield elem, precision, lambda e=elem, p=precision: cublas(torch, e, p)  # type: ignore[misc]
        elif client.profile.is_cpu and elem in ("f32", "f64") and precision == "full":
            yield elem, precision, lambda e=elem: blas(e)  # type: ignore[misc]
        elif not client.profile.is_cpu:
            yield elem, precision, None


def blas(elem: str) -> float:
    n = 2048
    a = np.random.default_rng(0).random((n, n)).astype(np.float32 if elem == "f32" else np.float64)
    b = a.T.copy()
    best = float("inf")
    for _ in range(10):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return n * n * (2 * n - 1) / best


def cuda() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def cublas(torch: Any, elem: str, precision: str) -> float:
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    best = 0.0
    for n in SQUARES:
        a = torch.randn(n, n, device="cuda", dtype=torch.float32).to(types[elem])
        b = torch.randn(n, n, device="cuda", dtype=torch.float32).to(types[elem])
        for _ in range(5):
            a @ b
        torch.cuda.synchronize()
        for _ in range(20):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            a @ b
            end.record()
            torch.cuda.synchronize()
            best = max(best, n * n * (2 * n - 1) / (start.elapsed_time(end) * 1e-3))
    return best


if __name__ == "__main__":
    sys.exit(main())
