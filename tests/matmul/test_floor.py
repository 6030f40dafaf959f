"""What a candidate certainly needs, from its launches alone."""

from math import nan

import pytest
from rooftune.matmul.floor import floor_s
from rooftune.matmul.launch import KernelCall, LaunchPlan
from rooftune.tuning.bounds import CLOCK_NOISE, Bound, Bounds

MARGIN = 1 - CLOCK_NOISE
CALL = KernelCall("", "k", (), (1,), None, ())


def bounds(compute_s: float = 1e-3, nbytes: int = 1000, bytes_per_s: float = 1e6) -> Bounds:
    return Bounds((Bound("compute", 1000, 1000 / compute_s), Bound("memory", nbytes, bytes_per_s)), 5e-6)


def test_one_kernel_needs_what_the_product_needs() -> None:
    assert floor_s(LaunchPlan((CALL,)), bounds()) == pytest.approx(1e-3 * MARGIN)
    assert floor_s(LaunchPlan((CALL,)), bounds(compute_s=1e-6)) == pytest.approx(1e-3 * MARGIN)


def test_further_kernels_add_an_empty_window_each() -> None:
    assert floor_s(LaunchPlan((CALL,) * 3), bounds()) == pytest.approx((1e-3 + 1e-5) * MARGIN)


def test_scratch_passed_between_kernels_adds_one_transfer() -> None:
    assert floor_s(LaunchPlan((CALL,) * 2, (600, 400)), bounds()) == pytest.approx(2e-3 * MARGIN)


def test_scratch_of_a_single_kernel_may_stay_in_a_cache() -> None:
    assert floor_s(LaunchPlan((CALL,), (1000,)), bounds()) == pytest.approx(1e-3 * MARGIN)


def test_small_scratch_does_not_count() -> None:
    assert floor_s(LaunchPlan((CALL,) * 2, (499,)), bounds()) == pytest.approx((1e-3 + 5e-6) * MARGIN)


def test_few_work_groups_reach_a_part_of_the_peak_only() -> None:
    groups = [KernelCall("", "k", (), (64 * count, 2), (64, 2), ()) for count in (1, 4, 66)]
    floors = [floor_s(LaunchPlan((call,)), bounds(compute_s=2e-3), compute_units=132) for call in groups]
    assert floors == pytest.approx([2e-3 * 66 * MARGIN, 2e-3 * 66 / 4 * MARGIN, 2e-3 * MARGIN])


def test_the_widest_kernel_counts_and_one_whose_groups_the_driver_chooses_is_wide() -> None:
    narrow, wide = (KernelCall("", "k", (), (size,), (64,), ()) for size in (64, 64 * 200))
    chosen = KernelCall("", "k", (), (12800,), None, ())
    for calls in ((narrow, wide), (wide, narrow)):
        spent_s = 5e-6
        assert floor_s(LaunchPlan(calls), bounds(), 132) == pytest.approx((1e-3 + spent_s) * MARGIN)
    assert floor_s(LaunchPlan((chosen,)), bounds(), 132) == pytest.approx(1e-3 * MARGIN)


def test_without_peaks_there_is_no_floor() -> None:
    assert floor_s(LaunchPlan((CALL,)), None) is None
    assert floor_s(LaunchPlan((CALL,)), Bounds((Bound("compute", 1, nan),))) is None
