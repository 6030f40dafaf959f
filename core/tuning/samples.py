"""Sampling settings, and the samples of one candidate with the statistics decisions rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean, median, pvariance, quantiles

from ..errors import UsageError

RAMP_SAMPLES = 3
"""From this many samples on the first no longer counts: it carries the clock ramp."""

IMPROVEMENT = 0.02
"""A sample that betters the best by no more than this share has not improved it."""

CONVERGED_AFTER = 2
"""So many samples in a row without an improvement, and a candidate has converged."""

ENOUGH_FOR_SPREAD = 6
"""Of fewer samples the quartiles tell nothing."""

UNSTEADY_RANGE, UNSTEADY_IQR = 1.5, 0.15
"""Samples vary much when the longest of a few is so many times the shortest, or the interquartile range of
more is so large a share of their median. Of a device to oneself it is a third of that."""


@dataclass(frozen=True)
class BenchSettings:
    """How many samples a round takes. Raises UsageError for values that make no sense."""

    min_samples: int = 3
    max_samples: int = 10
    short_circuit_samples: int = 2
    speed_factor: float = 1.5
    adaptive: bool = True
    budget_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("min_samples", "max_samples", "short_circuit_samples"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}", hint="It is a whole number, 1 or more.")
        if not _is_number(self.speed_factor) or self.speed_factor < 1:
            raise UsageError(f"speed_factor is {self.speed_factor!r}", hint="It is a number, 1.0 or more.")
        if not _is_number(self.budget_s) or self.budget_s <= 0:
            raise UsageError(f"budget_s is {self.budget_s!r}", hint="It is a number of seconds above 0.")
        if self.max_samples < self.min_samples:
            raise UsageError(
                f"max_samples is {self.max_samples}, below min_samples {self.min_samples}",
                hint="Raise max_samples or lower min_samples.",
            )


@dataclass
class Samples:
    """Seconds per execution, in the order measured, and how long they have not improved."""

    values: list[float] = field(default_factory=list)
    stale: int = 0

    def add(self, seconds: float) -> None:
        """Adds one sample. The one that ends the clock ramp starts the count of stale ones anew."""
        improved = not self.values or seconds < self.best * (1 - IMPROVEMENT)
        self.values.append(seconds)
        window_moved = len(self.values) == RAMP_SAMPLES
        self.stale = 0 if improved or window_moved else self.stale + 1

    @property
    def counted(self) -> Sequence[float]:
        return self.values[1:] if len(self.values) >= RAMP_SAMPLES else self.values

    @property
    def converged(self) -> bool:
        return self.stale >= CONVERGED_AFTER

    @property
    def best(self) -> float:
        return min(self.counted)

    @property
    def worst(self) -> float:
        return max(self.counted)

    @property
    def median(self) -> float:
        return median(self.counted)

    @property
    def mean(self) -> float:
        return fmean(self.counted)

    @property
    def variance(self) -> float:
        """In seconds squared, over the samples that count."""
        return pvariance(self.counted)

    @property
    def iqr(self) -> float:
        """Interquartile range in seconds; 0 for a single sample."""
        if len(self.counted) < 2:
            return 0.0
        first, _, third = quantiles(self.counted, n=4, method="inclusive")
        return third - first

    @property
    def unsteady(self) -> bool:
        """Whether they vary as on a device that others use, too; of few the first counts here as well."""
        if len(self.values) < ENOUGH_FOR_SPREAD:
            return max(self.values) > UNSTEADY_RANGE * min(self.values)
        return self.iqr > UNSTEADY_IQR * self.median

    def inside(self, limit_s: float) -> int:
        """How many of the samples that count lie inside the limit."""
        return sum(value <= limit_s for value in self.counted)

    def __len__(self) -> int:
        return len(self.values)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
