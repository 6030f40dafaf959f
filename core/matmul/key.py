"""The key of a product: its bucketed description. Products with equal keys share one decision.

Built from shapes, strides and element types alone: no device and no pyopencl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..tuning.level import Level, anchor
from .problem import Elem, Operand, Problem

MAX_POW2_FACTOR = 4
MAX_STRIDE_FACTOR = 10


class Scale(str, Enum):
    """Size class of the anchored extents: all below 512, all below 2048, or larger."""

    SMALL = "Small"
    MEDIUM = "Medium"
    LARGE = "Large"


class Kind(str, Enum):
    """Which of m, n, k equal 1."""

    GENERAL = "General"
    MAT_VEC = "MatVec"
    VEC_MAT = "VecMat"
    SCALAR_VEC = "ScalarVec"
    VEC_SCALAR = "VecScalar"
    INNER_PRODUCT = "InnerProduct"
    OUTER_PRODUCT = "OuterProduct"
    SCALAR_PRODUCT = "ScalarProduct"


_KINDS = {
    (False, False, False): Kind.GENERAL,
    (False, True, False): Kind.MAT_VEC,
    (True, False, False): Kind.VEC_MAT,
    (True, False, True): Kind.SCALAR_VEC,
    (False, True, True): Kind.VEC_SCALAR,
    (True, True, False): Kind.INNER_PRODUCT,
    (False, False, True): Kind.OUTER_PRODUCT,
    (True, True, True): Kind.SCALAR_PRODUCT,
}


@dataclass(frozen=True)
class Layout:
    """How an operand lies in memory: Contiguous, MildlyPermuted or HighlyPermuted."""

    name: str
    transposed: bool = False
    batch_swap: bool = False

    def to_json(self) -> str | dict[str, dict[str, bool]]:
        if self.name != "MildlyPermuted":
            return self.name
        return {self.name: {"transposed": self.transposed, "batch_swap": self.batch_swap}}

    def __str__(self) -> str:
        flags = [flag for flag in ("transposed", "batch_swap") if getattr(self, flag)]
        return f"{self.name}({','.join(flags)})" if flags else self.name


CONTIGUOUS = Layout("Contiguous")
HIGHLY_PERMUTED = Layout("HighlyPermuted")


@dataclass(frozen=True)
class Definition:
    """The part of a key that is read off the problem. Extents are anchored, factors are exponents of two."""

    m: int
    n: int
    k: int
    batch: int
    lhs_pow2_factor: int
    lhs_stride_factor: int
    rhs_pow2_factor: int
    rhs_stride_factor: int
    elem_lhs: Elem
    elem_rhs: Elem
    elem_out: Elem
    matrix_layout_lhs: Layout
    matrix_layout_rhs: Layout
    lhs_storage: str = "Strided"
    rhs_storage: str = "Strided"
    precision: str = "full"


@dataclass(frozen=True)
class Analysis:
    """The part of a key that follows from the rest."""

    scale_global: Scale
    kind: Kind


@dataclass(frozen=True)
class MatmulAutotuneKey:
    """Equal keys share a decision. `to_json` has the field names that programs may rely on."""

    definition: Definition
    analysis: Analysis

    @classmethod
    def build(cls, problem: Problem, level: Level = Level.BALANCED) -> MatmulAutotuneKey:
        """The key of `problem` when extents are bucketed as `level` does."""
        m, n, k = (anchor(extent, level) for extent in (problem.m, problem.n, problem.k))
        lhs, rhs = _matrix_view(problem.lhs), _matrix_view(problem.rhs)
        layout_lhs, layout_rhs = _layout_of_view(lhs), _layout_of_view(rhs)
        definition = Definition(
            m=m,
            n=n,
            k=k,
            batch=anchor(problem.batch, level),
            lhs_pow2_factor=_pow2_factor(layout_lhs, columns=k, rows=m),
            lhs_stride_factor=_stride_factor(layout_lhs, lhs),
            rhs_pow2_factor=_pow2_factor(layout_rhs, columns=n, rows=k),
            rhs_stride_factor=_stride_factor(layout_rhs, rhs),
            elem_lhs=problem.lhs.elem,
            elem_rhs=problem.rhs.elem,
            elem_out=problem.out.elem,
            matrix_layout_lhs=layout_lhs,
            matrix_layout_rhs=layout_rhs,
            precision=problem.precision if problem.elem is Elem.F32 else "full",
        )
        return cls(definition, Analysis(_scale(m, n, k), kind_of(problem.m, problem.n, problem.k)))

    def to_json(self) -> dict[str, dict[str, Any]]:
        """The key as JSON values: {"definition": {...}, "analysis": {...}}."""
        parts = {"definition": self.definition, "analysis": self.analysis}
        return {
            part: {name: _plain(value) for name, value in vars(fields).items()}
            for part, fields in parts.items()
        }

    @classmethod
    def from_json(cls, data: dict[str, dict[str, Any]]) -> MatmulAutotuneKey:
        """The key that `to_json` wrote."""
        definition = dict(data["definition"])
        for side in ("lhs", "rhs", "out"):
            definition[f"elem_{side}"] = Elem(definition[f"elem_{side}"])
        for side in ("lhs", "rhs"):
            definition[f"matrix_layout_{side}"] = _layout_from_json(definition[f"matrix_layout_{side}"])
        analysis = data["analysis"]
        return cls(
            Definition(**definition), Analysis(Scale(analysis["scale_global"]), Kind(analysis["kind"]))
        )

    def short(self) -> str:
        """One line for people: what is usual (one f32 product, contiguous lhs) is left unsaid.

        Fields go by the names of `short_name`.
        """
        d, a = self.definition, self.analysis
        unusual = [
            ("batch", d.batch, 1),
            ("elem", _elems(d), "f32"),
            ("layout_lhs", str(d.matrix_layout_lhs), "Contiguous"),
            ("precision", d.precision, "full"),
        ]
        said = {name: f" {name}={value}" for name, value, usual in unusual if value != usual}
        return (
            f"m={d.m} n={d.n} k={d.k}{said.get('batch', '')}{said.get('elem', '')}"
            f" lhs_pow2={d.lhs_pow2_factor} lhs_stride={d.lhs_stride_factor}"
            f" rhs_pow2={d.rhs_pow2_factor} rhs_stride={d.rhs_stride_factor}"
            f"{said.get('layout_lhs', '')} layout_rhs={d.matrix_layout_rhs}"
            f"{said.get('precision', '')} scale={a.scale_global.value} kind={a.kind.value}"
        )

    def differences(self, other: MatmulAutotuneKey) -> dict[str, tuple[Any, Any]]:
        """The fields in which two keys differ, with both values as in `to_json`."""
        mine, theirs = self.to_json(), other.to_json()
        return {
            field: (value, theirs[part][field])
            for part in mine
            for field, value in mine[part].items()
            if value != theirs[part][field]
        }


def short_name(field: str) -> str:
    """A key's field as people see it: `lhs_stride` for lhs_stride_factor."""
    return field.removesuffix("_factor").removesuffix("_global").removeprefix("matrix_")


def layout_of(strides: Sequence[int]) -> Layout:
    """The layout that strides (batch axes outermost, then rows, columns) stand for."""
    if len(strides) < 2:
        return CONTIGUOUS
    *batch, row, col = strides
    if row == 0 or col == 0:
        return HIGHLY_PERMUTED
    transposed = row < col
    batch_swap = False
    before = row
    for stride in reversed(batch):
        if stride != 0 and stride < max(row, col):
            return HIGHLY_PERMUTED
        batch_swap |= stride < before
        before = stride
    if not transposed and not batch_swap:
        return CONTIGUOUS
    return Layout("MildlyPermuted", transposed, batch_swap)


def kind_of(m: int, n: int, k: int) -> Kind:
    """Which of the extents equal 1."""
    return _KINDS[m == 1, n == 1, k == 1]


def trailing_zeros(value: int, most: int) -> int:
    """Trailing zero bits of `value` (of either sign), at most `most`; zero has them all."""
    if value == 0:
        return most
    return min((value & -value).bit_length() - 1, most)


@dataclass(frozen=True)
class _View:
    """An operand as its layout sees it: canonical strides, no batch axis that repeats or is single."""

    strides: tuple[int, ...]
    size_bytes: int
    offset_bytes: int


def _matrix_view(operand: Operand) -> _View:
    canonical = operand.canonical()
    axes = list(zip(canonical.shape, canonical.strides, strict=True))
    batch = [stride for extent, stride in axes[:-2] if extent != 1 and stride != 0]
    matrix = [stride for _, stride in axes[-2:]]
    return _View((*batch, *matrix), operand.elem.size_bytes, operand.offset_bytes)


def _layout_of_view(view: _View) -> Layout:
    """A view such as x[:, ::2] or x[::-1] never counts as contiguous: it must not share a key with one."""
    if 1 not in view.strides[-2:] or min(view.strides) < 0:
        return HIGHLY_PERMUTED
    return layout_of(view.strides)


def _pow2_factor(layout: Layout, *, columns: int, rows: int) -> int:
    """Alignment of the anchored extent of the contiguous axis: vectors of which width fit."""
    if layout == HIGHLY_PERMUTED:
        return 0
    return trailing_zeros(rows if layout.transposed else columns, MAX_POW2_FACTOR)


def _stride_factor(layout: Layout, view: _View) -> int:
    """Alignment, in bytes, that every stride but the innermost and the operand's offset have."""
    if layout == HIGHLY_PERMUTED or layout.batch_swap:
        return 0
    innermost = len(view.strides) - (2 if layout.transposed else 1)
    strides = [stride for axis, stride in enumerate(view.strides) if axis != innermost]
    factors = [trailing_zeros(stride * view.size_bytes, MAX_STRIDE_FACTOR) for stride in strides]
    return min([MAX_STRIDE_FACTOR, trailing_zeros(view.offset_bytes, MAX_STRIDE_FACTOR), *factors])


def _scale(m: int, n: int, k: int) -> Scale:
    largest = max(m, n, k)
    if largest < 512:
        return Scale.SMALL
    return Scale.MEDIUM if largest < 2048 else Scale.LARGE


def _elems(definition: Definition) -> str:
    elems = [definition.elem_lhs, definition.elem_rhs, definition.elem_out]
    return elems[0].value if len(set(elems)) == 1 else ",".join(elem.value for elem in elems)


def _plain(value: Any) -> Any:
    if isinstance(value, Layout):
        return value.to_json()
    return value.value if isinstance(value, Enum) else value


def _layout_from_json(value: str | dict[str, dict[str, bool]]) -> Layout:
    if isinstance(value, str):
        return Layout(value)
    ((name, flags),) = value.items()
    return Layout(name, **flags)
