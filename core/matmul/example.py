"""A problem for a stored decision: what it was tuned on where that is known, else another one of its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any

from ..errors import UsageError
from ..tuning.level import Level, anchor
from .key import MatmulAutotuneKey
from .problem import Operand, Problem, Shape

MOST_TRIED = 4096


def example_of(key: MatmulAutotuneKey, level: Level) -> Problem | None:
    """A problem of fresh operands with this key, as large as its buckets allow; None where there is none.

    There is none for keys of views that fresh operands are never stored as (every second column, batches
    that share a matrix).
    """
    d = key.definition
    wants = [list(_extents(extent, key, level)) for extent in (d.m, d.n, d.k)]
    wants.append(list(_extents(d.batch, key, level))[:2])
    for m, n, k, batch in islice(product(*wants), MOST_TRIED):
        problem = Problem.of(
            m,
            n,
            k,
            d.elem_lhs,
            batch=batch,
            precision=d.precision,
            lhs_transposed=d.matrix_layout_lhs.transposed,
            rhs_transposed=d.matrix_layout_rhs.transposed,
        )
        if MatmulAutotuneKey.build(problem, level) == key:
            return problem
    return None


def named(problem: Problem) -> dict[str, Any] | None:
    """The shape and batch whose fresh operands are this problem; None where there are none (other views)."""
    lhs, rhs, out = (each.canonical() for each in (problem.lhs, problem.rhs, problem.out))
    shape = shape_of(problem)
    fresh = shape.problem(problem.elem, batch=problem.batch, precision=problem.precision)
    if (lhs, rhs, out) != (fresh.lhs.canonical(), fresh.rhs.canonical(), fresh.out.canonical()):
        return None
    return {"shape": shape.label, "batch": problem.batch}


def problem_named(name: Any, key: MatmulAutotuneKey, level: Level) -> Problem | None:
    """The problem that `named` told of, if it has this key; None for what is no such name."""
    try:
        shape, batch = Shape.parse(name["shape"]), int(name["batch"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, UsageError):
        return None
    d = key.definition
    problem = shape.problem(d.elem_lhs, batch=batch, precision=d.precision)
    return problem if batch > 0 and MatmulAutotuneKey.build(problem, level) == key else None


def shape_of(problem: Problem) -> Shape:
    """Its shape as typed, where an operand with steps along its columns is a transposed view."""
    shape = Shape("", problem.m, problem.n, problem.k, *map(_is_transposed, (problem.lhs, problem.rhs)))
    return replace(shape, text=shape.label)


def _is_transposed(operand: Operand) -> bool:
    canonical = operand.canonical()
    return canonical.row_stride < canonical.col_stride


def _extents(anchored: int, key: MatmulAutotuneKey, level: Level) -> Iterator[int]:
    """Extents of a bucket: its end, then the largest whose rows are aligned as the key says."""
    d = key.definition
    size = d.elem_lhs.size_bytes
    tried = [anchored, anchored - 1]
    for factor in (d.lhs_stride_factor, d.rhs_stride_factor):
        whole = max(1, (1 << factor) // size)
        tried += [(anchored // whole - less) * whole for less in range(3)]
    for extent in dict.fromkeys(tried):
        if extent > 0 and anchor(extent, level) == anchored:
            yield extent
