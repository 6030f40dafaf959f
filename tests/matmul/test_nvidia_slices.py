"""Slices of k added up, on whatever OpenCL device there is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.matmul.launch import LaunchPlan, Scratch, Slot
from rooftune.matmul.nvidia.slices import GROUP, MOST_LANES, add_parts
from rooftune.matmul.problem import Elem, Operand, Problem

from .test_nvidia_kernels import at_strides
from .test_nvidia_plans import HOPPER, option
from .test_nvidia_portable import buffers_of, client, launch  # noqa: F401


def sliced(m: int, n: int, batch: int, row: int, offset: int) -> Problem:
    out = Operand((batch, m, n), (m * row + 12, row, 1), Elem.F32, offset * 4)
    lhs, rhs = (Operand.contiguous((batch, *shape), Elem.F32) for shape in ((m, 64), (64, n)))
    return Problem(lhs, rhs, out)


@pytest.mark.parametrize(
    ("m", "n", "slices", "batch", "row", "offset"),
    [
        (64, 64, 2, 1, 64, 0),
        (33, 67, 5, 2, 80, 3),
        (16, 2048, 7, 1, 2048, 4),
        (128, 100, 64, 3, 104, 8),
        (1, 3, 33, 1, 3, 1),
        (300, 1, 3, 1, 2, 0),
    ],
)
def test_slices_are_added_up(client, m, n, slices, batch, row, offset):  # noqa: F811
    problem = sliced(m, n, batch, row, offset)
    walk = problem.batch_walk()
    call = add_parts(problem, HOPPER, walk, slices, Scratch(0))
    values = np.random.default_rng(3).standard_normal((walk.count, slices, m, n), dtype=np.float32)
    out_bytes = 4 * (offset + batch * (m * row + 12))
    plan = LaunchPlan((call,), (16,))
    buffers = buffers_of(client, plan, np.zeros(4, np.float32), np.zeros(4, np.float32), out_bytes)
    buffers[Scratch(0)] = client.upload(values)
    launch(client, plan, buffers, ["add_parts"])
    raw = np.frombuffer(client.download(buffers[Slot.OUT], out_bytes), np.float32)
    got = at_strides(raw, problem.out)
    want = values.astype(np.float64).sum(axis=1).reshape(got.shape)
    assert np.abs(got - want).max() < 1e-5 * np.sqrt(slices)
    written = np.zeros(raw.size, bool)
    written[at_strides(np.arange(raw.size), problem.out)] = True
    assert (raw[~written].view(np.uint32) == 0xA5A5A5A5).all(), "nothing beside the result is written"


@given(m=st.integers(1, 3000), n=st.integers(1, 3000), slices=st.integers(2, 132), batch=st.integers(1, 4))
def test_lanes_are_a_power_of_two_and_every_column_has_its_work_item(m, n, slices, batch):
    problem = Problem.of(m, n, 8, Elem.F32, batch=batch)
    call = add_parts(problem, HOPPER, problem.batch_walk(), slices, Scratch(0))
    lanes = option(call, "LANES")
    assert lanes & (lanes - 1) == 0 and 1 <= lanes <= min(MOST_LANES, slices)
    assert call.global_size[0] // lanes >= m * -(-n // 4)
    assert call.global_size[0] % GROUP == 0 and call.local_size == (GROUP, 1)
