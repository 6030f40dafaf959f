"""The library's functions give what the commands print; importing the package needs no pyopencl."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import asdict

import jsonschema
import pytest
from rooftune import session as sessions
from rooftune.api import bounds_for, decisions, devices, probe, tune
from rooftune.errors import DtypeError, UsageError
from rooftune.formats import load_schema

from ..cli.conftest import tune as command
from .conftest import DEVICES

__all__ = ["command"]


NEXT = [
    ("24", "f32", 1),
    ("24T", "bf16", 1),
    ("1x24x17", "f64", 1),
    ("17x1x24t", "f32", 3),
    ("9x5x1tT", "f16", 2),
]


@pytest.mark.skipif(not DEVICES, reason="no OpenCL device")
@pytest.mark.parametrize(("shape", "dtype", "batch"), NEXT)
def test_the_next_calls_are_remembered_products_of_arrays_with_the_same_key(tmp_path, shape, dtype, batch):
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "local"\n[proof]\nmode = "off"\n')
    session = sessions.Session()
    options = {"dtype": dtype, "batch": batch, "device": DEVICES[0].index, "session": session}
    (cold,) = tune([shape], repeat=3, **options)["shapes"]
    assert cold["source"] == "tuned"
    assert cold["launches"]["next"] == {"MatmulEntry": 3}
    assert cold["next"]["count"] == 3 and cold["compiles"]["next"] == 0
    assert len(session.hot.memory.launches) == 1


def test_devices_are_those_the_command_lists(command):
    assert devices() == command("devices", "--json").json["devices"]


@pytest.mark.skipif(not DEVICES, reason="no OpenCL device")
def test_tune_probe_and_decisions(tmp_path, command, monkeypatch):
    config = tmp_path / "cubecl.toml"
    config.write_text(
        '[environment]\npath = "local"\n[proof]\nmode = "off"\n[autotune.bench]\nmax_samples = 3\n'
    )
    session = sessions.Session()
    index = DEVICES[0].index
    tuned = tune([24], repeat=1, device=index, session=session)
    jsonschema.validate({"schema": "rooftune/shapes/1", **tuned}, load_schema("shapes"))
    assert tuned["shapes"][0]["source"] == "tuned"
    records = decisions([24], device=index, session=session)
    assert len(records) == 1
    report = probe("launch-overhead", device=index, session=session)
    jsonschema.validate({"schema": "rooftune/probe/1", **report}, load_schema("probe"))

    printed = command("shapes", "24", "--repeat", "1", "--device", str(index), "--json").json
    assert printed["shapes"][0]["source"] == "disk"
    assert printed["shapes"][0]["decision"] == tuned["shapes"][0]["decision"]
    assert command("decisions", "24", "--device", str(index)).json == records[0]
    again = command("probe", "launch-overhead", "--device", str(index), "--json").json
    assert again["probes"][0]["value"] == report["probes"][0]["value"]

    client = session.client(index)
    bounds = bounds_for(client, ops=1000, nbytes=4000, session=session)
    assert [bound.resource for bound in bounds.bounds] == ["compute", "memory"]
    assert len(bounds_for(client, nbytes=4000, session=session).bounds) == 1
    with pytest.raises(UsageError):
        bounds_for(client, ops=-1, session=session)
    with pytest.raises(DtypeError):
        bounds_for(client, ops=1, dtype="i7", session=session)
    assert asdict(bounds)


def test_importing_needs_no_pyopencl():
    code = """
import sys
sys.modules["pyopencl"] = None
import rooftune as rt
from rooftune import Tunable, TunableSet, TuneGroup, LocalTuner, Bounds
assert rt.anchor(1000) == 1024 and rt.LocalTuner("x").name == "x"
assert callable(rt.load_config)
try:
    rt.matmul
except ImportError as error:
    print("needed only now:", error)
"""
    ran = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "needed only now" in ran.stdout


def test_matmul_is_the_function_whatever_was_imported_before():
    code = """
import rooftune.matmul.key, rooftune.session
import rooftune as rt
from rooftune import matmul
assert rt.matmul is matmul and callable(matmul)
import rooftune.matmul.cost
assert rt.matmul is matmul
"""
    ran = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_matmul_says_what_it_takes():
    code = """
        import inspect, rooftune
        parameters = inspect.signature(rooftune.matmul).parameters
        options = ["out", "dtype", "precision", "client", "queue", "wait_for", "event"]
        assert list(parameters) == ["a", "b", *options]
        assert "The matrix product" in rooftune.matmul.__doc__
        wrong = {"matmul() got an unexpected keyword argument 'outt'": lambda: rooftune.matmul(1, 2, outt=3)}
        wrong["matmul() missing 1 required positional argument: 'b'"] = lambda: rooftune.matmul(1)
        for words, call in wrong.items():
            try:
                call()
            except TypeError as error:
                assert words in str(error), error
            else:
                raise AssertionError(words)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
