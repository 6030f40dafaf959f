"""The command as a person meets it: on terminals wide and narrow, with and without colour or Unicode."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

TUNE = [sys.executable, "-m", "rooftune.cli"]
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def on_terminal(args: list[str], columns: int = 80, **env: str) -> tuple[int, str]:
    """Exit code and all that a terminal of this width was sent."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    told = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    told |= {"TERM": "xterm-256color", **env}
    process = subprocess.Popen(
        [*TUNE, *args], stdin=child, stdout=child, stderr=child, env=told, close_fds=True
    )
    os.close(child)
    sent = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        sent += part
    os.close(parent)
    return process.wait(), sent.decode(env.get("PYTHONIOENCODING", "utf-8"), "replace").replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [50, 80, 120, 200])
def test_help_and_plans_fit_the_terminal(columns):
    for args in (["--help"], ["keys", "--help"], ["plan", "64", "--assume", "gpu"]):
        code, text = on_terminal(args, columns)
        assert code == 0
        long = [line for line in text.splitlines() if len(line) > columns and "matmul_" not in line]
        assert not long, args


def test_errors_are_coloured_on_a_terminal_unless_colour_is_not_wanted():
    code, text = on_terminal(["keys", "x"])
    assert code == 2
    assert ESCAPE.search(text)
    assert ESCAPE.sub("", text).startswith("error: 'x' is not a shape")
    for unwanted in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        _, text = on_terminal(["keys", "x"], **unwanted)
        assert not COLOUR.search(text), unwanted
    _, text = on_terminal(["keys", "x"], NO_COLOR="")
    assert COLOUR.search(text), "as no-color.org has it: set, and not empty"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_unicode(encoding):
    code, text = on_terminal(["plan", "64", "--assume", "cpu"], PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert code == 0
    assert "round 1" in text and "Traceback" not in text


def test_nothing_but_results_reach_stdout_in_a_pipe():
    ran = subprocess.run([*TUNE, "keys", "8", "--level", "huge"], capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stdout == ""
    assert not ESCAPE.search(ran.stderr)


@pytest.mark.parametrize("after_s", [0.3, 2.0])
def test_ctrl_c_ends_a_tuning_with_one_line(after_s, tmp_path):
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*TUNE, "shapes", "1500", "1501", "1502"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    if process.returncode == -signal.SIGINT:
        pytest.skip("interrupted before Python had started the program")
    assert process.returncode in (130, 3)
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_error():
    line = f"{sys.executable} -m rooftune.cli plan 1024 --assume cpu | head -1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    assert ran.returncode == 0
    assert ran.stderr == ""
