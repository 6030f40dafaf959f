"""What a shell is offered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from rooftune.cli.app import COMMANDS


def offered(words: str) -> list[str]:
    position = len(words.split()) - (not words.endswith(" "))
    told = {"_TUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    program = [sys.executable, "-m", "rooftune.cli"]
    return subprocess.run(program, env=os.environ | told, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tune ", list(COMMANDS)),
        ("tune key", ["keys"]),
        ("tune keys --pre", ["--precision"]),
        ("tune keys --dtype b", ["bf16"]),
        ("tune keys --level ", ["minimal", "balanced", "extensive", "full"]),
    ],
)
def test_commands_options_and_values_are_completed(words, expected):
    assert offered(words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_each_shell(shell):
    told = {"_TUNE_COMPLETE": f"source_{shell}"}
    program = [sys.executable, "-m", "rooftune.cli"]
    ran = subprocess.run(program, env=os.environ | told, capture_output=True, text=True)
    assert "tune" in ran.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize("words", ["tune ", "tune cache "])
def test_descriptions_are_whole_sentences(shell, words):
    told = {"_TUNE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words}
    told |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": ""}
    program = [sys.executable, "-m", "rooftune.cli"]
    text = subprocess.run(program, env=os.environ | told, capture_output=True, text=True).stdout
    assert "..." not in text
    assert "device’s" in text or "environment’s" in text
    assert all(line.count('":"') == 1 for line in text.splitlines() if shell == "zsh"), "no line is folded"


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_really_completes(tmp_path):
    program = tmp_path / "tune"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rooftune.cli "$@"\n')
    program.chmod(0o755)
    script = '_TUNE_COMPLETE=source_fish tune | source; complete -C "tune keys --pre"; complete -C "tune cac"'
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(["fish", "-c", script], env=env, capture_output=True, text=True, timeout=60)
    words = [line.split("\t")[0] for line in ran.stdout.splitlines()]
    assert words == ["--precision", "cache"], ran.stderr
