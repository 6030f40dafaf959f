"""The formats of JSON outputs, as JSON Schemas that come with the package."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from .errors import UsageError

_FOLDER = files(__package__) / "schemas"


@cache
def schema_names() -> tuple[str, ...]:
    """The names that `load_schema` takes: commands with --json, and what they share."""
    found = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


def load_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of that name, complete in itself. Raises UsageError for an unknown name."""
    if name not in schema_names():
        raise UsageError(f"there is no schema '{name}'", hint=f"Schemas: {', '.join(schema_names())}.")
    schema = _read(name)
    parts: dict[str, Any] = {}
    _gather(schema, parts)
    return {**schema, "$defs": {**schema.get("$defs", {}), **parts}} if parts else schema


def _read(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def _gather(node: Any, parts: dict[str, Any]) -> None:
    """Turn references to other files into references to `parts`, and fill those."""
    if isinstance(node, list):
        for item in node:
            _gather(item, parts)
    if not isinstance(node, dict):
        return
    target = node.get("$ref")
    if isinstance(target, str) and target.endswith(".json"):
        name = target.removesuffix(".json")
        node["$ref"] = f"#/$defs/{name}"
        if name not in parts:
            parts[name] = {}
            parts[name] = _read(name)
            _gather(parts[name], parts)
    for value in node.values():
        _gather(value, parts)
