"""The table of commands: help, grouping, start-up."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from rooftune.cli.app import COMMANDS, load, main


def run(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    return (stop.value.code, *capsys.readouterr())


def test_help_lists_every_command_under_its_heading(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name, entry in COMMANDS.items():
        assert f"\n  {name}" in out
        assert f"\n{entry.section}:" in out
    assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.parametrize("group", [[], ["cache"], ["env"]], ids=" ".join)
def test_a_group_alone_shows_the_screen_of_its_help(group, capsys):
    code, out, err = run(capsys, *group)
    assert (code, out) == (2, "")
    assert err == run(capsys, *group, "--help")[1]


def commands(command, path):
    yield path, command
    for name, nested in getattr(command, "commands", {}).items():
        yield from commands(nested, f"{path} {name}")


EVERY = [pair for name in COMMANDS for pair in commands(load(name), name)]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[path for path, _ in EVERY])
def test_every_command_and_option_has_help(path, command, capsys):
    assert command.help, path
    for parameter in command.params:
        assert parameter.help, f"{path}: {parameter.name}"
    code, out, _ = run(capsys, *path.split(), "--help")
    assert code == 0
    assert out.startswith(f"Usage: tune {path}")
    assert not re.search(r"<\w+|\{\w+|list\[", out)


def test_no_command_at_all_shows_the_help_and_is_bad_usage(capsys):
    code, out, err = run(capsys)
    assert code == 2
    assert out == ""
    assert err.startswith("Usage: tune")


def test_the_option_and_the_command_version_print_the_same(tune):
    assert tune("--version").out == tune("version").out


@pytest.mark.parametrize("given", [("--repeat", "few"), ("--repeat=few",)])
def test_a_value_that_is_refused_is_named(given, tune):
    ran = tune("shapes", "64", *given)
    assert ran.code == 2 and "'few'" in ran.err


def test_a_mistyped_command_names_the_nearest(capsys):
    code, _, err = run(capsys, "verzion")
    assert code == 2
    assert "Did you mean 'version'?" in err


def test_the_help_page_imports_neither_pyopencl_nor_numpy():
    program = (
        "import sys\n"
        "from rooftune.cli.app import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "sys.exit('pyopencl' in sys.modules or 'numpy' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
