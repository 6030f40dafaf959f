"""Operands as the NVIDIA kernels read them: rows of consecutive elements at aligned places.

The copy engine and 16-byte copies need lines (the rows of memory) that start at multiples of 16 bytes.
An operand that is stored otherwise is first copied into a scratch buffer; the copy is part of the plan, and
so of the candidate's measured time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from ..families.common import ceil_div, kernel_text, round_up
from ..launch import Arg, Blob, KernelCall, LaunchPlan, Scratch, Slot
from ..problem import BatchWalk, Elem, Operand, Problem
from .tensormap import MapType, Swizzle, TensorMap

ALIGNMENT_BYTES = 16
PACK_GROUP = 256
PACK_SIDE = 32
REPACK_S = 8e-6
"""What copying operands is expected to take: measured on an H200 for 4 MB of f16."""


@dataclass(frozen=True)
class Lines:
    """One operand: `count` lines of `length` consecutive elements, `pitch` elements apart.

    Batch strides are in elements, 0 where all products of that axis share the operand.
    """

    source: Slot | Scratch
    elem: Elem
    k_contiguous: bool
    length: int
    count: int
    offset: int
    pitch: int
    outer: int
    inner: int
    extents: tuple[int, int]

    @property
    def matrices(self) -> tuple[int, int]:
        """How many different matrices there are along the outer and inner batch axis."""
        return (self.extents[0] if self.outer else 1, self.extents[1] if self.inner else 1)

    @property
    def aligned(self) -> bool:
        steps = (self.offset, self.pitch, self.outer, self.inner)
        return all(step >= 0 and step * self.elem.size_bytes % ALIGNMENT_BYTES == 0 for step in steps)

    @property
    def odd(self) -> bool:
        """Whether some lines start at an odd multiple of 16 bytes, which the copy engine brings in slowly."""
        steps = (self.offset, self.pitch, self.outer, self.inner)
        return any(step * self.elem.size_bytes % (2 * ALIGNMENT_BYTES) for step in steps)

    def in_sets(self, sets: int) -> Lines:
        """The same lines as a batch: set i holds every `sets`-th line from the i-th on."""
        return replace(
            self,
            count=self.count // sets,
            pitch=self.pitch * sets,
            outer=0,
            inner=self.pitch,
            extents=(1, sets),
        )

    @property
    def batch_factors(self) -> tuple[np.uint32, np.uint32]:
        """What batch coordinates of a tensor map are multiplied with: 0 on a shared axis."""
        return (np.uint32(self.outer != 0), np.uint32(self.inner != 0))

    def stride_args(self) -> tuple[np.int64, ...]:
        """Offset, pitch, outer and inner stride: what kernels that read by address take."""
        return tuple(np.int64(x) for x in (self.offset, self.pitch, self.outer, self.inner))

    def tensor_map(self, elem: MapType, box: tuple[int, int], swizzle: Swizzle = Swizzle.B128) -> Blob:
        """The map of this operand for boxes of (elements along a line, lines); batch axes last."""
        size = elem.size_bytes
        outer, inner = self.matrices
        strides = (self.pitch, self.inner or self.pitch, self.outer or self.pitch)
        made = TensorMap(
            elem, (self.length, self.count, inner, outer), tuple(s * size for s in strides), box, swizzle
        )
        return Blob((self.source,), partial(_encoded, made, self.source, self.offset * size))


def _encoded(
    made: TensorMap, source: Slot | Scratch, offset_bytes: int, addresses: Mapping[Slot | Scratch, int]
) -> bytes:
    return made.encode(addresses[source] + offset_bytes)


@dataclass
class Steps:
    """A launch plan in the making: kernels in order, and the scratch buffers between them."""

    calls: list[KernelCall] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)

    def scratch(self, nbytes: int) -> Scratch:
        self.scratch_bytes.append(nbytes)
        return Scratch(len(self.scratch_bytes) - 1)

    def plan(self, expected_s: float | None = None) -> LaunchPlan:
        """The plan; `expected_s` is what it takes without copying operands into aligned lines."""
        if expected_s is not None:
            expected_s += REPACK_S * sum(call.name == "pack" for call in self.calls)
        return LaunchPlan(tuple(self.calls), tuple(self.scratch_bytes), expected_s)


@dataclass(frozen=True)
class _Repack:
    """A copy of an operand into aligned lines: source lines, strides along and across, where it goes."""

    lines: Lines
    element_stride: int
    line_stride: int
    target: Scratch
    pitch: int

    @property
    def turned(self) -> bool:
        """Whether neighbouring lines lie nearer to one another in the source than neighbouring elements."""
        return abs(self.element_stride) > abs(self.line_stride)

    @property
    def groups(self) -> tuple[int, int]:
        """Work-groups along a line, and across lines."""
        if self.turned:
            return ceil_div(self.pitch, PACK_SIDE), ceil_div(self.lines.count, PACK_SIDE)
        piece = ALIGNMENT_BYTES // self.lines.elem.size_bytes
        return ceil_div(self.pitch, 32 * piece), ceil_div(self.lines.count, PACK_GROUP // 32)

    @property
    def total_groups(self) -> int:
        outer, inner = self.lines.matrices
        return self.groups[0] * self.groups[1] * outer * inner

    @property
    def result(self) -> Lines:
        lines, matrix = self.lines, self.lines.count * self.pitch
        inner = lines.matrices[1]
        return replace(
            lines,
            source=self.target,
            offset=0,
            pitch=self.pitch,
            outer=inner * matrix if lines.outer else 0,
            inner=matrix if lines.inner else 0,
        )

    def args(self) -> tuple[Arg, ...]:
        lines = self.lines
        steps = (lines.offset, self.line_stride, self.element_stride, lines.outer, lines.inner)
        sizes = (lines.count, lines.length, self.pitch, lines.matrices[1], *self.groups)
        return (lines.source, *(np.int64(x) for x in steps), self.target, *(np.uint32(x) for x in sizes))


def operand_lines(
    problem: Problem,
    walk: BatchWalk,
    steps: Steps,
    *,
    lhs_along_k: bool | None = None,
    rhs_along_k: bool | None = None,
) -> tuple[Lines, Lines]:
    """Both operands as aligned lines; one launch is added to `steps` where any has to be repacked.

    `lhs_along_k` and `rhs_along_k` demand lines along k, or across k; None takes the operand's own order.
    """
    found = (
        _lines(problem.lhs, Slot.LHS, 1, walk.lhs, walk.extents, steps, lhs_along_k),
        _lines(problem.rhs, Slot.RHS, 0, walk.rhs, walk.extents, steps, rhs_along_k),
    )
    repacks = [item for item in found if isinstance(item, _Repack)]
    if repacks:
        steps.calls.append(_pack_call(repacks))
    lhs, rhs = (item.result if isinstance(item, _Repack) else item for item in found)
    return lhs, rhs


def plain_lines(problem: Problem, walk: BatchWalk) -> tuple[Lines, Lines] | None:
    """Lines of lhs along k and of rhs along n where memory has them so, aligned or not; else None."""
    found = (
        _lines_of(problem.lhs, Slot.LHS, 1, walk.lhs, walk.extents, 1),
        _lines_of(problem.rhs, Slot.RHS, 0, walk.rhs, walk.extents, 1),
    )
    if any(stride != 1 for _, stride in found):
        return None
    return found[0][0], found[1][0]


def _lines_of(
    operand: Operand, slot: Slot, k_axis: int, batch: tuple[int, int], extents: tuple[int, int], along: int
) -> tuple[Lines, int]:
    """The operand's lines along an axis, and the stride of the elements in a line."""
    natural = operand.canonical()
    stride = (natural.row_stride, natural.col_stride)
    # Batch axes of one product have no stride that matters.
    outer, inner = (s if e > 1 else 0 for s, e in zip(batch, extents, strict=True))
    length, count = operand.shape[-2:][along], operand.shape[-2:][1 - along]
    lines = Lines(
        slot,
        operand.elem,
        along == k_axis,
        length,
        count,
        operand.offset_elems,
        stride[1 - along],
        outer,
        inner,
        extents,
    )
    return lines, stride[along]


def _lines(
    operand: Operand,
    slot: Slot,
    k_axis: int,
    batch: tuple[int, int],
    extents: tuple[int, int],
    steps: Steps,
    along_k: bool | None,
) -> Lines | _Repack:
    natural = operand.canonical()
    along = 0 if abs(natural.row_stride) < abs(natural.col_stride) else 1
    if along_k is not None:
        along = k_axis if along_k else 1 - k_axis
    lines, element_stride = _lines_of(operand, slot, k_axis, batch, extents, along)
    if lines.count == 1:
        lines = replace(lines, pitch=round_up(lines.length, ALIGNMENT_BYTES // operand.elem.size_bytes))
    if element_stride == 1 and lines.pitch >= lines.length and lines.aligned:
        return lines
    size = operand.elem.size_bytes
    pitch = packed_pitch(lines.length, size)
    outer, inner = lines.matrices
    target = steps.scratch(outer * inner * lines.count * pitch * size)
    return _Repack(lines, element_stride, lines.pitch, target, pitch)


def packed_pitch(length: int, size_bytes: int) -> int:
    """Elements from line to line of a copy: never an odd multiple of 16 bytes, whole cache lines if long."""
    whole = 128 if length * size_bytes >= 1024 else 2 * ALIGNMENT_BYTES
    return round_up(length, whole // size_bytes)


def _pack_call(repacks: list[_Repack]) -> KernelCall:
    first, last = repacks[0], repacks[-1]
    options = (
        "-DELEM=ushort" if first.lines.elem.size_bytes == 2 else "-DELEM=uint",
        f"-DA_TURNED={int(first.turned)}",
        f"-DB_TURNED={int(last.turned)}",
    )
    groups = sum(repack.total_groups for repack in repacks)
    return KernelCall(
        kernel_text("nvidia_pack.cl"),
        "pack",
        options,
        (groups * PACK_GROUP,),
        (PACK_GROUP,),
        (*first.args(), *last.args(), np.uint32(first.total_groups)),
    )


def out_args(problem: Problem, walk: BatchWalk) -> tuple[np.int64, ...]:
    """Offset, row stride, outer and inner batch stride of the result, in elements."""
    out = problem.out.canonical()
    return tuple(np.int64(x) for x in (out.offset_elems, out.row_stride, *walk.out))


def wide_stores(problem: Problem, walk: BatchWalk) -> np.uint32:
    """1 where every row of the result starts at a multiple of 16 bytes."""
    step = ALIGNMENT_BYTES // problem.out.elem.size_bytes
    out = problem.out.canonical()
    return np.uint32(all(x % step == 0 for x in (out.offset_elems, out.row_stride, *walk.out)))


def slice_args(
    problem: Problem, walk: BatchWalk, steps: Steps, slices: int
) -> tuple[Scratch, tuple[Arg, ...], np.uint32]:
    """Where slices of k leave their f32 sums, [product][slice][m][n]: the buffer, and in place of `out_args`
    and `wide_stores` what tells a kernel so.
    """
    m, n, inner = problem.m, problem.n, walk.extents[1]
    parts = steps.scratch(walk.count * slices * m * n * 4)
    strides = (0, n, inner * slices * m * n, slices * m * n)
    wide = np.uint32(n * 4 % ALIGNMENT_BYTES == 0)
    return parts, (parts, *(np.int64(x) for x in strides)), wide
