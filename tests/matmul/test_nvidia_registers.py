"""Register-list macros: operand counts, order and placement."""

import re

import pytest
from rooftune.matmul.nvidia.registers import accumulator_count, pin, wgmma_16bit, wgmma_tf32


def placeholders(macro: str) -> list[int]:
    return [int(i) for i in re.findall(r"%(\d+)", macro)]


def accumulators(macro: str) -> list[int]:
    return [int(i) for i in re.findall(r'"\+f"\(\(acc\)\[(\d+)\]\)', macro)]


@pytest.mark.parametrize("n", [8, 64, 128, 256])
def test_16_bit_products_name_each_operand_once_in_order(n):
    macro = wgmma_16bit("PRODUCT", n, "bf16", a_transposed=False, b_transposed=True)
    count = n // 2
    assert placeholders(macro) == list(range(count + 2))
    assert accumulators(macro) == list(range(count))
    assert f"m64n{n}k16.f32.bf16.bf16" in macro
    assert macro.count("\n") == 1 and macro.startswith("#define PRODUCT(acc, a, b) asm volatile(")
    assert f"%{count}, %{count + 1}, 1, 1, 1, 0, 1;" in macro


def test_tf32_products_take_four_fragment_registers():
    macro = wgmma_tf32("PRODUCT", 128)
    assert placeholders(macro) == list(range(64 + 5))
    assert "{%64, %65, %66, %67}, %68, 1, 1, 1;" in macro
    assert ", %68, 0, 1, 1;" in wgmma_tf32("FIRST", 128, accumulate=False)


def test_instructions_are_hidden_from_the_front_end():
    assert '"//@wgmma.' in wgmma_tf32("A", 64)
    assert '"//@wgmma.' in wgmma_16bit("A", 64, "f16", a_transposed=True, b_transposed=False)


def test_a_pin_touches_every_accumulator():
    assert accumulators(pin("PIN", 128)) == list(range(128))


@pytest.mark.parametrize("n", [0, 4, 60, 264])
def test_other_column_counts_do_not_exist(n):
    with pytest.raises(ValueError, match="columns"):
        accumulator_count(n)
