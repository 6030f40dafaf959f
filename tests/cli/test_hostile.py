"""What careless, unlucky or hostile input meets: the documented exit code and a sentence, never a defect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

NO_SHAPES = ["-1", "x", "1x2", "", "1e3", "٣٢", "３２", "32×32×32", "9" * 5000, "0" * 5000 + "x"]


@pytest.mark.parametrize("shape", NO_SHAPES)
def test_what_is_no_shape_is_bad_usage(tune, shape):
    ran = tune("keys", "--json", "--", shape)
    assert ran.code == 2
    assert len(ran.err) < 500


@pytest.mark.parametrize("args", [("10000000",), ("32", "--batch", "100000000"), ("32", "--batch", "9" * 18)])
def test_a_shape_too_large_for_the_memory_is_said_to_be_that(tune, args):
    ran = tune("shapes", "--json", *args)
    assert ran.code == 4
    assert "memory for" in ran.json["shapes"][0]["error"]


def test_memory_that_runs_out_anywhere_is_no_defect(tune, monkeypatch):
    from rooftune.matmul.key import MatmulAutotuneKey

    def build(*args):
        raise MemoryError("Unable to allocate 364. TiB")

    monkeypatch.setattr(MatmulAutotuneKey, "build", build)
    ran = tune("keys", "32", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (4, "memory")


def test_an_endless_configuration_is_not_read_to_its_end(tune):
    ran = tune("keys", "--config", "/dev/zero", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (2, "config")


def in_shell(command: str, redirect: str) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m rooftune.cli {command} {redirect}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["keys 32", "cache ls", "devices --json"])
def test_a_closed_standard_stream_is_no_defect(command, redirect):
    ran = in_shell(command, redirect)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("redirect", ["2>&-", "2< /dev/null", "2> /dev/full", "2> >(true)"])
@pytest.mark.parametrize(("command", "code"), [("plan 64", 0), ("explain nosuch", 2), ("nosuch", 2)])
def test_errors_that_nobody_can_read_change_no_exit_code(command, code, redirect):
    assert in_shell(command, redirect).returncode == code


def test_a_shell_script_that_starts_us_with_a_closed_stream_is_no_defect(tmp_path):
    script = tmp_path / "started"
    script.write_text(f'#!/bin/bash\nexec {sys.executable} -m rooftune.cli "$@"\n')
    script.chmod(0o755)
    for redirect, arguments, code in (("2>&-", "nosuch", 2), (">&-", "keys", 0), (">&- 2>&-", "keys", 0)):
        ran = subprocess.run(["bash", "-c", f"{script} {arguments} {redirect}"], timeout=120)
        assert ran.returncode == code, redirect


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["keys 32", "--help", "version", "cache ls", "keys 32 --json"])
def test_a_full_disk_under_stdout_is_said_to_be_that(command):
    ran = in_shell(command, "> /dev/full")
    assert ran.returncode == 4
    assert "No space left on device" in ran.stderr
    assert "Traceback" not in ran.stderr and "defect" not in ran.stderr


@pytest.mark.parametrize("command", ["devices --json", "keys 32", "plan 32", "decisions", "cache ls"])
def test_a_deleted_current_folder_stops_nothing(command, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m rooftune.cli {command}"
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr


def test_an_endless_specification_is_not_read_to_its_end(tune):
    ran = tune("kernel", "/dev/zero", "--json")
    assert (ran.code, "larger than" in ran.json["error"]["message"]) == (2, True)


FULL = """
import atexit, threading
from rooftune.cli import keys
from rooftune.cli.entry import main
from rooftune.matmul.key import MatmulAutotuneKey

def build(*args):
    raise MemoryError("Unable to allocate 364. TiB")

MatmulAutotuneKey.build = build
threading.Thread(target=threading.Event().wait).start()  # as a driver may at its end
atexit.register(print, "put away")
main()
"""


def test_where_memory_ran_out_nothing_is_waited_for_at_the_end():
    ran = subprocess.run(
        [sys.executable, "-c", FULL, "keys", "32"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 4 and "too little memory" in ran.stderr and "put away" in ran.stdout
