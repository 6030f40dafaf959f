"""What a right kernel makes passes; one wrong element, one lost term or a lower precision does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rooftune.matmul.problem import Elem, Operand
from rooftune.proof import check
from rooftune.proof.check import CallCheck, Reference, WrongResult, decode, encode, random_elements

ELEMS = list(Elem)
extents = st.integers(1, 80)


def operands(elem, m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    return random_elements(m * k, elem, rng).reshape(m, k), random_elements(k * n, elem, rng).reshape(k, n)


def product(lhs, rhs, elem):
    """As a plain kernel computes it: accumulated in f32 (f64), one term after another, then rounded."""
    a, b = decode(lhs, elem), decode(rhs, elem)
    total = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[1]):
        total += a[:, i : i + 1] * b[i : i + 1]
    return encode(total, elem)


def verdict(out, lhs, rhs, elem, precision="full"):
    Reference(lhs, rhs, elem, precision, np.random.default_rng(1)).check(out)


@pytest.fixture
def blocks(monkeypatch):
    """Freivalds for small products too."""
    monkeypatch.setattr(check, "FULL_COMPARE_OPS", 1 << 14)
    check.block_width.cache_clear()
    yield
    check.block_width.cache_clear()


@given(st.sampled_from(ELEMS), extents, extents, st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_a_plain_product_is_right(elem, m, n, k, seed):
    lhs, rhs = operands(elem, m, n, k, seed)
    verdict(product(lhs, rhs, elem), lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
def test_the_longest_sums_in_the_worst_order_are_right(elem):
    lhs, rhs = operands(elem, 24, 40, 20_000)
    verdict(product(lhs, rhs, elem), lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
def test_blocks_find_a_plain_product_right(elem, blocks):
    lhs, rhs = operands(elem, 150, 300, 400)
    assert check.block_width(150, 300, 400) > 16
    verdict(product(lhs, rhs, elem), lhs, rhs, elem)


def repeated(elem, m, n, k):
    lhs, rhs = operands(elem, m, n, 1)
    return np.broadcast_to(lhs, (m, k)), np.broadcast_to(rhs, (k, n))


@pytest.mark.parametrize("k", [1, 17, 128, 1000, 20_000])
@pytest.mark.parametrize("elem", ELEMS)
def test_equal_terms_whose_errors_add_up_are_right(elem, k):
    lhs, rhs = repeated(elem, 70, 100, k)
    verdict(product(lhs, rhs, elem), lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
def test_blocks_find_equal_terms_right(elem, blocks):
    lhs, rhs = repeated(elem, 150, 300, 400)
    verdict(product(lhs, rhs, elem), lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
def test_of_equal_terms_one_missing_is_found(elem):
    lhs, rhs = repeated(elem, 20, 30, 24)
    out = product(lhs, rhs, elem)
    out[7, 9] = product(lhs[7:8, 1:], rhs[1:, 9:10], elem)[0, 0]
    with pytest.raises(WrongResult):
        verdict(out, lhs, rhs, elem)


@given(st.sampled_from(ELEMS), st.integers(2, 60), st.integers(2, 60), st.integers(2, 120), st.data())
@settings(max_examples=100, deadline=None)
def test_one_element_with_one_term_missing_is_found(elem, m, n, k, data):
    lhs, rhs = operands(elem, m, n, k)
    out = product(lhs, rhs, elem)
    row, col = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1))
    short = product(lhs[row : row + 1, :-1], rhs[:-1, col : col + 1], elem)
    out[row, col] = short[0, 0]
    with pytest.raises(WrongResult):
        verdict(out, lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("place", [(63, 63), (64, 127), (149, 299), (37, 201), (0, 150)])
def test_blocks_find_one_element_of_the_wrong_sign(elem, place, blocks):
    lhs, rhs = operands(elem, 150, 300, 400)
    out = product(lhs, rhs, elem)
    value = decode(out[place[0] : place[0] + 1, place[1]], elem)
    size = np.copysign(12.0, value).astype(np.float32)  # half of the results' rms
    out[place] = encode(value - size, elem)[0]
    with pytest.raises(WrongResult):
        verdict(out, lhs, rhs, elem)


@pytest.mark.parametrize("elem", ELEMS)
def test_every_element_with_one_term_missing_is_found_in_blocks(elem, blocks):
    lhs, rhs = operands(elem, 150, 300, 400)
    out = product(lhs[:, :-1], rhs[:-1], elem)
    with pytest.raises(WrongResult):
        verdict(out, lhs, rhs, elem)


def test_an_element_never_written_is_found():
    lhs, rhs = operands(Elem.F32, 65, 33, 17)
    out = product(lhs, rhs, Elem.F32)
    out[64, 32] = np.nan
    with pytest.raises(WrongResult, match=r"row 64, column 32"):
        verdict(out, lhs, rhs, Elem.F32)


@pytest.mark.parametrize("size", [(33, 65, 130), (150, 300, 400)])
def test_a_sum_in_f16_is_not_a_sum_in_f32(size, blocks):
    m, n, k = size
    lhs, rhs = operands(Elem.F16, m, n, k)
    total = np.zeros((m, n), np.float16)
    for i in range(k):
        total += lhs[:, i : i + 1] * rhs[i : i + 1]
    with pytest.raises(WrongResult):
        verdict(total, lhs, rhs, Elem.F16)


def cut(numbers):
    return (numbers.view(np.uint32) & 0xFFFFE000).view(np.float32)


@pytest.mark.parametrize("k", [1, 16, 400])
def test_inputs_cut_to_tf32_are_wrong_in_full_and_right_in_tf32(k):
    lhs, rhs = operands(Elem.F32, 150, 300, k)
    out = product(cut(lhs), cut(rhs), Elem.F32)
    verdict(out, lhs, rhs, Elem.F32, "tf32")
    with pytest.raises(WrongResult):
        verdict(out, lhs, rhs, Elem.F32)


@pytest.mark.parametrize("k", [1, 16, 400, 4096])
def test_three_products_of_split_operands_are_right_in_full(k):
    lhs, rhs = operands(Elem.F32, 40, 60, k)
    high = cut(lhs), cut(rhs)
    low = lhs - high[0], rhs - high[1]
    parts = product(high[0], high[1], Elem.F32)
    out = parts + (product(low[0], high[1], Elem.F32) + product(high[0], low[1], Elem.F32))
    verdict(out, lhs, rhs, Elem.F32)


def test_bf16_is_rounded_to_the_nearest_even():
    numbers = np.array([1.0, 1.00390625, 1.01171875, -3.4e38], np.float32)
    bits = encode(numbers, Elem.BF16)
    assert [hex(b) for b in bits] == ["0x3f80", "0x3f80", "0x3f82", "0xff80"]


def test_a_view_reaches_negative_and_zero_strides():
    elements = np.arange(24, dtype=np.float32)
    flipped = Operand((3, 4), (-4, 1), Elem.F32)
    assert check.span(flipped) == check.Span(8, 12)
    assert check.view(elements, 8, flipped)[0].tolist() == [8, 9, 10, 11]
    shared = Operand((2, 3, 4), (0, 4, 1), Elem.F32)
    assert check.span(shared).count == 12


# --- the caller's operands -------------------------------------------------------------------------

CALLERS = {
    "zeros": lambda rng, shape: np.zeros(shape),
    "ones": lambda rng, shape: np.ones(shape),
    "positive": lambda rng, shape: rng.random(shape),
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "of all sizes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 4, shape),
    "mostly zero": lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.01),
    "with NaN and infinities": lambda rng, shape: np.where(
        rng.random(shape) < 0.001, rng.choice([np.nan, np.inf, -np.inf], shape), rng.standard_normal(shape)
    ),
}


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("kind", CALLERS)
@pytest.mark.parametrize("size", [(40, 50, 60), (200, 330, 280)])
@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_a_callers_product_is_right_whatever_the_operands(elem, kind, size):
    m, n, k = size
    rng = np.random.default_rng(3)
    dtype = np.float64 if elem is Elem.F64 else np.float32
    lhs = encode(CALLERS[kind](rng, (m, k)).astype(dtype), elem)
    rhs = encode(CALLERS[kind](rng, (k, n)).astype(dtype), elem)
    CallCheck(lhs, rhs, elem, "full")(product(lhs, rhs, elem))


@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("size", [(40, 50, 60), (200, 330, 280)])
def test_a_callers_product_with_one_wrong_element_is_found(elem, size):
    m, n, k = size
    rng = np.random.default_rng(3)
    dtype = np.float64 if elem is Elem.F64 else np.float32
    lhs, rhs = (encode(rng.standard_normal(s).astype(dtype), elem) for s in ((m, k), (k, n)))
    out = product(lhs, rhs, elem)
    good = CallCheck(lhs, rhs, elem, "full")
    good(out)
    out[m - 1, n - 3] = encode(np.array([3 * np.sqrt(k)], dtype), elem)[0]
    with pytest.raises(WrongResult, match="caller's operands"):
        good(out)
