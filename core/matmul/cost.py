"""What a product costs at the least: operations and bytes that no algorithm of this kind avoids."""

from __future__ import annotations

from .problem import Problem


def compute_ops(problem: Problem) -> int:
    """Multiplications and additions: each of the m·n results takes k products and k − 1 sums."""
    return max(0, problem.batch * problem.m * problem.n * (2 * problem.k - 1))


def moved_bytes(problem: Problem) -> int:
    """Bytes of both operands and the result, each element once however often it is used."""
    return problem.lhs.size_bytes + problem.rhs.size_bytes + problem.out.size_bytes
