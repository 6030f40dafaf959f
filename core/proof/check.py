"""Is a product right? Operands of our own, a tolerance that follows from arithmetic, and the comparison.

Operands. Every element has a random sign and a magnitude uniform in [1/2, 1): none is small, so one
product left out of a sum, or one element taken from the wrong place, changes a result by a quarter or
more. With p = a·b, E p² = (7/12)², so after i terms a partial sum has the size s·√i with s = 7/12.

Tolerance. A kernel is right if its error is one that the stated arithmetic makes:

* adding k terms one by one rounds every partial sum: each rounding is an error of rms u/√3 of the partial
  sum, the products add another k roundings: rms u·s·√(k²/6 + k/3). Blocked and tree sums do better.
  (4096³ in f32: 9·10⁻⁷ of the result, and 1.1·10⁻⁶ is what a plain kernel shows.)
* precision `tf32` cuts both inputs to 10 stored bits: rms s·√k·2⁻¹⁰·√(2/3).
* f16 and bf16 round the result once: rms s·√k·u_out/√3, and never more than u_out of it.

Where both operands are repeated along k all terms are equal, results are as large as k, and errors add up
instead of cancelling: adding up may cost k·u of that, inputs cut for `tf32` 2⁻⁹, and the last rounding u_out.

The accumulation is allowed twice its rms where it must be that of plain multiply-adds (f32 `full`, f64),
and 64 times where a matrix unit may truncate instead of rounding (f16, bf16, tf32): far below their other
terms.

Comparison. An element may be off by twice the result's own rounding and 8 rms of noise (one in 10¹⁵ for
normal noise); besides, the rms over all elements must stay near the model's, which is what shows a kernel
that computes in a lower precision than it should. Small products are compared element by element with the
float64 product. For large ones (Freivalds) the columns are cut in blocks of w and both sides multiplied by
one random sign each: every row of every block has its own residual. Signs cannot shrink the error of one
wrong element, and the noise of a block is only √w of one element's, so an error that the elementwise test
finds at 8 rms is found at 8·√w: with w ≤ 256 still less than the size of a result for every type. The first
and last rows and columns, and those at powers of two, are compared element by element in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import hypot
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..matmul.problem import Elem, Operand

Array = NDArray[Any]

TERM = 7 / 12
"""Root of the mean square of a product of two proof operands' elements."""

NOISE = 8.0
"""Standard deviations that one element's error may have."""

FULL_COMPARE_OPS = 1 << 29
"""Multiply-adds times two up to which the whole float64 product is computed."""

WIDEST_BLOCK = 256

_ROUNDING = {Elem.F16: 2.0**-11, Elem.BF16: 2.0**-8, Elem.F32: 2.0**-24, Elem.F64: 2.0**-53}
_LARGEST = {Elem.F16: 65504.0, Elem.BF16: 3.3895e38, Elem.F32: 3.4028e38, Elem.F64: 1.7976e308}


class WrongResult(Exception):
    """The output differs from the product by more than the arithmetic explains."""


@dataclass(frozen=True)
class Tolerance:
    """What a right element may be off by: `relative` of itself, plus NOISE times `noise`.

    `rms` is what the root mean square over all elements may be.
    """

    relative: float
    noise: float
    rms: float


def tolerance(elem: Elem, precision: str, k: int, *, equal_terms: bool = False) -> Tolerance:
    """Tolerance for a product over k of proof operands; the module's text derives it.

    `equal_terms`: both operands are repeated along k.
    """
    reduced = precision == "tf32" and elem is Elem.F32
    half = elem in (Elem.F16, Elem.BF16)
    u_sum = _ROUNDING[Elem.F64 if elem is Elem.F64 else Elem.F32]
    terms = k + 8  # the floor of a very short sum: a product split in parts makes a few roundings of its own
    allowed = 64 if half or reduced else 2
    summed = allowed * u_sum * TERM * np.sqrt(terms * terms / 6 + terms / 3)
    inputs = TERM * np.sqrt(k) * 2.0**-10 * np.sqrt(2 / 3) if reduced else 0.0
    result = TERM * np.sqrt(k) * _ROUNDING[elem] / np.sqrt(3) if half else 0.0
    same = 0.0
    if equal_terms:
        same = k * (k * u_sum + (2.0**-9 if reduced else 0.0))
        result = k * _ROUNDING[elem]
    relative = 2 * _ROUNDING[elem] + (2.0**-9 if reduced else 0.0)
    noise = hypot(summed, inputs, same / NOISE)
    return Tolerance(relative, noise, hypot(noise, same, result))


# --- raw bytes and numbers -----------------------------------------------------------------------


def storage_dtype(elem: Elem) -> np.dtype[np.generic]:
    """The numpy dtype of the stored bytes; bf16 has none of its own and is kept as uint16."""
    return np.dtype({Elem.F16: "f2", Elem.BF16: "u2", Elem.F32: "f4", Elem.F64: "f8"}[elem])


def decode(stored: NDArray[np.generic], elem: Elem) -> Array:
    """Stored elements as numbers: float32, or float64 for f64. Strides are kept for f32 and f64."""
    if elem is Elem.BF16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if elem is Elem.F16:
        return stored.astype(np.float32)
    return stored


def encode(numbers: NDArray[np.float32] | Array, elem: Elem) -> NDArray[np.generic]:
    """Finite numbers rounded to the nearest stored element, ties to even."""
    if elem is Elem.BF16:
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return numbers.astype(storage_dtype(elem))


# Sign and fraction at random, and the exponent of [1/2, 1): (bits kept, bits set).
_RANDOM_BITS: dict[Elem, tuple[int, int]] = {
    Elem.F16: (0x83FF, 0x3800),
    Elem.BF16: (0x807F, 0x3F00),
    Elem.F32: (0x807F_FFFF, 0x3F00_0000),
    Elem.F64: (0x800F_FFFF_FFFF_FFFF, 0x3FE0_0000_0000_0000),
}


def random_elements(count: int, elem: Elem, rng: np.random.Generator) -> NDArray[np.generic]:
    """`count` stored elements: random sign, magnitude uniform in [1/2, 1)."""
    integer = np.dtype(f"u{elem.size_bytes}")
    kept, fixed = (integer.type(bits) for bits in _RANDOM_BITS[elem])
    words = -(-count * elem.size_bytes // 8)  # `rng.bytes` would take twenty times as long
    bits = rng.integers(0, 1 << 64, words, np.uint64).view(integer)[:count]
    bits &= kept
    bits |= fixed
    return bits.view(storage_dtype(elem))


@dataclass(frozen=True)
class Span:
    """Where an operand's elements lie: `before` of them ahead of element 0, `count` in all, with gaps."""

    before: int
    count: int


def span(operand: Operand) -> Span:
    reach = [(extent - 1) * stride for extent, stride in zip(operand.shape, operand.strides, strict=True)]
    before = -sum(r for r in reach if r < 0)
    return Span(before, before + sum(r for r in reach if r > 0) + 1)


def view(elements: NDArray[np.generic], first: int, operand: Operand) -> NDArray[np.generic]:
    """The operand as a (batch…, rows, columns) view of a flat array whose index `first` is element 0."""
    size = elements.itemsize
    strides = tuple(s * size for s in operand.strides)
    return np.lib.stride_tricks.as_strided(elements[first:], operand.shape, strides)


# --- comparison ----------------------------------------------------------------------------------


class Reference:
    """What the products of random_elements come to, as far as no output is needed to know it.

    It is computed once for all outputs. Stored elements, of shapes (batch…, m, k) and (batch…, k, n).
    """

    def __init__(
        self,
        lhs: NDArray[np.generic],
        rhs: NDArray[np.generic],
        elem: Elem,
        precision: str,
        rng: np.random.Generator,
    ) -> None:
        self.elem = elem
        self.precision = precision
        self.k = lhs.shape[-1]
        self._equal_terms = lhs.strides[-1] == rhs.strides[-2] == 0
        batches = np.ndindex(lhs.shape[:-2])
        self._products = [_sums(lhs[index], rhs[index], elem, rng) for index in batches]

    @property
    def arrays(self) -> list[Array]:
        """All it consists of."""
        return [array for sums in self._products for array in sums.arrays]

    def check(self, out: NDArray[np.generic]) -> None:
        """Raise WrongResult unless `out`, stored elements of shape (batch…, m, n), is the product."""
        limits = tolerance(self.elem, self.precision, self.k, equal_terms=self._equal_terms)
        squares, count = 0.0, 0
        batches = np.ndindex(out.shape[:-2])
        for index, sums in zip(batches, self._products, strict=True):
            _no_nan(out[index], self.elem)
            for error, reference, width in sums.residuals(out[index]):
                _within(error, reference, width, limits)
                squares += float(np.sum(np.square(error))) / width
                count += error.size
        rms = np.sqrt(squares / max(count, 1))
        if rms > limits.rms * (1 + 4 / np.sqrt(max(count, 1))):
            raise WrongResult(
                f"error of {rms:.2e} rms over {count} elements; {self.elem} ({self.precision}) over "
                f"k = {self.k} explains {limits.rms:.2e}"
            )


def _no_nan(out: NDArray[np.generic], elem: Elem) -> None:
    bad, first = 0, (0, 0)
    for start, part in _parts(out, elem):
        finite = np.isfinite(part)
        if not finite.all():
            row, col = np.argwhere(~finite)[0]
            first = first if bad else (start + row, col)
            bad += np.count_nonzero(~finite)
    if bad:
        raise WrongResult(
            f"{bad} of {out.size} elements are not finite or were never written, "
            f"the first at row {first[0]}, column {first[1]}"
        )


PART_ELEMENTS = 1 << 19
"""Whole rows of so many elements are worked on at a time: intermediate results stay in the cache."""


def _parts(stored: NDArray[np.generic], elem: Elem) -> Iterator[tuple[int, Array]]:
    """(first row, rows as numbers), from the first row to the last."""
    rows = max(1, PART_ELEMENTS // max(1, stored.shape[1]))
    for start in range(0, stored.shape[0], rows):
        yield start, decode(stored[start : start + rows], elem)


Residual = tuple[NDArray[np.float64], NDArray[np.float64], int]
"""(error, reference, w): differences of sums over w elements each, and what the sums should be."""


@dataclass(frozen=True)
class _Whole:
    """The whole product of one pair of matrices, where that is cheap."""

    elem: Elem
    product: NDArray[np.float64]

    @property
    def arrays(self) -> list[Array]:
        return [self.product]

    def residuals(self, out: NDArray[np.generic]) -> Iterator[Residual]:
        yield decode(out, self.elem) - self.product, self.product, 1


@dataclass(frozen=True)
class _Blocks:
    """Some rows and columns of a product, and signed sums over blocks of its columns."""

    elem: Elem
    width: int
    signs: NDArray[np.float64]
    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    of_rows: NDArray[np.float64]
    of_cols: NDArray[np.float64]
    of_blocks: NDArray[np.float64]

    @property
    def arrays(self) -> list[Array]:
        return [self.signs, self.rows, self.cols, self.of_rows, self.of_cols, self.of_blocks]

    def residuals(self, out: NDArray[np.generic]) -> Iterator[Residual]:
        yield decode(out[self.rows], self.elem) - self.of_rows, self.of_rows, 1
        yield decode(out[:, self.cols], self.elem) - self.of_cols, self.of_cols, 1
        sums = [_block_sums(part, self.signs, self.width) for _, part in _parts(out, self.elem)]
        yield np.concatenate(sums) - self.of_blocks, self.of_blocks, self.width


def _sums(
    lhs: NDArray[np.generic], rhs: NDArray[np.generic], elem: Elem, rng: np.random.Generator
) -> _Whole | _Blocks:
    """What of the product of two matrices an output is compared with."""
    (m, k), n = lhs.shape, rhs.shape[1]
    width = block_width(m, n, k)
    if width == 1:
        a, b = (decode(stored, elem).astype(np.float64) for stored in (lhs, rhs))
        return _Whole(elem, a @ b)
    rows, cols = _edges(m), _edges(n)
    signs: NDArray[np.float64] = np.asarray(rng.integers(0, 2, n) * 2 - 1, np.float64)
    some = decode(lhs[rows], elem).astype(np.float64)
    of_rows = np.zeros((rows.size, n))
    narrow = []  # all that rhs is multiplied by from the right: columns of it, and block sums
    for start, part in _parts(rhs, elem):
        exact = part.astype(np.float64)
        of_rows += some[:, start : start + len(part)] @ exact
        narrow.append(np.concatenate([exact[:, cols], _block_sums(exact, signs, width)], axis=1))
    right = np.concatenate(narrow)
    product = np.concatenate([part.astype(np.float64) @ right for _, part in _parts(lhs, elem)])
    of_cols, of_blocks = (np.ascontiguousarray(p) for p in np.split(product, [cols.size], axis=1))
    return _Blocks(elem, width, signs, rows, cols, of_rows, of_cols, of_blocks)


def _block_sums(numbers: Array, signs: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Signed sums over blocks of columns; the last, shorter one has less noise than it is allowed."""
    sums = numbers * signs
    if signs.size % width == 0:
        while width % 2 == 0:  # sums of pairs, again and again: several times as fast
            sums = sums[:, ::2] + sums[:, 1::2]
            width //= 2
    return sums if width == 1 else np.add.reduceat(sums, np.arange(0, sums.shape[1], width), axis=1)


@lru_cache(maxsize=64)
def block_width(m: int, n: int, k: int) -> int:
    """Columns summed into one residual: 1 where the whole product is cheap, else a power of two."""
    width = 1
    while 2 * m * n * k > FULL_COMPARE_OPS * width and width < WIDEST_BLOCK:
        width *= 2
    return min(width, n)


def _edges(extent: int) -> NDArray[np.intp]:
    """The first and last index, and those on either side of each power of two."""
    powers = [1 << i for i in range(4, extent.bit_length())]
    wanted = {0, extent - 1, *powers, *(p - 1 for p in powers)}
    return np.array(sorted(i for i in wanted if i < extent), np.intp)


def _within(
    error: NDArray[np.float64], reference: NDArray[np.float64], width: int, limits: Tolerance
) -> None:
    if width == 1:
        allowed = limits.relative * np.abs(reference) + NOISE * limits.noise
    else:
        allowed = np.full_like(reference, NOISE * np.sqrt(width) * limits.rms)
    bad = np.abs(error) > allowed
    if not bad.any():
        return
    row, col = np.argwhere(bad)[0]
    what = f"element at row {row}, column {col}" if width == 1 else f"row {row}, columns {col * width}…"
    raise WrongResult(
        f"{np.count_nonzero(bad)} of {bad.size} sums are wrong, the first: {what} is off by "
        f"{abs(error[row, col]):.3g} where {allowed[row, col]:.2g} is rounding"
    )


# --- the caller's own operands -------------------------------------------------------------------


_LOOK_CLOSER_OPS = 1 << 24
_CALL_BLOCK = {Elem.F16: 4, Elem.BF16: 2, Elem.F32: 16, Elem.F64: 16}


class CallCheck:
    """Checks outputs of one call, on the caller's own operands, after their samples.

    Nothing is known of the operands, so the tolerance follows from the terms' sizes: with T = |lhs|·|rhs|,
    8·u·√k·T for sums that round, and u·k·T where a matrix unit may truncate. Blocks whose
    reference is not finite, or beyond what the type can hold, say nothing and are passed over.
    The reference is computed once for all outputs.
    """

    def __init__(
        self, lhs: NDArray[np.generic], rhs: NDArray[np.generic], elem: Elem, precision: str
    ) -> None:
        self.elem = elem
        (m, k), n = lhs.shape[-2:], rhs.shape[-1]
        large = 2 * m * n * k > _LOOK_CLOSER_OPS
        self.width = min(n, max(block_width(m, n, k), _CALL_BLOCK[elem])) if large else 1
        reduced = elem in (Elem.F16, Elem.BF16) or precision == "tf32"
        u_sum = _ROUNDING[Elem.F64 if elem is Elem.F64 else Elem.F32]
        self._of_terms = u_sum * (k + 64 if reduced else 8 * np.sqrt(k) + 8)
        self._of_terms += 2.0**-9 if precision == "tf32" and elem is Elem.F32 else 0.0
        self._of_result = 2 * _ROUNDING[elem]
        self._starts = np.arange(0, n, self.width)
        self._signs = np.random.default_rng().integers(0, 2, n).astype(np.float64) * 2 - 1
        batches = np.ndindex(lhs.shape[:-2])
        self._expected = [self._expect(decode(lhs[i], elem), decode(rhs[i], elem)) for i in batches]

    def _expect(self, lhs: Array, rhs: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Signed block sums of the product, and what a right output's block may be off by."""
        with np.errstate(all="ignore"):
            a, b = lhs.astype(np.float64), rhs.astype(np.float64)
            sums = a @ np.add.reduceat(b * self._signs, self._starts, axis=1)
            terms = _rough(a) @ np.add.reduceat(_rough(b), self._starts, axis=1)
            largest = _LARGEST[self.elem]
            allowed = (self._of_terms + self._of_result) * terms + 2 * self.width * _smallest(self.elem)
            allowed[~(terms < largest)] = np.inf  # also where NaN
            return sums, allowed

    def __call__(self, out: NDArray[np.generic]) -> None:
        """Raise WrongResult if `out`, stored elements of shape (batch…, m, n), is not the product."""
        batches = np.ndindex(out.shape[:-2])
        for index, (sums, allowed) in zip(batches, self._expected, strict=True):
            with np.errstate(all="ignore"):
                got = np.add.reduceat(decode(out[index], self.elem) * self._signs, self._starts, axis=1)
                bad = ~(np.abs(got - sums) <= allowed) & np.isfinite(allowed)
            if bad.any():
                row, block = np.argwhere(bad)[0]
                raise WrongResult(
                    f"on the caller's operands {np.count_nonzero(bad)} of {bad.size} sums are wrong, "
                    f"the first in row {row}, columns {block * self.width}…"
                )


def _rough(numbers: NDArray[np.float64]) -> Array:
    """Magnitudes, in f32 where those can hold their products: they need not be exact."""
    sizes = np.abs(numbers)
    return sizes.astype(np.float32) if np.max(sizes, initial=0.0) < 1e15 else sizes


def _smallest(elem: Elem) -> float:
    return {Elem.F16: 2.0**-24, Elem.BF16: 2.0**-126, Elem.F32: 2.0**-126, Elem.F64: 2.0**-1022}[elem]
