"""`tune keys`: the keys of shapes, which are equal, and what keeps the others apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .options import (
    BatchOption,
    Common,
    DtypeOption,
    PrecisionOption,
    ShapesArgument,
    common,
    parse_elem,
)
from .render import emit, print_lines, wrapped

if TYPE_CHECKING:
    from rooftune.matmul.compare import KeyComparison, KeyPair

_SHOWN = ["512", "768", "1000", "1024", "1025", "2048", "1024T"]


@common("level", "config", "json")
def keys(
    common: Common,
    shapes: ShapesArgument = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Show the keys of shapes, and what keeps them apart.

    Shapes with equal keys share one decision. Without shapes: 512 768 1000 1024 1025 2048 1024T.
    Needs no device.
    """
    from rooftune.matmul.compare import compare_keys
    from rooftune.tuning.level import Level

    settings = common.settings(precision)
    found = compare_keys(
        shapes or _SHOWN,
        parse_elem(dtype, precision),
        batch=batch,
        precision=settings.matmul.f32_precision,
        level=Level.parse(settings.autotune.level),
    )
    if common.json:
        emit("keys", found.to_json())
    else:
        print_lines(_lines(found))


def _lines(found: KeyComparison) -> Iterator[str]:
    width = max(len(shape) for shape in found.shapes)
    for shape, key in zip(found.shapes, found.keys, strict=True):
        yield from wrapped(f"{shape:<{width}} -> {key.short()}", " " * (width + 4))
    for pair in found.pairs():
        yield from wrapped(
            f"key({pair.a}) == key({pair.b}): {str(pair.equal).lower()}{_differences(pair)}", "    "
        )


def _differences(pair: KeyPair) -> str:
    from rooftune.matmul.key import short_name

    return "".join(
        f"{',' if position else ' '} {short_name(name)} {_value(a)} / {_value(b)}"
        for position, (name, (a, b)) in enumerate(pair.fields.items())
    )


def _value(value: Any) -> str:
    """A field's value; a layout with flags is shortened to those that are set."""
    if not isinstance(value, dict):
        return str(value)
    ((name, flags),) = value.items()
    return f"{name}({','.join(flag for flag, on in flags.items() if on)})"
