"""Every JSON output of commands that need a device fits its schema, and holds what it promises."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from rooftune.formats import load_schema

EXAMPLE = Path(__file__).parents[2] / "cubecl.toml.example"


def fits(name: str, value: object) -> None:
    jsonschema.Draft202012Validator(load_schema(name)).validate(value)


@pytest.fixture
def tuned(tune):
    """A tuned shape in the environment `outputs`."""
    ran = tune("shapes", "40", "--repeat", "2", "--environment", "outputs", "--json")
    assert ran.code == 0, ran.err
    return ran.json


def test_shapes(tuned, tune):
    fits("shapes", tuned)
    again = tune("shapes", "40", "0", "33x40x36", "--repeat", "0", "--environment", "outputs", "--json").json
    fits("shapes", again)
    assert again["shapes"][0]["source"] == "disk"


def test_shapes_that_are_refused(tune):
    ran = tune("shapes", "44", "--warm", "--environment", "empty-one", "--json")
    assert ran.code == 4
    fits("shapes", ran.json)
    assert ran.json["shapes"][0]["error"]


def test_decisions(tuned, tune):
    lines = tune("decisions", "--environment", "outputs").out.splitlines()
    assert lines
    for line in lines:
        record = json.loads(line)
        fits("decisions", record)
        fits("key", record["key"])
        assert len(record["results"]) == 33
    assert tune("decisions", "--environment", "outputs", "--level", "balanced").out.splitlines() == lines
    assert tune("decisions", "--environment", "outputs", "--level", "full").out == ""


@pytest.mark.parametrize("command", ["decisions", "roofline", "verify"])
@pytest.mark.parametrize("options", [("--dtype", "f16"), ("--batch", "2"), ("--precision", "tf32")])
def test_options_of_shapes_want_shapes(command, options, tune):
    ran = tune(command, *options)
    assert ran.code == 2 and "are for shapes" in ran.err


def test_the_log_for_people(tune, tmp_path):
    (tmp_path / "log.toml").write_text('[autotune.logger]\nstderr = true\nfile = "log.txt"\nlevel = "full"\n')
    ran = tune("shapes", "24", "--repeat", "0", "--environment", "logged", "--config", "log.toml")
    logged = (tmp_path / "log.txt").read_text()
    assert " tuned 32 f32" in logged and "candidates measured\n    " in logged
    assert logged in ran.err


def test_explain_and_plan(tuned, tune):
    for args in (["explain", "40", "--environment", "outputs"], ["plan", "40"]):
        ran = tune(*args, "--json")
        assert ran.code == 0
        fits(args[0], ran.json)


LISTS = [("cache", "ls"), ("cache", "log"), ("explain", "40"), ("keys",), ("plan", "40")]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("args", LISTS)
def test_lists_keep_to_the_columns_asked_for_in_a_pipe_too(args, columns, tuned, tune, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    here = ["--environment", "outputs"] if args[0] in ("cache", "explain") else []
    out = tune(*args, *here).out
    long = [line for line in out.splitlines() if len(line) > columns and "matmul_ordered" not in line]
    assert out and not [line for line in long if "/" not in line.split()[0]], "but for paths"


def test_cache_and_env(tuned, tune, tmp_path):
    here = ["--environment", "outputs", "--json"]
    listed = tune("cache", "ls", *here).json
    fits("cache-ls", listed)
    fits("cache-show", tune("cache", "show", listed["entries"][0]["id"], *here).json)
    fits("cache-path", tune("cache", "path", *here).json)
    fits("cache-verify", tune("cache", "verify", *here).json)
    fits("cache-log", tune("cache", "log", *here).json)
    fits("cache-export", tune("cache", "export", "file.json", *here).json)
    fits("export", json.loads((tmp_path / "file.json").read_text()))
    taken = tune("cache", "import", "file.json", "--environment", "other", "--json")
    assert taken.code == 0
    fits("cache-import", taken.json)
    fits("env-copy", tune("env", "copy", "other", "third", "--json").json)
    fits("env-ls", tune("env", "ls", "--json").json)
    fits("cache-rm", tune("cache", "rm", "--all", "--yes", "--environment", "other", "--json").json)
    fits("env-rm", tune("env", "rm", "third", "other", "--yes", "--json").json)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        *product(
            ["shapes", "explain"], [["x"], ["8", "--dtype", "i8"], ["8", "--device", "nothing like it"]]
        ),
        ("decisions", ["--level", "7"]),
        ("decisions", ["7x11x13", "--environment", "empty-one"]),
        ("explain", ["7x11x13", "--environment", "empty-one"]),
        ("shapes", ["8", "--cold", "--warm"]),
        ("cache", ["show", "nothing"]),
        ("cache", ["ls", "--db", "missing.db"]),
        ("env", ["rm", "missing", "--yes"]),
    ],
)
def test_failures(command, extra, tune):
    ran = tune(command, *extra, "--json")
    assert ran.code in (2, 3, 4)
    fits("error", ran.json)
    assert "Traceback" not in ran.err


def test_the_example_configuration_is_the_default():
    from rooftune.config import Config, load_config

    loaded = load_config(EXAMPLE, env={})
    assert loaded.warnings == ()
    assert loaded == Config()
