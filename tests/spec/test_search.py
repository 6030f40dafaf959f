"""The search finds what brute force finds, on landscapes like those of kernels, at a fraction of the work."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from rooftune.spec.search import MOST_SHARE, SMALL, Search


def landscape(seed):
    """Times with effects of each parameter, of pairs, noise, a cliff, and some configurations that fail."""
    rng = np.random.default_rng(seed)
    values = [(8, 16, 32, 64), (1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4), (0, 1)]
    configurations = [dict(zip("abcde", v, strict=True)) for v in product(*values)]
    effects = [rng.normal(0, 0.4, len(v)) for v in values]
    pairs = {
        (i, j): rng.normal(0, 0.15, (len(values[i]), len(values[j]))) for i, j in [(0, 1), (1, 2), (2, 3)]
    }
    times = []
    for places in product(*(range(len(v)) for v in values)):
        log = sum(e[p] for e, p in zip(effects, places, strict=True))
        log += sum(table[places[i], places[j]] for (i, j), table in pairs.items())
        log += 1.5 * (places[0] == 3 and places[1] == 4) + rng.normal(0, 0.03)
        times.append(None if rng.random() < 0.05 else float(np.exp(log)))
    return configurations, times


def searched(configurations, times):
    search, measured = Search(configurations), {}
    while proposed := search.propose(measured):
        assert not set(proposed) & set(measured)
        measured |= {i: times[i] for i in proposed}
    return measured


def test_within_five_percent_of_brute_force_most_of_the_time():
    misses, shares = 0, []
    for seed in range(5):
        configurations, times = landscape(seed)
        measured = searched(configurations, times)
        best = min(t for t in measured.values() if t)
        misses += best > 1.05 * min(t for t in times if t)
        shares.append(len(measured) / len(configurations))
    assert misses <= 1
    assert max(shares) <= MOST_SHARE


@pytest.mark.parametrize("count", [1, 2, SMALL])
def test_few_configurations_are_all_measured(count):
    configurations = [{"a": i} for i in range(count)]
    assert set(searched(configurations, [1.0] * count)) == set(range(count))


def test_goes_on_to_the_last_while_nothing_runs():
    configurations = [{"a": a, "b": b} for a in range(8) for b in range(8)]
    times = [None] * 63 + [1.0]
    assert 63 in searched(configurations, times)
