"""What earlier decisions on the same key still tell, after candidates were added, changed or removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .decision import Decision, Evidence
from .tunable import TunableSet


@dataclass(frozen=True)
class Reuse:
    """Evidence on candidates whose code did not change, by today's index.

    `leader` is the best of them, to be measured again beside what is new. `barred` candidates lost
    the device or could not be run, and are not tried again.
    """

    leader: int | None = None
    known: Mapping[int, Evidence] = field(default_factory=dict)
    barred: Mapping[int, Evidence] = field(default_factory=dict)


def reuse_from(
    previous: Iterable[Decision], tunables: TunableSet, broken: Mapping[int, str] | None = None
) -> Reuse:
    """What the newest of the `previous` decisions that still tells something tells.

    `broken` candidates, by index with the reason, could not be built, given arguments or enqueued.
    """
    broken = broken or {}
    barred = {index: _barred(index, reason, tunables) for index, reason in broken.items()}
    found = Reuse()
    for decision in previous:
        same = _same_code(decision, tunables)
        barred.update({i: e for i, e in same.items() if e.outcome == "fault" and i not in barred})
        if found.leader is None and not decision.bad and decision.origin == "local":
            found = _from_one(decision, {i: e for i, e in same.items() if i not in barred})
    return replace(found, barred=barred)


def _from_one(decision: Decision, same: dict[int, Evidence]) -> Reuse:
    survivors = [e for e in same.values() if e.outcome == "measured" and e.samples]
    if not survivors:
        return Reuse()
    stands = [evidence for evidence in survivors if evidence.name == decision.name]
    best = min(survivors, key=lambda evidence: (evidence.statistics.median, evidence.index))
    leader = stands[0] if stands else best
    tried = {i: e for i, e in same.items() if stands or e.outcome != "skipped"}
    return Reuse(leader.index, tried)


def _same_code(decision: Decision, tunables: TunableSet) -> dict[int, Evidence]:
    index_of = {(tunable.name, tunable.digest): index for index, tunable in enumerate(tunables.tunables)}
    matches = ((index_of.get((evidence.name, evidence.digest)), evidence) for evidence in decision.evidence)
    return {
        index: replace(evidence, index=index, kept=True) for index, evidence in matches if index is not None
    }


def _barred(index: int, reason: str, tunables: TunableSet) -> Evidence:
    tunable = tunables[index]
    return Evidence(index, tunable.name, tunable.digest, "error", reason=reason)
