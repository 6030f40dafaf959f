"""What is foreseen of a candidate before it is compiled: who goes first, and who is spared for its kin."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

LONG_FACTOR = 2.0


@dataclass(frozen=True)
class Foresight:
    """A candidate is foreseen to take `factor` times its least possible time; the smallest goes first.

    `kin` is what candidates of much the same code share; None: it is kin to nobody. Once one of them is
    measured, the others are not expected to come closer to their least possible times by more than a few
    times. `program` is what is compiled for it: once that was done for one, the others with the same cost a
    look only, and are looked at before one of them is good enough to stop at.

    `expected_s` is how long it takes by a formula fitted to measurements of its kind on such a device; None:
    there is none.
    """

    factor: float = 1.0
    kin: Hashable = None
    program: Hashable = None
    expected_s: float | None = None

    @property
    def order(self) -> tuple[float, float]:
        """What is foreseen to win sorts first, before any floor is known.

        Those without a formula are at the beginning, or at the end if foreseen to take long.
        """
        unknown = 0.0 if self.factor < LONG_FACTOR else inf
        return (unknown if self.expected_s is None else self.expected_s), self.factor


NOTHING_FORESEEN = Foresight()
