"""How a rate is measured: grow the work, wait until it is steady, then keep the best.

Knows nothing of devices: `sample(work)` runs so much work once and returns the device's seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isfinite
from time import perf_counter

from rooftune.errors import MeasurementError

Sample = Callable[[int], float]


@dataclass(frozen=True)
class Method:
    """Budgets of a rate's measurement, in seconds unless the name says otherwise.

    One sample lasts `sample_s`. The rate is steady when `agreeing` samples in a row lie within
    `tolerance` (a share) and `settle_s` have gone by; a device that never settles is left after
    `settle_at_most_s`, and the spread then tells. The best of these and of `best_s` more counts.
    Where they spread by more than `tolerance` something else is using the device: then short samples,
    of `busy_sample_s`, look for the gaps it leaves, for `busy_s`.
    """

    sample_s: float = 0.020
    tolerance: float = 0.03
    agreeing: int = 3
    settle_s: float = 0.25
    settle_at_most_s: float = 1.5
    best_s: float = 0.2
    busy_s: float = 0.5
    busy_sample_s: float = 0.001

    @property
    def typical_s(self) -> float:
        """About what a measurement takes on an idle machine, with compiling and trying variants before it."""
        return self.settle_s + self.best_s + 10 * self.sample_s + 0.05


TRIAL = Method(sample_s=0.005, agreeing=2, settle_s=0.0, settle_at_most_s=0.03, best_s=0.0, busy_s=0.0)
"""Long enough to tell a good variant from a bad one; its figure is never reported."""

QUICK = Method(sample_s=0.010, agreeing=2, settle_s=0.03, settle_at_most_s=0.2, best_s=0.03, busy_s=0.05)
"""For one point of a sweep."""


@dataclass(frozen=True)
class Measured:
    """Seconds for one unit of work: the best sample's, of `work` units.

    The spread is (slowest - best) / best of the samples that counted.
    """

    unit_s: float
    spread: float
    samples: int
    work: int


def measure(sample: Sample, method: Method, *, start: int = 1, most: int = 1 << 30) -> Measured:
    """Measure by the method, starting with `start` units of work in a sample and never more than `most`."""
    work, taken = grow(sample, method.sample_s, start, most)
    settled: list[float] = []
    settling = perf_counter()
    while not _settled(settled, perf_counter() - settling, method):
        settled.append(sample(work) / work)
    last: list[float] = []
    counting = perf_counter()
    while perf_counter() - counting < method.best_s:
        last.append(sample(work) / work)
    taken += len(settled) + len(last)
    last += settled[-method.agreeing :]
    # a roof must not be too low: on a busy machine the best may have come while settling
    best = min(last + settled)
    spread = (max(last) - best) / best
    if spread > method.tolerance:
        short = max(1, round(work * min(1.0, method.busy_sample_s / (best * work))))
        looking = perf_counter()
        while perf_counter() - looking < method.busy_s:
            best = min(best, sample(short) / short)
            taken += 1
        spread = (max(last) - best) / best
    return Measured(best, spread, taken, work)


def grow(sample: Sample, target_s: float, start: int, most: int) -> tuple[int, int]:
    """Work that lasts `target_s` or longer, and how many samples finding it took. The first one warms up."""
    sample(start)
    work, taken = start, 1
    while True:
        lasted = sample(work)
        taken += 1
        if lasted >= target_s or work >= most:
            return work, taken
        # a very short sample is mostly overhead: it says little about how much more is needed
        factor = 8.0 if lasted < target_s / 50 else 1.1 * target_s / lasted
        work = min(most, max(work + 1, ceil(work * factor)))


def _settled(samples: list[float], elapsed_s: float, method: Method) -> bool:
    if len(samples) < method.agreeing:
        return False
    if elapsed_s >= method.settle_at_most_s:
        return True
    last = samples[-method.agreeing :]
    return elapsed_s >= method.settle_s and max(last) <= min(last) * (1 + method.tolerance)


def sensible(value: float, least: float, most: float, what: str) -> float:
    """The value, if it can be true. Raises MeasurementError with what was measured otherwise."""
    if not isfinite(value) or not least <= value <= most:
        raise MeasurementError(f"{what} was measured as {value:g}, which cannot be right; it is not used")
    return value
