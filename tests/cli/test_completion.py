"""What a shell is offered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rooftune.cli.app import COMMANDS
from rooftune.store.database import Database
from rooftune.store.stores import DecisionStore
from rooftune.tuning.place import Place


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
        ("tune probe ", ["launch-overhead", "compute", "bandwidth", "all"]),
        ("tune probe bandwidth --access w", ["write"]),
        ("tune plan 64 --assume g", ["gpu"]),
        ("tune plan 64 --assume gpu,tma,", ["gpu,tma,cmma", "gpu,tma,mma"]),
        ("tune schema cache-v", ["cache-verify"]),
        ("tune cache log --kind s", ["sessions"]),
    ],
)
def test_commands_options_and_values_are_completed(words, expected):
    assert offered(words) == expected


def keep(path: Path, *tuners: str) -> None:
    """A store with an entry for each of these tuners."""
    with closing(Database(path)) as database:
        for tuner in tuners:
            place = Place(tuner, "balanced", "device", "sum", '{"n": 1}')
            DecisionStore(database).save(place, {}, began_at_row_version=None)


def test_what_is_stored_is_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "local"')
    keep(tmp_path / "default.db", "matmul", "kernel:scale", "heat", "it's mine")
    keep(tmp_path / "other.db", "heat", "kernel:matmul")
    for file in ("scale.toml", "spare.toml"):
        (tmp_path / file).touch()

    assert offered("tune shapes --environment ") == ["default", "other"]
    assert offered("tune env rm o") == ["other"]
    assert offered("tune cache rm --tuner ") == ["matmul", "scale", "heat"]
    assert offered("tune cache rm --environment other --tuner ") == ["matmul", "heat", "kernel:matmul"]
    assert offered("tune kernel s") == ["scale", "scale.toml", "spare.toml"]
    assert offered("tune explain ") == ["scale", "heat", "scale.toml", "spare.toml"]
    assert len(offered("tune cache show ")) == 4
    assert len(offered("tune cache show --environment other ")) == 2
    (ours,) = offered("tune explain heat ")
    assert ours in offered("tune cache show ")


def test_a_store_or_configuration_that_can_not_be_read_offers_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cubecl.toml").write_text("[broken")
    assert offered("tune cache show ") == offered("tune shapes --environment ") == []


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
