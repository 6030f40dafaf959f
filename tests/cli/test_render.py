"""Numbers, tables and JSON as they are printed."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
from types import SimpleNamespace

import pytest
from rooftune.cli import render
from rooftune.spec.brief import brief_names
from rooftune.tuning.bounds import Bound
from rooftune.tuning.decision import Timings
from rooftune.waiting import DEVICE, waiting


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


def test_a_bound_says_what_it_counts():
    bounds = [Bound(resource, 12_582_912, 4e9) for resource in ("memory", "compute", "words")]
    assert [render.format_bound(bound) for bound in bounds] == [
        "12.0 MiB at 4.0 GB/s take 3.146ms",
        "12.58 MFLOP at 4.0 GFLOP/s take 3.146ms",
        "1.258e+07 at 4.0 G/s take 3.146ms",
    ]


def test_json_has_its_schema_first_and_null_for_what_json_lacks(capsys):
    render.emit("keys", {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}})
    found = json.loads(capsys.readouterr().out)
    assert next(iter(found.items())) == ("schema", "rooftune/keys/1")
    assert found["a"] is None and found["b"] == [None, 1.5] and found["c"] == {"d": None}


def test_a_table_keeps_its_rows_whole_in_a_pipe(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "x" * 200
    lines = list(render.named_rows(["NAME", "TIME"], [[long, "1"], ["[b]", ""]], right=["TIME"]))
    assert lines == [f"{'NAME':200} TIME", f"{long}    1", "[b]"]
    assert render.wrapped(long + " y") == [long + " y"]


def test_a_compilers_lines_stay_as_they_are_and_an_indent_stays_where_one_word_is_too_long(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    log = "refused:\na.cl:2:35: unknown type name 'flot' and more words\n    flot *y\n    ^"
    assert render.wrapped(log) == log.split("\n")
    long = "x" * 39
    assert render.wrapped(f"  {long} (tuned)", "    ") == [f"  {long}", "    (tuned)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_table_and_prose_fit_a_narrow_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    name = "matmul_simple_unit_max_tile_size"
    rows = [[name, "1.0", "measured, 4801 launches"]]
    render.print_lines(line for line in render.named_rows(["NAME", "VALUE", "FROM"], rows) if line != name)
    render.print_lines(render.wrapped("many short words one after another " * 5, "  "))
    text = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())
    assert all(len(line) <= columns for line in text.splitlines())


def test_the_status_line_is_silent_where_stderr_is_no_terminal(capsys):
    with render.status_line() as status:
        status.progress("measuring", 0, 3)
    assert capsys.readouterr().err == ""


def test_a_pipe_is_as_wide_as_columns_says(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    render.print_folded(["many short words one after another " * 3])
    render.warn("many short words one after another " * 3)
    said = capsys.readouterr()
    assert max(map(len, said.out.splitlines())) <= 40
    assert len(said.err.splitlines()) == 1, "what is logged stays whole"


def status_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return render.status_line("opening the device")


def test_the_status_line_counts_the_seconds_of_waiting_and_puts_back_what_it_said(monkeypatch):
    with status_on_a_terminal(monkeypatch), waiting(DEVICE):
        time.sleep(1.3)
    said = sys.stderr.getvalue().replace("\r\x1b[K", "\n").splitlines()
    text = "waiting for another process that measures on this device, 1 s"
    assert said == ["", "opening the device", text, "opening the device"]
    assert len(text) < 80


def test_a_pipe_is_told_once_who_is_waited_for(monkeypatch, capsys):
    with render.status_line("opening the device"):
        for _ in range(2):
            with waiting(DEVICE):
                time.sleep(1.1)
    said = capsys.readouterr()
    assert said.err == "waiting for another process that measures on this device\n" and said.out == ""


def test_seconds_are_counted_while_nothing_is_measured(monkeypatch):
    with status_on_a_terminal(monkeypatch) as status:
        status.progress("proving", 0, 2, counting=True)
        time.sleep(2.5)
        status.progress("measuring", 0, 2)
        time.sleep(2.3)
    said = sys.stderr.getvalue().replace("\r\x1b[K", "\n").splitlines()
    assert said == ["", "opening the device", "proving 0/2", "proving 0/2, 2 s", "measuring 0/2"]


def test_a_name_too_long_for_the_table_has_a_line_of_its_own(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    rows = [["short", "1.000ms"], ["a_name_of_very_many_parts_" * 2, "2.000ms"]]
    lines = list(render.named_rows(["NAME", "TIME"], rows, right=["TIME"]))
    assert lines == ["NAME     TIME", "short 1.000ms", rows[1][0], "      2.000ms"]


def test_short_waits_are_not_worth_a_word(monkeypatch):
    with status_on_a_terminal(monkeypatch), waiting(DEVICE):
        pass
    assert "waiting" not in sys.stderr.getvalue()


def test_a_probe_is_named_with_the_time_left(monkeypatch):
    with status_on_a_terminal(monkeypatch) as status:
        status.probing("compute f32 plain", 2.4)
    assert "probing compute f32 plain, about 2 s left" in sys.stderr.getvalue()


def test_time_spent_names_waiting_only_where_there_was_any():
    assert render.spent(Timings(1.0, 0.0, 0.0, 0.5)) == "probe 1.000s, measure 500.000ms"
    assert render.spent(Timings(measure_s=1.0, wait_s=2.0)) == "measure 1.000s, wait 2.000s"


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


def test_words_longer_than_a_line_are_folded_at_commas(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    name = "block_size_x=128,block_size_y=16,tile_x=1"
    assert render.wrapped(f"    1.280ms  {name} (dropped)", " " * 13) == [
        "    1.280ms  block_size_x=128,",
        "             block_size_y=16,",
        "             tile_x=1",
        "             (dropped)",
    ]
    assert render.wrapped(f"Out  {'word ' * 5}a=1,b=2: as it is", "  ") == [
        "Out  word word word word word",
        "  a=1,b=2: as it is",
    ]
    rows = [(f"108 {name}", "1.2ms"), ("  1 short", "2ms")]
    assert list(render.named_rows(("NAME", "TIME"), rows))[1:3] == [
        "108 block_size_x=128,",
        "    block_size_y=16,tile_x=1",
    ]


def test_parts_are_left_out_only_where_all_names_have_them():
    def brief(*names: str, tuner: str = "kernel:scale"):
        decision = SimpleNamespace(tuner=tuner, evidence=[SimpleNamespace(name=name) for name in names])
        return brief_names(decision)

    shorten = brief("x=1,y=2,z=7", "x=12,y=2,z=7")
    assert shorten("x=12,y=2,z=7 and x=1,y=2,z=7: y=2") == "x=12 and x=1: y=2"
    for names in (["x=1,y=2"], ["x=1,y=2", "x=2,y=1"], ["x=a,b", "x=a"], ["as it is"], []):
        assert brief(*names)("x=1,y=2") == "x=1,y=2"
    assert brief("x=1,y=2", "x=2,y=2", tuner="own")("x=1,y=2") == "x=1,y=2"
