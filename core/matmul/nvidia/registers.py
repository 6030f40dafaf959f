"""Macros whose operands are whole register lists: the one part of the kernels no text can hold.

A warp-group product names up to 128 accumulators, in order, as assembly operands. These functions
write that one macro; the kernels in the .cl files use it by name. Accumulators are elements of an
array `acc` that is only ever indexed by constants, so the compiler keeps it in registers.
"""

from __future__ import annotations

from .ptx import MARK

WGMMA_N = range(8, 257, 8)
"""Column counts of one warp-group product."""


def accumulator_count(n: int) -> int:
    """f32 accumulators each work-item of a warp group holds for 64 rows of n columns."""
    if n not in WGMMA_N:
        raise ValueError(f"{n} columns; a warp-group product has 8 to 256, a multiple of 8")
    return n // 2


def _placeholders(first: int, count: int) -> str:
    return ", ".join(f"%{i}" for i in range(first, first + count))


def _read_write(count: int) -> str:
    return ", ".join(f'"+f"((acc)[{i}])' for i in range(count))


def wgmma_16bit(name: str, n: int, elem: str, *, a_transposed: bool, b_transposed: bool) -> str:
    """`name(acc, a, b)`: acc += A · B of 64 × 16 by 16 × n, both from shared memory.

    a and b are 64-bit matrix descriptors; `elem` is f16 or bf16. A transposed operand is one whose
    contiguous axis is not k.
    """
    count = accumulator_count(n)
    flags = f"{int(a_transposed)}, {int(b_transposed)}"
    text = (
        f"{MARK}wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{elem}.{elem} "
        f"{{{_placeholders(0, count)}}}, %{count}, %{count + 1}, 1, 1, 1, {flags};"
    )
    return f'#define {name}(acc, a, b) asm volatile("{text}" : {_read_write(count)} : "l"(a), "l"(b))\n'


def wgmma_tf32(name: str, n: int, *, accumulate: bool = True) -> str:
    """`name(acc, a, b)`: acc (+)= A · B of 64 × 8 by 8 × n in TF32.

    A's fragment is an array of four 32-bit registers, B comes through a descriptor of a k-contiguous tile.
    Without `accumulate` the product replaces acc.
    """
    count = accumulator_count(n)
    fragment = _placeholders(count, 4)
    text = (
        f"{MARK}wgmma.mma_async.sync.aligned.m64n{n}k8.f32.tf32.tf32 "
        f"{{{_placeholders(0, count)}}}, {{{fragment}}}, %{count + 4}, {int(accumulate)}, 1, 1;"
    )
    inputs = ", ".join(f'"r"((a)[{i}])' for i in range(4)) + ', "l"(b)'
    return f'#define {name}(acc, a, b) asm volatile("{text}" : {_read_write(count)} : {inputs})\n'


def pin(name: str, count: int) -> str:
    """`name(acc)`: the compiler may not move a use of the accumulators across it.

    Needed after waiting for warp-group products, which write registers behind the compiler's back.
    """
    return f'#define {name}(acc) asm volatile("" : {_read_write(count)} : : "memory")\n'
