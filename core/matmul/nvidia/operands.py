"""Operands as the NVIDIA kernels read them: rows of consecutive elements at aligned places.

The copy engine and 16-byte copies need lines (the rows of memory) that start at multiples of 16 bytes.
An operand that is stored otherwise is first copied into a scratch buffer; the copy is part of the plan, and
so of the candidate's measured time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ..families.common import ceil_div, kernel_text, round_up
from ..launch import Blob, KernelCall, LaunchPlan, Scratch, Slot
from ..problem import BatchWalk, Elem, Operand, Problem
from .tensormap import MapType, Swizzle, TensorMap

ALIGNMENT_BYTES = 16
PACK_SIDE, PACK_LINES = 32, 8


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

    def plan(self) -> LaunchPlan:
        return LaunchPlan(tuple(self.calls), tuple(self.scratch_bytes))


def lhs_lines(problem: Problem, walk: BatchWalk, steps: Steps, *, k_contiguous: bool | None = None) -> Lines:
    """The left operand as aligned lines, repacked where needed; `k_contiguous` demands an order."""
    return _lines(problem.lhs, Slot.LHS, 1, walk.lhs, walk.extents, steps, k_contiguous)


def rhs_lines(problem: Problem, walk: BatchWalk, steps: Steps, *, k_contiguous: bool | None = None) -> Lines:
    """The right operand as aligned lines, repacked where needed; `k_contiguous` demands an order."""
    return _lines(problem.rhs, Slot.RHS, 0, walk.rhs, walk.extents, steps, k_contiguous)


def _lines(
    operand: Operand, slot: Slot, k_axis: int, batch: tuple[int, int], extents: tuple[int, int],
    steps: Steps, k_contiguous: bool | None,
) -> Lines:
    natural = operand.canonical()
    stride = (natural.row_stride, natural.col_stride)
    # Batch axes of one product have no stride that matters.
    outer, inner = (s if e > 1 else 0 for s, e in zip(batch, extents, strict=True))
    along = _line_axis(stride, None if k_contiguous is None else k_axis if k_contiguous else 1 - k_axis)
    shape = operand.shape[-2:]
    length, count = shape[along], shape[1 - along]
    pitch = stride[1 - along]
    if count == 1:
        pitch = round_up(length, ALIGNMENT_BYTES // operand.elem.size_bytes)
    lines = Lines(
        slot, operand.elem, along == k_axis, length, count, operand.offset_elems, pitch, outer, inner, extents
    )
    if stride[along] == 1 and pitch >= length and lines.aligned:
        return lines
    return _packed(lines, stride, along, steps)


def _line_axis(stride: tuple[int, int], wanted: int | None) -> int:
    """The axis to have lines along: the wanted one, else the contiguous one, else the tighter one."""
    if wanted is not None:
        return wanted
    return 0 if abs(stride[0]) < abs(stride[1]) else 1


def _packed(lines: Lines, stride: tuple[int, int], along: int, steps: Steps) -> Lines:
    size = lines.elem.size_bytes
    outer, inner = lines.matrices
    pitch = round_up(lines.length, ALIGNMENT_BYTES // size)
    matrix = lines.count * pitch
    target = steps.scratch(outer * inner * matrix * size)
    line_stride, element_stride = stride[1 - along], stride[along]
    options = (
        "-DELEM=ushort" if size == 2 else "-DELEM=uint",
        f"-DREAD_ALONG_COLS={int(abs(element_stride) <= abs(line_stride))}",
    )
    numbers = (lines.offset, line_stride, element_stride, lines.outer, lines.inner)
    sizes = (lines.count, lines.length, pitch, inner)
    groups = (ceil_div(pitch, PACK_SIDE), ceil_div(lines.count, PACK_SIDE), outer * inner)
    steps.calls.append(
        KernelCall(
            kernel_text("nvidia_pack.cl"), "pack", options,
            (groups[0] * PACK_SIDE, groups[1] * PACK_LINES, groups[2]), (PACK_SIDE, PACK_LINES, 1),
            (lines.source, *(np.int64(x) for x in numbers), target, *(np.uint32(x) for x in sizes)),
        )
    )
    return Lines(
        target, lines.elem, lines.k_contiguous, lines.length, lines.count, 0, pitch,
        inner * matrix if lines.outer else 0, matrix if lines.inner else 0, lines.extents,
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
