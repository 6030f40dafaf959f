"""Configurations that misbehave, on real devices: a worker dies of them, the tuning does not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from rooftune.config import Config, EnvironmentConfig, ProofConfig
from rooftune.kernel_run import tune_kernel
from rooftune.proof.kernel_trial import REFERENCE, KernelTrials, _Guarded
from rooftune.session import Session
from rooftune.spec.spec import Argument, parse_spec, sources_of

from ..library.conftest import by_device
from ..proof.conftest import strays

__all__ = ["strays"]

SOURCE = """
__kernel void twice(__global float *y, __global const float *x, int n)
{
    const int i = get_global_id(0);
#if misdeed == 3
    this is no OpenCL C;
#endif
    if (i >= n)
        return;
    y[i] = misdeed == 4 && i == n - 1 ? 0 : 2 * x[i];
    if (misdeed == 5 && i == n - 1)
        y[n] = 1;
    if (misdeed == 6 && i == 0)
        y[-1] = 1;
    if (misdeed == 7 && i == n / 2)
        ((__global float *)x)[n] = 1;
    if (misdeed == 1)
        while (((volatile __global float *)x)[i] < 2)
            ;
    if (misdeed == 2)
        for (long j = 0; j < 1l << 40; j += 1024)
            y[j] = 0;
}
__kernel void plain(__global float *y, __global const float *x, int n)
{
    if (get_global_id(0) < n)
        y[get_global_id(0)] = 2 * x[get_global_id(0)];
}
__kernel void endless(__global float *y, __global const float *x, int n)
{
    while (((volatile __global float *)x)[0] < 2)
        ;
}
__kernel void more(__global float *y, __global const float *x, int n)
{
    if (get_global_id(0) < n)
        y[get_global_id(0)] += 2 * x[get_global_id(0)];
}
"""
SPEC = """
kernel_name = "twice"
kernel_source = "twice.cl"
problem_size = 1000

[tune_params]
misdeed = [0, 1, 2, 3, 4, 5, 6, 7]
block_size_x = [8]

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
name = "n"
type = "int32"
value = "problem_size_x"

[reference.numpy]
y = "2 * x"
"""
BY_KERNEL = SPEC.replace(
    '[reference.numpy]\ny = "2 * x"',
    '[reference]\nkernel_name = "plain"\nkernel_source = "twice.cl"\n'
    "configuration = { block_size_x = 10, misdeed = 0 }",
)
REASONS = {
    1: "outlasted",
    3: "refused the program",
    4: "the reference",
    5: "4 bytes after the elements of y",
    6: "4 bytes before the elements of y",
    7: "4 bytes after the elements of x",
}


def fault_on(found):
    """What is said of a kernel that writes to memory nobody has: a CPU's process ends, a GPU's queue."""
    return "SIG" if found.profile.is_cpu else "a kernel faulted while running"


def session_in(folder, mode="worker", timeout_s=4.0):
    environment = EnvironmentConfig(path=folder)
    return Session(replace(Config(), environment=environment, proof=ProofConfig(mode, timeout_s, 2)))


def tuned(session, found, text=SPEC, source=SOURCE):
    client = session._clients[None] = session.client(found.index)
    return tune_kernel(session, client, parse_spec(text, None, {"twice.cl": source}), repeat=1)


@by_device
def test_misbehaving_configurations_are_out_and_say_why(found, tmp_path, strays):
    session = session_in(tmp_path)
    (run,) = tuned(session, found).sizes
    assert run.cost.error is None and run.configuration["misdeed"] == 0
    reasons = {e.name.split(",")[0]: e.reason for e in run.cost.decision.evidence}
    for misdeed, word in {**REASONS, 2: fault_on(found)}.items():
        assert word in reasons[f"misdeed={misdeed}"]
    checks = {c.name.split(",")[0]: c for c in run.cost.decision.checks}
    assert {c.where for c in checks.values()} == {"worker"}
    assert [checks[f"misdeed={i}"].passed for i in range(8)] == [True] + [False] * 7
    assert session.prover.usage.workers > 2
    session.prover.close()

    warm = session_in(tmp_path)
    (again,) = tuned(warm, found).sizes
    assert again.cost.source == "disk" and warm.prover.usage.workers == 0


@by_device
def test_a_stored_verdict_is_not_repeated(found, tmp_path, strays):
    text = SPEC.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 4]")
    session = session_in(tmp_path)
    tuned(session, found, text)
    assert session.prover.usage.launches == 2
    session.prover.close()
    session = session_in(tmp_path)
    tuned(session, found, text.replace("[0, 4]", "[0, 4, 5]"))
    assert session.prover.usage.launches == 1
    session.prover.close()


@by_device
def test_with_other_arguments_or_another_reference_it_is_proven_anew(found, tmp_path, strays):
    text = SPEC.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 3]")
    changes = {
        text: None,
        text.replace('"problem_size_x"', "900", 1): "bytes after the elements of y",
        text.replace('y = "2 * x"', 'y = "3 * x"'): "y[0] is",
    }
    for changed, said in changes.items():
        session = session_in(tmp_path)
        error = tuned(session, found, changed).sizes[0].cost.error
        session.prover.close()
        assert (error is None) if said is None else (said in error), error


@by_device
def test_a_reference_that_never_ends_blames_no_configuration(found, tmp_path, strays):
    text = BY_KERNEL.replace('"plain"', '"endless"').replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 8, 9, 10, 11]")
    session = session_in(tmp_path, timeout_s=2.0)
    (run,) = tuned(session, found, text).sizes
    assert "outlasted 2 s (the reference)" in run.cost.error
    assert session.prover.usage.workers <= 5
    session.prover.close()


@by_device
def test_where_workers_are_off_it_is_proven_here_and_said(found, tmp_path):
    text = SPEC.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 3, 4, 5]")
    (run,) = tuned(session_in(tmp_path, "inline"), found, text).sizes
    assert run.configuration["misdeed"] == 0
    assert {c.where for c in run.cost.decision.checks} == {"inline"}
    assert {c["where"] for c in run.to_json()["checks"]} == {"inline"}


def tried(client, text, misdeed, source=SOURCE, size=1000):
    spec = parse_spec(text, None, {"twice.cl": source})
    job = {
        "kernel": {"text": text, "sources": sources_of(spec)},
        "size": [size],
        "configuration": {"misdeed": misdeed, "block_size_x": 8},
    }
    return KernelTrials(client)(job, phase=lambda what, case: None, hold=client.shared)


@by_device
@pytest.mark.parametrize("text", [SPEC, BY_KERNEL], ids=["numpy", "kernel"])
def test_outputs_begin_as_nan(found, tmp_path, text):
    client = session_in(tmp_path, "off").client(found.index)
    assert tried(client, text, 0).status == "right"
    lazy = SOURCE.replace("y[i] = misdeed", "if (i != 7) y[i] = misdeed")
    outcome = tried(client, text, 0, lazy)
    assert outcome.status == "wrong" and "y[7] is nan" in outcome.reason
    zeros = text.replace("output = true", 'output = true\nfill = "zeros"')
    assert "y[7] is 0" in tried(client, zeros, 0, lazy).reason


SUM = "float sum(float a, float b) { return a + b; }"
ADDING = SUM + SOURCE.replace(
    "y[i] = misdeed == 4 && i == n - 1 ? 0 : 2 * x[i]", "y[i] = sum(y[i], misdeed == 4 ? 0 : 2 * x[i])"
).replace(
    "y[get_global_id(0)] += 2 * x[get_global_id(0)]",
    "y[get_global_id(0)] = sum(y[get_global_id(0)], 2 * x[get_global_id(0)])",
)
CANONICAL = ADDING.replace("return a + b;", "return isnan(a + b) ? as_float(0x7fffffff) : a + b;")
"""The same where arithmetic makes the same NaN of every other, as NVIDIA's does."""


@by_device
@pytest.mark.parametrize("source", [ADDING, CANONICAL], ids=["as it is", "one NaN"])
@pytest.mark.parametrize(
    "text",
    [
        SPEC.replace('y = "2 * x"', 'y = "y + 2 * x"'),
        SPEC.replace("output = true", 'output = true\nfill = "zeros"'),
        BY_KERNEL.replace('"plain"', '"more"'),
    ],
    ids=["reference reads it", "said", "kernel reads it"],
)
def test_an_output_that_is_read_begins_as_it_should(found, tmp_path, text, source):
    client = session_in(tmp_path, "off").client(found.index)
    assert tried(client, text, 0, source).status == "right"
    assert tried(client, text, 4, source).status == "wrong"
    fewer = text.replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[0, 4]")
    (run,) = tuned(session_in(tmp_path), found, fewer, source).sizes
    assert run.configuration["misdeed"] == 0


@by_device
def test_a_reference_that_fails_is_told_apart(found, tmp_path):
    client = session_in(tmp_path, "off").client(found.index)
    outcome = tried(client, SPEC.replace('"2 * x"', '"x @ reshape(x, 3, 3)"'), 0)
    assert outcome.case == REFERENCE and outcome.status == "error"
    assert "the reference can't be computed" in outcome.reason


@by_device
def test_the_command_survives_them(found, tmp_path, strays):
    (tmp_path / "twice.cl").write_text(SOURCE)
    (tmp_path / "twice.toml").write_text(SPEC)
    command = [sys.executable, "-c", "from rooftune.cli.app import main; main()"]
    command += ["kernel", str(tmp_path / "twice.toml"), "--device", str(found.index), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    (size,) = json.loads(ran.stdout)["sizes"]
    assert size["configuration"]["misdeed"] == 0
    assert {c["name"].split(",")[0] for c in size["checks"] if not c["passed"]} == {
        f"misdeed={i}" for i in range(1, 8)
    }


@by_device
def test_the_only_configuration_is_proven_too(found, tmp_path, strays):
    for misdeed, said in ((2, fault_on(found)), (0, None)):
        session = session_in(tmp_path)
        text = SPEC.replace("[0, 1, 2, 3, 4, 5, 6, 7]", f"[{misdeed}]")
        error = tuned(session, found, text).sizes[0].cost.error
        session.prover.close()
        assert (error is None) if said is None else ("the only candidate" in error and said in error), error


def test_the_part_of_a_buffer_is_let_go_of_before_the_buffer() -> None:
    """Where a driver doesn't keep a buffer for its parts, the other order ends the process."""
    gone: list[str] = []

    class Held:
        def __init__(self, name: str) -> None:
            self.name = name

        def __del__(self) -> None:
            gone.append(self.name)

        def get_sub_region(self, origin: int, nbytes: int) -> Held:
            return Held("part")

    class Memory:
        def empty(self, nbytes: int) -> Held:
            return Held("buffer")

    argument = Argument("x", np.dtype(np.float32))
    guarded = _Guarded.of(Memory(), argument, 5)
    del guarded
    assert gone == ["part", "buffer"]
