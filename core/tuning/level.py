"""How carefully to tune, and how coarsely sizes are bucketed into keys."""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from functools import lru_cache
from math import ceil

from ..errors import UsageError


class Level(str, Enum):
    """`minimal` is quick and coarse, `full` buckets nothing and never stops early."""

    MINIMAL = "minimal"
    BALANCED = "balanced"
    EXTENSIVE = "extensive"
    FULL = "full"

    @property
    def base(self) -> Fraction | None:
        """Sizes are rounded up to powers of this; None: not rounded."""
        return _BASES[self]

    @property
    def threshold(self) -> float | None:
        """The share of the roofline that is good enough to stop at; None: nothing is."""
        return _THRESHOLDS[self]

    @classmethod
    def parse(cls, text: str | int) -> Level:
        """A level from its name, in any case, or its number 0 to 3. Raises UsageError."""
        word = str(text).strip().lower()
        levels = list(cls)
        if word in {level.value for level in levels}:
            return cls(word)
        if word in {"0", "1", "2", "3"}:
            return levels[int(word)]
        raise UsageError(
            f"'{text}' is not a level", hint="Levels are minimal, balanced, extensive and full, or 0 to 3."
        )

    def __str__(self) -> str:
        return self.value


_BASES = {
    Level.MINIMAL: Fraction(5, 2),
    Level.BALANCED: Fraction(2),
    Level.EXTENSIVE: Fraction(3, 2),
    Level.FULL: None,
}
_THRESHOLDS = {Level.MINIMAL: 0.6, Level.BALANCED: 0.8, Level.EXTENSIVE: 0.95, Level.FULL: None}


@lru_cache(maxsize=4096)
def anchor(x: int, level: Level = Level.BALANCED) -> int:
    """The bucket of a size: the smallest power of the level's base that is ≥ x, rounded up; 0 stays 0.

    Computed in whole numbers: floating-point logarithms put 2^29 above its own power of two.
    Not idempotent at bases that are not whole: anchor an original size, never an anchored one.
    Raises UsageError for a negative size.
    """
    if x < 0:
        raise UsageError(f"a size of {x} can't be anchored", hint="Sizes are 0 or more.")
    if x == 0 or level.base is None:
        return x
    power = Fraction(1)
    while power < x:
        power *= level.base
    return ceil(power)
