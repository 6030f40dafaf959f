"""What is proven: a matmul candidate, and where another process finds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..device.profile import DeviceProfile
from ..matmul.launch import LaunchPlan
from ..matmul.problem import Problem

MATMUL_TABLE = "rooftune.matmul.candidates:CANDIDATES"


class Candidate(Protocol):
    """A matmul candidate, as far as a proof needs it."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    def plan(self, problem: Problem, profile: DeviceProfile) -> LaunchPlan: ...


@dataclass(frozen=True)
class MatmulProof:
    """A matmul candidate, as a tunable's `proof`. A worker finds it by name in `table`, "module:name"."""

    candidate: Candidate
    table: str = MATMUL_TABLE
