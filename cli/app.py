"""The command `tune`: a table of commands, each in a file of its own, imported when it is asked for."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from .run import run


class Entry(NamedTuple):
    """Where a command is found: `module` holds a function named like the module, or a Typer named `app`."""

    section: str
    module: str


_SHORT = 60

COMMANDS = {
    "shapes": Entry("Tune", "shapes"),
    "kernel": Entry("Tune", "kernel"),
    "verify": Entry("Tune", "verify"),
    "devices": Entry("Device", "devices"),
    "probe": Entry("Device", "probe"),
    "roofline": Entry("Device", "roofline"),
    "keys": Entry("Look", "keys"),
    "plan": Entry("Look", "plan"),
    "explain": Entry("Look", "explain"),
    "decisions": Entry("Look", "decisions"),
    "cache": Entry("Keep", "cache"),
    "env": Entry("Keep", "env"),
    "schema": Entry("About rooftune", "schema"),
    "version": Entry("About rooftune", "version"),
}
"""The commands as `tune --help` lists them. Adding one is a line here and a file beside this one."""


def load(name: str) -> Any:
    """The click command behind a name of COMMANDS."""
    module = import_module(f"{__package__}.{COMMANDS[name].module}")
    nested = getattr(module, "app", None)
    if nested is None:
        nested = typer.Typer(add_completion=False, rich_markup_mode=None)
        nested.command(name)(getattr(module, COMMANDS[name].module))
    else:
        nested.info.cls = Group
    command = typer.main.get_command(nested)
    command.name = name
    _for_people(command)
    return command


def _for_people(command: Any) -> None:
    """Help shows arguments as manuals do, SHAPE... or [SHAPE]..., without the Python types typer adds.

    Completion shows whole sentences or clauses.
    """
    command.short_help = _in_short(_first_sentence(command.help or ""))
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: ""
            parameter.get_usage_pieces = partial(_usage, parameter)
    for nested in getattr(command, "commands", {}).values():
        _for_people(nested)


def _usage(argument: Any, ctx: Any) -> list[str]:
    name = argument.metavar or argument.name.upper()
    name = name if argument.required else f"[{name}]"
    return [name if argument.nargs == 1 else f"{name}..."]


class Group(TyperGroup):
    """Lists its commands with whole sentences: a cut-off one helps nobody."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, _first_sentence(command.help or "")) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(TyperGroup):
    """Imports a command's module only when that command runs, or when help or completion lists it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command '{args[0]}'.{_nearest(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Commands under the headings of COMMANDS."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            rows = [
                (name, _first_sentence(load(name).help or ""))
                for name, entry in COMMANDS.items()
                if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def _in_short(sentence: str) -> str:
    """For completion: zsh gets lines folded at 80 columns, and loses straight apostrophes."""
    from textwrap import shorten

    text = sentence if len(sentence) <= _SHORT else re.split("[:,] ", sentence)[0]
    return shorten(text, _SHORT, placeholder="…").replace("'", "’")


def _nearest(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, COMMANDS, n=1)
    return f" Did you mean '{near[0]}'?" if near else ""


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from .render import print_lines
        from .version import installed

        print_lines(f"{name} {number}" for name, number in installed().items())
        raise typer.Exit


@app.callback()
def tune(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print what `tune version` does."
        ),
    ] = False,
) -> None:
    """Find the fastest matrix-product kernel for a device, and show why it is the fastest.

    Begin with `tune shapes 1024`; `tune explain 1024` then says why the winner won.
    """


def main(argv: list[str] | None = None) -> None:
    """Entry point of the command `tune`; exits, and lets no traceback out."""
    run(app, argv)
