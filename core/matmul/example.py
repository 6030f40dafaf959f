"""A problem for a key: what to measure when only the key of a stored decision is known."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from ..tuning.level import Level, anchor
from .key import MatmulAutotuneKey
from .problem import Problem

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
