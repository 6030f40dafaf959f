"""Every candidate that needs no matrix unit, on a real device, against numpy in float64."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.errors import UnsupportedError
from rooftune.matmul.executor import prepare
from rooftune.matmul.families import cpu, gemv, gemv_streams, naive, no_stage, split_k, unit
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Elem, Operand, Problem

ml_dtypes = pytest.importorskip("ml_dtypes")

NUMPY = {Elem.F16: np.float16, Elem.BF16: ml_dtypes.bfloat16, Elem.F32: np.float32, Elem.F64: np.float64}
# Relative to the sum of |lhs|·|rhs|: storage rounding for the short types, summation for the others.
TOLERANCE = {Elem.F16: 6e-4, Elem.BF16: 4.5e-3, Elem.F32: 2e-6, Elem.F64: 4e-15}
LAYOUTS = ("contiguous", "transposed", "stepped", "reversed", "offset", "broadcast")

PLANS = {
    "naive": (naive.plan, {}),
    "double_vec_mat": (gemv.plan, {"axis": "perpendicular", "stages": 2}),
    "simple_vec_mat": (gemv.plan, {"axis": "perpendicular", "stages": 1}),
    "gemv_plane_parallel": (gemv.plan, {"axis": "parallel"}),
    "gemv_unit_perpendicular": (gemv.plan, {"axis": "perpendicular"}),
    "simple_unit_max": (unit.plan, {"size": "max", "stages": 1}),
    "double_unit_max": (unit.plan, {"size": "max", "stages": 2}),
    "simple_unit_min": (unit.plan, {"size": "min", "stages": 1}),
    "double_unit_min": (unit.plan, {"size": "min", "stages": 2}),
    "gemm_no_stage": (no_stage.plan, {}),
    "cpu_gemm": (cpu.plan, {"packed": False}),
    "cpu_gemm_packed": (cpu.plan, {"packed": True}),
    "split_k": (split_k.plan, {}),
}
VECTOR = tuple(name for name in PLANS if "vec_mat" in name or "gemv" in name)
MATRIX = tuple(name for name in PLANS if name not in VECTOR)


@pytest.fixture(scope="module")
def client(shared_home):
    return Client()


def array(rng, shape, elem, layout):
    """(base array, view of it with this shape and layout)."""
    *batch, rows, cols = shape
    stored = {
        "contiguous": (*batch, rows, cols),
        "transposed": (*batch, cols, rows),
        "stepped": (*batch, 2 * rows, 3 * cols),
        "reversed": (*batch, rows, cols),
        "offset": (*batch, rows + 1, cols + 5),
        "broadcast": (rows, cols),
    }[layout]
    base = rng.standard_normal(stored).astype(NUMPY[elem])
    view = {
        "contiguous": lambda: base,
        "transposed": lambda: base.swapaxes(-1, -2),
        "stepped": lambda: base[..., ::2, ::3],
        "reversed": lambda: base[..., ::-1, ::-1],
        "offset": lambda: base[..., 1:, 3 : 3 + cols],
        "broadcast": lambda: np.broadcast_to(base, shape),
    }[layout]()
    return base, view


def operand(base, view, elem):
    size = view.dtype.itemsize
    first = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return Operand(view.shape, tuple(stride // size for stride in view.strides), elem, first)


def run(client: Client, plan: LaunchPlan, lhs, rhs, out) -> None:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(client.context, flags, hostbuf=array.view(np.uint8)) for array in (lhs, rhs, out)]
    prepare(client, plan).bind(*buffers).enqueue(client.queue)
    cl.enqueue_copy(client.queue, out.view(np.uint8), buffers[2])
    client.queue.finish()


def plan_of(planned, problem: Problem, profile: DeviceProfile, **over) -> LaunchPlan:
    """Its plan, or that of the other candidate whose launch is the same."""
    function, params = planned
    try:
        return function(problem, profile, **{**params, **over})
    except UnsupportedError as refusal:
        same = re.search(r"matmul_(\w+) is the same", str(refusal))
        if not same:
            raise
    function, params = PLANS[same.group(1)]
    return function(problem, profile, **{**params, **over})


def check(
    client, planned, shape, elem, layouts=("contiguous", "contiguous"), batch=(), pitch=0, seed=0, **over
):
    """Plan, run and compare one product; the result lies in rows `pitch` longer than needed."""
    m, n, k = shape
    rng = np.random.default_rng((m, n, k, seed))
    lhs_base, lhs = array(rng, (*batch, m, k), elem, layouts[0])
    rhs_base, rhs = array(rng, (*batch, k, n), elem, layouts[1])
    out_base = np.full((*batch, m, n + pitch), np.nan, NUMPY[elem])
    out = out_base[..., :n]
    problem = Problem(
        operand(lhs_base, lhs, elem), operand(rhs_base, rhs, elem), operand(out_base, out, elem)
    )
    run(client, plan_of(planned, problem, client.profile, **over), lhs_base, rhs_base, out_base)
    wanted = lhs.astype(np.float64) @ rhs.astype(np.float64)
    scale = np.abs(lhs.astype(np.float64)) @ np.abs(rhs.astype(np.float64))
    spacing = 2.0**-24 if elem is Elem.F16 else 0.0  # of the smallest results, which are subnormal
    error = np.maximum(np.abs(out.astype(np.float64) - wanted) - spacing, 0) / scale
    assert error.max() <= TOLERANCE[elem] * (1 + math.log2(k) / 8), (shape, elem, layouts, batch, over)
    assert np.isnan(out_base[..., n:].astype(np.float64)).all(), "wrote past the end of a row"


@pytest.mark.parametrize("elem", Elem, ids=str)
@pytest.mark.parametrize("name", MATRIX)
def test_agrees_with_numpy_around_tile_edges(client, name, elem):
    for shape in ((65, 65, 65), (127, 66, 129), (128, 128, 128), (97, 127, 200)):
        check(client, PLANS[name], shape, elem)
    check(client, PLANS[name], (66, 127, 80), elem, ("offset", "broadcast"), batch=(3,), pitch=7)


@pytest.mark.parametrize(
    "layouts", [("transposed", "offset"), ("offset", "transposed"), ("stepped", "reversed")]
)
@pytest.mark.parametrize("name", MATRIX)
def test_reads_every_layout(client, name, layouts):
    for shape in ((33, 65, 40), (64, 40, 64)):
        check(client, PLANS[name], shape, Elem.F32, layouts, batch=(2,))


@pytest.mark.parametrize("elem", [Elem.F32, Elem.BF16], ids=str)
def test_a_large_transposed_lhs_is_packed_once(client, elem):
    check(client, PLANS["cpu_gemm_packed"], (261, 150, 300), elem, ("transposed", "contiguous"), batch=(2,))
    check(client, PLANS["split_k"], (261, 150, 300), elem, ("transposed", "contiguous"), batch=(2,))


@pytest.mark.parametrize("elem", Elem, ids=str)
def test_sums_are_kept_between_blocks_of_depth(client, elem):
    check(client, PLANS["cpu_gemm_packed"], (20, 70, 2300), elem)


@pytest.mark.parametrize("elem", Elem, ids=str)
@pytest.mark.parametrize("name", VECTOR)
def test_vectors_agree_with_numpy(client, name, elem):
    for rows, k in ((1, 1), (65, 1), (65, 130), (129, 1025)):
        for shape in ((rows, 1, k), (1, rows, k)):
            check(client, PLANS[name], shape, elem)
    check(client, PLANS[name], (1, 70, 90), elem, ("contiguous", "broadcast"), batch=(2, 3), pitch=3)


@pytest.mark.parametrize("layout", ["transposed", "stepped", "reversed", "offset"])
@pytest.mark.parametrize("name", VECTOR)
def test_vectors_of_every_layout(client, name, layout):
    for shape in ((67, 1, 133), (1, 67, 133)):
        check(client, PLANS[name], shape, Elem.F32, (layout, layout), batch=(2,))


@pytest.mark.parametrize("name", VECTOR)
def test_vector_candidates_refuse_two_matrices(name):
    function, params = PLANS[name]
    with pytest.raises(UnsupportedError):
        function(Problem.of(2, 2, 2), DeviceProfile("any"), **params)


@pytest.mark.parametrize("name", MATRIX)
def test_smallest_products(client, name):
    for shape in ((1, 1, 2), (2, 3, 1), (1, 5, 7), (5, 1, 7)):
        if name == "split_k" and shape[2] == 1:
            continue
        check(client, PLANS[name], shape, Elem.F32)


@pytest.mark.parametrize("out_elem", [Elem.F16, Elem.BF16])
def test_short_types_round_to_nearest_even_and_keep_nan_and_infinity(client, out_elem):
    numpy_type = NUMPY[out_elem]
    values = np.array([1.0, 1 + 2**-9, 1 + 3 * 2**-9, np.nan, np.inf, -np.inf, 3e38, -0.0], np.float32)
    values = np.concatenate([values, np.float32(1) + np.arange(24, dtype=np.float32) * 2**-13])
    problem = replace(Problem.of(len(values), 32, 1), out=Operand.contiguous((len(values), 32), out_elem))
    ones = np.ones((1, 32), np.float32)
    with np.errstate(over="ignore"):
        wanted = np.broadcast_to(values[:, None], (len(values), 32)).astype(numpy_type)
    for planned in (PLANS["naive"], PLANS["cpu_gemm_packed"]):
        out = np.zeros((len(values), 32), numpy_type)
        function, params = planned
        run(client, function(problem, client.profile, **params), values, ones, out)
        np.testing.assert_array_equal(out.astype(np.float32), wanted.astype(np.float32))


extents = st.integers(1, 130)
QUIET = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def cpu_tile(client: Client, pack_rhs: bool, lhs_from: str, turns: bool) -> cpu.CpuTile:
    width = cpu.vector_floats(client.profile)
    return cpu.CpuTile(width, 2, 4, 48, 2, pack_rhs, lhs_from, turns)


@QUIET
@given(
    shape=st.tuples(extents, extents, extents),
    how=st.sampled_from([(True, "in_place"), (False, "in_place"), (True, "copied"), (True, "packed")]),
    wide=st.integers(1, 2),
    tall=st.integers(1, 9),
    depth=st.integers(1, 48),
    turns=st.booleans(),
)
def test_cpu_blocks_of_any_size(client, shape, how, wide, tall, depth, turns):
    t = cpu_tile(client, *how, turns)
    blocks = cpu.CpuBlock(wide * t.panel, tall * t.rows, depth)
    check(client, PLANS["cpu_gemm_packed"], shape, Elem.F32, tiles=t, blocks=blocks)


@QUIET
@given(
    m=st.integers(9, 128),
    n=st.integers(9, 128),
    k=st.integers(1, 128),
    elem=st.sampled_from([Elem.F32, Elem.F64]),
    layouts=st.tuples(*[st.sampled_from(["contiguous", "offset", "broadcast"])] * 2),
    pitch=st.integers(0, 3),
)
def test_small_products_of_any_size(client, m, n, k, elem, layouts, pitch):
    check(client, PLANS["cpu_gemm"], (m, n, k), elem, layouts, pitch=pitch)


def test_small_products_are_one_launch_of_one_item_without_copies():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)

    def name(candidate, *shape, elem=Elem.F32, **flags):
        (call,) = plan_of(PLANS[candidate], Problem.of(*shape, elem, **flags), profile).calls
        return call.name

    small = {(64, 64, 64), (9, 33, 1), (16, 16, 1024)}
    between = {(64, 64, 65), (128, 128, 128), (100, 9, 1000)}
    assert {name("cpu_gemm_packed", *shape) for shape in small} == {"cpu_small"}
    assert {name("cpu_gemm_packed", *shape) for shape in between} == {"cpu_gemm"}
    assert {name("cpu_gemm", *shape) for shape in small | between} == {"cpu_small"}
    assert name("cpu_gemm_packed", 64, 64, 64, elem=Elem.F64) == "cpu_gemm"
    assert name("cpu_gemm", 64, 64, 64, elem=Elem.F64) == "cpu_small"
    assert {name("cpu_gemm", 128, 128, 129), name("cpu_gemm", 8, 64, 64)} == {"cpu_gemm"}
    assert name("cpu_gemm", 64, 64, 64, elem=Elem.F16) == "cpu_gemm"
    assert name("cpu_gemm_packed", 32, 32, 32, rhs_transposed=True) == "cpu_gemm"


def test_of_two_candidates_with_the_same_launch_one_refuses():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    small, large = Problem.of(64, 64, 64), Problem.of(512, 512, 512)
    transposed, short = Problem.of(512, 512, 512, rhs_transposed=True), Problem.of(512, 512, 512, Elem.F16)
    for problem, refused in ((small, "cpu_gemm_packed"), (transposed, "cpu_gemm"), (short, "cpu_gemm")):
        function, params = PLANS[refused]
        with pytest.raises(UnsupportedError, match="is the same"):
            function(problem, profile, **params)
        assert plan_of(PLANS[refused], problem, profile).calls
    assert cpu.plan(large, profile, packed=True) and cpu.plan(large, profile, packed=False)


@pytest.mark.parametrize("blocks", [1, 3, 40])
def test_blocks_taken_in_turns_are_there_again_for_the_next_launch(client, blocks):
    t = cpu_tile(client, True, "in_place", turns=True)
    rng = np.random.default_rng(1)
    lhs, rhs = (rng.random(shape, np.float32) for shape in ((4 * blocks, 50), (50, 100)))
    problem = Problem.of(4 * blocks, 100, 50)
    prepared = prepare(
        client, cpu.plan(problem, client.profile, packed=True, tiles=t, blocks=cpu.CpuBlock(t.panel, 4, 20))
    )
    buffers = [client.upload(x) for x in (lhs, rhs)]
    results = set()
    for _ in range(5):
        out = client.upload(np.full((4 * blocks, 100), np.nan, np.float32))
        prepared.bind(*buffers, out).enqueue()
        results.add(bytes(client.download(out, 4 * blocks * 100 * 4)))
    (found,) = results  # whoever takes a block computes the same
    np.testing.assert_allclose(np.frombuffer(found, np.float32), (lhs @ rhs).ravel(), rtol=1e-5)


def test_blocks_are_taken_in_turns_on_several_queues_and_threads_at_once(client):
    """Nothing is waited for; a queue whose commands may overtake one another shares nothing either."""
    out_of_order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    t = cpu_tile(client, True, "in_place", turns=True)
    wrong = []

    def several(seed):
        rng = np.random.default_rng(seed)
        queues = [cl.CommandQueue(client.context, client.device, properties=p) for p in (0, out_of_order)]
        under_way = []
        for _ in range(8):
            m, n, k = (int(x) for x in rng.integers(1, 130, 3))
            lhs, rhs = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
            blocks = cpu.CpuBlock(t.panel, 4 * int(rng.integers(1, 9)), int(rng.integers(1, 49)))
            plan = cpu.plan(Problem.of(m, n, k), client.profile, packed=True, tiles=t, blocks=blocks)
            operands = [client.upload(x) for x in (lhs, rhs)]
            for queue in queues:
                prepared = prepare(client, plan, chained=queue is queues[1])
                for _ in range(6):
                    out = client.upload(np.full((m, n), np.nan, np.float32))
                    prepared.bind(*operands, out).enqueue(queue)
                    under_way.append((out, lhs @ rhs, operands, prepared))
        for queue in queues:
            queue.finish()
        for out, expected, *_ in under_way:
            found = np.frombuffer(client.download(out, expected.nbytes), np.float32).reshape(expected.shape)
            if not np.allclose(found, expected, rtol=1e-4):
                wrong.append((seed, expected.shape))

    threads = [threading.Thread(target=several, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def streams_plan(problem: Problem, profile: DeviceProfile, division: gemv_streams.Division) -> LaunchPlan:
    walk = problem.batch_walk()
    view = gemv.view(problem, walk)
    axis = "parallel" if view.mat_p == 1 else "perpendicular"
    return gemv_streams.plan(view, problem, walk, profile, axis, division)


@settings(parent=QUIET, max_examples=60)
@given(
    results=st.integers(64, 128),
    k=st.integers(64, 128),
    division=st.builds(
        gemv_streams.Division,
        stretch=st.integers(1, 9),
        cols=st.sampled_from([16, 48, 112, 128]),
        lanes=st.integers(1, 5),
        rounds=st.integers(1, 7),
    ),
    elem=st.sampled_from([Elem.F32, Elem.F16]),
    matrix=st.sampled_from(["contiguous", "transposed"]),
    vector=st.sampled_from(["contiguous", "stepped"]),
    is_row=st.booleans(),
    pitch=st.integers(0, 3),
)
def test_streams_of_any_division(client, results, k, division, elem, matrix, vector, is_row, pitch):
    shape = (1, results, k) if is_row else (results, 1, k)
    layouts = (vector, matrix) if is_row else (matrix, vector)
    check(client, (streams_plan, {}), shape, elem, layouts, batch=(2,), pitch=pitch, division=division)


@pytest.mark.parametrize("elem", Elem, ids=str)
@pytest.mark.parametrize("name", ["gemv_plane_parallel", "gemv_unit_perpendicular"])
def test_large_matrices_are_read_as_streams(client, name, elem, monkeypatch):
    monkeypatch.setattr(gemv_streams, "LEAST_BYTES", 1)
    for rows, k in ((16, 16), (65, 130), (129, 1025), (9001, 40), (40, 9001)):
        for layout in ("contiguous", "offset", "transposed"):
            check(client, PLANS[name], (rows, 1, k), elem, (layout, "contiguous"))
            check(client, PLANS[name], (1, rows, k), elem, ("contiguous", layout), batch=(2,), pitch=3)


def test_the_largest_matrices_are_read_as_streams_only():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    for name in ("simple_vec_mat", "double_vec_mat"):
        function, params = PLANS[name]
        assert function(Problem.of(1, 4096, 4096), profile, **params).calls[0].name == "gemv_perpendicular"
        with pytest.raises(UnsupportedError, match="streams"):
            function(Problem.of(1, 8192, 8192), profile, **params)


@pytest.mark.parametrize(("n", "k", "missed"), [(4096, 4096, False), (5000, 4000, True), (5000, 3000, False)])
def test_reading_without_streams_is_foreseen_to_be_slower_beyond_the_caches_only(n, k, missed):
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    function, params = PLANS["simple_vec_mat"]
    detour = function(Problem.of(1, n, k), profile, **params).calls[0].detour
    assert detour == (gemv.NO_STREAMS if missed else 1.0)
    assert gemv.NO_STREAMS > 1.0


def test_large_matrices_times_vectors_are_left_to_the_kernels_for_vectors():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    for name in ("cpu_gemm", "cpu_gemm_packed"):
        function, params = PLANS[name]
        for m, n in ((1, 4096), (4096, 1)):
            with pytest.raises(UnsupportedError, match="vectors"):
                function(Problem.of(m, n, 4096), profile, **params)
            assert function(Problem.of(m, n, 2048), profile, **params).calls
            assert function(Problem.of(m, n, 4096), replace(profile, compute_units=16), **params).calls
        assert function(Problem.of(2, 4096, 4096), profile, **params).calls


def test_rows_of_matrices_that_a_cache_may_hold_are_cut_in_a_piece_a_core():
    alone, more = ((2, 4096, 4096), (2, 2100, 7000)), ((2, 8192, 8192), (16, 4096, 4096), (4, 2100, 7000))
    for cores, n, k in alone + more:
        profile = DeviceProfile("any", kind="cpu", compute_units=cores, vector_width_f32=16)
        plan = gemv.plan(Problem.of(1, n, k), profile, axis="perpendicular")
        assert len(plan.calls) == (1 if (cores, n, k) in alone else 2)
        if len(plan.calls) == 1:
            assert plan.calls[0].args[3]["division"].tolist() == [cores, 1, -(-n // cores // 16) * 16, 1, 1]
    profile = replace(profile, compute_units=2)
    many = gemv.plan(Problem.of(1, 4096, 2100, batch=16), profile, axis="perpendicular")
    assert many.calls[0].args[3]["division"].tolist() == [16, 1, 4096, 1, 1]


@settings(parent=QUIET, max_examples=300)
@given(
    results=st.integers(1, 40000),
    k=st.integers(1, 40000),
    is_row=st.booleans(),
    transposed=st.booleans(),
    cores=st.sampled_from([1, 2, 16, 96]),
)
def test_streams_cover_the_product_and_share_a_program(results, k, is_row, transposed, cores):
    profile = DeviceProfile("any", kind="cpu", compute_units=cores, vector_width_f32=16)

    def plan(results, k):
        shape = (1, results, k) if is_row else (results, 1, k)
        flags = {"rhs_transposed" if is_row else "lhs_transposed": transposed}
        axis = "parallel" if is_row == transposed else "perpendicular"
        return gemv.plan(Problem.of(*shape, **flags), profile, axis=axis)

    call = plan(results, k).calls[0]
    largest = plan(*(1 << (extent - 1).bit_length() for extent in (results, k))).calls[0]
    assert call.name.split("_")[1] == largest.name.split("_")[1] and call.options == largest.options
    if call.name in ("gemv_rows", "gemv_columns"):
        blocks, stretch, cols, lanes, rounds = call.args[3]["division"]
        slices = lanes * rounds if call.name == "gemv_columns" else 1
        assert slices == 1 or k >> (rounds - 1) >= lanes * gemv_streams.STREAMS
        lines = gemv_streams.STREAMS * stretch if call.name == "gemv_rows" else cols
        assert blocks == -(-results // lines) * slices
        assert call.global_size == (min(blocks, cores), 1, 1)


@QUIET
@given(shape=st.tuples(extents, extents, st.integers(2, 300)), slices=st.integers(2, 40))
def test_any_number_of_slices(client, shape, slices):
    shape = (64, 64, shape[2]) if client.profile.is_cpu else shape  # one bucket of extents: one program
    check(client, PLANS["split_k"], shape, Elem.F32, slices=slices)


@QUIET
@given(
    m=st.integers(1, 5000),
    n=st.integers(1, 5000),
    k=st.integers(1, 9000),
    elem=st.sampled_from(list(Elem)),
    cores=st.sampled_from([1, 2, 6, 16, 96]),
    width=st.sampled_from([1, 4, 8, 16]),
    local=st.sampled_from([32 << 10, 256 << 10, 2 << 20]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_cpu_plans_cover_the_result_and_fit_the_device(m, n, k, elem, cores, width, local, flags):
    packed, lhs_transposed, rhs_transposed = flags
    profile = DeviceProfile("any", kind="cpu", compute_units=cores, vector_width_f32=width, local_bytes=local)
    problem = Problem.of(m, n, k, elem, lhs_transposed=lhs_transposed, rhs_transposed=rhs_transposed)
    t = cpu.tile(problem, profile, packed)
    blocks = cpu.block(problem, profile, t)
    assert t.local_bytes(8 if elem is Elem.F64 else 4) <= local
    assert 1 <= blocks.depth <= t.depth
    call = cpu.plan(problem, profile, packed=packed, tiles=t, blocks=blocks).calls[-1]
    count = -(-n // blocks.cols) * -(-m // blocks.rows)
    assert call.args[3]["division"][3] == count
    assert call.global_size == (min(count, cores) if t.turns else count, 1, 1)


def test_problems_of_one_bucket_share_their_programs():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    for name in ("cpu_gemm", "cpu_gemm_packed"):
        function, params = PLANS[name]
        one, other = (function(Problem.of(s, s, s), profile, **params).calls[0] for s in (768, 1024))
        assert (one.source, one.options) == (other.source, other.options)


def test_many_blocks_in_turns_share_few_copies():
    for cores in (2, 16):
        profile = DeviceProfile(
            "any", kind="cpu", compute_units=cores, vector_width_f32=16, local_bytes=2 << 20
        )
        for size in (768, 1000, 1024):
            problem = Problem.of(size, size, size)
            t = cpu.tile(problem, profile, packed=True)
            blocks = cpu.block(problem, profile, t)
            columns, below = -(-size // blocks.cols), -(-size // blocks.rows)
            assert blocks.cols >= 128 and columns * below >= 8 * cores
            assert cpu.copies(columns * below, below, 1, cores, t) == columns + cores


def test_small_products_take_one_launch():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    for elem in Elem:
        for flags in ({}, {"lhs_transposed": True}, {"rhs_transposed": True}):
            problem = Problem.of(128, 128, 128, elem, **flags)
            assert len(cpu.plan(problem, profile, packed=True).calls) == 1


unit_tiles = st.builds(
    unit.UnitTile,
    tx=st.sampled_from([2, 8]),
    ty=st.sampled_from([4, 8]),
    rows=st.integers(1, 5),
    cols=st.integers(1, 5),
    depth=st.sampled_from([3, 8, 16]),
)


@pytest.mark.long
@settings(parent=QUIET, max_examples=60)
@given(
    tiles=unit_tiles,
    stages=st.sampled_from([1, 2]),
    shape=st.tuples(extents, extents, extents),
    elem=st.sampled_from(list(Elem)),
    layouts=st.tuples(st.sampled_from(LAYOUTS[:5]), st.sampled_from(LAYOUTS)),
)
def test_unit_tiles_of_any_size(client, tiles, stages, shape, elem, layouts):
    planned = (unit.plan, {"size": "max", "stages": stages})
    check(client, planned, shape, elem, layouts, batch=(2,), tiles=tiles)


@pytest.mark.long
@settings(parent=QUIET, max_examples=60)
@given(
    rows=st.integers(1, 14),
    turns=st.booleans(),
    vectors=st.integers(1, 3),
    panels=st.integers(1, 4),
    depth=st.integers(1, 80),
    shape=st.tuples(extents, extents, extents),
    elem=st.sampled_from(list(Elem)),
    layouts=st.tuples(st.sampled_from(LAYOUTS[:5]), st.sampled_from(LAYOUTS)),
)
def test_cpu_tiles_of_any_size(client, rows, turns, vectors, panels, depth, shape, elem, layouts):
    width = cpu.vector_floats(client.profile) // (2 if elem is Elem.F64 else 1)
    t = cpu.CpuTile(width, vectors, rows, depth, panels, True, "copied", turns)
    blocks = cpu.CpuBlock(panels * t.panel, 3 * rows, depth)
    check(client, PLANS["cpu_gemm_packed"], shape, elem, layouts, batch=(2,), tiles=t, blocks=blocks)


@pytest.mark.long
@pytest.mark.parametrize("elem", Elem, ids=str)
@pytest.mark.parametrize("name", tuple(PLANS))
def test_sizes_up_to_1025(client, name, elem):
    sizes = (1, 7, 16, 31, 33, 63, 127, 255, 257, 511, 513, 1023, 1024, 1025)
    rng = np.random.default_rng(7)
    for size in sizes:
        m, n, k = (int(x) for x in rng.choice(sizes, 3))
        shapes = [(size, 1, k), (1, size, k)] if name in VECTOR else [(size, n, k), (m, size, max(k, 2))]
        for shape in shapes:
            layouts = tuple(rng.choice(LAYOUTS[:5], 2))
            if name != "split_k" or shape[2] > 1:
                check(client, PLANS[name], shape, elem, layouts)


def test_copying_rhs_or_not_and_slices_are_one_program():
    profile = DeviceProfile("any", kind="cpu", compute_units=2, vector_width_f32=16, local_bytes=2 << 20)
    for shape in [(129, 129, 129), (1000, 1000, 1000), (128, 128, 8192), (1, 2048, 4096), (4096, 64, 1024)]:
        problem = Problem.of(*shape, Elem.F32)
        names = ("cpu_gemm", "cpu_gemm_packed", "split_k")
        plans = [PLANS[name][0](problem, profile, **PLANS[name][1]) for name in names]
        products = [next(call for call in plan.calls if call.name == "cpu_gemm") for plan in plans]
        assert len({(call.source, call.options) for call in products}) == 1
