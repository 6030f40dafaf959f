"""A key alone is enough to find a problem that has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.matmul.example import example_of, named, problem_named, shape_of
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Elem, Operand, Problem, Shape
from rooftune.tuning.level import Level

extents = st.integers(1, 5000)


elems = st.sampled_from(list(Elem))


@given(extents, extents, extents, st.booleans(), st.booleans(), elems, st.sampled_from([1, 2, 4]))
def test_an_example_has_the_key(m, n, k, lhs, rhs, elem, batch):
    problem = Problem.of(m, n, k, elem, batch=batch, lhs_transposed=lhs, rhs_transposed=rhs)
    key = MatmulAutotuneKey.build(problem)
    example = example_of(key, Level.BALANCED)
    if example is not None:
        assert MatmulAutotuneKey.build(example) == key


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("text", ["512", "768", "1000", "1024T", "1025", "1x4096x1000", "300x77x1024t", "17"])
def test_usual_shapes_have_examples(text, level):
    key = MatmulAutotuneKey.build(Shape.parse(text).problem(), level)
    example = example_of(key, level)
    assert example is not None
    assert MatmulAutotuneKey.build(example, level) == key


def test_a_view_of_every_second_column_has_none():
    lhs = Operand((64, 64), (128, 2), Elem.F32)
    problem = Problem(lhs, Operand.contiguous((64, 64), Elem.F32), Operand.contiguous((64, 64), Elem.F32))
    assert example_of(MatmulAutotuneKey.build(problem), Level.BALANCED) is None


@given(extents, extents, extents, st.booleans(), st.booleans(), elems, st.sampled_from([1, 2, 4]))
def test_a_problem_of_fresh_operands_is_found_again_by_its_name(m, n, k, lhs, rhs, elem, batch):
    problem = Problem.of(m, n, k, elem, batch=batch, lhs_transposed=lhs, rhs_transposed=rhs)
    key, name = MatmulAutotuneKey.build(problem), named(problem)
    again = problem_named(name, key, Level.BALANCED)
    assert again is not None and named(again) == name == {"shape": shape_of(problem).label, "batch": batch}
    for side in ("lhs", "rhs", "out"):
        assert getattr(again, side).canonical() == getattr(problem, side).canonical()


def test_other_views_have_no_name():
    fresh = Problem.of(64, 64, 64)
    for lhs in (
        Operand((64, 64), (128, 2), Elem.F32),
        Operand((64, 64), (80, 1), Elem.F32),
        Operand((64, 64), (64, 1), Elem.F32, 64),
    ):
        assert named(Problem(lhs, fresh.rhs, fresh.out)) is None


@pytest.mark.parametrize(
    "name",
    [None, [], "64", {"shape": "64"}, {"shape": 64, "batch": 1}, {"shape": "many", "batch": 1},
     {"shape": "64", "batch": "x"}, {"shape": "64", "batch": 0}, {"shape": "64", "batch": -1},
     {"shape": "64", "batch": 1e400}, {"shape": "65x64x64", "batch": 1}, {"shape": "64T", "batch": 1}],
)  # fmt: skip
def test_what_is_no_name_of_a_problem_with_the_key_names_none(name):
    key = MatmulAutotuneKey.build(Problem.of(64, 64, 64))
    assert problem_named(name, key, Level.BALANCED) is None
