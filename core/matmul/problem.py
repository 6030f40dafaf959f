"""One concrete product: shapes, strides, element types. No device and no pyopencl needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from math import prod

from ..errors import DtypeError, UnsupportedError, UsageError


class Elem(str, Enum):
    """Element types of operands. f16 and bf16 accumulate in f32."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @property
    def size_bytes(self) -> int:
        return {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}[self.value]

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, text: str) -> Elem:
        """An element type from its name here or numpy's: f32 or float32. Raises DtypeError."""
        name = text.strip().lower()
        short = name.replace("bfloat", "bf").replace("float", "f")
        if short not in {elem.value for elem in cls}:
            raise DtypeError(f"'{text}' is not an element type", hint="Types are f32, f64, f16 and bf16.")
        return cls(short)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array of this shape."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Operand:
    """A matrix or a stack of them: shape (batch…, rows, columns), strides in elements, offset in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    elem: Elem
    offset_bytes: int = 0

    @classmethod
    def contiguous(cls, shape: tuple[int, ...], elem: Elem, *, transposed: bool = False) -> Operand:
        """Row-major operand; `transposed` is a view of a row-major array with its last two axes swapped."""
        if not transposed:
            return cls(shape, row_major(shape), elem)
        stored = (*shape[:-2], shape[-1], shape[-2])
        strides = row_major(stored)
        return cls(shape, (*strides[:-2], strides[-1], strides[-2]), elem)

    def canonical(self) -> Operand:
        """An axis of extent 1 gets the stride it would have in a row-major array."""
        natural = row_major(self.shape)
        strides = tuple(
            n if extent == 1 else s for extent, s, n in zip(self.shape, self.strides, natural, strict=True)
        )
        return Operand(self.shape, strides, self.elem, self.offset_bytes)

    @property
    def row_stride(self) -> int:
        return self.strides[-2]

    @property
    def col_stride(self) -> int:
        return self.strides[-1]

    @property
    def offset_elems(self) -> int:
        return self.offset_bytes // self.elem.size_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the distinct elements (a broadcast axis counts once)."""
        extents = (e for e, s in zip(self.shape, self.strides, strict=True) if s != 0)
        return prod(extents) * self.elem.size_bytes


@dataclass(frozen=True)
class BatchWalk:
    """Batch axes after collapsing: (outer, inner) extents and each operand's strides in elements."""

    extents: tuple[int, int]
    lhs: tuple[int, int]
    rhs: tuple[int, int]
    out: tuple[int, int]

    @property
    def count(self) -> int:
        return self.extents[0] * self.extents[1]


@dataclass(frozen=True)
class Problem:
    """out[b, m, n] = Σₖ lhs[b, m, k] · rhs[b, k, n].

    Batch axes of lhs, rhs and out have equal extents: a broadcast operand has stride 0 there.
    """

    lhs: Operand
    rhs: Operand
    out: Operand
    precision: str = "full"

    @classmethod
    def of(
        cls,
        m: int,
        n: int,
        k: int,
        elem: Elem = Elem.F32,
        *,
        batch: int = 1,
        lhs_transposed: bool = False,
        rhs_transposed: bool = False,
        precision: str = "full",
    ) -> Problem:
        """The problem of fresh operands: contiguous, or views of contiguous arrays when transposed."""
        lead = (batch,) if batch > 1 else ()
        return cls(
            Operand.contiguous((*lead, m, k), elem, transposed=lhs_transposed),
            Operand.contiguous((*lead, k, n), elem, transposed=rhs_transposed),
            Operand.contiguous((*lead, m, n), elem),
            precision,
        )

    @property
    def m(self) -> int:
        return self.lhs.shape[-2]

    @property
    def k(self) -> int:
        return self.lhs.shape[-1]

    @property
    def n(self) -> int:
        return self.rhs.shape[-1]

    @property
    def elem(self) -> Elem:
        return self.lhs.elem

    @property
    def batch(self) -> int:
        """Number of products."""
        return prod(self.out.shape[:-2])

    def batch_walk(self) -> BatchWalk:
        """Batch axes merged where all three operands walk them alike; at most two may remain.

        Raises UnsupportedError when more remain: the caller then repacks the operands first.
        """
        axes: list[list[int]] = []  # [extent, lhs stride, rhs stride, out stride], outermost first
        for axis, extent in enumerate(self.out.shape[:-2]):
            if extent == 1:
                continue
            step = [op.strides[axis] for op in (self.lhs, self.rhs, self.out)]
            if axes and all(prev == s * extent for prev, s in zip(axes[-1][1:], step, strict=True)):
                axes[-1] = [axes[-1][0] * extent, *step]
            else:
                axes.append([extent, *step])
        if len(axes) > 2:
            raise UnsupportedError(f"{len(axes)} batch axes with unrelated strides; at most 2 are walked")
        axes = [[1, 0, 0, 0]] * (2 - len(axes)) + axes
        (e0, l0, r0, o0), (e1, l1, r1, o1) = axes
        return BatchWalk((e0, e1), (l0, l1), (r0, r1), (o0, o1))


SHAPE_HINT = (
    "Give N for a square or MxNxK, then t (lhs) and/or T (rhs) for a transposed view: "
    "1024, 64x4096x1024, 1024T."
)
_SHAPE = re.compile(r"([0-9]+)(?:x([0-9]+)x([0-9]+)|x\1)?(t?)(T?)")
MOST_DIGITS = 18


@dataclass(frozen=True)
class Shape:
    """A SHAPE as typed on the command line: `N` or `MxNxK`, then `t` (lhs) and `T` (rhs) for views."""

    text: str
    m: int
    n: int
    k: int
    lhs_transposed: bool = False
    rhs_transposed: bool = False

    @staticmethod
    def fits(text: str) -> bool:
        """Whether a text is written as shapes are."""
        return _SHAPE.fullmatch(text.strip()) is not None

    @classmethod
    def parse(cls, text: str) -> Shape:
        match = _SHAPE.fullmatch(text.strip())
        if not match:
            raise UsageError(
                f"'{_shortened(text)}' is not a shape",
                hint=SHAPE_HINT,
            )
        m, n, k, lhs, rhs = match.groups()
        extents = [digits.lstrip("0") or "0" for digits in (m, n or m, k or m)]
        if any(len(digits) > MOST_DIGITS or int(digits) >= 1 << 31 for digits in extents):
            large = f"'{_shortened(text)}' has an extent above 2147483647"
            raise UsageError(large, hint="Extents are 32-bit.")
        rows, columns, inner = (int(digits) for digits in extents)
        return cls(text.strip(), rows, columns, inner, bool(lhs), bool(rhs))

    def problem(self, elem: Elem = Elem.F32, *, batch: int = 1, precision: str = "full") -> Problem:
        return Problem.of(
            self.m,
            self.n,
            self.k,
            elem,
            batch=batch,
            lhs_transposed=self.lhs_transposed,
            rhs_transposed=self.rhs_transposed,
            precision=precision,
        )

    @property
    def label(self) -> str:
        """As `tune shapes` prints it: 1024x1024 for a square, MxNxK otherwise, with t and T."""
        square = self.m == self.n == self.k
        size = f"{self.m}x{self.n}" if square else f"{self.m}x{self.n}x{self.k}"
        return size + "t" * self.lhs_transposed + "T" * self.rhs_transposed


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
