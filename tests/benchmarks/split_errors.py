"""Errors of f32 products by split TF32 operands beside cuBLAS's f32 and a chain of plain multiply-adds, by k.

    python -m tests.benchmarks.split_errors [--results 256x256 ...] [--depths 64 256 ...] [--draws 3]

Relative Frobenius norms of the difference from float64 over the whole result, the largest of the draws, on
normally distributed operands. `chosen` is the plan a candidate makes, `one slice` the same without cutting k;
both also where they are not offered. Rows are marked where they are, and where cuBLAS is more exact.
"""

from __future__ import annotations

import argparse
from unittest import mock

import torch
from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import accelerated, naive, tf32
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Elem, Problem, Shape

from .gpu_times import Case

DEPTHS = "64 96 128 192 256 320 512 1024 2048 4096 8192 16384 32768 65536"


def plans(client: Client, problem: Problem) -> dict[str, LaunchPlan | None]:
    """The plans compared, with split operands offered for every k."""
    profile, form = client.profile, {"unit": "mma", "variant": "specialized_tma"}
    with mock.patch.object(tf32, "is_exact", lambda *_: True):
        chosen = accelerated.plan(problem, profile, **form)
        try:
            tile = tf32.SPLIT_TILES["specialized_tma"][0]
            one = accelerated.plan(problem, profile, **form, tile=tile, slices=1)
        except UnsupportedError:
            one = None
    return {"chosen": chosen, "one slice": one, "chain": naive.plan(problem, profile)}


def errors(client: Client, shape: Shape, draws: int) -> dict[str, float]:
    """The largest error of each way over the draws."""
    worst: dict[str, float] = {}
    for _ in range(draws):
        case = Case(client, shape, Elem.F32, "full")
        every_row = case.problem.m
        found = {
            name: case.our_error(case.bound(plan).enqueue, every_row)
            for name, plan in plans(client, case.problem).items()
            if plan is not None
        }
        found["cuBLAS"] = case.cublas_error(every_row)
        worst = {name: max(error, worst.get(name, 0)) for name, error in found.items()}
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", nargs="+", default=["256x256"], help="sizes of the result, MxN")
    parser.add_argument("--depths", nargs="+", type=int, default=[int(k) for k in DEPTHS.split()])
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    client = Client()
    torch.manual_seed(0)
    print(f"{client.device_name}, driver {client.profile.driver}")
    print(f"{'shape':18} {'chosen':>9} {'one slice':>9} {'cuBLAS':>9} {'chain':>9}")
    for result in options.results:
        for k in options.depths:
            shape = Shape.parse(f"{result}x{k}")
            found = errors(client, shape, options.draws)
            columns = " ".join(f"{found[name]:9.2e}" for name in ("chosen", "one slice", "cuBLAS", "chain"))
            mark = "  offered" if tf32.is_exact(shape.m, shape.n, k) else ""
            mark += "  cuBLAS is more exact" if found["chosen"] > found["cuBLAS"] else ""
            print(f"{shape.text:18} {columns}{mark}", flush=True)


if __name__ == "__main__":
    main()
