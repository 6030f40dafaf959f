"""The order in which candidates are tried: rounds, from groups and their priorities for a key.

Groups of equal priority form one level; inside a level, candidates of equal priority form one tier.
Levels run from high to low, and so do the tiers inside them. One tier of one level is one round, and
the next round is asked for only while nothing so far could be measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .tunable import Priority, Tunable


@dataclass(frozen=True)
class PlanEntry:
    """A candidate's place in the plan: the group that brought it there, both priorities and why."""

    index: int
    name: str
    group: str
    group_priority: int
    priority: int
    why: str = ""


Round = tuple[PlanEntry, ...]


def make_plan(tunables: Sequence[Tunable], key: Any) -> tuple[Round, ...]:
    """Rounds of candidates, best first; each candidate once, in its first round, by ascending index.

    A candidate with a negative priority, its group's or its own, is left out. Those in no group join
    the first round. No round is empty.
    """
    entries = [entry for index, tunable in enumerate(tunables) for entry in _entries(index, tunable, key)]
    tiers = sorted({_tier(entry) for entry in entries}, reverse=True)
    rounds = [[entry for entry in entries if _tier(entry) == tier] for tier in tiers]
    loners = [
        PlanEntry(index, tunable.name, "", 0, 0, "in no group")
        for index, tunable in enumerate(tunables)
        if not tunable.memberships
    ]
    first, rest = (rounds[0], rounds[1:]) if rounds else ([], [])
    return tuple(_each_once([[*first, *loners], *rest]))


def _tier(entry: PlanEntry) -> tuple[int, int]:
    return entry.group_priority, entry.priority


def _entries(index: int, tunable: Tunable, key: Any) -> Iterator[PlanEntry]:
    for group, own in tunable.memberships:
        group_priority, group_why = _rank(group.priority, key)
        priority, own_why = _rank(own, key)
        if group_priority < 0 or priority < 0:
            continue
        entry = PlanEntry(index, tunable.name, group.name, group_priority, priority)
        yield replace(entry, why="; ".join(dict.fromkeys(filter(None, (group_why, own_why)))))


def _rank(priority: Priority, key: Any) -> tuple[int, str]:
    ranking = priority(key) if callable(priority) else priority
    return ranking if isinstance(ranking, tuple) else (ranking, "")


def _each_once(rounds: list[list[PlanEntry]]) -> Iterator[Round]:
    seen: set[int] = set()
    for entries in rounds:
        fresh: dict[int, PlanEntry] = {}
        for entry in entries:
            if entry.index not in seen:
                fresh.setdefault(entry.index, entry)
        seen.update(fresh)
        if fresh:
            yield tuple(fresh[index] for index in sorted(fresh))
