"""`tune schema`: the formats of the JSON outputs."""

from __future__ import annotations

from typing import Annotated

import typer

from .complete import schemas
from .options import Common, common
from .render import emit, print_lines, to_json

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        autocompletion=schemas,
        help="The schema to print; without one, their names.",
        show_default=False,
    ),
]


@common("json")
def schema(common: Common, name: NameArgument = None) -> None:
    """Print the JSON Schema of an output, or list the schemas there are.

    Every command's --json output is one object that fits the schema of its name, except that `tune
    decisions` prints one such object a line; a failure fits the schema 'error'.
    """
    from rooftune.formats import load_schema, schema_names

    if name is not None:
        print_lines([to_json(load_schema(name), indent=2)])
        return
    titles = {known: load_schema(known)["title"] for known in schema_names()}
    if common.json:
        emit("schema", {"schemas": [{"name": known, "title": title} for known, title in titles.items()]})
        return
    width = max(map(len, titles))
    print_lines(f"{known:<{width}}  {title}" for known, title in titles.items())
