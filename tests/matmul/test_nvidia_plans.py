"""Tiles, operands and fragment layouts of the NVIDIA kernels, computed without a GPU."""

from __future__ import annotations

import collections
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import accelerated, gemv, gemv_wide, simt, split_k, tf32
from rooftune.matmul.families.accelerated import (
    DEPTH,
    SKINNY,
    VARIANTS,
    WARP_GROUP_COSTS,
    WARP_GROUP_TILES,
    WARP_TILES,
    Feed,
)
from rooftune.matmul.families.common import kernel_text
from rooftune.matmul.launch import Counter, KernelCall, LaunchPlan, Scratch, Slot
from rooftune.matmul.nvidia.operands import REPACK_S, Steps, operand_lines
from rooftune.matmul.nvidia.tiles import (
    HOPPER_SHARED_BYTES,
    LEAST_SLICE_STEPS,
    Extents,
    Tile,
    choose,
    choose_cut,
    estimate,
    slice_counts,
    stages_that_fit,
    whole_slices,
)
from rooftune.matmul.problem import Elem, Operand, Problem

from .test_nvidia_kernels import at_strides

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
    assert tile.bm % (64 * tile.parts_m) == 0
    columns = tile.bn // tile.parts_n
    assert columns % 64 == 0 or tile.parts_n == 1, "parts begin at blocks of 64 columns"
    assert columns % 32 == 0 and columns <= 256, "stored 32 columns at a time, at most 256 an instruction"
    accumulators = tile.bm // tile.parts_m // 64 * columns // 2
    assert accumulators <= 128
    assert 128 * tile.parts + 128 <= 1024
    assert stages_that_fit((tile.bm + -(-tile.bn // 64) * 64) * 128, 2, HOPPER_SHARED_BYTES) == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiles_that_work_items_copy_come_out_even(variant):
    form = VARIANTS[variant]
    for m, n, k in [
        (1024, 1024, 1024),
        (1536, 1536, 1536),
        (3072, 3072, 3072),
        (512, 512, 8192),
        (5120, 5120, 99),
    ]:
        tile = accelerated.cut_for(Problem.of(m, n, k, Elem.F16), HOPPER, form, warp_groups=True).tile
        feeders = form.feed.producers or 128 * tile.parts
        if not form.feed.is_bulk:
            assert all(lines * 8 % feeders == 0 for lines in (DEPTH, tile.bm, tile.bn))


@pytest.mark.parametrize("tile", [*SKINNY, *(t for table in WARP_TILES.values() for t in table)], ids=str)
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
    m=st.integers(1, 20000),
    n=st.integers(1, 20000),
    k=st.integers(1, 20000),
    batch=st.integers(1, 64),
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


@given(
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 70000),
    batch=st.integers(1, 8),
    units=st.integers(1, 200),
)
def test_slices_fill_one_round_and_are_never_empty(m, n, k, batch, units):
    extents = Extents(m, n, k, batch)
    cut = choose_cut(WARP_GROUP_TILES["one"], extents, units, DEPTH, WARP_GROUP_COSTS)
    assert cut.slices in slice_counts(cut.tile, extents, units, DEPTH)
    steps = -(-k // DEPTH)
    for tile in WARP_GROUP_TILES["one"]:
        for slices in slice_counts(tile, extents, units, DEPTH):
            each = -(-steps // slices)
            assert (slices - 1) * each < steps <= slices * each
            assert slices == 1 or (slices * extents.tiles(tile) <= units and each >= LEAST_SLICE_STEPS)
            chosen = estimate(cut.tile, extents, units, DEPTH, WARP_GROUP_COSTS, cut.slices)
            assert chosen <= estimate(tile, extents, units, DEPTH, WARP_GROUP_COSTS, slices)


@given(steps=st.integers(1, 5000), wanted=st.integers(1, 300))
def test_as_many_slices_as_come_out_whole(steps, wanted):
    slices = whole_slices(steps, wanted)
    assert 1 <= slices <= wanted and (slices - 1) * -(-steps // slices) < steps


@pytest.mark.parametrize(
    ("shape", "tile", "slices"),
    [
        ((1024, 1024, 1024), (128, 64), 1),
        ((1152, 1152, 1152), (64, 192), 1),
        ((1536, 1536, 1536), (192, 96), 1),
        ((2048, 2048, 2048), (128, 256), 1),
        ((2560, 2560, 2560), (128, 256), 1),
        ((3072, 3072, 3072), (192, 192), 1),
        ((5120, 5120, 5120), (192, 192), 1),
        ((6144, 6144, 6144), (128, 256), 1),
        ((128, 4096, 4096), (64, 64), 1),
        ((512, 512, 8192), (128, 64), 4),
    ],
)
def test_tiles_that_were_fastest_on_an_h200_are_chosen(shape, tile, slices):
    problem = Problem.of(*shape, Elem.F16)
    cut = accelerated.cut_for(problem, HOPPER, VARIANTS["specialized_tma"], warp_groups=True)
    assert ((cut.tile.bm, cut.tile.bn), cut.slices) == (tile, slices)


FASTEST = [  # measured on an H200, microseconds
    ("mma", "specialized_tma", (1024, 1024, 1024), Elem.F16, "full", 10.1),
    ("cmma", "simple_cyclic", (1024, 1024, 1024), Elem.F16, "full", 17.0),
    ("mma", "specialized_tma", (2048, 2048, 2048), Elem.BF16, "full", 27.9),
    ("mma", "specialized_tma", (1024, 1024, 1024), Elem.F32, "tf32", 15.0),
    ("mma", "specialized_tma", (768, 768, 768), Elem.F32, "full", 36.2),
    ("mma", "specialized_tma", (2048, 2048, 2048), Elem.F32, "full", 166.8),
]


@pytest.mark.parametrize(("unit", "variant", "shape", "elem", "precision", "took_us"), FASTEST)
def test_what_a_product_is_expected_to_take_on_hopper(unit, variant, shape, elem, precision, took_us):
    problem = Problem.of(*shape, elem, precision=precision)
    plan = accelerated.plan(problem, HOPPER, unit=unit, variant=variant)
    assert plan.expected_s == pytest.approx(took_us * 1e-6, rel=0.2)


def test_plain_f32_is_expected_to_take_what_it_took():
    for size, shape, took_us in (("min", (512,) * 3, 21.0), ("max", (1024,) * 3, 99.0)):
        plan = simt.plan(Problem.of(*shape), HOPPER, size=size, stages=2)
        assert plan.expected_s == pytest.approx(took_us * 1e-6, rel=0.2)
    for shape, took_us in (((512,) * 3, 18.3), ((128, 128, 8192), 18.6), ((64, 64, 65536), 26.7)):
        assert split_k.plan(Problem.of(*shape), HOPPER).expected_s == pytest.approx(took_us * 1e-6, rel=0.2)
    without_slices = split_k.plan(Problem.of(1024, 2048, 64), HOPPER)
    assert (
        without_slices.expected_s
        > simt.plan(Problem.of(1024, 2048, 64), HOPPER, size="min", stages=2).expected_s
    )


def test_elsewhere_nothing_is_expected_and_copies_take_their_time():
    f16 = Problem.of(512, 512, 512, Elem.F16)
    assert accelerated.plan(f16, AMPERE, unit="cmma", variant="simple_cyclic").expected_s is None
    rhs = replace(Problem.of(512, 512, 512, Elem.F16).rhs, offset_bytes=2)
    copied = accelerated.plan(replace(f16, rhs=rhs), HOPPER, unit="mma", variant="specialized_tma")
    direct = accelerated.plan(f16, HOPPER, unit="mma", variant="specialized_tma")
    assert copied.expected_s == pytest.approx(direct.expected_s + REPACK_S)


def test_odd_lines_take_larger_tiles():
    extents = Extents(3000, 3000, 3000, 1)
    even = estimate(Tile(128, 128, 2, 1), extents, 132, DEPTH, WARP_GROUP_COSTS)
    odd = Extents(3000, 3000, 3000, 1, lhs_odd=True, rhs_odd=True)
    assert estimate(Tile(128, 128, 2, 1), odd, 132, DEPTH, WARP_GROUP_COSTS) > 1.3 * even
    assert choose(WARP_GROUP_TILES["one"], odd, 132, DEPTH, WARP_GROUP_COSTS).bm == 192


def test_sets_of_rows_are_the_same_product():
    m, n, k, sets = 24, 10, 12, 8
    rows = Operand((m, k), (20, 1), Elem.F16, offset_bytes=6)
    problem = Problem(rows, Operand.contiguous((k, n), Elem.F16), Operand((m, n), (16, 1), Elem.F16))
    split = accelerated.problem_in_row_sets(problem, sets)
    memory = np.arange(20 * m + 40)
    for whole, parts in ((problem.lhs, split.lhs), (problem.out, split.out)):
        want, got = at_strides(memory, whole), at_strides(memory, parts)
        assert (got.transpose(1, 0, 2).reshape(want.shape) == want).all()
    assert (at_strides(memory, split.rhs) == at_strides(memory, problem.rhs)).all()
    assert split.batch_walk().extents == (1, sets)


@pytest.mark.parametrize(
    ("m", "n", "k", "exact"),
    [
        (256, 256, 64, True),
        (256, 256, 63, False),
        (255, 4096, 64, False),
        (4096, 16, 512, False),
        (16, 16, 1024, True),
        (16, 16, 1023, False),
        (256, 256, 65536, True),
        (256, 256, 65537, False),
    ],
)
def test_split_operands_are_offered_where_no_plain_f32_is_more_exact(m, n, k, exact):
    assert tf32.is_exact(m, n, k) is exact


@pytest.mark.parametrize(
    ("m", "n", "k", "small_first"),
    [
        (256, 256, 2048, True),
        (4096, 4096, 4096, False),
        (4096, 4096, 512, True),
        (4096, 4096, 16384, True),
        (1024, 1024, 4096, True),
    ],
)
def test_split_products_are_added_in_turn_only_where_f32_is_far_less_exact(m, n, k, small_first):
    problem = Problem.of(m, n, k)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma")
    assert option(main_call(plan), "SMALL_FIRST") == small_first


def early_starts(plan: LaunchPlan) -> tuple[int, ...]:
    """How far before k = 0 the products of the batch start, as the kernel reckons it; nothing where at 0."""
    call = main_call(plan)
    if not option(call, "EARLY_K"):
        return ()
    start, step = (int(call.args[i]) for i in (1, 2))
    return tuple((start + i * step) % DEPTH for i in range(int(call.args[-2])))


@pytest.mark.parametrize(("m", "pitch", "offset"), [(1000, 1000, 0), (64, 1032, 24), (136, 1080, 8)])
def test_rows_at_odd_multiples_of_16_bytes_are_taken_in_sets(m, pitch, offset):
    k = 1000
    lhs = Operand((m, k), (pitch, 1), Elem.F16, 2 * offset)
    out = Operand.contiguous((m, 1000), Elem.F16)
    problem = Problem(lhs, Operand.contiguous((k, 1000), Elem.F16), out)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma", row_sets=True)
    starts = early_starts(plan)
    assert len(starts) == 8
    assert all((2 * (offset + i * pitch - early)) % 128 == 0 for i, early in enumerate(starts))


def test_rows_stay_together_where_sets_gain_nothing():
    def starts(m, n, k, **options):
        problem = Problem.of(m, n, k, Elem.F16, **options)
        return early_starts(accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma"))

    assert starts(1000, 1000, 1000)
    assert not starts(1024, 1024, 1024)  # lines start at multiples of 128 bytes
    assert not starts(1001, 1000, 1000)  # no equal sets
    assert not starts(1000, 1000, 1000, batch=3)
    assert not starts(1000, 1000, 1000, lhs_transposed=True)
    assert not starts(8, 1000, 1000)  # tiles of a row each


def test_no_room_for_two_stages_is_unsupported():
    with pytest.raises(UnsupportedError, match="two stages"):
        stages_that_fit(32768, 4, 49152)
    assert stages_that_fit(8192, 8, 49152) == 5


# ---- plans


@pytest.mark.parametrize(("unit", "variant"), FORMS)
@pytest.mark.parametrize("profile", [HOPPER, AMPERE], ids=["hopper", "ampere"])
def test_a_plan_covers_the_result_within_the_device(unit, variant, profile):
    for m, n, k in [(1, 1, 1), (16, 8192, 8192), (1000, 777, 33), (512, 512, 8192), (4096, 4096, 4096)]:
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
        tiles *= option(call, "SLICES")
        assert groups == (min(tiles, profile.compute_units) if VARIANTS[variant].feed.producers else tiles)
        assert stages * (bm + -(-bn // 64) * 64) * DEPTH * 2 <= (
            HOPPER_SHARED_BYTES if profile is HOPPER else 49152
        )
        assert (call.rewrite is not None) == (unit == "mma" and profile is HOPPER)


def test_sliced_products_have_room_for_their_sums_and_a_launch_that_adds_them():
    problem = Problem.of(300, 520, 4000, Elem.F16, batch=2)
    tile = Tile(128, 192, 2, 1)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma", tile=tile, slices=3)
    assert [call.name for call in plan.calls] == ["matmul", "add_slices"]
    multiply, add = plan.calls
    assert (multiply.source, multiply.options, multiply.rewrite) == (add.source, add.options, add.rewrite)
    tiles = 3 * 3 * 2
    assert plan.scratch_bytes == (tiles * 3 * 128 * 192 * 4,)
    assert Slot.OUT not in multiply.args and Slot.OUT in add.args
    assert add.global_size[0] == tiles * 6 * 256, "a work-group to 32 of 192 columns"


@pytest.mark.parametrize("precision", ["tf32", "full"])
def test_sliced_f32_products_are_added_up(precision):
    problem = Problem.of(512, 512, 8192, precision=precision)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma")
    names = [call.name for call in plan.calls]
    assert names == (
        ["matmul", "add_parts"] if precision == "tf32" else ["prepare", "matmul", "add_parts", "repair"]
    )
    multiply = main_call(plan)
    slices = option(multiply, "SLICES")
    assert slices > 1 and slices * 512 * 512 * 4 in plan.scratch_bytes
    assert Slot.OUT not in multiply.args


def test_split_k_runs_on_the_plain_f32_kernels():
    plan = split_k.plan(Problem.of(64, 64, 65536), HOPPER)
    assert [call.name for call in plan.calls] == ["matmul", "add_parts"]
    assert "nvidia" in plan.calls[0].source or "BULK" in plan.calls[0].source
    awkward = split_k.plan(Problem.of(65, 67, 8191), HOPPER, slices=5)
    assert [call.name for call in awkward.calls] == ["matmul", "add_parts"]
    assert option(awkward.calls[0], "SLICES") == 5
    assert awkward.scratch_bytes == (5 * 65 * 67 * 4,)
    few = split_k.plan(Problem.of(8, 8, 6), HOPPER)
    assert [call.name for call in few.calls] == ["unit", "reduce_parts"], "a step is 32 of k"


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
        (Problem.of(64, 64, 1023), "mma", "specialized_tma", "1024 <= k < 65537"),
        (Problem.of(255, 300, 1000), "mma", "specialized_tma", "at least 256"),
        (Problem.of(300, 300, 63), "mma", "specialized_tma", "from k = 64"),
        (Problem.of(64, 64, 65537), "mma", "specialized_tma", "1024 <= k < 65537"),
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
    problem = Problem.of(300, 260, 1001, batch=3)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma", tile=Tile(128, 128, 1, 2))
    assert [call.name for call in plan.calls] == ["pack", "prepare", "matmul", "repair"]
    pitch = 1024
    chunks = -(-1001 // tf32.RHS_CHUNK)
    assert plan.scratch_bytes == (3 * 300 * pitch * 4, 3 * 300 * pitch * 4, 3 * 300 * 8, 3 * chunks * 260 * 8)


# ---- vectors


@st.composite
def wide_vectors(draw):
    """A product of a vector and a matrix whose lines start at 16 bytes."""
    elem = draw(st.sampled_from([Elem.F16, Elem.BF16, Elem.F32]))
    piece = 16 // elem.size_bytes
    n, k, batch = draw(st.integers(1, 3000)), draw(st.integers(1, 40000)), draw(st.integers(1, 4))
    return elem, n * piece, k * piece, batch


@given(wide_vectors())
def test_strips_cover_the_matrix_once_and_fill_the_device(drawn):
    elem, n, k, batch = drawn
    problem = Problem.of(1, n, k, elem, batch=batch)
    plan = gemv.plan(problem, HOPPER, axis="perpendicular")
    call = plan.calls[0]
    if n * k * elem.size_bytes < gemv_wide.CUT_BYTES:
        assert "left_at" not in call.source
        return
    lanes, round_ = option(call, "LANES"), option(call, "PLANES") * option(call, "UNROLL")
    assert call.local_size[0] == lanes * option(call, "PLANES")
    strips, products, chunks = call.global_size[0] // call.local_size[0], *call.global_size[1:]
    width = lanes * 16 // elem.size_bytes
    assert (strips - 1) * width < n <= strips * width and products == batch
    # every chunk has a round of its own, and all groups run at once where there are several to a strip
    assert (chunks - 1) * round_ < k
    assert chunks == 1 or strips * batch * chunks <= 2 * HOPPER.compute_units
    assert chunks >= min(HOPPER.compute_units // (strips * batch), -(-k // round_)) // 2
    counters = (Counter(strips * batch * chunks * width), Counter(strips * batch))
    assert call.args[-2:] == (counters if chunks > 1 else (None, None))


@given(wide_vectors(), st.sampled_from([1, 2]))
def test_a_staged_chunk_is_in_local_memory_as_a_whole(drawn, stages):
    elem, n, k, batch = drawn
    problem = Problem.of(1, n, k, elem, batch=batch)
    call = gemv.plan(problem, HOPPER, axis="perpendicular", stages=stages).calls[0]
    if call.name == "gemv":
        chunks, round_ = call.global_size[2], option(call, "PLANES") * option(call, "UNROLL")
        assert option(call, "STAGED") == 512 * stages >= -(-k // (round_ * chunks)) * round_
        assert call.detour > gemv.plan(problem, HOPPER, axis="perpendicular").calls[0].detour


@given(wide_vectors(), st.integers(5, 10))
def test_rows_are_shared_by_whole_planes(drawn, log2_most):
    elem, rows, k, _ = drawn
    profile = replace(HOPPER, max_work_group=1 << log2_most)
    call = gemv.plan(Problem.of(rows, 1, k, elem), profile, axis="parallel").calls[0]
    lanes, planes, each = (option(call, name) for name in ("LANES", "PLANES", "EACH"))
    assert lanes & (lanes - 1) == 0 and call.local_size[0] == lanes * planes == min(256, 1 << log2_most)
    groups = call.global_size[0] // call.local_size[0]
    assert (groups - 1) * planes * each < rows <= groups * planes * each
    # loads in flight lie in the row, but for the last ones
    assert lanes == 1 or lanes * option(call, "UNROLL") * 16 // elem.size_bytes < 2 * k


def test_vectors_use_nvidias_instructions_only_where_they_exist():
    for profile in (replace(HOPPER, capability=None, kind="gpu"), replace(HOPPER, capability=(7, 5))):
        for problem in (Problem.of(1, 8192, 8192), Problem.of(8192, 1, 8192)):
            for axis in ("parallel", "perpendicular"):
                call = gemv.plan(problem, profile, axis=axis).calls[0]
                assert "left_at" not in call.source
                assert call.name != "gemv" or option(call, "STREAMED") == 0
    for problem in (Problem.of(1, 8191, 64, Elem.F16), Problem.of(1, 64, 64, Elem.F64)):
        plan = gemv.plan(problem, HOPPER, axis="perpendicular")
        assert not any(isinstance(arg, Counter) for arg in plan.calls[0].args)


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
    assert (lhs.pitch, rhs.pitch) == (144, 80)
    assert plan.scratch_bytes == (65 * 144 * 2, 131 * 80 * 2)


def test_repacked_lines_start_at_cache_lines_where_they_are_long():
    lhs, rhs, _ = lines(Problem.of(65, 1023, 511, Elem.F16))
    assert (lhs.pitch, rhs.pitch) == (512, 1024)
    assert not lhs.odd and not rhs.odd


def test_lines_at_odd_multiples_of_16_bytes_are_odd():
    lhs, rhs, _ = lines(Problem.of(64, 1008, 1000, Elem.F16))
    assert lhs.odd and not rhs.odd
    shifted = Operand((64, 1024), (1024, 1), Elem.F16, offset_bytes=16)
    lhs, _, _ = lines(
        Problem(shifted, Operand.contiguous((1024, 64), Elem.F16), Operand.contiguous((64, 64), Elem.F16))
    )
    assert lhs.odd


def test_a_demanded_order_turns_an_operand():
    problem = Problem.of(64, 64, 96, lhs_transposed=True)
    lhs, _, plan = lines(problem, lhs_along_k=True, rhs_along_k=False)
    assert lhs.k_contiguous and lhs.pitch == 96
    assert "-DA_TURNED=1" in plan.calls[0].options


def test_a_shared_operand_is_repacked_once():
    m, n, k = 10, 24, 33
    problem = Problem(
        Operand((5, m, k), (m * k, k, 1), Elem.F32),
        Operand((5, k, n), (0, n, 1), Elem.F32, 4),
        Operand((5, m, n), (m * n, n, 1), Elem.F32),
    )
    lhs, rhs, plan = lines(problem)
    assert plan.scratch_bytes == (5 * m * 40 * 4, k * n * 4)
    assert (lhs.inner, rhs.inner) == (m * 40, 0)
    assert [int(f) for f in rhs.batch_factors] == [0, 0]


@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    batch=st.integers(1, 3),
    lhs_t=st.booleans(),
    rhs_t=st.booleans(),
    elem=st.sampled_from([Elem.F16, Elem.F32]),
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
    columns = collections.Counter()
    for _, _, lane, column, _ in tf32_lanes(n_steps):
        if lane % 4 == 0:
            columns.update(range(column, column + each))
    assert columns == collections.Counter(range(128 * n_steps))


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


def test_two_rows_exchanged_give_each_eight_lanes_one_whole_line():
    """The exchange of the wide 16-bit store, on (row, first column) of what each lane holds."""
    lanes = range(8)
    left = [(lane // 4, 8 * (lane % 4)) for lane in lanes]
    right = [(row, 32 + column) for row, column in left]
    odd = [lane // 4 for lane in lanes]
    give = [left[lane] if odd[lane] else right[lane] for lane in lanes]
    got = [give[lane ^ 4] for lane in lanes]
    first = [got[lane] if odd[lane] else left[lane] for lane in lanes]
    second = [right[lane] if odd[lane] else got[lane] for lane in lanes]
    assert first == [(0, 8 * lane) for lane in lanes]
    assert second == [(1, 8 * lane) for lane in lanes]


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
    assert {feed.name for feed in Feed} == {"BULK_PRODUCER", "COPY_PRODUCER", "BULK_INLINE", "COPY_INLINE"}
    text = kernel_text("nvidia_16bit.cl")
    assert all(f"FEED_{feed.name}" in text for feed in Feed)


@pytest.mark.parametrize("size", ["max", "min"])
def test_plain_f32_tiles_fit_their_work_items(size):
    for tile in simt.TILES[size]:
        assert tile.bm % tile.parts_m == 0 and tile.bn % (4 * tile.parts_n) == 0
        assert tile.parts_m % 8 == 0, "rows of a work-item differ by a multiple of 8, and are swizzled alike"
        assert tile.parts_n % 8 == 0 and tile.parts % 32 == 0 and tile.parts * tile.k_groups <= 1024
        assert tile.k_groups == 1 or tile.rows % 2 == 0, "each half keeps half of the rows"
        threads = tile.parts * tile.k_groups
        assert tile.bm * 32 % threads == 0 and tile.bn * 32 % threads == 0
        assert max(tile.bm, tile.bn) <= 256


@pytest.mark.parametrize(("size", "rows"), [(768, 96), (777, 96), (896, 112), (1000, 64), (1024, 64)])
def test_plain_f32_tiles_leave_few_multiprocessors_idle(size, rows):
    call = main_call(simt.plan(Problem.of(size, size, size), HOPPER, size="min", stages=2))
    assert option(call, "BM") == rows
