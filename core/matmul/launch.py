"""What a candidate would launch, as plain data: a pure function of problem and device, testable without one.

A family module has `plan(problem, profile, **parameters) -> LaunchPlan` and raises UnsupportedError,
before anything is compiled, for what it cannot do. Only the client turns a plan into launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np


class Slot(Enum):
    """The problem's own buffers."""

    LHS = "lhs"
    RHS = "rhs"
    OUT = "out"


@dataclass(frozen=True)
class Scratch:
    """The i-th scratch buffer of the plan."""

    index: int


@dataclass(frozen=True)
class Counter:
    """32-bit numbers in a buffer of their own, which are 0 before a kernel runs, and which it leaves at 0."""

    numbers: int = 1


@dataclass(frozen=True)
class Blob:
    """A small constant buffer made when buffers are bound, from their device addresses (tensor maps)."""

    needs: tuple[Slot | Scratch, ...]
    build: Callable[[Mapping[Slot | Scratch, int]], bytes]


Arg = Slot | Scratch | Counter | Blob | np.generic | None
"""A numpy scalar is passed by value; of a structured type it is a struct. None is a buffer not touched."""


class Rewrite(Protocol):
    """Changes a built program's binary before it is loaded; hashable, part of the program's identity."""

    def apply(self, binary: bytes) -> bytes: ...


@dataclass(frozen=True)
class KernelCall:
    """One kernel launch: program text, build options, sizes, arguments in order.

    `group_ops` is how many operations (two to a multiply-add) a work-group makes of the product, on average,
    those past its edges included; 0: not said. `matrix`: by matrix instructions. `detour`: how many times as
    long as the best of its kind it is foreseen to take, for reasons that its sizes don't show.
    """

    source: str
    name: str
    options: tuple[str, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    args: tuple[Arg, ...]
    rewrite: Rewrite | None = None
    group_ops: float = 0.0
    matrix: bool = False
    detour: float = 1.0


@dataclass(frozen=True)
class LaunchPlan:
    """Kernels in order, on one in-order queue; `scratch_bytes` are the sizes of the scratch buffers.

    `expected_s` is how long its window lasts by a formula that was fitted to a device of this kind; None: by
    none.
    """

    calls: tuple[KernelCall, ...]
    scratch_bytes: tuple[int, ...] = ()
    expected_s: float | None = None

    @property
    def own_bytes(self) -> int:
        """Of its scratch buffers and counters."""
        args = (arg for call in self.calls for arg in call.args)
        return sum(self.scratch_bytes) + sum(4 * arg.numbers for arg in args if isinstance(arg, Counter))
