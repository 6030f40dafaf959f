"""What reaches a user when a command ends: exit codes, sentences, JSON errors, no traceback."""

from __future__ import annotations

import io
import json
import sys

import pytest
import typer
from rooftune.cli.run import command_name, run, wants_json
from rooftune.errors import DeviceError, RooftuneError, UsageError, WorkError


def tool(body) -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)

    @app.callback()
    def group() -> None:
        """A group, so that `work` is a word of the command line."""

    @app.command()
    def work(json: bool = False, number: int = 1) -> None:
        body()

    return app


def exit_code(body, *args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        run(tool(body), ["work", *args])
    return stop.value.code


def raising(error):
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("no", hint="yes"), 2),
        (DeviceError("no", hint="yes"), 3),
        (WorkError("no", hint="yes"), 4),
        (RooftuneError("no", hint="yes"), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("odd"), 1),
        (typer.Exit(4), 4),
        (BrokenPipeError(), 0),
    ],
)
def test_every_end_has_its_exit_code_and_no_traceback(error, code, capfd):
    assert exit_code(raising(error)) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err


def test_success_is_zero():
    assert exit_code(lambda: None) == 0


@pytest.mark.parametrize("args", [["--nonsense"], ["--number", "x"], ["extra"]])
def test_bad_usage_is_two_and_names_the_help(args, capsys):
    assert exit_code(lambda: None, *args) == 2
    assert "See 'tune work --help'." in capsys.readouterr().err


def test_an_error_tells_message_and_hint_on_stderr(capsys):
    exit_code(raising(UsageError("'x' is not a shape", hint="Give N.")))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: 'x' is not a shape\nGive N.\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UsageError("m", hint="h"), {"code": "usage", "message": "m", "hint": "h"}),
        (DeviceError("m"), {"code": "device", "message": "m", "hint": ""}),
        (KeyboardInterrupt(), {"code": "interrupted", "message": "interrupted", "hint": ""}),
    ],
)
def test_with_json_a_failure_is_one_object_on_stdout(error, expected, capsys):
    exit_code(raising(error), "--json")
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert next(iter(found)) == "schema"
    assert found == {"schema": "rooftune/error/1", "error": expected}


def test_with_json_bad_usage_is_json_too(capsys):
    assert exit_code(lambda: None, "--json", "--nonsense") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_a_defect_says_where_it_happened_and_asks_for_a_report(capsys):
    exit_code(raising(ZeroDivisionError("odd")))
    err = capsys.readouterr().err
    assert "ZeroDivisionError: odd" in err
    assert "test_run.py" in err
    assert "report" in err


def test_a_reader_that_leaves_early_is_no_error():
    import subprocess

    program = (
        "import sys, typer\n"
        "from rooftune.cli.run import run\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def work():\n"
        "    for line in range(200000):\n"
        "        print(line)\n"
        "run(app, [])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait() == 0


def test_options_end_at_a_double_dash():
    assert wants_json(["keys", "--json"])
    assert not wants_json(["keys", "--", "--json"])
    assert command_name(["--x", "keys", "1024"]) == "keys"
    assert command_name(["cache", "--json", "rm", "x"]) == "cache-rm"
    for args in ([], ["nope"], ["cache"], ["cache", "nope"], ["key"], ["export", "../x"]):
        assert command_name(args) == "error"


def test_a_stream_without_unicode_gets_a_near_spelling(monkeypatch):
    from rooftune.cli.render import tolerate_any_encoding

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    tolerate_any_encoding()
    print("3 µs → ≥ 4 × 5 ☃")
    sys.stdout.flush()
    assert raw.getvalue() == b"3 us -> >= 4 x 5 ?\n"
