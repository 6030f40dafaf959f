"""Candidates that misbehave, each in one way: to show that a tuning survives them and says what they did.

They are matmul candidates for f32 like any other; register them beside good ones with `tunable`. `GOOD` and
`SLOW` are right. None of them is in the table that `matmul` tunes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np

from ..device.client import Client
from ..device.profile import DeviceProfile
from ..errors import UnsupportedError
from ..matmul.executor import prepare
from ..matmul.launch import Arg, KernelCall, LaunchPlan, Scratch, Slot
from ..matmul.problem import Elem, Operand, Problem
from ..tuning.tunable import Tunable, separated_hash
from .subject import MatmulProof

TABLE = "rooftune.proof.adversaries:EVERY"


@dataclass(frozen=True)
class Adversary:
    """A candidate with a misdeed. `caught_by` is a word of the reason it must be disqualified with."""

    name: str
    planner: Callable[[Problem], LaunchPlan]
    caught_by: str = ""

    def plan(self, problem: Problem, profile: DeviceProfile) -> LaunchPlan:
        if problem.elem is not Elem.F32:
            raise UnsupportedError(f"adversaries compute f32, not {problem.elem}")
        return self.planner(problem)

    @property
    def digest(self) -> str:
        return separated_hash(self.name, _source())


@dataclass(frozen=True)
class AbortingCompiler:
    """Ends the process where a compiler would that meets a kernel it cannot translate."""

    def apply(self, binary: bytes) -> bytes:
        os.abort()


def tunable(client: Client, candidate: Adversary) -> Tunable:
    """The candidate for a tuner; its inputs have `problem`, `lhs`, `rhs` and `out`."""

    def run(inputs: Any) -> Any:
        table = prepared.setdefault(inputs.problem, [])
        if not table:
            table.append(prepare(client, candidate.plan(inputs.problem, client.profile)))
        table[0].bind(inputs.lhs, inputs.rhs, inputs.out)
        table[0].enqueue()
        return inputs.out

    prepared: dict[Problem, list[Any]] = {}
    return Tunable(candidate.name, run, digest=candidate.digest, proof=MatmulProof(candidate, TABLE))


def _source() -> str:
    return (files(__package__) / "kernels" / "adversaries.cl").read_text(encoding="utf-8")


def _operand(slot: Slot, operand: Operand, walk: tuple[int, int]) -> list[Arg]:
    strides = [operand.row_stride] if slot is Slot.OUT else [operand.row_stride, operand.col_stride]
    return [slot, *(np.int64(x) for x in (operand.offset_elems, *strides, *walk))]


def _product(problem: Problem, misdeed: int, *, source: str = "", rewrite: Any = None) -> LaunchPlan:
    walk = problem.batch_walk()
    args = [
        *_operand(Slot.LHS, problem.lhs, walk.lhs),
        *_operand(Slot.RHS, problem.rhs, walk.rhs),
        *_operand(Slot.OUT, problem.out, walk.out),
        *(np.int32(x) for x in (problem.m, problem.n, problem.k, walk.extents[1])),
        Scratch(0),
    ]
    options = (f"-DMISDEED={misdeed}",)
    text = source or _source()
    which = np.uint32(hash((problem.m, problem.n, problem.k, walk.count)) & 0xFFFFFFFF)
    calls = [
        KernelCall(text, "count_calls", options, (1,), (1,), (Scratch(0), which), rewrite),
        KernelCall(text, "product", options, (problem.n, problem.m, walk.count), None, tuple(args), rewrite),
    ]
    return LaunchPlan(tuple(calls), (64,))


def _with(misdeed: int) -> Callable[[Problem], LaunchPlan]:
    return lambda problem: _product(problem, misdeed)


def _aborting(problem: Problem) -> LaunchPlan:
    return _product(problem, 0, rewrite=AbortingCompiler())


def _not_a_program(problem: Problem) -> LaunchPlan:
    return _product(problem, 0, source="this is no OpenCL C;\n" + _source())


def _minutes_to_build(problem: Problem) -> LaunchPlan:
    """2⁴⁰ expansions of an empty macro: no memory, no output, no end."""
    doubling = "".join(f"#define E{i} E{i - 1} E{i - 1}\n" for i in range(1, 41))
    return _product(problem, 0, source=f"#define E0\n{doubling}E40\n" + _source())


def _too_much(problem: Problem) -> LaunchPlan:
    plan = _product(problem, 0)
    return LaunchPlan(plan.calls, (*plan.scratch_bytes, 1 << 50))


def _nothing(problem: Problem) -> LaunchPlan:
    return LaunchPlan(())


GOOD = Adversary("good", _with(0))
SLOW = Adversary("good_but_slow", _with(1))

ELEVEN = (
    Adversary("aborts", _aborting, "SIGABRT"),
    Adversary("segfaults", _with(6), "SIGSEGV"),
    Adversary("never_ends", _with(7), "outlasted"),
    Adversary("does_not_build", _not_a_program, "refused"),
    Adversary("builds_for_minutes", _minutes_to_build, "outlasted"),
    Adversary("wrong_at_a_tile_edge", _with(3), "wrong"),
    Adversary("writes_nan", _with(2), "not finite"),
    Adversary("writes_out_of_bounds", _with(4), "it wrote"),
    Adversary("allocates_too_much", _too_much, "memory"),
    Adversary("takes_no_time", _nothing, "never written"),
    Adversary("right_at_first", _with(5), "wrong"),
)

CANDIDATES = (GOOD, SLOW, *ELEVEN)

AGAIN = tuple(replace(adversary, name=f"{adversary.name}_again") for adversary in ELEVEN)
"""Each once more under another name: a set of one candidate is not measured, a set of two bad ones is."""

EVERY = (*CANDIDATES, *AGAIN)
