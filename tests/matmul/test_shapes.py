"""matmul's shape rules against numpy's, on any shapes numpy accepts or refuses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import UsageError
from rooftune.matmul.shapes import View, multiply

SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def view(array: np.ndarray) -> View:
    return View(array.shape, tuple(s // array.itemsize for s in array.strides))


@given(SHAPES, SHAPES)
def test_any_pair_of_shapes_gives_numpys_shape_or_a_value_error(left, right):
    a, b = np.zeros(left), np.zeros(right)
    try:
        expected = np.matmul(a, b).shape
    except ValueError:
        with pytest.raises(UsageError):
            multiply(view(a), view(b))
        return
    assert multiply(view(a), view(b)).result_shape == expected


@given(SHAPES.filter(lambda s: 0 not in s), SHAPES.filter(lambda s: 0 not in s))
def test_the_expanded_operands_walk_the_callers_elements(left, right):
    a = np.arange(int(np.prod(left)), dtype=float).reshape(left)
    b = np.arange(int(np.prod(right)), dtype=float).reshape(right)
    try:
        expected = np.matmul(a, b)
    except ValueError:
        return
    product = multiply(view(a), view(b))
    lhs, rhs = (
        np.lib.stride_tricks.as_strided(x, v.shape, [s * 8 for s in v.strides])
        for x, v in ((a, product.lhs), (b, product.rhs))
    )
    assert np.array_equal((lhs @ rhs).reshape(product.result_shape), expected)


def test_a_mismatch_names_both_shapes():
    with pytest.raises(UsageError, match=r"\(2, 3\) and \(4, 5\).*3 and 4 differ"):
        multiply(View((2, 3), (3, 1)), View((4, 5), (5, 1)))
