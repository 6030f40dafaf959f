"""What the documentation says is true: its commands run, its links lead somewhere, nothing is left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rooftune.cli.app import COMMANDS
from rooftune.config import load_config

from . import commands_page
from .pages import LANGUAGES, PAGES, TOP, Block, anchors, blocks, links

REFERENCE = TOP / "docs" / "reference"
NAMES = [str(page.relative_to(TOP)) for page in PAGES]
RUNNING = [page for page in PAGES if any(block.runs for block in blocks(page))]


@pytest.fixture(scope="session")
def reader_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder for all pages, as a reader has who works through them: the device is probed once."""
    return tmp_path_factory.mktemp("reader")


@pytest.fixture
def shell(tmp_path: Path, reader_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which `tune` and `python3` are the ones under test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, arguments in {"tune": " -m rooftune.cli", "python3": "", "python": ""}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
        script.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(reader_cache),
    }


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: str(page.relative_to(TOP)))
def test_the_blocks_of_a_page_run_from_top_to_bottom(page: Path, shell: dict[str, str]):
    printed = ""
    for block in blocks(page):
        if block.runs:
            printed = run(block, shell)
        if block.info == ("text", "output"):
            assert block.text == printed, f"{block}: the block above printed this:\n{printed}"


def run(block: Block, env: dict[str, str]) -> str:
    program = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else [sys.executable, "-c"]
    ran = subprocess.run([*program, block.text], env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, f"{block} exited {ran.returncode}\n{block.text}\n{ran.stdout}\n{ran.stderr}"
    assert "Traceback" not in ran.stderr
    return ran.stdout


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_block_says_what_it_is(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, block
        if block.gpu_only:
            assert "GPU only" in block.before, f"{block}: a reader must see that this block needs a GPU"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_configurations_and_json_are_valid(page, tmp_path):
    for block in blocks(page):
        if block.language == "toml":
            (tmp_path / "cubecl.toml").write_text(block.text)
            assert load_config(tmp_path / "cubecl.toml", env={}).warnings == (), block
        if block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_a_workflow_runs_is_run_here(page):
    run_here = {line.strip() for block in blocks(page) if block.runs for line in block.text.splitlines()}
    for block in blocks(page):
        if block.language == "yaml":
            for command in re.findall(r"^\s*(?:- )?run: (.+)$", block.text, flags=re.MULTILINE):
                assert command in run_here or "pip install" in command, f"{block}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    for link in links(page):
        if link.startswith(("http://", "https://")):
            continue
        target, _, fragment = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        if fragment:
            assert fragment in anchors(path), f"{page.name}: {link}"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set(), [TOP / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [
            (page.parent / link.partition("#")[0]).resolve()
            for link in links(page)
            if not link.startswith(("http", "#"))
        ]
    assert set(PAGES) <= reached


def test_the_readme_has_the_two_command_lines():
    lines = [block.text for block in blocks(TOP / "README.md") if block.makes_an_environment]
    assert len(lines) == 2
    assert all(line.count("\n") == 1 for line in lines)
    assert "'.[cpu]'" in lines[0] and "tune shapes 1024 768 1000 2048" in lines[0]
    assert "-e '.[cpu,test]'" in lines[1] and "pytest" in lines[1]


def test_the_readme_has_every_command():
    text = (TOP / "README.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert name == "version" or f"| `tune {name}" in text, name


# -- references ------------------------------------------------------------------------------------


def test_the_reference_of_commands_is_what_the_program_says():
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.page(), (
        "docs/reference/commands.md is behind the program: python -m tests.docs.commands_page writes it anew"
    )


def test_every_key_of_the_configuration_is_in_the_reference():
    example = (TOP / "cubecl.toml.example").read_text(encoding="utf-8")
    text = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    tables = dict(re.findall(r"^## `\[([\w.]+)\]`\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE))
    table = ""
    for line in example.splitlines():
        if found := re.fullmatch(r"\[([\w.]+)\]", line):
            table = found.group(1)
            assert table in tables, table
        if found := re.match(r"(?:# )?(\w+) = (.+)$", line):
            assert f"| `{found.group(1)}` |" in tables[table], f"[{table}] {found.group(1)}"


def test_environment_variables_and_their_reference_agree():
    text = (REFERENCE / "environment-variables.md").read_text(encoding="utf-8")
    pattern = r"\b(?:CUBECL|ROOFTUNE)_[A-Z][A-Z_]*[A-Z]\b"
    sources = [path for folder in ("core", "probes", "cli") for path in (TOP / folder).rglob("*.py")]
    read = {name for path in sources for name in re.findall(pattern, path.read_text(encoding="utf-8"))}
    assert read == set(re.findall(pattern, text))


def test_every_schema_is_in_the_reference():
    from rooftune.formats import schema_names

    text = (REFERENCE / "json.md").read_text(encoding="utf-8")
    for name in schema_names():
        assert f"`{name}`" in text, name


def test_every_public_name_is_in_the_reference():
    import rooftune

    text = (REFERENCE / "library.md").read_text(encoding="utf-8")
    for name in rooftune.__all__:
        assert f"`{name}`" in text, name
