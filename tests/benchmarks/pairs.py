"""Two candidates compared on one device: samples in pairs, A B B A B A A B …, until their ratio is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, comb
from statistics import median

from rooftune.device.client import Client
from rooftune.tuning.ties import in_turn

WINDOW_S = 100e-6
"""Executions of short kernels are summed up to this: a sample here is what it is for the tuner."""

MOST_REPEATS = 64
LEAST_PAIRS, MOST_PAIRS = 20, 400
MOST_S = 8.0
WIDE = 0.01
"""More pairs are taken while the confidence interval reaches further than this from the median ratio."""

Run = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """First over second: the median of the pairs' ratios, its 95 % confidence interval, and their quartiles.

    `first_s` and `second_s` are the medians of both in seconds.
    """

    median: float
    low: float
    high: float
    spread: float
    pairs: int
    first_s: float
    second_s: float

    @property
    def inverse(self) -> Ratio:
        """Second over first."""
        low, high = 1 / self.high, 1 / self.low
        return Ratio(1 / self.median, low, high, self.spread, self.pairs, self.second_s, self.first_s)


def compare(client: Client, first: Run, second: Run, most_s: float = MOST_S) -> Ratio:
    """Samples both in turned order until the ratio's interval is narrow, or pairs or time run out."""
    client.sample(first)
    repeats = repeats_for(client.sample(second))
    of_first: list[float] = []
    of_second: list[float] = []
    began = time.perf_counter()
    with client.exclusive():
        while len(of_first) < MOST_PAIRS:
            sides = [(first, of_first), (second, of_second)]
            for run, into in in_turn(sides, len(of_first)):
                into.append(client.sample(run, repeats))
            if len(of_first) < LEAST_PAIRS:
                continue
            ratio = ratio_of(of_first, of_second)
            if max(ratio.high - ratio.median, ratio.median - ratio.low) <= WIDE:
                break
            if time.perf_counter() - began > most_s:
                break
    return ratio_of(of_first, of_second)


def repeats_for(seconds: float) -> int:
    """How many executions one sample sums up."""
    return min(MOST_REPEATS, ceil(WINDOW_S / seconds))


def ratio_of(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """The ratio of samples taken in pairs."""
    ratios = sorted(a / b for a, b in zip(first, second, strict=True))
    low, high = median_interval(ratios)
    return Ratio(median(ratios), low, high, half_spread(ratios), len(ratios), median(first), median(second))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between which of these sorted values the true median lies, by the binomial distribution."""
    n = len(values)
    tail, outside = 0.0, 0
    while outside < n // 2:
        tail += comb(n, outside) / 2**n
        if 2 * tail > 1 - confidence:
            break
        outside += 1
    outside = max(outside - 1, 0)
    return values[outside], values[n - 1 - outside]


def half_spread(ratios: Sequence[float]) -> float:
    """Half the distance between the quartiles of sorted ratios."""
    return (ratios[-1 - len(ratios) // 4] - ratios[len(ratios) // 4]) / 2
