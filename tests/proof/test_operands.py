"""Operands shared by candidates: made once, and never trusted after somebody wrote to them."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooftune.matmul.launch import KernelCall, Slot
from rooftune.matmul.problem import Elem, Operand, Problem
from rooftune.proof import adversaries, check
from rooftune.proof.check import WrongResult
from rooftune.proof.operands import (
    GUARD_BYTES,
    UNWRITTEN,
    KeptOperands,
    Operands,
    buffer_bytes,
    check_guards,
    matrix_in,
)
from rooftune.proof.trial import SameKernels, prove

GOOD = adversaries.GOOD


def wide(elem=Elem.F32):
    """An output with a gap after each row, starting past a guard."""
    return Operand((2, 5, 7), (60, 11, 1), elem, GUARD_BYTES)


def test_the_same_problem_has_the_same_operands_and_another_has_its_own():
    kept = KeptOperands()
    first = kept.of(Problem.of(9, 10, 11))
    assert kept.of(Problem.of(9, 10, 11)) is first
    assert kept.of(Problem.of(9, 10, 11, Elem.F16)) is not first
    moved = dataclasses.replace(Problem.of(9, 10, 11).out, offset_bytes=64)
    assert kept.of(dataclasses.replace(Problem.of(9, 10, 11), out=moved)) is first


def test_what_was_used_longest_ago_goes_when_room_is_needed():
    kept = KeptOperands(most_bytes=150_000)
    problems = [Problem.of(64, 64, k) for k in (60, 61, 62)]
    first, second = (kept.of(problem) for problem in problems[:2])
    assert kept.of(problems[0]) is first
    kept.of(problems[2])
    assert kept.of(problems[1]) is not second


def named(*problems):
    return lambda: [(str(number), problem) for number, problem in enumerate(problems)]


def test_cases_come_in_their_order_with_their_operands_and_sums():
    kept, problems = KeptOperands(), [Problem.of(9, 10, k) for k in range(11, 31)]
    known = kept.of(problems[3])
    taken = list(kept.ahead(named(*problems)))
    assert [problem for _, problem, _ in taken] == problems
    assert [name for name, _, _ in taken] == [str(i) for i in range(20)]
    assert taken[3][2] is known
    for _, problem, operands in taken:
        assert operands is kept.of(problem)
        assert operands.verify() is None and len(operands.reference.arrays) == 1


def test_operands_that_no_longer_fit_are_still_there_for_who_began_them():
    kept, problems = KeptOperands(most_bytes=1), [Problem.of(64, 64, k) for k in (60, 61, 62)]
    taken = list(kept.ahead(named(*problems)))
    assert [operands.problem for _, _, operands in taken] == problems


def test_an_error_while_cases_are_listed_is_raised_where_they_are_taken():
    def cases():
        yield "first", Problem.of(9, 10, 11)
        raise LookupError("no more")

    ready = KeptOperands().ahead(cases)
    assert next(ready)[0] == "first"
    with pytest.raises(LookupError, match="no more"):
        next(ready)


def test_what_nobody_takes_any_more_is_not_made():
    kept, made = KeptOperands(), []

    def cases():
        for k in range(11, 2000):
            made.append(k)
            yield str(k), Problem.of(9, 10, k)

    next(kept.ahead(cases))
    assert [name for name, _, _ in kept.ahead(named(Problem.of(5, 6, 7)))] == ["0"]
    assert len(made) < 1900


def test_without_threads_operands_are_made_when_they_are_asked_for(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    assert [name for name, _, _ in KeptOperands().ahead(named(Problem.of(5, 6, 7)))] == ["0"]


@pytest.mark.parametrize("what", ["lhs", "rhs", "reference"])
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@settings(max_examples=25, deadline=None)
def test_any_byte_written_to_what_is_kept_is_found(what, place, change):
    operands = Operands(Problem.of(20, 21, 22), np.random.default_rng(0))
    assert operands.reference and operands.verify() is None
    kept = operands.reference.arrays[0] if what == "reference" else getattr(operands, what)
    raw = kept.reshape(-1).view(np.uint8)
    raw[int(place * raw.size)] ^= change
    with pytest.raises(WrongResult, match="was not given" if what == "reference" else f"wrote to {what}"):
        operands.verify()


def test_a_candidate_that_writes_to_what_is_kept_is_wrong_and_spoils_no_other_proof(client):
    """Stands for a kernel on a CPU device that writes past its buffers into the worker's memory."""
    kept, problem = KeptOperands(), Problem.of(40, 41, 42)

    @dataclasses.dataclass(frozen=True)
    class Spoiler:
        name: str = "spoiler"
        digest: str = "spoiler"

        def plan(self, given, profile):
            if given.out.offset_bytes:  # a trial's own plan, not the suite's looking around
                kept.of(given).lhs[100] ^= 1
            return GOOD.plan(given, profile)

    def tried(candidate, kept):
        options = {"with_suite": False, "phase": lambda what, case: None, "hold": nullcontext}
        return prove(client, candidate, problem, kept=kept, **options)

    assert tried(GOOD, kept).status == "right"
    outcome = tried(Spoiler(), kept)
    assert outcome.status == "wrong" and "wrote to lhs" in outcome.reason
    assert tried(GOOD, kept).status == "wrong"  # which is why the worker ends with the first
    assert tried(GOOD, KeptOperands()).status == "right"


def test_a_candidate_that_writes_to_its_operands_is_wrong(client):
    @dataclasses.dataclass(frozen=True)
    class Overwriter:
        name: str = "overwriter"
        digest: str = "overwriter"

        def plan(self, given, profile):
            source = "__kernel void spoil(__global float *rhs) { rhs[3] = 0.25f; }"
            spoil = KernelCall(source, "spoil", (), (1,), (1,), (Slot.RHS,))
            plan = GOOD.plan(given, profile)
            return dataclasses.replace(plan, calls=(*plan.calls, spoil))

    options = {"with_suite": False, "phase": lambda what, case: None, "hold": nullcontext}
    outcome = prove(client, Overwriter(), Problem.of(40, 41, 42), **options)
    assert outcome.status == "wrong" and "wrote to rhs" in outcome.reason


def test_launches_of_one_case_never_share_a_kernel_and_the_next_case_has_them_again(client):
    kernels = SameKernels(client)
    sources = [f"__kernel void {name}(__global int *x) {{ x[0] = 1; }}" for name in "ab"]
    wanted = [(sources[0], "a", (), None), (sources[1], "b", (), None), (sources[0], "a", (), None)]
    first = [kernels.for_next_case().kernel(*wanted[0]), *(kernels.kernel(*which) for which in wanted[1:])]
    second = [kernels.for_next_case().kernel(*wanted[0]), *(kernels.kernel(*which) for which in wanted[1:])]
    assert len({id(kernel) for kernel in first}) == 3
    assert all(kernel is again for kernel, again in zip(first, second, strict=True))


@pytest.mark.parametrize("operand", [wide(), wide(Elem.F16), Operand((3, 4), (4, 1), Elem.F64, GUARD_BYTES)])
def test_a_byte_outside_the_elements_is_found_and_one_inside_is_not(operand):
    clean = np.full(buffer_bytes(operand), UNWRITTEN, np.uint8)
    written = clean.copy()
    matrix_in(written, operand)[...] = 0
    marks = written == 0
    check_guards(written, operand)
    for place in (0, GUARD_BYTES - 1, clean.size - 1, *np.flatnonzero(~marks)[GUARD_BYTES : GUARD_BYTES + 2]):
        spoiled = written.copy()
        spoiled[place] = 7
        with pytest.raises(WrongResult, match="before" if place < GUARD_BYTES else "after or between"):
            check_guards(spoiled, operand)


@given(st.integers(1, 5), st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_sums_over_blocks_are_those_of_each_block(rows, cols, width, seed):
    rng = np.random.default_rng(seed)
    numbers, signs = rng.random((rows, cols), np.float32), rng.integers(0, 2, cols) * 2.0 - 1
    width = min(width, cols)
    signed = numbers * signs
    wanted = np.stack([signed[:, i : i + width].sum(1) for i in range(0, cols, width)], axis=1)
    assert np.allclose(check._block_sums(numbers, signs, width), wanted, rtol=0, atol=1e-12)


def test_sums_in_parts_are_the_sums(monkeypatch):
    """However many rows are worked on at a time, the reference is the same."""
    monkeypatch.setattr(check, "FULL_COMPARE_OPS", 1 << 14)
    check.block_width.cache_clear()
    problem = Problem.of(150, 300, 400, Elem.F16)
    found = []
    for elements in (1, 1000, 1 << 19):
        monkeypatch.setattr(check, "PART_ELEMENTS", elements)
        found.append(Operands(problem, np.random.default_rng(3)).reference.arrays)
    check.block_width.cache_clear()
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert np.allclose(a, b, rtol=0, atol=1e-9)
