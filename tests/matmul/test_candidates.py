"""The table of candidates and the plans it gives: golden plans, and every rule stated a second time."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.profile import DeviceProfile
from rooftune.errors import UnsupportedError
from rooftune.matmul.candidates import CANDIDATES, _family_texts, plan_for
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Elem, Problem, Shape
from rooftune.tuning.level import Level

PLANS = json.loads((Path(__file__).parents[1] / "golden" / "plans.json").read_text())


def device(cpu: bool, *units: str, has_f64: bool = True) -> DeviceProfile:
    served = frozenset(product(units, [e.value for e in Elem], ["full", "tf32"]))
    return DeviceProfile("a device", kind="cpu" if cpu else "gpu", units=served, has_f64=has_f64)


@pytest.mark.parametrize(
    "case", PLANS, ids=lambda c: f"{c['shape']}-{'-'.join(k for k, v in c['device'].items() if v)}"
)
def test_golden_plans(case):
    units = [unit for unit in ("cmma", "mma", "tma") if case["device"][unit]]
    key = MatmulAutotuneKey.build(Shape.parse(case["shape"]).problem())
    rounds = plan_for(key, device(case["device"]["cpu"], *units))
    assert [[entry.index for entry in round_] for round_ in rounds] == case["rounds"]


NAMES = """
0 matmul_naive
1 matmul_double_vec_mat
2 matmul_simple_vec_mat
3 matmul_gemv_plane_parallel
4 matmul_gemv_unit_perpendicular
5 matmul_simple_unit_max_tile_size
6 matmul_double_unit_max_tile_size
7 matmul_simple_unit_min_tile_size
8 matmul_double_unit_min_tile_size
9 matmul_gemm_no_stage
10 matmul_cpu_gemm
11 matmul_cpu_gemm_packed
12 matmul_simple_cyclic_cmma
13 matmul_simple_cyclic_mma
14 matmul_simple_cyclic_cmma_multi_rows
15 matmul_simple_cyclic_mma_multi_rows
16 matmul_ordered_double_cmma_partition_k2_row_count4_rows_per_plane2
17 matmul_ordered_double_mma_partition_k2_row_count4_rows_per_plane2
18 matmul_ordered_double_cmma_partition_k2_row_count8_rows_per_plane2
19 matmul_ordered_double_mma_partition_k2_row_count8_rows_per_plane2
20 matmul_double_cyclic_cmma
21 matmul_double_cyclic_mma
22 matmul_double_cyclic_cmma_specialized
23 matmul_double_cyclic_mma_specialized
24 matmul_specialized_cyclic_cmma
25 matmul_specialized_cyclic_mma
26 matmul_simple_tma_cmma
27 matmul_simple_tma_mma
28 matmul_simple_tma_cmma_multi_rows
29 matmul_simple_tma_mma_multi_rows
30 matmul_specialized_tma_cmma
31 matmul_specialized_tma_mma
32 matmul_split_k
"""


def test_names_and_their_order_are_fixed():
    assert [f"{i} {c.name}" for i, c in enumerate(CANDIDATES)] == NAMES.split("\n")[1:-1]


def test_digests_differ_and_are_stable():
    digests = [candidate.digest for candidate in CANDIDATES]
    assert len(set(digests)) == len(CANDIDATES)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


def test_a_digest_covers_kernels_and_whatever_plans_them():
    texts = {name: "".join(_family_texts(name)) for name in ("naive", "unit", "mma")}
    assert "__kernel void naive" in texts["naive"]
    assert "__kernel void naive" not in texts["unit"]
    assert "def type_options" in texts["naive"]  # families/common.py
    assert "class PtxRewrite" in texts["mma"] and "class PtxRewrite" not in texts["naive"]


# -- the priorities, stated again in other words ---------------------------------------------------


def expected_entries(key: dict, is_cpu: bool, units: frozenset[str], has_f64: bool):
    """(index, group, group priority, priority) of every membership, rule by rule."""
    d, a = key["definition"], key["analysis"]
    m, n, k = d["m"], d["n"], d["k"]
    general = a["kind"] == "General"
    scale = a["scale_global"]
    deep = k >= 8 * max(m, n) or (min(m, n) <= 64 and k >= 1024)
    twice = 3 if general and scale != "Small" else 2
    acc = (3 if scale == "Large" else 2) if general else 1
    unit = 1 if general and scale != "Small" else 2
    little = general and d["elem_lhs"] == "f32" and m * n * k < 2**30
    unit = max(unit, acc) if deep or little else unit
    if d["lhs_stride_factor"] < 4 or d["rhs_stride_factor"] < 4:
        tma = -1
    else:
        tma = 3 if general and scale == "Large" and max(m, n, k) // min(m, n, k) < 4 else 2

    def is_transposed(side: str) -> bool:
        layout = d[f"matrix_layout_{side}"]
        return isinstance(layout, dict) and layout["MildlyPermuted"]["transposed"]

    gemv = -1
    if a["kind"] == "MatVec":
        gemv = 2 if is_transposed("lhs") else 3
    if a["kind"] == "VecMat":
        gemv = 3 if is_transposed("rhs") else 2
    if a["kind"] == "InnerProduct" and k >= 2**14:
        gemv = 2
    if is_cpu and (gemv > 0 or a["kind"] == "InnerProduct"):
        gemv = 3
    cpu = 3 if is_cpu else -1
    no_type = d["elem_lhs"] == "f64" and not has_f64

    def rank(index: int, priority: int) -> int:
        needs = set()
        if 12 <= index <= 31:
            needs.add("mma" if index % 2 else "cmma")
        if index >= 26 and index != 32:
            needs.add("tma")
        lacks = no_type or not needs <= units
        return min(priority, 0) if lacks else priority

    inner = 3 if a["kind"] == "InnerProduct" else 2 if scale == "Small" else 0
    split = 3 if deep or (little and k >= 256) else 1
    for index, own in ((0, inner), (5, 3), (6, twice), (7, 3), (8, twice), (9, 3), (32, split)):
        yield index, "unit", unit, rank(index, own)
    for index, own in ((1, twice), (2, 3), (3, 3), (4, 3)):
        yield index, "gemv", gemv, rank(index, own)
    for index, own in ((10, 3), (11, 3), (32, 3 if deep else -1)):
        yield index, "cpu", cpu, rank(index, own)
    for index in range(12, 32):
        own = 3 if index in (12, 13, 14, 15, 26, 27, 28, 29) else twice
        yield index, "accelerated", acc, rank(index, own)
        if index >= 26:
            yield index, "tma", tma, rank(index, own)


def test_on_a_cpu_vectors_are_first_choice_whichever_way_the_matrix_lies():
    for lhs_t, rhs_t, m, n in ((False, False, 1, 4096), (True, False, 4096, 1), (False, False, 1, 1)):
        problem = Problem.of(m, n, 4096, Elem.F32, lhs_transposed=lhs_t, rhs_transposed=rhs_t)
        first = plan_for(MatmulAutotuneKey.build(problem, Level.BALANCED), device(True))[0]
        assert {2, 3, 4, 10, 11} <= {entry.index for entry in first}


EXTENTS = st.one_of(st.integers(1, 80), st.sampled_from([511, 512, 513, 1000, 1024, 1025, 2048, 4096, 70000]))


@given(
    EXTENTS,
    EXTENTS,
    EXTENTS,
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(Elem)),
    st.booleans(),
    st.frozensets(st.sampled_from(["cmma", "mma", "tma"])),
    st.booleans(),
    st.sampled_from(list(Level)),
)
def test_a_plan_is_what_the_priorities_say(m, n, k, lhs_t, rhs_t, elem, is_cpu, units, has_f64, level):
    problem = Problem.of(m, n, k, elem, lhs_transposed=lhs_t, rhs_transposed=rhs_t)
    key = MatmulAutotuneKey.build(problem, level)
    rounds = plan_for(key, device(is_cpu, *units, has_f64=has_f64))
    left = [e for e in expected_entries(key.to_json(), is_cpu, units, has_f64) if min(e[2:]) >= 0]
    expected, seen = [], set()
    for tier in sorted({e[2:] for e in left}, reverse=True):
        fresh = sorted({e[0] for e in left if e[2:] == tier} - seen)
        seen.update(fresh)
        if fresh:
            expected.append(fresh)
    assert [[entry.index for entry in round_] for round_ in rounds] == expected
    possible = {(e[0], e[1], e[2], e[3]) for e in left}
    for entry in (entry for round_ in rounds for entry in round_):
        assert (entry.index, entry.group, entry.group_priority, entry.priority) in possible
        assert entry.name == CANDIDATES[entry.index].name
        assert entry.why


@pytest.mark.parametrize("candidate", CANDIDATES[12:32], ids=lambda c: c.name)
def test_without_its_hardware_a_candidate_says_so_before_any_planning(candidate):
    with pytest.raises(UnsupportedError, match="the device has no"):
        candidate.plan(Problem.of(64, 64, 64), device(cpu=True))


def test_f64_is_refused_where_the_device_has_none():
    with pytest.raises(UnsupportedError, match="f64"):
        CANDIDATES[0].plan(Problem.of(8, 8, 8, Elem.F64), device(cpu=False, has_f64=False))
