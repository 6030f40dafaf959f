"""What the benchmarks compute from measurements, on numbers written by hand; nothing is timed."""

from __future__ import annotations

import math

import pytest
from rooftune.device.profile import DeviceProfile
from rooftune.matmul.problem import Elem, Shape
from rooftune.tuning.decision import Decision, Evidence

from .brute_force import Cost, Everything
from .pairs import Ratio, half_spread, median_interval, ratio_of, repeats_for
from .peers import _source, cpu_variants
from .regret import CASES, Regret, Versus, _cause, _summary, chosen_cases
from .stability import Stability


def regret(value: float, cause: str = "", cost_s: float = 1.0) -> Regret:
    return Regret(
        "64 f32",
        "balanced",
        "a",
        "b",
        value,
        1.0,
        value,
        value,
        value,
        0.0,
        12,
        cause,
        2,
        0.0,
        cost_s,
        10.0,
        5.0,
    )


def decision(outcome: str, *, short_circuit: bool = False, samples: tuple[float, ...] = (1.0,)) -> Decision:
    winner = Evidence(0, "a", "", "measured", (1.0,))
    other = Evidence(1, "b", "", outcome, samples, reason="an earlier round had a winner")  # type: ignore[arg-type]
    return Decision({}, 0, (winner, other), short_circuit=short_circuit)


def test_at_least_forty_cases_each_once():
    assert len(CASES) >= 40 and len({case.label for case in CASES}) == len(CASES)


def test_the_summary_has_the_geometric_mean_the_worst_and_the_cost():
    summary = _summary([regret(1.0), regret(1.21, "noise", cost_s=3.0)])
    assert summary["geometric_mean"] == pytest.approx(math.sqrt(1.21), abs=1e-4)
    assert (summary["worst"], summary["above_1.02"]) == (1.21, 1)
    assert summary["causes"] == {"noise": 1}
    assert summary["cost_of_brute_force"] == summary["mean_cost_of_brute_force"] == pytest.approx(0.2)
    assert summary["cost_of_lean"] == summary["mean_cost_of_lean"] == pytest.approx(0.4)


def test_cases_are_chosen_by_their_whole_label_or_a_part_of_it():
    assert [case.label for case in chosen_cases("64,1000 f16")] == ["64 f32", "1000 f16"]
    assert [case.label for case in chosen_cases("batch 3")] == ["32 f32 batch 32"]
    assert chosen_cases("") == list(CASES)


def test_brute_force_pays_all_samples_of_the_hopeless_too():
    everything = Everything({0: Cost(1.0, 0.5, 0.1, samples=10), 1: Cost(2.0, 3.0, 3.0)})
    assert everything.brute_force_s == pytest.approx(1.0 + 0.5 + 1.0 + 2.0 + 3.0 + 30.0)
    assert everything.lean_s == pytest.approx(1.0 + 0.5 + 1.0 + 2.0 + 3.0)
    assert everything.compile_s([0]) == pytest.approx(1.0 + 0.4)


def test_those_within_five_percent_of_the_best_are_its_rivals():
    everything = Everything(medians={0: 1.04, 1: 1.0, 2: 1.06, 3: 1.01, 4: 1.02})
    assert (everything.best, everything.near_best) == (1, [1, 3, 4])


def test_the_interval_of_a_median_is_the_sign_tests():
    values = [float(i) for i in range(12)]
    assert median_interval(values) == (2.0, 9.0)  # 2·P(at most 2 of 12) = 0.039, at most 3: 0.146
    assert median_interval([1.0]) == (1.0, 1.0)
    ratio = ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 2.0])
    assert (ratio.median, ratio.pairs, ratio.first_s, ratio.second_s) == (2.0, 3, 4.0, 2.0)
    assert (ratio.inverse.median, ratio.inverse.high, ratio.inverse.first_s) == (0.5, 0.5, 2.0)


def test_each_two_candidates_are_compared_once(monkeypatch: pytest.MonkeyPatch):
    compared: list[tuple[int, int]] = []

    def made_up(self: Versus, first: int, second: int) -> Ratio:
        compared.append((first, second))
        ratio = 1.0 + 0.1 * (first - second)
        return Ratio(ratio, ratio, ratio, 0.0, 20, 1.0, 1.0)

    monkeypatch.setattr(Versus, "compared", made_up)
    versus = Versus(None, None, None, Everything(medians={0: 1.0, 1: 1.01, 2: 2.0}), 1.0)  # type: ignore[arg-type]
    assert versus.best(1) == (0, versus.ratio(1, 0))
    assert versus.best(0)[0] == 0 and versus.best(0)[1].median == 1.0
    assert versus.best(2)[0] == 0
    assert compared == [(1, 0), (2, 0), (2, 1), (2, 0)]


@pytest.mark.parametrize(("seconds", "repeats"), [(1e-6, 64), (3e-5, 4), (2e-3, 1)])
def test_short_kernels_are_summed_up_to_a_window(seconds: float, repeats: int):
    assert repeats_for(seconds) == repeats


def test_regret_is_put_down_to_its_cause():
    assert _cause(decision("measured"), 1, 1.01) == ""
    assert _cause(decision("measured"), 1, 1.2) == "noise"
    assert _cause(decision("dropped"), 1, 1.2) == "dropped"
    assert _cause(decision("measured", short_circuit=True), 1, 1.2) == "short circuit"
    assert "earlier round" in _cause(decision("skipped", samples=()), 1, 1.2)


def test_half_the_distance_of_the_quartiles():
    assert half_spread([1.0, 1.0, 1.1, 1.2, 1.2, 1.3, 1.4, 9.0]) == pytest.approx(0.1)


def test_winners_as_good_as_the_usual_one_agree_with_it():
    steady = Stability("64", False, {"a": 7, "b": 3}, {"a": 1.0, "b": 1.02}, 0, 0.1)
    assert steady.agree == 1.0
    assert Stability("64", False, {"a": 7, "b": 3}, {"a": 1.0, "b": 1.03}, 0, 0.1).agree == 0.7


class Device:
    profile = DeviceProfile("by hand", kind="cpu", compute_units=2, local_bytes=1 << 20, vector_width_f32=16)


def test_variants_of_the_cpu_kernel_are_programs_with_their_block_fixed():
    variants = cpu_variants(Device(), Shape.parse("512").problem(Elem.F32))  # type: ignore[arg-type]
    assert len({tuple(params.values()) for params, _ in variants}) == len(variants) > 20
    source = _source(variants[0][1])
    assert "#define KC" in source and "const args_t args = {0, 512, 1, " in source
    signature = source[source.index("cpu_gemm(") :].partition("{")[0]
    assert "args" not in signature and "parts" not in signature
