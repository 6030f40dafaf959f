"""A product with a vector beside the probe's own walk over as many bytes, both measured alike and in turn.

The probe keeps the best of many samples, each a row of launches that lasts 20 ms, less an empty kernel's best
window. A product's window in `gpu_peers` is a median of single launches, each after the host has waited for
the one before; such a launch takes longer, whatever it runs (2 to 3 µs on an H200). So there are two ways to
compare the same with the same: rows with rows, the best of each, and single launches with single ones,
their medians.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from rooftune.device.client import Client
from rooftune.probes.bandwidth import Mover, walks

from .gpu_times import EMPTY, Run

ROW_S = 0.020
TURNS, SINGLES, ROWS = 4, 10, 2

Sample = Callable[[int], float]
"""Seconds of one launch, of so many one after another."""


@dataclass(frozen=True)
class Alike:
    """Seconds without an empty kernel's window: the best of rows, the median of single launches."""

    row_s: float
    single_s: float


def beside_the_walk(client: Client, run: Run, nbytes: int) -> tuple[Alike, Alike]:
    """The product `run` enqueues, and the fastest of the probe's walks over a set of nbytes."""
    movers = [Mover(client, "read", nbytes, walk) for walk in walks(client.profile, "read", nbytes)]
    ways: list[Sample] = [_empty(client), lambda count: client.sample(run, count), *map(_passes, movers)]
    passes = max(1, round(ROW_S / ways[1](1)))
    rows: list[list[float]] = [[] for _ in ways]
    singles: list[list[float]] = [[] for _ in ways]
    for _ in range(TURNS):
        for way, row, single in zip(ways, rows, singles, strict=True):
            row += [way(passes) for _ in range(ROWS)]
            single += [way(1) for _ in range(SINGLES)]
    empty_row_s, empty_single_s = min(rows[0]), median(singles[0])
    ours, *read = (
        Alike(min(row) - empty_row_s, median(single) - empty_single_s)
        for row, single in zip(rows[1:], singles[1:], strict=True)
    )
    return ours, min(read, key=lambda walk: walk.row_s)


def _empty(client: Client) -> Sample:
    kernel, buffer = client.kernel(EMPTY, "empty"), client.empty(4)
    kernel.set_args(buffer)

    def sample(count: int, _alive: object = buffer) -> float:
        return client.sample(lambda: client.enqueue(kernel, (32,), (32,)), count)

    return sample


def _passes(mover: Mover) -> Sample:
    return lambda count: mover.sample(count) / count
