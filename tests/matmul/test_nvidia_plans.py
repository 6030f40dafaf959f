"""Tiles, operands and fragment layouts of the NVIDIA kernels, computed without a GPU."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import accelerated, gemv, simt, tf32
from rooftune.matmul.families.accelerated import DEPTH, SKINNY, VARIANTS, WARP_GROUP_TILES, WARP_TILES, Feed
from rooftune.matmul.families.common import kernel_text
from rooftune.matmul.launch import Blob, KernelCall, LaunchPlan, Scratch, Slot
from rooftune.matmul.nvidia.operands import Steps, operand_lines
from rooftune.matmul.nvidia.tiles import HOPPER_SHARED_BYTES, Extents, Tile, choose, estimate, stages_that_fit
from rooftune.matmul.problem import Elem, Operand, Problem

HOPPER = DeviceProfile("h", capability=(9, 0), compute_units=132, local_bytes=49152, max_work_group=1024)
AMPERE = DeviceProfile("a", capability=(8, 0), compute_units=108, local_bytes=49152, max_work_group=1024)
FORMS = [(unit, variant) for unit in ("mma", "cmma") for variant in VARIANTS]


def option(call: KernelCall, name: str) -> int:
    return next(int(o.split("=")[1]) for o in call.options if o.startswith(f"-D{name}="))


def main_call(plan: LaunchPlan) -> KernelCall:
    return next(call for call in plan.calls if call.name == "matmul")


# ---- tiles


@pytest.mark.parametrize("tile", [tile for table in WARP_GROUP_TILES.values() for tile in table], ids=str)
def test_warp_group_tiles_can_be_multiplied_and_filled(tile):
    assert tile.bm % (64 * tile.parts_m) == 0 and tile.bn % 64 == 0
    columns = tile.bn // tile.parts_n
    assert columns % 32 == 0 and columns <= 256, "stored 32 columns at a time, at most 256 an instruction"
    accumulators = tile.bm // tile.parts_m // 64 * columns // 2
    assert accumulators <= 128
    for feeders in (128 * tile.parts, 128):
        assert DEPTH * 8 % feeders == 0 and tile.bm * 8 % feeders == 0 and tile.bn * 8 % feeders == 0
    assert stages_that_fit((tile.bm + tile.bn) * 128, 2, HOPPER_SHARED_BYTES) == 2


@pytest.mark.parametrize("tile", [SKINNY, *(t for table in WARP_TILES.values() for t in table)], ids=str)
def test_warp_tiles_can_be_multiplied_and_filled(tile):
    rows, columns = tile.bm // tile.parts_m, tile.bn // tile.parts_n
    assert rows % 16 == 0 and columns % 16 == 0
    for feeders in (32 * tile.parts, 128):
        assert DEPTH * 8 % feeders == 0 and tile.bm * 8 % feeders == 0 and tile.bn * 8 % feeders == 0
        assert feeders // 8 % 8 == 0, "every line of a work-item is swizzled alike"


@pytest.mark.parametrize("variant", [name for name, form in VARIANTS.items() if form.feed.is_bulk])
def test_tiles_of_the_copy_engine_are_at_most_one_box_high(variant):
    rows = VARIANTS[variant].rows
    assert all(max(t.bm, t.bn) <= 256 for t in (*WARP_GROUP_TILES[rows], *WARP_TILES[rows]))


@given(
    m=st.integers(1, 20000), n=st.integers(1, 20000), k=st.integers(1, 20000), batch=st.integers(1, 64),
    units=st.integers(1, 200),
)
def test_the_chosen_tile_has_the_least_estimate(m, n, k, batch, units):
    extents = Extents(m, n, k, batch)
    tiles = WARP_GROUP_TILES["one"]
    chosen = choose(tiles, extents, units, DEPTH)
    assert estimate(chosen, extents, units, DEPTH) == min(estimate(t, extents, units, DEPTH) for t in tiles)
    assert extents.tiles(chosen) * chosen.bm * chosen.bn >= m * n * batch


def test_large_products_take_large_tiles_and_small_ones_enough_groups():
    tiles = WARP_GROUP_TILES["one"]
    assert choose(tiles, Extents(8192, 8192, 8192, 1), 132, DEPTH) == Tile(128, 256, 2, 1)
    small = choose(tiles, Extents(1024, 1024, 1024, 1), 132, DEPTH)
    assert 100 <= Extents(1024, 1024, 1024, 1).tiles(small) <= 132


def test_no_room_for_two_stages_is_unsupported():
    with pytest.raises(UnsupportedError, match="two stages"):
        stages_that_fit(32768, 4, 49152)
    assert stages_that_fit(8192, 8, 49152) == 5


# ---- plans


@pytest.mark.parametrize(("unit", "variant"), FORMS)
@pytest.mark.parametrize("profile", [HOPPER, AMPERE], ids=["hopper", "ampere"])
def test_a_plan_covers_the_result_within_the_device(unit, variant, profile):
    for m, n, k in [(1, 1, 1), (16, 8192, 8192), (1000, 777, 33), (4096, 4096, 4096)]:
        problem = Problem.of(m, n, k, Elem.F16)
        try:
            call = main_call(accelerated.plan(problem, profile, unit=unit, variant=variant))
        except UnsupportedError as error:
            assert profile is AMPERE and re.search("barriers|two stages", str(error))
            continue
        bm, bn, stages = (option(call, name) for name in ("BM", "BN", "STAGES"))
        threads = call.local_size[0]
        assert threads <= 1024 and call.global_size[0] % threads == 0
        tiles = -(-m // bm) * -(-n // bn)
        groups = call.global_size[0] // threads
        assert groups == (min(tiles, profile.compute_units) if VARIANTS[variant].feed.producers else tiles)
        assert stages * (bm + bn) * DEPTH * 2 <= (HOPPER_SHARED_BYTES if profile is HOPPER else 49152)
        assert (call.rewrite is not None) == (unit == "mma" and profile is HOPPER)


def test_the_variants_of_a_unit_are_different_programs():
    problem = Problem.of(4096, 4096, 4096, Elem.F16)
    for unit in ("mma", "cmma"):
        programs = {
            main_call(accelerated.plan(problem, HOPPER, unit=unit, variant=v)).options for v in VARIANTS
        }
        assert len(programs) == len(VARIANTS)


@pytest.mark.parametrize(
    ("problem", "unit", "variant", "reason"),
    [
        (Problem.of(64, 64, 64, Elem.F64), "mma", "simple_tma", "no matrix instruction for f64"),
        (Problem.of(64, 64, 64), "cmma", "simple_tma", "warp-group"),
        (Problem.of(64, 64, 64, precision="tf32"), "mma", "double_cyclic", "copy engine"),
        (Problem.of(64, 64, 255), "mma", "specialized_tma", "256 <= k <= 65536"),
        (Problem.of(64, 64, 65537), "mma", "specialized_tma", "256 <= k <= 65536"),
        (Problem.of(64, 64, 256), "mma", "simple_tma", "no other form"),
    ],
)
def test_what_is_not_served_is_refused_before_compiling(problem, unit, variant, reason):
    with pytest.raises(UnsupportedError, match=reason):
        accelerated.plan(problem, HOPPER, unit=unit, variant=variant)


def test_other_devices_are_refused():
    for capability in (None, (7, 5)):
        other = DeviceProfile("o", capability=capability)
        with pytest.raises(UnsupportedError, match="compute capability"):
            accelerated.plan(Problem.of(64, 64, 64, Elem.F16), other, unit="mma", variant="simple_cyclic")
    with pytest.raises(UnsupportedError, match=r"9\.0"):
        simt.plan(Problem.of(64, 64, 64), AMPERE, size="max", stages=1)
    assert not simt.usable(Problem.of(64, 64, 64, Elem.F16), HOPPER)


def test_the_low_parts_and_ranges_of_a_split_product_have_room():
    problem = Problem.of(300, 200, 1001, batch=3)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma")
    assert [call.name for call in plan.calls] == ["pack", "prepare", "matmul", "repair"]
    pitch = 1004
    chunks = -(-1001 // tf32.RHS_CHUNK)
    assert plan.scratch_bytes == (
        3 * 300 * pitch * 4, 3 * 300 * pitch * 4, 3 * 300 * 8, 3 * chunks * 200 * 8
    )


def test_vectors_go_through_the_copy_engine_only_where_it_can_read():
    aligned = gemv.plan(Problem.of(1, 8192, 8192, Elem.F16), HOPPER, axis="perpendicular")
    assert isinstance(aligned.calls[0].args[0], Blob)
    for problem in (Problem.of(1, 8191, 64, Elem.F16), Problem.of(1, 64, 64, Elem.F64)):
        plan = gemv.plan(problem, HOPPER, axis="perpendicular")
        assert not any(isinstance(arg, Blob) for arg in plan.calls[0].args)


# ---- operands


def lines(problem: Problem, **wanted):
    steps = Steps()
    lhs, rhs = operand_lines(problem, problem.batch_walk(), steps, **wanted)
    return lhs, rhs, steps.plan()


def test_aligned_operands_are_read_in_place_in_their_own_order():
    for lhs_t, rhs_t in product((False, True), repeat=2):
        problem = Problem.of(64, 128, 256, Elem.F16, lhs_transposed=lhs_t, rhs_transposed=rhs_t)
        lhs, rhs, plan = lines(problem)
        assert plan.calls == ()
        assert (lhs.source, rhs.source) == (Slot.LHS, Slot.RHS)
        assert (lhs.k_contiguous, rhs.k_contiguous) == (not lhs_t, rhs_t)
        assert (lhs.length, lhs.count) == ((64, 256) if lhs_t else (256, 64))


def test_operands_that_are_not_aligned_are_repacked_by_one_launch():
    problem = Problem.of(65, 67, 131, Elem.BF16)
    lhs, rhs, plan = lines(problem)
    assert len(plan.calls) == 1
    assert (lhs.source, rhs.source) == (Scratch(0), Scratch(1))
    assert (lhs.pitch, rhs.pitch) == (136, 72)
    assert plan.scratch_bytes == (65 * 136 * 2, 131 * 72 * 2)


def test_a_demanded_order_turns_an_operand():
    problem = Problem.of(64, 64, 96, lhs_transposed=True)
    lhs, _, plan = lines(problem, lhs_along_k=True, rhs_along_k=False)
    assert lhs.k_contiguous and lhs.pitch == 96
    assert "-DA_TURNED=1" in plan.calls[0].options


def test_a_shared_operand_is_repacked_once():
    m, n, k = 10, 24, 33
    problem = Problem(
        Operand((5, m, k), (m * k, k, 1), Elem.F32), Operand((5, k, n), (0, n, 1), Elem.F32, 4),
        Operand((5, m, n), (m * n, n, 1), Elem.F32),
    )
    lhs, rhs, plan = lines(problem)
    assert plan.scratch_bytes == (5 * m * 36 * 4, k * n * 4)
    assert (lhs.inner, rhs.inner) == (m * 36, 0)
    assert [int(f) for f in rhs.batch_factors] == [0, 0]


@given(
    m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 70), batch=st.integers(1, 3),
    lhs_t=st.booleans(), rhs_t=st.booleans(), elem=st.sampled_from([Elem.F16, Elem.F32]),
)
def test_whatever_comes_out_is_aligned_and_holds_the_operand(m, n, k, batch, lhs_t, rhs_t, elem):
    problem = Problem.of(m, n, k, elem, batch=batch, lhs_transposed=lhs_t, rhs_transposed=rhs_t)
    lhs, rhs, _ = lines(problem)
    for found, shape in ((lhs, {m, k}), (rhs, {k, n})):
        assert found.aligned and found.pitch >= found.length
        assert {found.length, found.count} == shape


# ---- fragment layouts, from the kernels' own expressions


def expression(text: str, name: str) -> str:
    """The n-th `#define name` as a Python expression (integer arithmetic, the same precedences)."""
    return re.search(rf"#define {name} \(?(.*?)\)?$", text, re.MULTILINE).group(1).replace("/", "//")


def tf32_lanes(n_steps: int):
    """(first column, byte address of k = 0 .. 3's first read) of each lane of two warp groups."""
    text = kernel_text("nvidia_wgmma32.cl")
    first, second = text[text.index("#if N_STEPS == 1") :].split("#else", 1)
    text = first if n_steps == 1 else second.split("#endif")[0]
    for part, warp, lane in product(range(2), range(4), range(32)):
        names = {"part": part, "warp": warp + 4 * part, "g": lane // 4, "t": lane % 4}
        for name in ("LANE_BLOCK", "LANE_CHUNK", "LANE_BYTE", "LANE_COLUMN"):
            names[name] = eval(expression(text, name), {}, names)
        t = names["t"]
        piece = (names["LANE_CHUNK"] ^ t) << 4
        address = names["LANE_BLOCK"] * 32 * 128 + t * 128 + piece + names["LANE_BYTE"]
        yield part, warp, lane, names["LANE_COLUMN"], address


@pytest.mark.parametrize("n_steps", [1, 2])
def test_tf32_fragments_cover_every_column_once(n_steps):
    each = 2 * n_steps
    columns = Counter()
    for _, _, lane, column, _ in tf32_lanes(n_steps):
        if lane % 4 == 0:
            columns.update(range(column, column + each))
    assert columns == Counter(range(128 * n_steps))


@pytest.mark.parametrize("n_steps", [1, 2])
def test_tf32_fragments_read_the_column_they_stand_for(n_steps):
    for _, _, lane, column, address in tf32_lanes(n_steps):
        block, row, at = address // 4096, address % 4096 // 128, address % 128
        piece = (at >> 4) ^ (row & 7)
        assert row == lane % 4 and 32 * block + 4 * piece + at % 16 // 4 == column


@pytest.mark.parametrize("n_steps", [1, 2])
def test_tf32_fragments_are_read_without_bank_conflicts(n_steps):
    width = 8 * n_steps
    warps: dict[tuple[int, int], list[int]] = {}
    for part, warp, _, _, address in tf32_lanes(n_steps):
        warps.setdefault((part, warp), []).append(address)
    for addresses in warps.values():
        phase = 128 // width  # lanes served at once
        for start in range(0, 32, phase):
            banks = [(a + b) // 4 % 32 for a in addresses[start : start + phase] for b in range(0, width, 4)]
            assert len(set(banks)) == 32


def test_gathering_columns_gives_each_lane_eight_in_a_row():
    """The quad exchange of the 16-bit store, carried out on the columns' numbers."""
    quad = [[8 * block + 2 * lane for block in range(4)] for lane in range(4)]

    def exchange(values, mask):
        return [values[lane ^ mask] for lane in range(4)]

    x = exchange([q[0] if lane & 1 else q[1] for lane, q in enumerate(quad)], 1)
    y = exchange([q[2] if lane & 1 else q[3] for lane, q in enumerate(quad)], 1)
    quad = [
        [x[lane], q[1], y[lane], q[3]] if lane & 1 else [q[0], x[lane], q[2], y[lane]]
        for lane, q in enumerate(quad)
    ]
    x = exchange([q[0] if lane & 2 else q[2] for lane, q in enumerate(quad)], 2)
    y = exchange([q[1] if lane & 2 else q[3] for lane, q in enumerate(quad)], 2)
    quad = [
        [x[lane], y[lane], q[2], q[3]] if lane & 2 else [q[0], q[1], x[lane], y[lane]]
        for lane, q in enumerate(quad)
    ]
    assert quad == [[8 * lane + 2 * i for i in range(4)] for lane in range(4)]


def test_low_parts_are_what_rounding_to_tf32_leaves():
    """The kernel's integer rounding against rounding to 10 fraction bits, nearest even."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0x00800000, 0x7E000000, 5000, dtype=np.uint32)
    ties = (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    for x in (bits, ties):
        rounded = (x + np.uint32(0xFFF) + (x >> 13 & 1)) & np.uint32(0xFFFFE000)
        value, high = x.view(np.float32).astype(np.float64), rounded.view(np.float32).astype(np.float64)
        step = np.exp2(np.floor(np.log2(value)) - 10)
        assert (np.abs(value - high) <= step / 2).all()
        tie = np.abs(value - high) == step / 2
        assert (rounded[tie] >> 13 & 1 == 0).all()


def test_feeds_have_the_numbers_the_kernels_compare():
    assert {feed.name for feed in Feed} == {
        "BULK_PRODUCER", "COPY_PRODUCER", "BULK_INLINE", "COPY_INLINE"
    }
    text = kernel_text("nvidia_16bit.cl")
    assert all(f"FEED_{feed.name}" in text for feed in Feed)
