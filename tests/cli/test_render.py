"""Numbers, tables and JSON as they are printed."""

from __future__ import annotations

import io
import json
import math
import re
import sys

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
    monkeypatch.setenv("COLUMNS", "40")
    long = "x" * 200
    render.print_table(["name", "time"], [[long, "1"], ["[b]", None]], right=["time"])
    lines = capsys.readouterr().out.splitlines()
    assert any(long in line for line in lines)
    assert any("[b]" in line for line in lines)
    assert render.wrapped(long + " y") == [long + " y"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_table_and_prose_fit_a_narrow_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    render.print_table(["name", "value"], [["matmul_simple_unit_max_tile_size", "1.0"]])
    render.print_lines(render.wrapped("many short words one after another " * 5, "  "))
    text = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())
    assert all(len(line) <= columns for line in text.splitlines())


def test_the_status_line_is_silent_where_stderr_is_no_terminal(capsys):
    with render.status_line() as status:
        status.progress("measuring", 0, 3)
    assert capsys.readouterr().err == ""


def test_the_status_line_says_the_time_left_and_goes_away(monkeypatch):
    clock = iter([0.0, 0.0, 2.0])
    monkeypatch.setattr(render, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with render.status_line() as status:
        status.progress("measuring", 0, 3)
        status.progress("measuring", 1, 3)
    assert "measuring 1/3, about 4 s left" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\r\x1b[K")
