"""Numbers, tables and JSON as they are printed."""

from __future__ import annotations

import json
import math

import pytest
from rooftune.cli import render


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.912, "1.912s"),
        (2.021e-3, "2.021ms"),
        (3.626e-6, "3.626µs"),
        (120e-9, "120ns"),
        (0.0, "0ns"),
        (None, "-"),
        (math.inf, "-"),
    ],
)
def test_times_are_shown_in_the_unit_that_suits_them(seconds, text):
    assert render.format_seconds(seconds) == text


def test_sizes_and_rates():
    assert render.format_bytes(12_582_912) == "12.0 MiB"
    assert render.format_bytes(17) == "17 B"
    assert render.format_rate(204.3e9, "FLOP/s") == "204.3 GFLOP/s"
    assert render.format_rate(None, "B/s") == "-"


def test_json_has_its_schema_first_and_null_for_what_json_lacks(capsys):
    render.emit("keys", {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}})
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found.items())) == ("schema", "rooftune/keys/1")
    assert found["a"] is None and found["b"] == [None, 1.5] and found["c"] == {"d": None}


def test_a_table_keeps_its_rows_whole_in_a_pipe(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "x" * 200
    render.print_table(["name", "time"], [[long, "1"], ["[b]", None]], right=["time"])
    lines = capsys.readouterr().out.splitlines()
    assert any(long in line for line in lines)
    assert any("[b]" in line for line in lines)


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_table_fits_a_narrow_terminal(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    render.print_table(["name", "value"], [["matmul_simple_unit_max_tile_size", "1.0"]])
    assert all(len(line) <= columns for line in capsys.readouterr().out.splitlines())


def test_progress_is_silent_where_stderr_is_no_terminal(capsys):
    with render.steps("tuning", 3) as progress:
        progress.begin("one")
        progress.end()
    assert capsys.readouterr().err == ""
