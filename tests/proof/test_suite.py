"""The suite fits the programs that will be used, and covers what they may be asked to do."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.errors import UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.cost import compute_ops
from rooftune.matmul.problem import Elem, Operand, Problem, Shape
from rooftune.proof import adversaries
from rooftune.proof.suite import (
    LARGEST_CASE_OPS,
    SUITE,
    problem_from_json,
    problem_to_json,
    programs_of,
    provable,
    suite,
)

CPU = DeviceProfile("a CPU", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=1 << 18)
GPU = DeviceProfile("a GPU", compute_units=64, max_work_group=1024, local_bytes=1 << 16)

shapes = st.from_regex(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,3}x[1-9][0-9]{0,3}t?T?", fullmatch=True)


def test_strides_as_arguments_mean_that_everything_is_proven_at_once():
    cases = list(suite(adversaries.GOOD, Problem.of(1000, 1000, 1000), GPU))
    names = {name for name, _ in cases}
    assert {"tails", "whole tiles", "odd offsets, wide rows", "rhs shared by a batch"} <= names
    assert {"two batch axes", "lhs transposed", "rhs transposed", "both transposed"} <= names
    assert len(cases) >= len(SUITE) - 1


@pytest.mark.parametrize("profile", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    "text", ["1", "17", "1000", "1024", "1024T", "1024tT", "1x4096x1024", "4096x1x1024", "64x64x9000"]
)
def test_every_candidate_has_tails_in_its_suite(profile, text):
    problem = Shape.parse(text).problem()
    for candidate in CANDIDATES:
        try:
            cases = list(suite(candidate, problem, profile))
        except UnsupportedError:
            continue
        programs = programs_of(candidate.plan(problem, profile))
        assert cases, candidate.name
        for _, case in cases:
            assert programs_of(candidate.plan(case, profile)) == programs
            assert compute_ops(case) <= LARGEST_CASE_OPS


@given(shapes, st.sampled_from(list(Elem)), st.integers(1, 3), st.integers(0, 5))
def test_a_problem_survives_json(text, elem, batch, offset):
    problem = Shape.parse(text).problem(elem, batch=batch)
    lhs = Operand(problem.lhs.shape, problem.lhs.strides, elem, offset * elem.size_bytes)
    problem = Problem(lhs, problem.rhs, problem.out, "tf32")
    assert problem_from_json(json.loads(json.dumps(problem_to_json(problem)))) == problem


def test_a_small_problem_is_proven_itself():
    problem = Problem.of(1024, 1000, 999)
    assert provable(problem) is problem


@pytest.mark.parametrize("text", ["30001", "60001x50003x2049T", "40000x40000x16t"])
def test_a_huge_problem_is_proven_on_one_like_it(text):
    problem = Shape.parse(text).problem(batch=5)
    like = provable(problem)
    nbytes = sum(op.size_bytes for op in (like.lhs, like.rhs, like.out))
    assert nbytes <= 1 << 30 or max(like.m, like.n) < 1024
    assert like.k == problem.k
    assert like.m % 256 == problem.m % 256
    assert like.n % 256 == problem.n % 256
