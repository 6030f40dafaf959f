"""Noticing that the machine's own speed changed while a round was sampled: clocks, heat, other work.

Samples are interleaved, so that such a change hits all candidates alike and the ranking stands. But the
times then say less about the device than they seem to, and a person should be told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .events import Event
from .standing import Standing

LEAST_SAMPLES = 5
LEAST_CHANGE = 0.05
"""A change smaller than this share is noise."""


def drift(standings: Iterable[Standing]) -> Event | None:
    """SpedUp or SlowedDown when most candidates' later samples all lie apart from their earlier ones.

    The event names the fastest of these; its value has the ratio of the later median to the earlier one, of
    that candidate, and how many candidates agree (`agree` of `of`).
    """
    watched = [standing for standing in standings if len(standing.samples) >= LEAST_SAMPLES]
    ratios = {standing.index: change(standing.samples.values) for standing in watched}
    for kind, moved in (
        ("SlowedDown", [s for s in watched if ratios[s.index] > 1]),
        ("SpedUp", [s for s in watched if ratios[s.index] < 1]),
    ):
        if moved and 2 * len(moved) > len(watched):
            shown = min(moved, key=lambda standing: standing.rank)
            value: dict[str, Any] = {"ratio": ratios[shown.index], "agree": len(moved), "of": len(watched)}
            return Event(kind, shown.name, value)
    return None


def change(values: Sequence[float]) -> float:
    """Median after over median before the place where the samples part best; 1 where they don't part.

    They part where two or more on either side don't overlap, lie further apart than half of what either
    side spreads, and their medians differ notably.
    """
    ratios = (_parted(values[:place], values[place:]) for place in range(2, len(values) - 1))
    return max(ratios, key=lambda ratio: abs(ratio - 1), default=1.0)


def _parted(before: Sequence[float], after: Sequence[float]) -> float:
    low, high = sorted((before, after), key=median)
    gap = min(high) - max(low)
    spread = max(max(side) - min(side) for side in (low, high))
    ratio = median(after) / median(before)
    return ratio if gap > spread / 2 and abs(ratio - 1) > LEAST_CHANGE else 1.0
