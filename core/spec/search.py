"""Which of many configurations to measure: few at first, then those that look best by what is known.

The log of a kernel's time is fitted with what each parameter's values, and pairs of them, add to it. The
configurations with the best predictions are measured next, and the neighbours of the best one; then the fit
is made anew. It ends when a share of all was measured, or nothing better was found for some turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

SMALL = 10
"""So many configurations are all measured."""

FIRST_SHARE = 0.10
MOST_SHARE = 0.25
FIRST_AT_LEAST = 6
PATIENCE = 5
"""Turns without a gain of MARGIN after which the search ends."""

MARGIN = 0.02
RIDGE = 0.3
STRAIGHT = 3.0
BENT = 6.0
"""How much readier the fit is to believe that a time rises, or bends, with the values' ranks, than that it
depends on one value by itself: block sizes and tiles have a best middle more often than not."""

FAILED_FACTOR = 3.0
"""A configuration that could not be measured counts as this many times slower than the slowest."""


class Search:
    """Proposes configurations by index, best hopes first, until it is done."""

    def __init__(self, configurations: Sequence[Mapping[str, Any]], seed: int = 1) -> None:
        self._count = len(configurations)
        names = (
            [n for n in configurations[0] if len({c[n] for c in configurations}) > 1] if self._count else []
        )
        levels = [sorted({c[n] for c in configurations}, key=lambda v: (str(type(v)), v)) for n in names]
        self._places = np.array(
            [[level.index(c[n]) for n, level in zip(names, levels, strict=True)] for c in configurations], int
        ).reshape(self._count, len(names))
        self._levels = [len(level) for level in levels]
        self._features = _features(self._places, self._levels)
        self._rng = np.random.default_rng(seed)
        self._asked: set[int] = set()
        self._best = np.inf
        self._idle = 0

    @property
    def most(self) -> int:
        """How many are measured at most."""
        return self._count if self._count <= SMALL else max(SMALL, int(self._count * MOST_SHARE))

    def propose(self, measured: Mapping[int, float | None]) -> list[int]:
        """The next ones to measure; empty when the search is over. `measured`: seconds, None for failed."""
        chosen = self._first() if not self._asked else self._next(measured)
        self._asked.update(chosen)
        return sorted(chosen)

    def _first(self) -> list[int]:
        if self._count <= SMALL:
            return list(range(self._count))
        wanted = min(self.most, max(FIRST_AT_LEAST, int(self._count * FIRST_SHARE)))
        return self._spread(wanted)

    def _spread(self, wanted: int) -> list[int]:
        """Far from one another: each is the one, of some drawn at random, farthest from those before."""
        scaled = self._places / np.maximum(np.array(self._levels) - 1, 1)
        chosen = [int(self._rng.integers(self._count))]
        while len(chosen) < wanted:
            pool = self._rng.choice(self._count, size=min(self._count, 24), replace=False)
            drawn = [int(i) for i in pool if i not in chosen]
            drawn = drawn or [next(i for i in range(self._count) if i not in chosen)]
            apart = [np.abs(scaled[chosen] - scaled[i]).sum(axis=1).min() for i in drawn]
            chosen.append(drawn[int(np.argmax(apart))])
        return chosen

    def _next(self, measured: Mapping[int, float | None]) -> list[int]:
        good = {i: seconds for i, seconds in measured.items() if seconds}
        if not good:
            return self._untried(measured)
        best = min(good.values())
        self._idle = 0 if best < self._best * (1 - MARGIN) else self._idle + 1
        self._best = min(best, self._best)
        room = self.most - len(self._asked)
        if room <= 0 or self._idle >= PATIENCE:
            return []
        turn = max(4, self._count // 32)
        if room < 2 * turn:  # each turn costs a wait for its slowest proof: no small one at the end
            turn = room
        ranked = self._ranked(measured, good)
        leader = min(good, key=lambda i: good[i])
        near = [i for i in ranked if (self._places[i] != self._places[leader]).sum() == 1]
        half = near[: turn // 2]
        return [*half, *(i for i in ranked if i not in half)][:turn]

    def _untried(self, measured: Mapping[int, float | None]) -> list[int]:
        """Nothing could be measured yet: others, a few at a time, to the last."""
        left = [i for i in range(self._count) if i not in self._asked]
        return left[: max(FIRST_AT_LEAST, self._count // 8)]

    def _ranked(self, measured: Mapping[int, float | None], good: Mapping[int, float]) -> list[int]:
        known = list(measured)
        failed = max(good.values()) * FAILED_FACTOR
        logs = np.log([good.get(i, failed) for i in known])
        design = self._features[known]
        center = logs.mean()
        normal = design.T @ design + RIDGE * np.eye(design.shape[1])
        weights = np.linalg.solve(normal, design.T @ (logs - center))
        predicted = self._features @ weights
        order = np.argsort(predicted, kind="stable")
        return [int(i) for i in order if int(i) not in self._asked]


def _features(places: np.ndarray[Any, Any], levels: Sequence[int]) -> np.ndarray[Any, Any]:
    """What a time may depend on: each parameter's value, its rank among the values, and pairs of those.

    Ranks tell of values not measured yet what their neighbours let expect.
    """
    axes = range(len(levels))
    ranks = places / np.maximum(np.array(levels) - 1, 1) - 0.5
    singles = [np.eye(count)[places[:, axis]] for axis, count in enumerate(levels)]
    pairs = [
        0.5 * np.eye(levels[a] * levels[b])[places[:, a] * levels[b] + places[:, b]]
        for a, b in combinations(axes, 2)
        if levels[a] * levels[b] <= 64
    ]
    products = [BENT * (ranks[:, a] * ranks[:, b])[:, None] for a, b in combinations(axes, 2)]
    trends = [STRAIGHT * ranks, BENT * (ranks**2 - 1 / 12), *products]
    return np.hstack([np.ones((len(places), 1)), *trends, *singles, *pairs])
