"""A plan to look at: the rounds for a shape on a device, which candidates it can run, and why so."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from ..device.profile import DeviceProfile
from ..errors import UnsupportedError, UsageError
from ..tuning.level import Level
from ..tuning.plan import PlanEntry
from .candidates import CANDIDATES, Candidate, plan_for
from .groups import lacking
from .key import MatmulAutotuneKey
from .problem import Elem, Problem

_UNITS = ("cmma", "mma", "tma")


@dataclass(frozen=True)
class PlannedCandidate:
    """A candidate's place in the plan; `refusal` says why it can't run here, '' if it can."""

    entry: PlanEntry
    refusal: str

    def to_json(self) -> dict[str, Any]:
        entry = self.entry
        return {
            "index": entry.index,
            "name": entry.name,
            "group": entry.group,
            "group_priority": entry.group_priority,
            "priority": entry.priority,
            "supported": not self.refusal,
            "why": entry.why,
        } | ({"refusal": self.refusal} if self.refusal else {})


@dataclass(frozen=True)
class PlanView:
    """The rounds for a shape on a device."""

    shape: str
    device: str
    level: Level
    key: MatmulAutotuneKey
    rounds: tuple[tuple[PlannedCandidate, ...], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "device": self.device,
            "level": self.level.value,
            "key": self.key.to_json(),
            "rounds": [[candidate.to_json() for candidate in round_] for round_ in self.rounds],
        }


def view_plan(
    shape: str,
    problem: Problem,
    profile: DeviceProfile,
    *,
    level: Level = Level.BALANCED,
    assumed: bool = False,
) -> PlanView:
    """The plan for `problem` on the device of `profile`. Nothing is compiled or run.

    Whether a candidate is supported is asked of the candidate itself, or, for a device that is only
    `assumed`, of the matrix and copy hardware that the profile claims.
    """
    key = MatmulAutotuneKey.build(problem, level)

    def refusal(candidate: Candidate) -> str:
        if assumed:
            return lacking(candidate.needs, problem.elem.value, problem.precision, profile)
        try:
            candidate.plan(problem, profile)
        except UnsupportedError as refused:
            return str(refused)
        return ""

    rounds = tuple(
        tuple(PlannedCandidate(entry, refusal(CANDIDATES[entry.index])) for entry in round_)
        for round_ in plan_for(key, profile)
    )
    return PlanView(shape, profile.name, level, key, rounds)


def assume_device(text: str) -> DeviceProfile:
    """A device that need not be there: `cpu` or `gpu`, then any of cmma, mma, tma, for every type.

    Raises UsageError for anything else.
    """
    kind, *units = (word.strip().lower() for word in text.split(","))
    unknown = [word for word in units if word not in _UNITS]
    if kind not in ("cpu", "gpu") or unknown:
        wrong = unknown[0] if unknown else kind
        raise UsageError(
            f"--assume {text}: '{wrong}' is not known there",
            hint="Give cpu or gpu, then any of cmma, mma, tma: --assume gpu,cmma,tma",
        )
    served = frozenset(product(units, (elem.value for elem in Elem), ("full", "tf32")))
    with_units = f" with {', '.join(units)}" if units else ""
    return DeviceProfile(f"assumed {kind}{with_units}", kind=kind, units=served)
