"""Options that several commands share, each defined once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .complete import environments, one_of

if TYPE_CHECKING:
    from rooftune.config import Config
    from rooftune.matmul.problem import Elem


@dataclass(frozen=True)
class Common:
    """What the common options were given as; None where an option was not given."""

    device: str | None = None
    environment: str | None = None
    level: str | None = None
    config: str | None = None
    json: bool = False

    def settings(self, precision: str | None = None) -> Config:
        """The configuration in force, these options applied; what is odd about it is said on stderr."""
        from rooftune.config import load_config

        from .render import warn

        config = load_config(self.config)
        for warning in config.warnings:
            warn(warning)
        return config.override(level=self.level, environment=self.environment, f32_precision=precision)


COMMON_OPTIONS: dict[str, Any] = {
    "device": Annotated[
        str | None,
        typer.Option(
            "--device",
            envvar="ROOFTUNE_DEVICE",
            metavar="TEXT",
            help="Device to use: its index in `tune devices`, or part of its name or platform.",
        ),
    ],
    "environment": Annotated[
        str | None,
        typer.Option(
            "--environment",
            metavar="NAME",
            autocompletion=environments,
            help="Named database of decisions and probe results.",
        ),
    ],
    "level": Annotated[
        str | None,
        typer.Option(
            "--level",
            metavar="LEVEL",
            autocompletion=one_of("minimal", "balanced", "extensive", "full"),
            help="How hard to look: minimal, balanced, extensive or full (or 0 to 3).",
        ),
    ],
    "config": Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Read this configuration file; search for none."),
    ],
    "json": Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print JSON, and nothing else, on stdout.",
        ),
    ],
}


def common(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the named common options (all of them by default).

    The command's first parameter, `common: Common`, receives their values:

        @common("level", "json")
        def keys(common: Common, shapes: ShapesArgument = None) -> None: ...
    """
    chosen = names or tuple(COMMON_OPTIONS)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        own = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own]
        shared = [
            inspect.Parameter(
                f"common_{name}",
                inspect.Parameter.KEYWORD_ONLY,
                default=False if name == "json" else None,
                annotation=COMMON_OPTIONS[name],
            )
            for name in chosen
        ]

        def call(**values: Any) -> Any:
            given = {name: values.pop(f"common_{name}") for name in chosen}
            return command(Common(**given), **values)

        parameters = [*own, *shared]
        described: Any = call
        described.__name__ = command.__name__
        described.__module__ = command.__module__
        described.__doc__ = command.__doc__
        described.__signature__ = inspect.Signature(parameters)
        described.__annotations__ = {p.name: p.annotation for p in parameters}
        return call

    return decorate


ShapesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SHAPE",
        help="N for a square or MxNxK, then t (lhs) and/or T (rhs) for a transposed view: "
        "1024, 64x4096x1024, 1024T.",
        show_default=False,
    ),
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="Element type of both operands: f32, f64, f16 or bf16.",
        autocompletion=one_of("f32", "f64", "f16", "bf16"),
    ),
]
BatchOption = Annotated[
    int,
    typer.Option("--batch", metavar="B", min=1, help="Number of products: both operands get a batch axis."),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="HOW",
        help="For f32: full, or tf32 for reduced-precision units.",
        autocompletion=one_of("full", "tf32"),
    ),
]


def parse_elem(dtype: str, precision: str | None) -> Elem:
    """The element type of --dtype, checked against --precision."""
    from rooftune.errors import UsageError
    from rooftune.matmul.problem import Elem

    elem = Elem.parse(dtype)
    if precision == "tf32" and elem is not Elem.F32:
        raise UsageError(f"--precision tf32 is for f32, not {elem}", hint="Leave --precision out.")
    return elem


def check_of_shapes(of_shapes: bool, dtype: str, batch: int, precision: str | None) -> None:
    """Raises UsageError where options that describe shapes are given, and no shape is."""
    from rooftune.errors import UsageError

    if not of_shapes and (dtype != "f32" or batch != 1 or precision is not None):
        raise UsageError("--dtype, --batch and --precision are for shapes", hint="Leave them out.")
