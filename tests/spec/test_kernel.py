"""Specified kernels on real devices: tuned, checked, stored, and used by name."""

from __future__ import annotations

import re

import jsonschema
import numpy as np
import pyopencl.array as cl_array
import pytest
from rooftune.api import kernel
from rooftune.errors import ArgumentError, UsageError, WorkError
from rooftune.formats import load_schema
from rooftune.kernel_run import tune_kernel
from rooftune.spec.kernel import TunedKernel
from rooftune.spec.registry import find_spec
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


@by_device
def test_a_run_that_fails_leaves_what_was_tuned_under_its_name(found, tmp_path):
    session = session_in(tmp_path)
    _, client, report = tuned(session, found)
    typo = SOURCE.replace("a * x[i]", "a * z[i]").replace("WRONG", "0")
    wrong = SPEC.replace('"a * x"', '"a * x + 1"')
    for source, text in ((typo, SPEC), (RIGHT, wrong)):
        assert not tuned(session_in(tmp_path), found, source, text)[2].complete
    again = session_in(tmp_path)
    assert kernel("scale", session=again, client=client).best(5000) == report.sizes[0].configuration
    assert find_spec(again.store, "scale").kernel.source == RIGHT


@by_device
def test_only_what_ran_is_known_by_name(found, tmp_path):
    session = session_in(tmp_path)
    named = 'name = "scal"' + SPEC
    assert not tuned(session, found, "__kernel void scale() { nonsense }", named)[2].complete
    with pytest.raises(UsageError, match="there are: none yet"):
        kernel("scal", session=session)
    sizes = [(9000000000000000000,), (5000,)]
    assert not tuned(session, found, text=named, sizes=sizes)[2].complete
    assert kernel("scal", session=session).spec.name == "scal"


def test_the_turns_of_a_search_are_counted_together(tmp_path):
    session = session_in(tmp_path)
    told: list[tuple[str, int, int]] = []
    session.context.progress = lambda *what: told.append(what)
    text = SPEC.replace("[16, 64, 4096]", "[8, 16, 32, 64]").replace("[1, 4]", "[1, 2, 3, 4, 5, 6]")
    tuned(session, DEVICES[0], text=text)
    counts = [(done, total) for phase, done, total in told if phase in ("prove", "compile", "measure")]
    assert len(counts) > 10 and {total for _, total in counts} == {10}
    assert [done for done, _ in counts] == sorted(done for done, _ in counts)
    assert 6 < counts[-1][0] <= 10
    assert any(phase == "compare" and 3 <= done == total <= 6 for phase, done, total in told)


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


def argument(name, text):
    """The specification with other lines for one argument; none takes it away."""
    head, _, rest = SPEC.partition(f'[[arguments]]\nname = "{name}"\n')
    _, separator, tail = rest.partition("\n\n")
    return f'{head}[[arguments]]\nname = "{name}"\n{text}{separator}{tail}' if text else head + tail


@pytest.mark.parametrize(
    "text, told",
    [
        (argument("a", 'type = "float64"\nvalue = 3.0'), "argument 3 .* is a float64 of 8 bytes.*'float a'"),
        (argument("x", 'type = "int32"\nvalue = 3'), "argument 2 .* is an int32 of 4 bytes"),
        (argument("x", 'type = "int8"\nsize = 9\nlocal = true'), "argument 2 .* is local memory of 9 bytes"),
        (argument("n", ""), r"takes 4 arguments: __global float \*y, .* int n; 3 given"),
        (SPEC.replace('_name = "scale"', '_name = "scael"'), "no kernel 'scael'; its kernels: scale"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_the_kernels_are_told_in_its_words(tmp_path, text, told):
    session = session_in(tmp_path)
    if "local memory" in told and not session.client().profile.is_cpu:
        pytest.skip("NVIDIA's driver takes it for a null pointer, and the device is lost")
    spec = parse_spec(text, None, {"scale.cl": RIGHT})
    error = tune_kernel(session, session.client(), spec, repeat=0).sizes[0].cost.error
    assert re.search(told, error), error
    assert "INVALID" not in error and "LogicError" not in error


def test_a_call_with_misfits_says_which(tmp_path):
    session = session_in(tmp_path)
    spec = parse_spec(SPEC, None, {"scale.cl": RIGHT})
    scale, x = TunedKernel(session, session.client(), spec), session.client().upload(bytes(4 * 5000))
    scale.tune(5000)
    with pytest.raises(ArgumentError, match=r"a is given as 'two'.*a number, float32"):
        scale(x, x, "two", 5000, problem_size=5000)
    with pytest.raises(WorkError, match=r"argument 2 .* is a float of Python; it takes '__global"):
        scale(x, 2.0, 2.0, 5000, problem_size=5000)


@pytest.mark.parametrize(
    "expression, told",
    [
        ("(a * x)[0:10]", "gives 10 elements, and y has 5000. It must give as many"),
        ("x[0:0]", "gives 0 elements, and y has 5000"),
        ("'text'", "gives a str"),
        ("x + x[0:7]", "can't be computed: operands .* Here x is an array of 5000 float32."),
        ("roll(x)", "can't be computed: .*shift"),
    ],
)
def test_a_reference_that_is_none_is_told_with_what_it_had(tmp_path, expression, told):
    session = session_in(tmp_path)
    spec = parse_spec(SPEC.replace('"a * x"', f'"{expression}"'), None, {"scale.cl": RIGHT})
    error = tune_kernel(session, session.client(), spec, repeat=0).sizes[0].cost.error
    assert re.search(told, error), error
    assert "Error:" not in error


def test_buffers_larger_than_the_size_may_be_given(tmp_path):
    """What lies behind the size's elements is neither computed nor compared."""
    session = session_in(tmp_path)
    scale = TunedKernel(session, session.client(), parse_spec(SPEC, None, {"scale.cl": RIGHT}))
    x, y = (session.client().upload(np.ones(6000, np.float32)) for _ in range(2))
    scale(y, x, 2.0, 5000, problem_size=5000).wait()
    result = np.frombuffer(session.client().download(y, 24000), np.float32)
    assert (result[:5000] == 2).all() and (result[5000:] == 1).all()
