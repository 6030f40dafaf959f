"""What is foreseen of a candidate before it is compiled: who goes first, and who is spared for its kin."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Foresight:
    """A candidate is foreseen to take `factor` times its least possible time; the smallest goes first.

    `kin` is what candidates of much the same code share; None: it is kin to nobody. Once one of them is
    measured, the others are not expected to come closer to their least possible times by more than a few
    times. `program` is what is compiled for it: once that was done for one, the others with the same cost a
    look only, and are looked at before one of them is good enough to stop at.
    """

    factor: float = 1.0
    kin: Hashable = None
    program: Hashable = None


NOTHING_FORESEEN = Foresight()
