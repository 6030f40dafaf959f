"""`tune env`: environments, the named files of decisions and probe results."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .cache import YesOption, confirmed, fit
from .complete import environments
from .options import Common, common
from .render import columns, emit, format_bytes, named_rows, print_lines

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Environments: list, remove and copy the named stores.",
)


@app.command("ls")
@common("environment", "config", "json")
def ls(common: Common) -> None:
    """List the environments of the configured folder; `*` marks the one in use."""
    from rooftune.store.browse import environment_path, list_environments

    config = common.settings()
    found = list_environments(config)
    folder = str(environment_path(config).parent)
    if common.json:
        rows = [
            {
                "name": item.name,
                "path": str(item.path),
                "bytes": item.size_bytes,
                "decisions": item.decisions,
                "current": item.current,
            }
            for item in found
        ]
        emit("env-ls", {"folder": folder, "environments": rows})
        return
    print_lines([folder] if found else [folder, "no environments"])
    wide = columns(sys.stdout) - 22
    table = [
        (
            f"{'*' if item.current else ' '} {fit(item.name, wide)}",
            str(item.decisions),
            format_bytes(item.size_bytes),
        )
        for item in found
    ]
    if table:
        print_lines(named_rows(("  NAME", "DECISIONS", "SIZE"), table, right=("DECISIONS", "SIZE")))


@app.command("rm")
@common("config", "json")
def rm(
    common: Common,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", autocompletion=environments, help="Environments to remove."),
    ],
    yes: YesOption = False,
) -> None:
    """Remove environments with all that is in them. Asks first, unless --yes is given."""
    from rooftune.store.browse import find_environment, remove_environment

    config = common.settings()
    paths = [find_environment(config, name) for name in names]
    question = f"Remove {', '.join(str(path) for path in paths)}?"
    removed = (
        [str(remove_environment(path)) for path in paths] if confirmed(question, yes, common.json) else []
    )
    if common.json:
        emit("env-rm", {"removed": removed})
    else:
        print_lines([f"removed {path}" for path in removed] or ["nothing removed"])


@app.command("copy")
@common("config", "json")
def copy(
    common: Common,
    source: Annotated[
        str, typer.Argument(metavar="FROM", autocompletion=environments, help="The environment to copy.")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The new environment's name.")],
) -> None:
    """Copy an environment to a new name; an existing one is never replaced."""
    from rooftune.store.browse import copy_environment

    path = copy_environment(common.settings(), source, target)
    if common.json:
        emit("env-copy", {"path": str(path)})
    else:
        print_lines([f"copied to {path}"])
