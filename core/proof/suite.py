"""The suite: small awkward products every candidate must get right before any of its samples counts.

A candidate's program is compiled for what is fixed in it (element type, layout, tile sizes), and only a
program that will be used needs a proof. So the suite is made of *wants*, each an awkwardness (extents beside
tile edges, every transposition, a batch that shares an operand, odd offsets, wide rows, a single term), each
with sizes from small to as large as the problem at hand: of these the first is taken for which the candidate
runs the very programs it runs for the problem at hand. What has the layout built in is proven for other
layouts when those are first met; what takes strides as arguments is proven for all of them at once.

SUITE_VERSION is part of a stored proof: raise it whenever a want is added or changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..device.profile import DeviceProfile
from ..matmul.cost import compute_ops
from ..matmul.launch import LaunchPlan
from ..matmul.problem import Elem, Operand, Problem, row_major
from .subject import Candidate

SUITE_VERSION = 1

LARGEST_CASE_OPS = 1 << 31
"""A case of the suite is no larger than this: some milliseconds on any device."""


@dataclass(frozen=True)
class Storage:
    """How an operand is stored: rows `pad` elements wider than needed, `offset` elements into its buffer.

    It is broadcast along batch axes of extent 1. `transposed` None: as in the problem at hand.
    """

    transposed: bool | None = None
    batch: tuple[int, ...] = ()
    pad: int = 0
    offset: int = 0

    def operand(self, batch: tuple[int, ...], rows: int, cols: int, like: Operand) -> Operand:
        transposed = _is_transposed(like) if self.transposed is None else self.transposed
        stored_rows, stored_cols = (cols, rows) if transposed else (rows, cols)
        row = stored_cols + self.pad
        steps = row_major((*self.batch, stored_rows, row))[: len(batch)]
        strides = (0 if extent == 1 else step for extent, step in zip(self.batch, steps, strict=True))
        matrix = (1, row) if transposed else (row, 1)
        offset_bytes = self.offset * like.elem.size_bytes
        return Operand((*batch, rows, cols), (*strides, *matrix), like.elem, offset_bytes)


@dataclass(frozen=True)
class Want:
    """One awkwardness. `tail` is what its columns and terms lack of the problem at hand's.

    With `terms` the sum has so many terms, whatever the problem at hand has.
    """

    name: str
    tail: int = 1
    lhs: Storage = Storage()
    rhs: Storage = Storage()
    rows: int = 129
    terms: int = 0

    def cases(self, at_hand: Problem) -> Iterator[Problem]:
        """Problems with this awkwardness, the cheapest first."""
        m, n, k = at_hand.m, at_hand.n, at_hand.k
        tall, wide, deep = _less(m, 0), _less(n, self.tail), self.terms or _less(k, self.tail)
        rows = min(tall, self.rows)
        few = min(rows, 35)
        narrow, shallow = min(wide, 256 + self.tail), min(deep, 64 + self.tail)
        sizes = [
            (rows, narrow, shallow),
            (rows, narrow, deep),
            (rows, wide, shallow),
            (few, wide, deep),
            (few, n, deep),
            (few, wide, k),
            (tall, wide, deep),
        ]
        for size in sizes:
            if self.terms in (0, size[2]):
                yield self.problem(at_hand, *size)

    def problem(self, like: Problem, m: int, n: int, k: int) -> Problem:
        batch = tuple(max(pair) for pair in zip(self.lhs.batch, self.rhs.batch, strict=True))
        return Problem(
            self.lhs.operand(batch, m, k, like.lhs),
            self.rhs.operand(batch, k, n, like.rhs),
            Operand.contiguous((*batch, m, n), like.out.elem),
            like.precision,
        )


SUITE: tuple[Want, ...] = (
    Want("tails"),
    Want("tails of whole vectors", tail=16, rows=257),
    Want("whole tiles", tail=0, rows=256),
    Want("odd offsets, wide rows", tail=3, lhs=Storage(pad=3, offset=1), rhs=Storage(pad=5, offset=3)),
    Want("even offsets, wide rows", tail=8, lhs=Storage(pad=8, offset=16), rhs=Storage(pad=24, offset=8)),
    Want("rhs shared by a batch", lhs=Storage(batch=(3,)), rhs=Storage(batch=(1,)), rows=33),
    Want("lhs shared by a batch", tail=16, lhs=Storage(batch=(1,)), rhs=Storage(batch=(2,)), rows=65),
    Want("two batch axes", tail=7, lhs=Storage(batch=(2, 1)), rhs=Storage(batch=(1, 3)), rows=17),
    Want("neither transposed", lhs=Storage(False), rhs=Storage(False), rows=65),
    Want("lhs transposed", lhs=Storage(True), rhs=Storage(False), rows=67),
    Want("rhs transposed", lhs=Storage(False), rhs=Storage(True), rows=63),
    Want("both transposed", tail=16, lhs=Storage(True), rhs=Storage(True), rows=128),
    Want("one term", rows=35, terms=1),
)


def suite(candidate: Candidate, at_hand: Problem, profile: DeviceProfile) -> Iterator[tuple[str, Problem]]:
    """The wants this candidate meets with the programs it uses for the problem at hand, named.

    Raises UnsupportedError when it refuses the problem at hand.
    """
    programs = programs_of(candidate.plan(at_hand, profile))
    chosen: set[Problem] = set()
    for want in SUITE:
        case = next((c for c in want.cases(at_hand) if _fits(candidate, c, profile, programs)), None)
        if case is not None and case not in chosen:
            chosen.add(case)
            yield want.name, case


def _fits(candidate: Candidate, case: Problem, profile: DeviceProfile, programs: Programs) -> bool:
    if compute_ops(case) > LARGEST_CASE_OPS:
        return False
    try:
        return programs_of(candidate.plan(case, profile)) == programs
    except Exception:  # refused, or a defect that the problem at hand does not meet
        return False


Programs = frozenset[tuple[Any, ...]]


def programs_of(plan: LaunchPlan) -> Programs:
    """What is compiled for a plan; runtimes may compile once more for each size of a work-group."""
    return frozenset((c.source, c.name, c.options, c.local_size, c.rewrite) for c in plan.calls)


def programs_hash(plan: LaunchPlan) -> str:
    """Names a plan's programs in the store."""
    texts = sorted(repr(program) for program in programs_of(plan))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _less(extent: int, tail: int) -> int:
    """A little less than the extent, but what is 1 stays 1: a vector is no matrix."""
    return max(extent - tail, min(extent, 2))


def _is_transposed(operand: Operand) -> bool:
    canonical = operand.canonical()
    return canonical.row_stride < canonical.col_stride


# --- a problem as JSON ---------------------------------------------------------------------------


def _operand_json(operand: Operand) -> dict[str, Any]:
    return {
        "shape": list(operand.shape),
        "strides": list(operand.strides),
        "elem": str(operand.elem),
        "offset_bytes": operand.offset_bytes,
    }


def _operand_from(data: dict[str, Any]) -> Operand:
    return Operand(tuple(data["shape"]), tuple(data["strides"]), Elem(data["elem"]), data["offset_bytes"])


def problem_to_json(problem: Problem) -> dict[str, Any]:
    return {
        "lhs": _operand_json(problem.lhs),
        "rhs": _operand_json(problem.rhs),
        "out": _operand_json(problem.out),
        "precision": problem.precision,
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
        transposed = _is_transposed(operand)
        fresh = Operand.contiguous((*batch, rows, cols), operand.elem, transposed=transposed)
        lead = (0 if s == 0 else f for s, f in zip(operand.strides[:-2], fresh.strides[:-2], strict=True))
        return replace(fresh, strides=(*lead, *fresh.strides[-2:]), offset_bytes=operand.offset_bytes)

    lhs, rhs = like(problem.lhs, m, problem.k), like(problem.rhs, problem.k, n)
    return Problem(lhs, rhs, like(problem.out, m, n), problem.precision)
