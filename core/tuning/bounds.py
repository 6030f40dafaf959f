"""The roofline of a problem: the least time the hardware allows, and the time that is good enough."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from .typed import MOST, Kind, check_types

CLOCK_NOISE = 0.05
"""A median may lie this far below the roofline before a peak must be called wrong."""


@dataclass(frozen=True)
class Bound:
    """`amount` of a resource (operations, bytes) at a peak rate a second.

    `threshold` is the share of the peak that is good enough; None: no share is.
    """

    resource: str
    amount: int
    peak_per_s: float
    threshold: float | None = None

    @property
    def usable(self) -> bool:
        """Whether it says anything: a peak that is zero, negative, NaN, infinite or like it does not."""
        return 0 < self.peak_per_s < MOST and self.amount >= 0 and isfinite(self.least_s)

    @property
    def least_s(self) -> float:
        """Seconds the resource needs at its peak."""
        return self.amount / self.peak_per_s

    def to_json(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "amount": self.amount,
            "peak_per_s": self.peak_per_s,
            "threshold": self.threshold,
        }


@dataclass(frozen=True)
class Bounds:
    """All bounds of a problem, and the event window of an empty kernel in seconds.

    A bound whose peak is zero, negative, NaN or infinite says nothing and is dropped here. The launch
    term is on the same clock as the samples; without a bound it is no limit. `plain_ops_per_s` is the peak
    without matrix instructions, where it was probed: no bound, since others may use them.
    """

    bounds: tuple[Bound, ...]
    launch_window_s: float = 0.0
    plain_ops_per_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", tuple(bound for bound in self.bounds if bound.usable))
        if not isfinite(self.launch_window_s) or self.launch_window_s < 0:
            object.__setattr__(self, "launch_window_s", 0.0)

    @property
    def roofline_s(self) -> float | None:
        """Seconds no correct candidate can stay below; None without a bound."""
        return max((bound.least_s for bound in self.bounds), default=None)

    @property
    def tolerance(self) -> float:
        """How many times the least possible time is good enough; 1 where no more than that is."""
        return max((1 / bound.threshold for bound in self.bounds if bound.threshold), default=1.0)

    @property
    def limit_s(self) -> float | None:
        """Seconds that are good enough to stop at; None: nothing is."""
        times = [bound.least_s / bound.threshold for bound in self.bounds if bound.threshold]
        return max(times) + self.launch_window_s if times else None

    def share(self, median_s: float) -> float | None:
        """The share of the roofline a median reaches: 1 is the hardware's best; None without a bound."""
        if self.roofline_s is None or not median_s > 0:
            return None
        return self.roofline_s / median_s

    def to_json(self) -> dict[str, Any]:
        return {"bounds": [bound.to_json() for bound in self.bounds], "launch_window_s": self.launch_window_s}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Bounds:
        """Raises ValueError, TypeError, KeyError, OverflowError for what are none."""
        numbers: dict[str, Kind] = {"amount": "number", "threshold": "number or null"}
        bounds = (check_types(Bound(**bound), resource=str, **numbers) for bound in data["bounds"])
        return cls(tuple(bounds), data["launch_window_s"])
