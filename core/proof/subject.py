"""What is proven: a matmul candidate or a configuration of a kernel, and where another process finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..device.profile import DeviceProfile
from ..matmul.launch import LaunchPlan
from ..matmul.problem import Problem
from ..spec.spec import KernelSpec, sources_of
from ..tuning.tunable import separated_hash

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


@dataclass(frozen=True)
class SpecifiedKernel:
    """A specified kernel as all its proofs share it. A worker reads the specification anew, from `texts`.

    `digest` is that of all that a verdict depends on, but for the configuration and the problem's size.
    """

    spec: KernelSpec
    texts: Mapping[str, Any]
    digest: str

    @classmethod
    def of(cls, spec: KernelSpec) -> SpecifiedKernel:
        parts = (
            spec.kernel,
            spec.constants,
            spec.arguments,
            spec.reference,
            spec.grid_div,
            spec.block_size_names,
        )
        texts = {"text": spec.text, "sources": sources_of(spec)}
        return cls(spec, texts, separated_hash(*map(repr, parts)))


@dataclass(frozen=True)
class KernelProof:
    """A configuration of a specified kernel, as a tunable's `proof`."""

    kernel: SpecifiedKernel
    configuration: Mapping[str, Any]
