"""The helpers of the NVIDIA kernels that are plain OpenCL, on whatever OpenCL device there is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from rooftune.errors import DeviceError
from rooftune.matmul.families import accelerated, gemv, gemv_wide, tf32
from rooftune.matmul.families.common import check
from rooftune.matmul.families.gemv_wide import StripsTile
from rooftune.matmul.launch import Blob, Counter, LaunchPlan, Scratch, Slot
from rooftune.matmul.nvidia.operands import Steps, operand_lines
from rooftune.matmul.problem import Elem, Operand, Problem

from .test_nvidia_kernels import at_strides, random_operand, to_elem, to_float64
from .test_nvidia_plans import HOPPER


@pytest.fixture(autouse=True)
def split_products_of_any_size(monkeypatch):
    """Small ones show the same as those large enough to be offered."""
    monkeypatch.setattr(tf32, "is_exact", lambda m, n, k: True)


@pytest.fixture(scope="module")
def client():
    from rooftune.device.client import Client

    try:
        return Client()
    except DeviceError:
        pytest.skip("no OpenCL device here")


BUFFERS = (Slot, Scratch, Blob, Counter)


def launch(client, plan: LaunchPlan, buffers: dict, names: list[str]) -> None:
    """Run the plan's launches of these names, in order."""
    for call in plan.calls:
        if call.name in names:
            kernel = client.kernel(call.source, call.name, call.options)
            kernel.set_args(*(buffers[a] if isinstance(a, BUFFERS) else a for a in call.args))
            client.enqueue(kernel, call.global_size, call.local_size)
    client.sync()


def buffers_of(client, plan: LaunchPlan, lhs: np.ndarray, rhs: np.ndarray, out_bytes: int) -> dict:
    def poisoned(nbytes: int):
        return client.upload(np.full(nbytes, 0xA5, np.uint8))

    scratch = {Scratch(i): poisoned(size) for i, size in enumerate(plan.scratch_bytes)}
    out = poisoned(out_bytes)
    return {Slot.LHS: client.upload(lhs), Slot.RHS: client.upload(rhs), Slot.OUT: out, **scratch}


STORED = {2: np.uint16, 4: np.float32}
NUMBERS = {Elem.F16: np.float16, Elem.BF16: np.uint16, Elem.F32: np.float32}


@pytest.mark.parametrize("elem", [Elem.F16, Elem.F32])
@pytest.mark.parametrize("lhs_strides", [(47, 1), (1, 33), (94, 2), (-47, 1)])
@pytest.mark.parametrize("along_k", [None, True, False])
def test_repacked_operands_hold_the_same_matrix(client, elem, lhs_strides, along_k):
    m, k, n = 33, 47, 65
    start = 32 * 47 if lhs_strides[0] < 0 else 3
    lhs = Operand((m, k), lhs_strides, elem, start * elem.size_bytes)
    problem = Problem(lhs, Operand.contiguous((k, n), elem), Operand.contiguous((m, n), elem))
    steps = Steps()
    found = operand_lines(problem, problem.batch_walk(), steps, lhs_along_k=along_k)[0]
    plan = steps.plan()
    memory = to_elem(np.random.default_rng(1).standard_normal(m * 94 + 200, dtype=np.float32), elem)
    other = random_operand(problem.rhs, 2)
    buffers = buffers_of(client, plan, memory, other, 16)
    launch(client, plan, buffers, ["pack"])
    want = at_strides(memory, problem.lhs).view(STORED[elem.size_bytes])
    raw = client.download(buffers[found.source], plan.scratch_bytes[found.source.index])
    lines = np.frombuffer(raw, STORED[elem.size_bytes]).reshape(found.count, found.pitch)
    assert (lines[:, : found.length] == (want if found.k_contiguous else want.T)).all()
    assert (lines[:, found.length :] == 0).all()


SPECIALS = [np.inf, np.nan, np.finfo(np.float32).max, 1e-45, 1e-35]


@pytest.mark.parametrize("special", [None, *SPECIALS])
def test_only_tiles_with_unsafe_ranges_are_repaired(client, special):
    m, n, k = 130, 150, 300
    problem = Problem.of(m, n, k)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma")
    lhs, rhs = (random_operand(operand, seed) for seed, operand in enumerate((problem.lhs, problem.rhs)))
    lhs = np.where(np.abs(lhs) < 1e-3, np.float32(0), lhs)
    left, right = at_strides(lhs, problem.lhs), at_strides(rhs, problem.rhs)
    if special is not None:
        left[70, 299] = special  # the second row of tiles
        right[299, 149] = special  # the third column
    buffers = buffers_of(client, plan, lhs, rhs, m * n * 4)
    launch(client, plan, buffers, ["pack", "prepare", "repair"])
    out = np.frombuffer(client.download(buffers[Slot.OUT], m * n * 4), np.float32).reshape(m, n)
    touched = np.frombuffer(b"\xa5" * 4, np.float32)[0] != out
    want = np.zeros((m, n), bool)
    if special is not None:
        want[64:128] = True
        want[:, 128:] = True
    assert (touched == want).all()
    with np.errstate(all="ignore"):
        exact = left.astype(np.float64) @ right.astype(np.float64)
        exact = exact.astype(np.float32)
        scale = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64)
        wrong = np.abs(out - exact) > 1e-6 * scale
    assert not wrong[want & np.isfinite(exact) & np.isfinite(scale)].any()
    assert (np.isnan(out) == np.isnan(exact))[want].all()


def test_high_and_low_part_are_the_value(client):
    problem = Problem.of(40, 64, 256)
    plan = accelerated.plan(problem, HOPPER, unit="mma", variant="specialized_tma")
    lhs, rhs = random_operand(problem.lhs, 1), random_operand(problem.rhs, 2)
    buffers = buffers_of(client, plan, lhs, rhs, 16)
    launch(client, plan, buffers, ["prepare"])
    low = np.frombuffer(client.download(buffers[Scratch(0)], 40 * 256 * 4), np.float32).reshape(40, 256)
    value = at_strides(lhs, problem.lhs)
    high = (value.astype(np.float64) - low).astype(np.float32)
    assert (high.view(np.uint32) & 0x1FFF == 0).all()
    assert (high.astype(np.float64) + low == value).all()
    assert (np.abs(low) <= np.abs(value) * 2.0**-11).all()


def product_of_vectors(client, problem: Problem, plan: LaunchPlan, times: int = 1) -> float:
    """The relative error of out = lhs · rhs, of the worst of so many launches."""
    lhs, rhs = random_operand(problem.lhs, 1), random_operand(problem.rhs, 2)
    out_bytes = problem.batch * problem.m * problem.n * problem.elem.size_bytes
    buffers = buffers_of(client, plan, lhs, rhs, out_bytes)
    zeros = {a: client.upload(bytes(4 * a.numbers)) for a in plan.calls[0].args if isinstance(a, Counter)}
    want = to_float64(at_strides(lhs, problem.lhs), problem.elem) @ to_float64(
        at_strides(rhs, problem.rhs), problem.elem
    )
    errors = []
    for _ in range(times):
        launch(client, plan, buffers | zeros, ["gemv"])
        raw = client.download(buffers[Slot.OUT], out_bytes)
        got = to_float64(np.frombuffer(raw, NUMBERS[problem.elem]), problem.elem).reshape(want.shape)
        errors.append(np.linalg.norm(got - want) / np.linalg.norm(want))
    return max(errors)


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
@pytest.mark.parametrize("transposed", [False, True])
def test_wide_gemv(client, elem, transposed):
    gpu = replace(client.profile, kind="gpu", capability=None, compute_units=8)
    for k, n in [(8, 8), (64, 72), (520, 40), (1000, 64), (264, 520), (5000, 16)]:
        problem = Problem.of(1, n, k, elem, rhs_transposed=transposed, batch=2)
        walk = check(problem, gpu)
        view = gemv.view(problem, walk)
        assert gemv_wide.usable(view, problem, gpu)
        plan = gemv_wide.plan(view, problem, walk, gpu)
        assert product_of_vectors(client, problem, plan) < 4e-3


def written_out(plan: LaunchPlan) -> LaunchPlan:
    """The strips' kernel with OpenCL in place of NVIDIA's instructions; it then needs the vector staged."""
    call = plan.calls[0]
    source = call.source
    for helper, body in {
        "leave": "*(volatile __global uint *)at = as_uint(sum) ? as_uint(sum) : 1u << 31;",
        "left_at": "return *(volatile __global const float4 *)at;",
        "of_lane": "return x;",
    }.items():
        source, count = re.subn(
            rf"({helper}\([^)]*\)\s*){{.*?}}\n(?=\n|static)", rf"\1{{ {body} }}\n", source, flags=re.S
        )
        assert count == 1
    options = tuple("-DSTREAMED=0" if o == "-DSTREAMED=1" else o for o in call.options)
    return replace(plan, calls=(replace(call, source=source, options=options),))


@pytest.mark.parametrize("elem", [Elem.F16, Elem.BF16, Elem.F32])
def test_strips(client, elem):
    for n, k, batch, tile in [
        (8, 8, 1, StripsTile(2, 4, 1, staged=True)),
        (520, 300, 2, StripsTile(2, 4, 3, staged=True)),
        (264, 333, 1, StripsTile(8, 16, 2, staged=True)),
        (1032, 129, 3, StripsTile(4, 8, 1, staged=True)),
        (72, 1000, 2, StripsTile(4, 8, 3, staged=True, lanes=16)),
    ]:
        problem = Problem.of(1, n, k, elem, batch=batch)
        walk = check(problem, client.profile)
        plan = written_out(gemv_wide.strips_plan(gemv.view(problem, walk), problem, walk, tile))
        # counters and parts are 0 after each launch
        assert product_of_vectors(client, problem, plan, times=3) < 4e-3


def test_strips_with_sums_of_zero(client):
    """A part is taken for missing while it is 0: a sum of 0 must not be, and the result is no -0."""
    problem = Problem.of(1, 136, 300, Elem.F32)
    walk = check(problem, client.profile)
    tile = StripsTile(2, 4, 3, staged=True, lanes=16)
    plan = written_out(gemv_wide.strips_plan(gemv.view(problem, walk), problem, walk, tile))
    rhs = random_operand(problem.rhs, 2)
    zeros = {a: client.upload(bytes(4 * a.numbers)) for a in plan.calls[0].args if isinstance(a, Counter)}
    for scale in (0, 1, np.nan, 0):
        lhs = random_operand(problem.lhs, 1) * np.float32(scale)
        buffers = buffers_of(client, plan, lhs, rhs, 136 * 4)
        launch(client, plan, buffers | zeros, ["gemv"])
        got = np.frombuffer(client.download(buffers[Slot.OUT], 136 * 4), np.float32)
        want = lhs[:300].astype(np.float64) @ rhs[: 300 * 136].reshape(300, 136)
        np.testing.assert_allclose(got, want, atol=1e-4)
        assert not np.signbit(got[got == 0]).any()
