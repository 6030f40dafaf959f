"""The NVIDIA kernels against float64, on a GPU; skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import accelerated, gemv, gemv_wide, simt, split_k, tf32
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.problem import Elem, Operand, Problem, row_major

pytestmark = pytest.mark.gpu

LIMITS = {("f16", "full"): 1e-3, ("bf16", "full"): 4e-3, ("f32", "tf32"): 8e-4, ("f32", "full"): 2e-6}
SENTINEL = 0xA5
GUARD_BYTES = 4096


@pytest.fixture(autouse=True)
def split_products_of_any_size(monkeypatch):
    """Small ones show the same as those large enough to be offered."""
    monkeypatch.setattr(tf32, "is_exact", lambda m, n, k: True)


@pytest.fixture(scope="module")
def client():
    from rooftune.device.discovery import list_devices

    found = [d for d in list_devices() if d.profile is not None and d.profile.capability is not None]
    if not found:
        pytest.skip("no NVIDIA GPU here")
    from rooftune.device.client import Client

    return Client(found[0].device)


def to_elem(values: np.ndarray, elem: Elem) -> np.ndarray:
    """The values in the element type, bf16 as its upper 16 bits (nearest even)."""
    if elem is Elem.F16:
        return values.astype(np.float16)
    if elem is Elem.F32:
        return values.astype(np.float32)
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_float64(stored: np.ndarray, elem: Elem) -> np.ndarray:
    if elem is Elem.BF16:
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def at_strides(memory: np.ndarray, operand: Operand) -> np.ndarray:
    size = memory.itemsize
    return np.lib.stride_tricks.as_strided(
        memory[operand.offset_elems :], operand.shape, tuple(s * size for s in operand.strides)
    )


def extent_of(operand: Operand) -> int:
    reach = sum((e - 1) * s for e, s in zip(operand.shape, operand.strides, strict=True) if s > 0)
    return operand.offset_elems + reach + 1


def run(client, problem: Problem, plan: LaunchPlan, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The result as float64; checks that nothing outside the result was written."""
    from rooftune.matmul.executor import prepare

    size = problem.out.elem.size_bytes
    out_bytes = extent_of(problem.out) * size
    poison = np.full(out_bytes + GUARD_BYTES, SENTINEL, np.uint8)
    out = client.upload(poison)
    operands = client.upload(lhs), client.upload(rhs)  # alive until the work is done
    prepare(client, plan).bind(*operands, out).enqueue()
    client.sync()
    got = np.frombuffer(client.download(out, poison.size), np.uint8).copy()
    memory = got[:out_bytes].view({2: np.uint16, 4: np.float32}[size])
    if problem.out.elem is Elem.F16:
        memory = memory.view(np.float16)
    result = to_float64(at_strides(memory, problem.out), problem.out.elem)
    written = np.zeros(out_bytes // size, bool)
    at_strides(written, problem.out)[...] = True
    kept = np.concatenate([got[:out_bytes][~np.repeat(written, size)], got[out_bytes:]])
    assert (kept == SENTINEL).all(), "wrote outside the result"
    return result


def random_operand(operand: Operand, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(extent_of(operand) + 64, dtype=np.float32)
    return to_elem(values, operand.elem)


def relative_error(client, problem: Problem, plan: LaunchPlan) -> float:
    lhs, rhs = random_operand(problem.lhs, 1), random_operand(problem.rhs, 2)
    got = run(client, problem, plan, lhs, rhs)
    left = to_float64(at_strides(lhs, problem.lhs), problem.elem)
    right = to_float64(at_strides(rhs, problem.rhs), problem.elem)
    want = left @ right
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def check(client, problem: Problem, plan: LaunchPlan) -> None:
    error = relative_error(client, problem, plan)
    assert error < LIMITS[problem.elem.value, problem.precision]


def awkward(elem: Elem, precision: str = "full") -> Problem:
    """Odd offsets, padded rows, a batch with one operand shared, a result with wide rows."""
    m, n, k = 75, 91, 283
    return Problem(
        Operand((2, 3, m, k), (m * 290 * 3, m * 290, 290, 1), elem, elem.size_bytes * 3),
        Operand((2, 3, k, n), (k * n, 0, n, 1), elem, elem.size_bytes),
        Operand((2, 3, m, n), (m * 96 * 3, m * 96, 96, 1), elem, elem.size_bytes * 5),
        precision,
    )


def strided(elem: Elem) -> Problem:
    """Neither axis contiguous on the left, columns reversed on the right."""
    m, n, k = 70, 66, 130
    return Problem(
        Operand((m, k), (k * 2, 2), elem),
        Operand((k, n), (n, -1), elem, (n - 1) * elem.size_bytes),
        Operand((m, n), row_major((m, n)), elem),
    )


SHAPES = [(128, 256, 64), (200, 264, 136), (129, 77, 65), (1, 70, 1000), (257, 1, 33), (300, 520, 1)]
ORDERS = [(False, False), (False, True), (True, False), (True, True)]
FORMS = [(unit, variant) for unit in ("mma", "cmma") for variant in accelerated.VARIANTS]


@pytest.mark.parametrize(("unit", "variant"), FORMS)
@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16])
@pytest.mark.parametrize("orders", ORDERS)
def test_16_bit_products_in_every_storage_order(client, unit, variant, elem, orders):
    for m, n, k in SHAPES:
        problem = Problem.of(m, n, k, elem, lhs_transposed=orders[0], rhs_transposed=orders[1])
        check(client, problem, accelerated.plan(problem, client.profile, unit=unit, variant=variant))


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16])
@pytest.mark.parametrize("shape", [(1000, 1000, 1000), (136, 72, 40), (264, 200, 1016), (3000, 1000, 136)])
@pytest.mark.parametrize("rhs_transposed", [False, True])
def test_rows_taken_in_sets(client, elem, shape, rhs_transposed):
    m, n, k = shape
    padded = Problem(
        Operand((m, k), (k + 16, 1), elem, 48),
        Operand.contiguous((k, n), elem, transposed=rhs_transposed),
        Operand((m, n), (n + 3, 1), elem, 2),
    )
    for problem in (Problem.of(*shape, elem, rhs_transposed=rhs_transposed), padded):
        options = {"unit": "mma", "variant": "specialized_tma", "row_sets": True}
        plan = accelerated.plan(problem, client.profile, **options)
        assert any("-DEARLY_K=1" in call.options for call in plan.calls)
        check(client, problem, plan)


@pytest.mark.parametrize(("unit", "variant"), FORMS)
def test_16_bit_products_of_awkward_operands(client, unit, variant):
    batched = Problem.of(640, 512, 320, Elem.F16, batch=5)
    for problem in (awkward(Elem.F16), awkward(Elem.BF16), strided(Elem.F16), batched):
        check(client, problem, accelerated.plan(problem, client.profile, unit=unit, variant=variant))


TILES = [(tile, 1) for tile in accelerated.WARP_GROUP_TILES["one"]]
SLICED = [(tile, slices) for tile in accelerated.WARP_GROUP_TILES["one"] for slices in (2, 5)]


@pytest.mark.parametrize("feed", ["specialized_tma", "specialized_cyclic"])
@pytest.mark.parametrize(("tile", "slices"), [*TILES, *SLICED], ids=str)
def test_every_tile_of_warp_groups_whole_and_in_slices(client, feed, tile, slices):
    form = accelerated.VARIANTS[feed]
    if not accelerated.fills_evenly(tile, form, 128):
        pytest.skip("work-items that copy don't come out even")
    for orders in ORDERS:
        for m, n, k in [(300, 520, 700), (257, 77, 645)]:
            problem = Problem.of(m, n, k, Elem.F16, lhs_transposed=orders[0], rhs_transposed=orders[1])
            plan = accelerated.plan(
                problem, client.profile, unit="mma", variant=feed, tile=tile, slices=slices
            )
            check(client, problem, plan)
    awkward_one, batched = awkward(Elem.BF16), Problem.of(200, 136, 330, Elem.F16, batch=3)
    for problem in (awkward_one, batched):
        check(
            client,
            problem,
            accelerated.plan(problem, client.profile, unit="mma", variant=feed, tile=tile, slices=slices),
        )


@pytest.mark.parametrize("m", [1, 16, 17, 32, 33])
def test_few_rows(client, m):
    for orders in ORDERS:
        for variant in ("specialized_tma", "simple_cyclic", "double_cyclic"):
            problem = Problem.of(m, 200, 520, Elem.BF16, lhs_transposed=orders[0], rhs_transposed=orders[1])
            check(client, problem, accelerated.plan(problem, client.profile, unit="cmma", variant=variant))


@pytest.mark.parametrize("precision", ["tf32", "full"])
@pytest.mark.parametrize("variant", ["simple_tma", "specialized_tma"])
@pytest.mark.parametrize("slices", [2, 7])
def test_f32_on_matrix_units_in_slices(client, precision, variant, slices):
    if precision == "full" and variant == "simple_tma":
        pytest.skip("split operands have other forms")
    tables = tf32.SPLIT_TILES if precision == "full" else tf32.TF32_TILES
    for tile in tables[variant]:
        for problem in (
            Problem.of(300, 270, 700, precision=precision),
            awkward(Elem.F32, precision),
            Problem.of(130, 77, 513, batch=3, precision=precision),
        ):
            plan = accelerated.plan(
                problem, client.profile, unit="mma", variant=variant, tile=tile, slices=slices
            )
            check(client, problem, plan)


@pytest.mark.parametrize("slices", [2, 5])
def test_plain_f32_in_slices(client, slices):
    for problem in (
        Problem.of(300, 270, 700),
        Problem.of(65, 67, 8191),
        Problem.of(130, 77, 513, batch=3),
        Problem.of(700, 700, 701),
        awkward(Elem.F32),
        strided(Elem.F32),
    ):
        check(client, problem, split_k.plan(problem, client.profile, slices=slices))


@pytest.mark.parametrize("precision", ["tf32", "full"])
@pytest.mark.parametrize("variant", ["simple_tma", "simple_tma_multi_rows", "specialized_tma"])
@pytest.mark.parametrize("orders", ORDERS)
def test_f32_on_matrix_units(client, precision, variant, orders):
    for m, n, k in [*SHAPES, (520, 300, 200), (200, 300, 400)]:
        problem = Problem.of(
            m, n, k, Elem.F32, lhs_transposed=orders[0], rhs_transposed=orders[1], precision=precision
        )
        try:
            plan = accelerated.plan(problem, client.profile, unit="mma", variant=variant)
        except UnsupportedError:
            assert precision == "full"
            continue
        check(client, problem, plan)


@pytest.mark.parametrize("precision", ["tf32", "full"])
@pytest.mark.parametrize("variant", ["simple_tma", "simple_tma_multi_rows", "specialized_tma"])
def test_f32_on_matrix_units_of_awkward_operands(client, precision, variant):
    batched = Problem.of(300, 200, 300, Elem.F32, batch=5, precision=precision)
    for problem in (awkward(Elem.F32, precision), batched):
        try:
            plan = accelerated.plan(problem, client.profile, unit="mma", variant=variant)
        except UnsupportedError:
            assert precision == "full"
            continue
        check(client, problem, plan)


@pytest.mark.parametrize("size", ["max", "min"])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("orders", ORDERS)
def test_plain_f32(client, size, stages, orders):
    for m, n, k in [*SHAPES, (520, 300, 200)]:
        problem = Problem.of(m, n, k, Elem.F32, lhs_transposed=orders[0], rhs_transposed=orders[1])
        check(client, problem, simt.plan(problem, client.profile, size=size, stages=stages))
    for problem in (awkward(Elem.F32), strided(Elem.F32), Problem.of(300, 200, 100, Elem.F32, batch=5)):
        check(client, problem, simt.plan(problem, client.profile, size=size, stages=stages))


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
@pytest.mark.parametrize("stages", [0, 1, 2])
def test_vectors_in_chunks(client, elem, stages):
    for n, k, batch in ((4096, 4100, 1), (2056, 8200, 2), (40, 200000, 1)):
        problem = Problem.of(1, n, k, elem, batch=batch)
        plan = gemv.plan(problem, client.profile, axis="perpendicular", stages=stages)
        assert plan.calls[0].global_size[2] > 1 or n == 40
        check(client, problem, plan)


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
@pytest.mark.parametrize(
    "planes, unroll, rounds", [(8, 8, 1), (8, 8, 16), (8, 16, 3), (2, 4, 5), (16, 16, 1)]
)
def test_strips_of_awkward_operands(client, elem, planes, unroll, rounds):
    batched = Problem.of(1, 1032, 777, elem, batch=3)
    strided = Problem(
        Operand((1, 900), (5000, 3), elem, 7 * elem.size_bytes),
        Operand((900, 1000), (1064, 1), elem, 8 * elem.size_bytes),
        Operand.contiguous((1, 1000), elem),
    )
    for problem in (batched, strided, Problem.of(1, 8, 8, elem)):
        walk = problem.batch_walk()
        for lanes in (16, 32):
            tile = gemv_wide.StripsTile(planes, unroll, rounds, lanes=lanes)
            check(client, problem, gemv_wide.strips_plan(gemv.view(problem, walk), problem, walk, tile))


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
@pytest.mark.parametrize("stages", [0, 1])
def test_strips_again_and_again_with_other_vectors(client, elem, stages):
    """Nothing of one launch is taken for the next one's; sums of 0 and NaN arrive as well."""
    from rooftune.matmul.executor import prepare

    n, k = 1032, 8192
    problem = Problem.of(1, n, k, elem)
    plan = gemv.plan(problem, client.profile, axis="perpendicular", stages=stages)
    assert plan.calls[0].name == "gemv" and plan.calls[0].global_size[2] > 1
    prepared, rng = prepare(client, plan), np.random.default_rng(3)
    matrix = to_elem(rng.standard_normal((k, n), dtype=np.float32), elem)
    rhs, out = client.upload(matrix), client.upload(np.full(n * elem.size_bytes, SENTINEL, np.uint8))
    vectors = [rng.standard_normal(k, dtype=np.float32) * scale for scale in (1, 0, 100, np.nan, 1e-3, 0, 1)]
    for vector in 10 * vectors:
        lhs = to_elem(vector, elem)
        buffer = client.upload(lhs)
        prepared.bind(buffer, rhs, out).enqueue()
        client.sync()
        raw = np.frombuffer(client.download(out, n * elem.size_bytes), matrix.dtype)
        want = to_float64(lhs, elem) @ to_float64(matrix, elem)
        got = to_float64(raw, elem)
        if np.isnan(want).any():
            assert np.isnan(got).all()
        else:
            assert np.linalg.norm(got - want) <= LIMITS[elem.value, "full"] * np.linalg.norm(want)
            assert not (np.signbit(got) & (got == 0)).any()


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
@pytest.mark.parametrize("axis", ["parallel", "perpendicular"])
def test_vectors(client, elem, axis):
    for k, n in [(8, 8), (64, 64), (1000, 72), (1024, 1000), (333, 520), (2048, 4096), (77, 33), (8200, 40)]:
        for problem in (
            Problem.of(1, n, k, elem),
            Problem.of(1, n, k, elem, rhs_transposed=True),
            Problem.of(n, 1, k, elem),
            Problem.of(n, 1, k, elem, lhs_transposed=True),
            Problem.of(1, n, k, elem, batch=3),
        ):
            check(client, problem, gemv.plan(problem, client.profile, axis=axis))


def plain_f32(client, problem: Problem, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Every result one chain of multiply-adds in the order of k: where sums overflow, order matters."""
    return run(client, problem, simt.plan(problem, client.profile, size="max", stages=2), lhs, rhs)


@pytest.mark.parametrize("variant", ["simple_tma_multi_rows", "specialized_tma"])
@pytest.mark.parametrize(
    "special",
    [np.inf, -np.inf, np.nan, np.finfo(np.float32).max, 3.4027e38, 1.8e38, 1e30, 1.2e-38, 1e-45, 1e-30, 0.0],
)
def test_split_products_treat_special_values_as_plain_f32(client, variant, special):
    """In both operands, in some rows and columns only, alone and in pairs; compared element by element."""
    m, n, k = 200, 150, 288
    problem = Problem.of(m, n, k, Elem.F32)
    rng = np.random.default_rng(5)
    lhs = rng.standard_normal((m, k), dtype=np.float32)
    rhs = rng.standard_normal((k, n), dtype=np.float32)
    lhs[3, 7] = lhs[130, 100] = rhs[100, 140] = rhs[0, 0] = special
    lhs[70:80] = special
    rhs[:, 20] = 0
    want = plain_f32(client, problem, lhs, rhs)
    plan = accelerated.plan(problem, client.profile, unit="mma", variant=variant)
    got = run(client, problem, plan, lhs, rhs)
    with np.errstate(invalid="ignore"):
        scale = np.abs(lhs.astype(np.float64)) @ np.abs(rhs.astype(np.float64))
        wrong = np.abs(got - want) > 4e-6 * scale + 1e-45
    finite = np.isfinite(want)
    assert (np.isnan(got) == np.isnan(want)).all()
    assert (got[np.isinf(want)] == want[np.isinf(want)]).all()
    assert np.isfinite(got[finite]).all()
    assert not wrong[finite].any()


@pytest.mark.parametrize("exponent", [-150, -140, -126, -110, -100, -80, -60, -40, 40, 60, 63, 90, 120, 127])
def test_split_products_scaled_by_powers_of_two(client, exponent):
    """Scaling one operand or both must cost no accuracy, whatever the exponent."""
    m, n, k = 130, 140, 256
    problem = Problem.of(m, n, k, Elem.F32)
    rng = np.random.default_rng(6)
    lhs = np.ldexp(rng.uniform(0.5, 1, (m, k)).astype(np.float32), exponent).astype(np.float32)
    for other in (0, exponent, -exponent):
        rhs = np.ldexp(rng.uniform(0.5, 1, (k, n)).astype(np.float32), other).astype(np.float32)
        want = plain_f32(client, problem, lhs, rhs)
        plan = accelerated.plan(problem, client.profile, unit="mma", variant="specialized_tma")
        got = run(client, problem, plan, lhs, rhs)
        finite = np.isfinite(want)
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
        assert np.allclose(got[finite], want[finite], rtol=4e-6, atol=1e-45)
