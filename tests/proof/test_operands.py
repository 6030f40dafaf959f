"""Operands shared by candidates: made once, and never trusted after somebody wrote to them."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from rooftune.proof.trial import prove

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


@pytest.mark.parametrize("what", ["lhs", "rhs", "reference"])
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
@settings(max_examples=25, deadline=None)
def test_any_byte_written_to_what_is_kept_is_found(what, place, change):
    operands = Operands(Problem.of(20, 21, 22), np.random.default_rng(0))
    assert operands.reference and operands.verify() is None
    kept = operands.reference.arrays[0] if what == "reference" else getattr(operands, what)
    raw = kept.reshape(-1).view(np.uint8)
    raw[int(place * raw.size)] ^= change
    with pytest.raises(WrongResult, match="was not given"):
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
    assert outcome.status == "wrong" and "was not given" in outcome.reason
    assert tried(GOOD, kept).status == "wrong"  # which is why the worker ends with the first
    assert tried(GOOD, KeptOperands()).status == "right"


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
