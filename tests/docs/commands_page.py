"""The reference of commands: what the program itself says of them, between two marks in each section.

`python -m tests.docs.commands_page` writes docs/reference/commands.md anew and keeps what is written by
hand below the second mark of a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rooftune.cli.app import COMMANDS, load
from rooftune.cli.options import COMMON_OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
BEGIN, END = "<!-- from the program -->", "<!-- by hand -->"


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Commands that do something, with the words that name them."""
    nested = getattr(command, "commands", {})
    if not nested:
        yield path, command
    for name, child in nested.items():
        yield from leaves(child, f"{path} {name}")


def commands() -> list[tuple[str, Any]]:
    return [pair for name in COMMANDS for pair in leaves(load(name), f"tune {name}")]


def facts(path: str, command: Any) -> str:
    """What the program says of a command, as Markdown."""
    own = [p for p in command.params if not _is_shared(p)]
    shared = [f"`{p.opts[0]}`" for p in command.params if _is_shared(p)]
    lines = ["", _prose(command.help), "", f"    {_usage(path, own)}", ""]
    if own:
        lines += ["| argument or option | meaning |", "| --- | --- |", *map(_row, own), ""]
    if shared:
        lines += [f"[Common options](#common-options): {', '.join(shared)}.", ""]
    return "\n".join(lines)


def common_options() -> str:
    """The table of options that commands share."""
    found: dict[str, str] = {}
    for _, command in commands():
        for parameter in command.params:
            if _is_shared(parameter):
                found[parameter.opts[0]] = _row(parameter)
    rows = [found[f"--{name}"] for name in COMMON_OPTIONS if f"--{name}" in found]
    return "\n".join(["", "| option | meaning |", "| --- | --- |", *rows, ""])


def page() -> str:
    """The whole page as it should be, what is written by hand taken from the one there is."""
    text = PAGE.read_text(encoding="utf-8")
    head, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    by_hand = {part.splitlines()[0][3:]: part.partition(END)[2].strip() for part in parts}
    sections = [("Common options", common_options())]
    sections += [(path, facts(path, command)) for path, command in commands()]
    made = [_section(title, body, by_hand.get(title, "")) for title, body in sections]
    return head.rstrip() + "\n\n" + "\n".join(made)


def _section(title: str, body: str, by_hand: str) -> str:
    return f"## {title}\n\n{BEGIN}\n{body}{END}\n" + (f"\n{by_hand}\n" if by_hand else "")


def _is_shared(parameter: Any) -> bool:
    return str(parameter.name).startswith("common_")


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _usage(path: str, own: list[Any]) -> str:
    words = [path]
    for parameter in own:
        if parameter.param_type_name == "argument":
            name = _metavar(parameter)
            words.append(name if parameter.required else f"[{name}]")
    return " ".join([*words, "[OPTIONS]"])


def _metavar(parameter: Any) -> str:
    name: str = parameter.metavar or parameter.name.upper()
    return name + "..." if parameter.nargs == -1 else name


def _row(parameter: Any) -> str:
    said = " ".join((parameter.help or "").split()).replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return f"| `{_metavar(parameter)}` | {said} |"
    value = "" if getattr(parameter, "is_flag", False) else f" {_metavar(parameter)}"
    names = ", ".join(f"`{option}{value if option.startswith('--') else ''}`" for option in parameter.opts)
    default = parameter.default
    if isinstance(default, (int, str)) and not isinstance(default, bool) and default != "":
        said += f" Default: {default}."
    if parameter.envvar:
        said += f" Also: the variable `{parameter.envvar}`."
    return f"| {names} | {said} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
