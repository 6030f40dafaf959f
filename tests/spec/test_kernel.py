"""Specified kernels on real devices: tuned, checked, stored, and used by name."""

from __future__ import annotations

import jsonschema
import numpy as np
import pyopencl.array as cl_array
import pytest
from rooftune.api import kernel
from rooftune.errors import UsageError, WorkError
from rooftune.formats import load_schema
from rooftune.kernel_run import tune_kernel
from rooftune.spec.kernel import TunedKernel
from rooftune.spec.spec import parse_spec

from ..library.conftest import DEVICES, by_device, session_in

SPEC = """
kernel_name = "scale"
kernel_source = "scale.cl"
problem_size = 5000
grid_div_x = ["block_size_x", "per_item"]
restrictions = ["block_size_x * per_item <= 256"]

[tune_params]
block_size_x = [16, 64, 4096]
per_item = [1, 4]

[[arguments]]
name = "y"
type = "float32"
size = "problem_size_x"
output = true

[[arguments]]
name = "x"
type = "float32"
size = "problem_size_x"

[[arguments]]
name = "a"
type = "float32"
value = 3.0

[[arguments]]
name = "n"
type = "int32"
value = "problem_size_x"

[reference.numpy]
y = "a * x"
"""
SOURCE = """
__kernel void scale(__global float *y, __global const float *x, float a, int n)
{
    int first = get_group_id(0) * block_size_x * per_item + get_local_id(0);
    for (int j = 0; j < per_item; j++) {
        int i = first + j * block_size_x;
        if (i < n)
            y[i] = WRONG ? 0 : a * x[i];
    }
}
"""
RIGHT = SOURCE.replace("WRONG", "0")


def tuned(session, found, source=RIGHT, text=SPEC, **more):
    client = session._clients[None] = session.client(found.index)
    spec = parse_spec(text, None, {"scale.cl": source})
    return spec, client, tune_kernel(session, client, spec, repeat=1, **more)


@by_device
def test_tuned_stored_and_used_by_name(found, tmp_path):
    session = session_in(tmp_path)
    spec, client, report = tuned(session, found)
    (run,) = report.sizes
    assert run.cost.error is None and run.cost.source == "tuned" and run.measured >= 3
    assert run.configuration in spec.configurations()
    assert all(check.passed for check in run.cost.decision.checks)
    jsonschema.validate({"schema": "rooftune/kernel/1", **report.to_json()}, load_schema("kernel"))

    again = session_in(tmp_path)
    assert tuned(again, found)[2].sizes[0].cost.source == "disk"
    scale = kernel("scale", session=again, client=client)
    x = cl_array.to_device(client.queue, np.arange(4500, dtype=np.float32))
    y = cl_array.zeros_like(x)
    scale(y, x, 2.0, 4500, problem_size=4500).wait()
    assert np.array_equal(y.get(), 2 * np.arange(4500, dtype=np.float32))
    assert scale.best(4500) == run.configuration
    with pytest.raises(UsageError, match="takes 4 arguments"):
        scale(y, x, problem_size=4500)
    with pytest.raises(UsageError, match="problem size"):
        scale(y, x, 2.0, 4500, problem_size=0)
    with pytest.raises(UsageError, match="there are: scale"):
        kernel("scael", session=again)


@by_device
def test_arrays_larger_than_the_device_are_refused_before_they_are_made(found, tmp_path):
    text = SPEC.replace("problem_size = 5000", "problem_size = 9000000000000000000")
    assert "no memory" in tuned(session_in(tmp_path), found, text=text)[2].sizes[0].cost.error


@by_device
def test_wrong_configurations_never_win(found, tmp_path):
    source = SOURCE.replace("WRONG", "(block_size_x == 64)")
    _, _, report = tuned(session_in(tmp_path), found, source)
    assert report.sizes[0].configuration["block_size_x"] == 16
    wrong = {c.name for c in report.sizes[0].cost.decision.checks if not c.passed}
    assert all("block_size_x=64" in name for name in wrong)


@by_device
def test_a_kernel_that_does_not_compile_says_so(found, tmp_path):
    _, _, report = tuned(session_in(tmp_path), found, "__kernel void scale() { nonsense }")
    assert not report.complete
    error = report.sizes[0].cost.error
    assert error.count("unknown type name") <= 1 and "-Dblock_size_x" not in error
    assert "nonsense" in error and error.count("OpenCL compiler refused") == 1
    assert "configurations tried: the OpenCL" in error
    assert error.splitlines()[-1].endswith("Mend the kernel or its specification.")


def test_the_turns_of_a_search_are_counted_together(tmp_path):
    session = session_in(tmp_path)
    told: list[tuple[str, int, int]] = []
    session.context.progress = lambda *what: told.append(what)
    text = SPEC.replace("[16, 64, 4096]", "[8, 16, 32, 64]").replace("[1, 4]", "[1, 2, 3, 4, 5, 6]")
    tuned(session, DEVICES[0], text=text)
    counts = [(done, total) for phase, done, total in told if phase in ("prove", "compile", "measure")]
    assert len(counts) > 10 and {total for _, total in counts} == {12}
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
    assert 6 < counts[-1][0] <= 12
    assert ("compare", 8, 8) in told


@by_device
def test_nothing_is_measured_where_that_is_forbidden(found, tmp_path):
    session = session_in(tmp_path)
    session.context.measure = False
    assert "forbids measuring" in tuned(session, found)[2].sizes[0].cost.error


@by_device
def test_a_reference_kernel(found, tmp_path):
    text = SPEC.replace(
        '[reference.numpy]\ny = "a * x"',
        (
            '[reference]\nkernel_name = "plain"\nkernel_source = "plain.cl"\n'
            "configuration = { block_size_x = 20 }"
        ),
    )
    plain = (
        "__kernel void plain(__global float *y, __global const float *x, float a, int n)"
        "{ if (get_global_id(0) < n) y[get_global_id(0)] = a * x[get_global_id(0)]; }"
    )
    session = session_in(tmp_path)
    client = session._clients[None] = session.client(found.index)
    for source, right in ((RIGHT, True), (SOURCE.replace("WRONG", "1"), False)):
        spec = parse_spec(text, None, {"scale.cl": source, "plain.cl": plain})
        if right:
            assert tune_kernel(session, client, spec, repeat=0).complete
        else:
            with pytest.raises(WorkError, match="the reference"):
                TunedKernel(session, client, spec).tune(5000)


@by_device
def test_many_configurations_are_searched(found, tmp_path):
    text = SPEC.replace("[16, 64, 4096]", "[1, 2, 4, 8, 16, 32, 64]").replace("[1, 4]", "[1, 2, 3, 4, 5, 6]")
    _, _, report = tuned(session_in(tmp_path), found, text=text)
    assert 6 <= report.sizes[0].measured <= 13 < report.configurations
