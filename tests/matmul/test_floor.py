"""What a candidate certainly needs, from its launches alone."""

from dataclasses import replace
from math import nan

import pytest
from rooftune.device.profile import DeviceProfile
from rooftune.matmul.cost import compute_ops
from rooftune.matmul.floor import EMULATED, PLAIN, UNIT_BOOST, floor_s, foresight
from rooftune.matmul.launch import KernelCall, LaunchPlan, Scratch, Slot
from rooftune.matmul.problem import Elem, Problem
from rooftune.tuning.bounds import CLOCK_NOISE, Bound, Bounds
from rooftune.tuning.foresight import Foresight

MARGIN = 1 - CLOCK_NOISE
CALL = KernelCall("", "k", (), (1,), None, ())
ONE = DeviceProfile("one unit", kind="gpu", compute_units=1)
GPU = DeviceProfile("many", kind="gpu", compute_units=132)


def bounds(compute_s: float = 1e-3, nbytes: int = 1000, bytes_per_s: float = 1e6) -> Bounds:
    return Bounds((Bound("compute", 1000, 1000 / compute_s), Bound("memory", nbytes, bytes_per_s)), 5e-6)


def test_one_kernel_needs_what_the_product_needs() -> None:
    assert floor_s(LaunchPlan((CALL,)), bounds(), ONE) == pytest.approx(1e-3 * MARGIN)
    assert floor_s(LaunchPlan((CALL,)), bounds(compute_s=1e-6), ONE) == pytest.approx(1e-3 * MARGIN)


def test_further_kernels_add_an_empty_window_each() -> None:
    assert floor_s(LaunchPlan((CALL,) * 3), bounds(), ONE) == pytest.approx((1e-3 + 1e-5) * MARGIN)


def test_scratch_passed_between_kernels_adds_one_transfer() -> None:
    assert floor_s(LaunchPlan((CALL,) * 2, (600, 400)), bounds(), ONE) == pytest.approx(2e-3 * MARGIN)


def test_scratch_of_a_single_kernel_may_stay_in_a_cache() -> None:
    assert floor_s(LaunchPlan((CALL,), (1000,)), bounds(), ONE) == pytest.approx(1e-3 * MARGIN)


def test_small_scratch_does_not_count() -> None:
    assert floor_s(LaunchPlan((CALL,) * 2, (499,)), bounds(), ONE) == pytest.approx((1e-3 + 5e-6) * MARGIN)


def test_few_work_groups_reach_a_part_of_the_peak_only() -> None:
    groups = [KernelCall("", "k", (), (64 * count, 2), (64, 2), ()) for count in (1, 4, 100)]
    floors = [floor_s(LaunchPlan((call,)), bounds(compute_s=2e-3), GPU) for call in groups]
    assert floors == pytest.approx([2e-3 * 132 / n / UNIT_BOOST * MARGIN for n in (1, 4)] + [2e-3 * MARGIN])


def test_the_widest_kernel_counts_and_one_whose_groups_the_driver_chooses_is_wide() -> None:
    narrow, wide = (KernelCall("", "k", (), (size,), (64,), ()) for size in (64, 64 * 200))
    chosen = KernelCall("", "k", (), (12800,), None, ())
    for calls in ((narrow, wide), (wide, narrow)):
        spent_s = 5e-6
        assert floor_s(LaunchPlan(calls), bounds(), GPU) == pytest.approx((1e-3 + spent_s) * MARGIN)
    assert floor_s(LaunchPlan((chosen,)), bounds(), GPU) == pytest.approx(1e-3 * MARGIN)


def test_without_peaks_there_is_no_floor() -> None:
    assert floor_s(LaunchPlan((CALL,)), None, ONE) is None
    assert floor_s(LaunchPlan((CALL,)), Bounds((Bound("compute", 1, nan),)), ONE) is None


def test_a_group_makes_all_of_its_tile_and_one_unit_all_of_the_group() -> None:
    tile = KernelCall("", "k", (), (64 * 133,), (64,), (), group_ops=1000.0)
    peak_per_s, units = 1000 / 1e-3, GPU.compute_units
    alone_s = 2 * 1000 * units / (peak_per_s * UNIT_BOOST)  # 133 groups: one unit has two of them
    assert floor_s(LaunchPlan((tile,)), bounds(), GPU) == pytest.approx(alone_s * MARGIN)


def test_plain_kernels_are_held_against_the_plain_peak() -> None:
    plain = KernelCall("", "k", (), (64 * 132,), (64,), (), group_ops=7.0)
    known = replace(bounds(), plain_ops_per_s=1000 / 3e-3)
    assert floor_s(LaunchPlan((plain,)), known, GPU) == pytest.approx(3e-3 * MARGIN)
    matrix = replace(plain, matrix=True)
    assert floor_s(LaunchPlan((matrix,)), known, GPU) == pytest.approx(1e-3 * MARGIN)


def test_what_is_foreseen_of_padding_detours_and_emulated_groups() -> None:
    problem = Problem.of(10, 6, 6, Elem.F32)
    ops = compute_ops(problem)
    even = KernelCall("text", "k", (), (64 * 132,), (64,), (), group_ops=ops / 132)
    program = ("text", ())
    assert foresight(LaunchPlan((even,)), problem, GPU, "f") == Foresight(1.0, ("f", "k"), program)
    wide = replace(even, group_ops=2.5 * ops / 132)
    assert foresight(LaunchPlan((wide,)), problem, GPU).factor == pytest.approx(2.5)
    assert foresight(LaunchPlan((replace(even, detour=4.0),)), problem, GPU).factor == 4.0
    cpu = replace(GPU, kind="cpu")
    assert foresight(LaunchPlan((even,)), problem, cpu) == Foresight(EMULATED, "emulated", program)
    assert foresight(LaunchPlan((replace(even, local_size=(1,)),)), problem, cpu).factor == pytest.approx(64)


def test_kernels_are_judged_by_the_launch_that_multiplies_not_by_one_that_adds_up_after_it() -> None:
    cpu = DeviceProfile("two cores", kind="cpu", compute_units=2)
    multiply = KernelCall("", "cpu_gemm", (), (2,), (1,), (Slot.LHS, Slot.RHS, Scratch(0)))
    add = KernelCall("", "reduce_parts", (), (4096, 64), (64, 1), (Scratch(0), Slot.OUT))
    problem = Problem.of(64, 64, 65536, Elem.F32)
    alone = foresight(LaunchPlan((multiply,)), problem, cpu, "cpu")
    assert foresight(LaunchPlan((multiply, add)), problem, cpu, "cpu") == alone
    assert alone.kin == ("cpu", "cpu_gemm")


def test_a_formula_for_the_whole_plan_is_passed_on() -> None:
    problem = Problem.of(10, 6, 6, Elem.F32)
    assert foresight(LaunchPlan((CALL,), (), 2e-5), problem, GPU).expected_s == 2e-5
    assert foresight(LaunchPlan((CALL,)), problem, GPU).expected_s is None


def test_plain_kernels_come_after_matrix_instructions_where_those_serve_as_they_are() -> None:
    units = frozenset({("mma", "f16", "full"), ("mma", "f32", "full")})
    device = replace(GPU, units=units)
    call = KernelCall("text", "k", (), (64 * 132,), (64,), ())
    for elem, matrix, factor in ((Elem.F16, False, PLAIN), (Elem.F16, True, 1.0), (Elem.F32, False, 1.0)):
        plan = LaunchPlan((replace(call, matrix=matrix),))
        assert foresight(plan, Problem.of(8, 8, 8, elem), device).factor == factor
