"""The fixed suite: small awkward products every candidate must get right before any of its samples counts.

Extents sit one beside the tile edges in use (8 to 256), every transposition occurs, batches are broadcast
on either side, operands start at odd elements and have rows wider than they need; a few are aligned, so
that candidates which accept nothing else are proven too. A candidate refuses what it does not serve; what it
accepts it must get right. SUITE_VERSION is part of a stored proof: raise it whenever a problem is added or
changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..matmul.problem import Elem, Operand, Problem, row_major

SUITE_VERSION = 1


@dataclass(frozen=True)
class Awkward:
    """How an operand is stored: rows `pad` elements wider than needed, `offset` elements into its buffer.

    It is broadcast along batch axes of extent 1.
    """

    transposed: bool = False
    batch: tuple[int, ...] = ()
    pad: int = 0
    offset: int = 0

    def operand(self, batch: tuple[int, ...], rows: int, cols: int, elem: Elem) -> Operand:
        stored_rows, stored_cols = (cols, rows) if self.transposed else (rows, cols)
        row = stored_cols + self.pad
        steps = row_major((*self.batch, stored_rows, row))[: len(batch)]
        strides = (0 if extent == 1 else step for extent, step in zip(self.batch, steps, strict=True))
        matrix = (1, row) if self.transposed else (row, 1)
        return Operand((*batch, rows, cols), (*strides, *matrix), elem, self.offset * elem.size_bytes)


@dataclass(frozen=True)
class Case:
    """One problem of the suite, by what is awkward about it."""

    name: str
    m: int
    n: int
    k: int
    lhs: Awkward = field(default_factory=Awkward)
    rhs: Awkward = field(default_factory=Awkward)

    def problem(self, elem: Elem, precision: str) -> Problem:
        batch = tuple(max(pair) for pair in zip(self.lhs.batch, self.rhs.batch, strict=True))
        return Problem(
            self.lhs.operand(batch, self.m, self.k, elem),
            self.rhs.operand(batch, self.k, self.n, elem),
            Operand.contiguous((*batch, self.m, self.n), elem),
            precision,
        )


SUITE: tuple[Case, ...] = (
    Case("tails", 129, 65, 33),
    Case("aligned", 256, 256, 128),
    Case("tails, rhs transposed", 31, 257, 66, rhs=Awkward(transposed=True)),
    Case("tails, lhs transposed", 67, 130, 47, lhs=Awkward(transposed=True)),
    Case("aligned, both transposed", 128, 64, 96, lhs=Awkward(transposed=True), rhs=Awkward(transposed=True)),
    Case("aligned, rhs transposed", 128, 256, 64, rhs=Awkward(transposed=True)),
    Case("rhs shared by a batch", 33, 63, 34, lhs=Awkward(batch=(3,)), rhs=Awkward(batch=(1,))),
    Case("two batch axes, each broadcast", 17, 36, 19, lhs=Awkward(batch=(2, 1)), rhs=Awkward(batch=(1, 3))),
    Case("odd offsets, wide rows", 65, 34, 31, lhs=Awkward(pad=3, offset=1), rhs=Awkward(pad=5, offset=3)),
    Case("deep", 17, 20, 1031),
    Case("deep, aligned", 64, 64, 2048),
    Case("one element", 1, 1, 1),
    Case("matrix by vector", 131, 1, 67),
    Case("matrix by vector, aligned", 256, 1, 128),
    Case("transposed matrix by vector", 130, 1, 65, lhs=Awkward(transposed=True)),
    Case("vector by matrix", 1, 133, 67),
    Case("vector by matrix, aligned", 1, 256, 128),
    Case("vector by transposed matrix", 1, 65, 130, rhs=Awkward(transposed=True)),
    Case("inner product", 1, 1, 517),
    Case("outer product", 35, 66, 1),
)


def suite(elem: Elem, precision: str) -> list[tuple[str, Problem]]:
    """Every problem of the suite for this element type and precision, named."""
    return [(case.name, case.problem(elem, precision)) for case in SUITE]


# --- a problem as JSON ---------------------------------------------------------------------------


def _operand_json(operand: Operand) -> dict[str, Any]:
    return {
        "shape": list(operand.shape), "strides": list(operand.strides), "elem": str(operand.elem),
        "offset_bytes": operand.offset_bytes,
    }


def _operand_from(data: dict[str, Any]) -> Operand:
    return Operand(tuple(data["shape"]), tuple(data["strides"]), Elem(data["elem"]), data["offset_bytes"])


def problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "lhs": _operand_json(problem.lhs), "rhs": _operand_json(problem.rhs),
        "out": _operand_json(problem.out), "precision": problem.precision,
    }


def problem_from_json(data: dict[str, Any]) -> Problem:
    return Problem(
        _operand_from(data["lhs"]), _operand_from(data["rhs"]), _operand_from(data["out"]), data["precision"]
    )


# --- a stand-in for a problem too large to prove -------------------------------------------------

LARGEST_PROOF_BYTES = 1 << 30


def provable(problem: Problem, limit_bytes: int = LARGEST_PROOF_BYTES) -> Problem:
    """The problem itself, or one like it that fits `limit_bytes`: fewer products, fewer rows and columns.

    Layouts, offsets, k and the last 8 bits of m and n (what tails depend on) stay.
    """
    m, n, batch = problem.m, problem.n, problem.out.shape[:-2]
    candidate = problem
    while _bytes(candidate) > limit_bytes:
        if any(extent > 1 for extent in batch):
            batch = tuple(max(1, extent // 2) for extent in batch)
        elif max(m, n) >= 1024:
            m, n = (_halved(m), n) if m >= n else (m, _halved(n))
        else:
            break
        candidate = _resized(problem, batch, m, n)
    return candidate


def _halved(extent: int) -> int:
    return ((extent >> 1) & ~0xFF) | (extent & 0xFF)


def _bytes(problem: Problem) -> int:
    return sum(op.size_bytes for op in (problem.lhs, problem.rhs, problem.out))


def _resized(problem: Problem, batch: tuple[int, ...], m: int, n: int) -> Problem:
    def like(operand: Operand, rows: int, cols: int) -> Operand:
        transposed = operand.row_stride < operand.col_stride
        fresh = Operand.contiguous((*batch, rows, cols), operand.elem, transposed=transposed)
        lead = (0 if s == 0 else f for s, f in zip(operand.strides[:-2], fresh.strides[:-2], strict=True))
        return replace(fresh, strides=(*lead, *fresh.strides[-2:]), offset_bytes=operand.offset_bytes)

    lhs, rhs = like(problem.lhs, m, problem.k), like(problem.rhs, problem.k, n)
    return Problem(lhs, rhs, like(problem.out, m, n), problem.precision)
