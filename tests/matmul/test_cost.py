"""Operations and bytes of a product."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rooftune.matmul.cost import compute_ops, moved_bytes
from rooftune.matmul.problem import Elem, Operand, Problem

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "bounds.json").read_text())


def test_golden():
    problem = Problem.of(GOLDEN["m"], GOLDEN["n"], GOLDEN["k"], Elem(GOLDEN["dtype"]))
    assert compute_ops(problem) == GOLDEN["compute_ops"]
    assert moved_bytes(problem) == GOLDEN["bytes"]


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4))
def test_operations_counted_one_by_one(m, n, k, batch):
    counted = sum(1 + (term > 0) for _ in range(batch * m * n) for term in range(k))
    assert compute_ops(Problem.of(m, n, k, batch=batch)) == counted


def test_a_shared_matrix_is_read_once():
    lhs = Operand((5, 3, 4), (0, 4, 1), Elem.F16)
    rhs = Operand.contiguous((5, 4, 2), Elem.F16)
    problem = Problem(lhs, rhs, Operand.contiguous((5, 3, 2), Elem.F16))
    assert moved_bytes(problem) == 2 * (3 * 4 + 5 * 4 * 2 + 5 * 3 * 2)
