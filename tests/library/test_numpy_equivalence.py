"""matmul gives what numpy.matmul gives: shapes, types, values, for arrays of any layout."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rooftune.errors import DtypeError, UsageError
from rooftune.matmul.arrays import is_addressable
from rooftune.matmul.operation import matmul

from .conftest import by_device

ml_dtypes = pytest.importorskip("ml_dtypes")
BF16 = np.dtype(ml_dtypes.bfloat16)

relaxed = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

extents = st.integers(0, 7)
batches = st.lists(st.integers(0, 3), max_size=4)


@st.composite
def shapes(draw):
    """Two shapes that multiply: 1-D operands, batch axes that broadcast, empty ones too."""
    m, n, k = draw(extents), draw(extents), draw(extents)
    batch = tuple(draw(batches))
    sides = []
    for _ in range(2):
        lead = batch[draw(st.integers(0, len(batch))) :]
        sides.append(tuple(1 if draw(st.booleans()) else extent for extent in lead))
    lhs = (k,) if draw(st.integers(0, 5)) == 0 else (*sides[0], m, k)
    rhs = (k,) if draw(st.integers(0, 5)) == 0 else (*sides[1], k, n)
    return lhs, rhs


@st.composite
def laid_out(draw, shape, dtype):
    """An array of this shape, as some view: axes in any order, reversed, stepped over, misaligned."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, -1, 2, -3])) for _ in shape]
    stored = [shape[axis] * abs(steps[axis]) + draw(st.integers(0, 2)) for axis in order]
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    base = (rng.random(math.prod(stored)) * 2 - 1).astype(dtype)
    if draw(st.integers(0, 7)) == 0:
        raw = np.empty(base.nbytes + 1, np.uint8)
        raw[1:] = base.view(np.uint8)
        base = raw[1:].view(dtype)
    if dtype.kind == "f" and draw(st.integers(0, 7)) == 0:
        base = base.astype(base.dtype.newbyteorder())
    array = base.reshape(stored).transpose(np.argsort(order) if order else ())
    index = tuple(
        slice(None, extent) if step == 1 else slice(None, None, step)
        for extent, step in zip(shape, steps, strict=True)
    )
    array = array[index][tuple(slice(0, extent) for extent in shape)]
    if array.ndim and array.shape[0] > 1 and draw(st.integers(0, 7)) == 0:
        array = np.broadcast_to(array[:1], array.shape)
    if draw(st.booleans()):
        array.flags.writeable = False
    assert array.shape == shape
    return array


def reference(a, b):
    """numpy's product in float64, and the bound of the error of a float32 or better sum."""
    wide = [x.astype(np.float64) for x in (a, b)]
    return np.matmul(*wide), np.matmul(*map(np.abs, wide))


def assert_equal(got, a, b, dtype):
    exact, size = reference(a, b)
    assert np.shape(got) == exact.shape
    assert got.dtype == dtype
    eps = {"float64": 2.3e-16, "float32": 1.2e-7, "float16": 1e-3, "bfloat16": 8e-3}[dtype.name]
    k = a.shape[-1]
    bound = (2 + k) * eps * size + 1e-7 * (dtype.itemsize == 2)
    assert np.all(np.abs(np.asarray(got, np.float64) - exact) <= bound)


@by_device
@relaxed
@given(data=st.data())
def test_any_views_of_any_shapes(plain, found, data):
    lhs, rhs = data.draw(shapes())
    types = [np.dtype(t) for t in ("f4", "f8", "f2")]
    a = data.draw(laid_out(lhs, data.draw(st.sampled_from(types))))
    b = data.draw(laid_out(rhs, data.draw(st.sampled_from([a.dtype.newbyteorder("="), *types]))))
    expected = np.matmul(a, b)
    got = matmul(plain, a, b)
    assert type(got) is type(expected)
    assert_equal(got, a, b, expected.dtype)
    assert got.dtype.isnative


@by_device
@relaxed
@given(data=st.data())
def test_out_of_any_layout(plain, found, data):
    lhs, rhs = data.draw(shapes())
    dtype = np.dtype("f4")
    a, b = data.draw(laid_out(lhs, dtype)), data.draw(laid_out(rhs, dtype))
    expected = np.matmul(a, b)
    shape = np.shape(expected)
    step = data.draw(st.sampled_from([1, 2, -1]))
    wide = np.full((*shape[:-1], shape[-1] * 2) if shape else (), 7, dtype)
    view = wide[..., ::step][..., : shape[-1]] if shape else wide
    untouched = wide.copy()
    got = matmul(plain, a, b, out=view)
    assert got is view
    assert_equal(got, a, b, dtype)
    view[...] = 7
    assert np.array_equal(wide, untouched), "bytes around out were written"


@by_device
def test_out_that_overlaps_an_operand(plain, found):
    rng = np.random.default_rng(0)
    store = rng.random((12, 8), np.float32)
    before = store.copy()
    assert matmul(plain, store[:8], store[:8], out=store[2:10]) is not None
    assert np.allclose(store[2:10], before[:8] @ before[:8], rtol=1e-5)
    square = rng.random((8, 8), np.float32)
    expected = square.T @ square
    matmul(plain, square.T, square, out=square)
    assert np.allclose(square, expected, rtol=1e-5)


@by_device
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "bf16"])
@pytest.mark.parametrize("other", ["f2", "f4", "f8", "bf16"])
def test_types_are_promoted_as_numpy_does(plain, found, kind, other):
    types = [BF16 if name == "bf16" else np.dtype(name) for name in (kind, other)]
    rng = np.random.default_rng(1)
    a, b = (rng.random((5, 5)).astype(t) for t in types)
    try:
        common = np.result_type(*types)
    except TypeError:
        with pytest.raises(DtypeError, match="no common type"):
            matmul(plain, a, b)
        return
    assert_equal(matmul(plain, a, b), a, b, common)


@by_device
def test_uint16_holds_bf16_when_said_so(plain, found):
    rng = np.random.default_rng(2)
    a, b = (rng.random((6, 6)).astype(BF16) for _ in range(2))
    got = matmul(plain, a.view(np.uint16), b.view(np.uint16), dtype="bf16")
    assert got.dtype == np.uint16
    assert_equal(got.view(BF16), a, b, BF16)
    mixed = matmul(plain, a, b.view(np.uint16), dtype="bf16")
    assert mixed.dtype == BF16
    with pytest.raises(DtypeError, match="uint16"):
        matmul(plain, a.view(np.uint16), b.view(np.uint16))
    with pytest.raises(DtypeError, match="is for uint16 data"):
        matmul(plain, a.astype("f4"), b.astype("f4"), dtype="bf16")


@by_device
@pytest.mark.parametrize(
    "dtype, hint",
    [("i4", "astype"), ("u1", "astype"), ("?", "astype"), ("c8", "imaginary"), ("O", "numbers")],
)
def test_other_types_are_refused_with_what_to_do(plain, found, dtype, hint):
    a = np.ones((3, 3), dtype)
    for pair in ((a, a), (a, np.ones((3, 3), "f4"))):
        with pytest.raises(TypeError) as told:
            matmul(plain, *pair)
        assert isinstance(told.value, ValueError)
        assert hint in told.value.hint


@by_device
@pytest.mark.parametrize(
    "a, b, said",
    [
        ((), (3,), "scalars"),
        ((3, 4), (), "scalars"),
        ((3, 4), (5, 4), "inner extents 4 and 5"),
        ((3,), (4,), "inner extents 3 and 4"),
        ((2, 3, 4), (3, 4, 5), "do not broadcast"),
    ],
)
def test_shapes_that_do_not_multiply(plain, found, a, b, said):
    left, right = np.ones(a, "f4"), np.ones(b, "f4")
    with pytest.raises(ValueError):
        np.matmul(left, right)
    with pytest.raises(UsageError, match=said):
        matmul(plain, left, right)


@by_device
@pytest.mark.parametrize(
    "out, said",
    [
        (np.ones((3, 4), "f4"), "shape"),
        (np.ones((3, 3), "f8"), "float64"),
        ([[0.0] * 3] * 3, "list"),
        (np.broadcast_to(np.float32(0), (3, 3)), "read-only"),
    ],
)
def test_an_out_that_can_not_take_the_result(plain, found, out, said):
    a = np.ones((3, 3), "f4")
    with pytest.raises(UsageError, match=said):
        matmul(plain, a, a, out=out)


@by_device
def test_an_out_of_another_type_is_a_type_error_as_with_numpy(plain, found):
    a = np.ones((3, 3), "f4")
    with pytest.raises(DtypeError, match="float64"):
        matmul(plain, a, a, out=np.ones((3, 3), "f8"))


@by_device
def test_lists_and_subclasses_are_taken_as_arrays(plain, found):
    assert matmul(plain, [[1.0, 2.0]], [[3.0], [4.0]]).tolist() == [[11.0]]
    assert matmul(plain, np.float32([1, 2]), np.float32([3, 4])) == np.float32(11)


@by_device
def test_more_batch_axes_than_kernels_walk(plain, found):
    rng = np.random.default_rng(3)
    a = rng.random((3, 1, 4, 1, 2, 5), np.float32)
    b = rng.random((1, 2, 1, 3, 5, 4), np.float32)
    assert_equal(matmul(plain, a, b), a, b, np.dtype("f4"))


@by_device
def test_values_that_are_not_finite_come_out_as_numpy_gives_them(plain, found):
    a = np.eye(4, dtype=np.float32)
    a[1, 1], a[2, 2] = np.inf, np.nan
    b = np.arange(16, dtype=np.float32).reshape(4, 4)
    with np.errstate(invalid="ignore"):
        expected = np.matmul(a, b)
    assert np.array_equal(matmul(plain, a, b), expected, equal_nan=True)


@by_device
@relaxed
@given(data=st.data())
def test_the_short_way_gives_the_same(plain, found, data):
    """Products met before, of one description and other data: views, read-only or misaligned at times."""
    m, n, k = (data.draw(st.integers(1, 6)) for _ in range(3))
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "f2"])))
    batch = data.draw(st.sampled_from([(), (2,)]))
    flips = data.draw(st.booleans()), data.draw(st.booleans())
    kinds = [data.draw(st.sampled_from(["whole", "whole", "gaps", "reversed", "repeated"])) for _ in range(2)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def operand(rows, columns, flip, kind):
        stored = (*batch, columns, rows) if flip and not batch else (*batch, rows, columns)
        array = (rng.random(stored) * 2 - 1).astype(dtype)
        if data.draw(st.integers(0, 5)) == 0:
            raw = np.empty(array.nbytes + 1, np.uint8)
            raw[1:] = array.reshape(-1).view(np.uint8)
            array = raw[1:].view(dtype).reshape(stored)
        elif kind == "gaps":
            wide = np.full((*stored[:-1], stored[-1] + 1), np.nan, dtype)
            wide[..., :-1] = array
            array = wide[..., :-1]
        elif kind == "reversed":
            array = array[..., ::-1, :]
        elif kind == "repeated":
            array = np.broadcast_to(array[..., :1, :], stored)
        array = array.view()
        array.flags.writeable = data.draw(st.booleans()) and kind != "repeated"
        return array.T if flip and not batch else array

    for _ in range(3):
        a, b = operand(m, k, flips[0], kinds[0]), operand(k, n, flips[1], kinds[1])
        got = plain.hot_numpy.multiply(a, b, None, None, None, None)
        if got is None:
            got = matmul(plain, a, b)
        assert type(got) is np.ndarray and got.flags.c_contiguous
        assert_equal(got, a, b, dtype)
        out = np.full_like(got, 7)
        taken = plain.hot_numpy.multiply(a, b, None, None, None, None, out)
        usual = found.profile.is_cpu and is_addressable(a) and is_addressable(b)  # else numpy is copied
        assert taken is out or not usual
        if taken is out:
            assert_equal(out, a, b, dtype)


@by_device
@pytest.mark.parametrize("way", ["addresses", "buffers", "mapped buffers"])
def test_results_are_in_host_memory_when_the_short_way_returns(plain, found, way, monkeypatch):
    if not found.profile.is_cpu:
        pytest.skip("numpy arrays take the short way on CPU devices only")
    client = plain.client()
    if way == "addresses" and not client.shares_host_memory:
        pytest.skip("this runtime takes no plain addresses")
    assert client.writes_through, "every CPU runtime so far"
    monkeypatch.setattr(client, "shares_host_memory", way == "addresses")
    monkeypatch.setitem(vars(client), "writes_through", way != "mapped buffers")
    plain.hot_numpy.forget()
    rng = np.random.default_rng(3)
    for size in (1, 33, 96, 300):
        room = np.empty(size * size + 16, np.float32)
        for offset in (0, 1, 5):
            a, b = (rng.random((size, size), np.float32) for _ in range(2))
            a.flags.writeable, b.flags.writeable = offset != 1, offset != 5
            out = room[offset : offset + size * size].reshape(size, size)
            out[:] = np.nan
            taken = plain.hot_numpy.multiply(a, b, None, None, None, None, out)
            if taken is None:
                matmul(plain, a, b, out=out)
            assert (taken is out) == (offset > 0)
            assert_equal(out, a, b, np.dtype(np.float32))
    plain.hot_numpy.forget()


@by_device
def test_vectors_give_scalars_on_the_short_way(plain, found):
    if not found.profile.is_cpu:
        pytest.skip("numpy arrays take the short way on CPU devices only")
    x = np.arange(5, dtype=np.float32)
    matmul(plain, x, x)
    got = plain.hot_numpy.multiply(x, x, None, None, None, None)
    assert type(got) is np.float32 and got == 30
    out = np.zeros((), np.float32)
    assert plain.hot_numpy.multiply(x, x, None, None, None, None, out) is out and out == 30


@by_device
def test_the_short_way_takes_no_out_that_does_not_suit(plain, found):
    a, b = np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32)
    wide = np.zeros((4, 8), np.float32)
    matmul(plain, a, b)
    for out in (a, b[:], wide[:, ::2], np.zeros((4, 4)), np.zeros((5, 4), np.float32), [[0.0] * 4] * 4):
        assert plain.hot_numpy.multiply(a, b, None, None, None, None, out) is None


@by_device
def test_operands_are_never_kept(plain, found):
    import sys

    a, b = (np.ones((4, 4), np.float32) for _ in range(2))
    before = sys.getrefcount(a), sys.getrefcount(b)
    for _ in range(3):
        if plain.hot_numpy.multiply(a, b, None, None, None, None) is None:
            matmul(plain, a, b)
    assert (sys.getrefcount(a), sys.getrefcount(b)) == before
