"""Deciding between two candidates whose medians are closer than their own spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from statistics import median
from typing import Any, TypeVar

from .typed import Kind, check_types

T = TypeVar("T")


@dataclass(frozen=True)
class TieBreak:
    """How a tie was broken: by how many pairs, by how many seconds, and how sure that is.

    `confidence` runs from 0 (a coin toss) to 1: one minus the chance that two equally fast
    candidates differ in at least so many pairs to one side.
    """

    winner: str
    loser: str
    pairs: int
    difference_s: float
    confidence: float

    @property
    def sure(self) -> str:
        """The confidence in percent, in words; never 100, which no number of pairs gives."""
        return f"{self.confidence:.0%}" if self.confidence < 0.99 else "over 99%"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TieBreak:
        """Raises ValueError, TypeError for what is none."""
        numbers: dict[str, Kind] = {"difference_s": "number", "confidence": "number"}
        return check_types(cls(**data), winner=str, loser=str, pairs=int, **numbers)


def paired_verdict(
    differences_s: Sequence[float], first: str, second: str, *, first_wins_even: bool
) -> TieBreak:
    """Decides on the sign of the median of `first` minus `second`, both measured in one pair."""
    middle = median(differences_s)
    first_wins = middle < 0 or (middle == 0 and first_wins_even)
    winner, loser = (first, second) if first_wins else (second, first)
    return TieBreak(winner, loser, len(differences_s), abs(middle), sign_confidence(differences_s))


def in_turn(sides: list[T], turn: int) -> list[T]:
    """From first to last, or back in turns in which the Thue-Morse sequence has a 1: 0 1 1 0 1 0 0 1 …

    It evens out what gets slower or faster meanwhile, and has no period: something else that runs as
    regularly as A B B A A B B A would always meet the same one.
    """
    return sides if turn.bit_count() % 2 == 0 else sides[::-1]


def sign_confidence(differences_s: Sequence[float]) -> float:
    """One minus the two-sided sign test's p; pairs without a difference say nothing."""
    faster = sum(difference < 0 for difference in differences_s)
    slower = sum(difference > 0 for difference in differences_s)
    pairs, majority = faster + slower, max(faster, slower)
    return 1 - min(1.0, 2 * _chance_of(majority, pairs))


def median_within(differences_s: Sequence[float], bar_s: float, confidence: float = 0.95) -> bool:
    """Whether the true median lies between -bar_s and bar_s, going by the sign test on either side."""
    pairs = len(differences_s)
    inside = min(sum(d < bar_s for d in differences_s), sum(d > -bar_s for d in differences_s))
    return 2 * _chance_of(inside, pairs) <= 1 - confidence


def _chance_of(least: int, tosses: int) -> float:
    """That so many tosses of a fair coin show at least so many heads."""
    ways = term = comb(tosses, least)
    for heads in range(least, tosses):
        term = term * (tosses - heads) // (heads + 1)
        ways += term
    return ways / 2**tosses
