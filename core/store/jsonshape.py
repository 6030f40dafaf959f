"""Checking a JSON value against a JSON Schema: the few keywords our own schemas use.

Small on purpose, so that importing a file needs no further library; tests hold it to a complete one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and value == value // 1,  # to a schema 1.0 is one
}
_ABOUT_THE_SCHEMA = ("$schema", "$defs", "title", "description")


def first_problem(value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None) -> str:
    """What is wrong first, with the place, as `evidence.3.samples: …`; empty when nothing is."""
    for place, problem in _problems(value, schema, schema.get("$defs", {}) if defs is None else defs):
        return f"{place}: {problem}" if place else problem
    return ""


def _problems(value: Any, schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for keyword, rule in schema.items():
        if keyword in _ABOUT_THE_SCHEMA:
            continue
        if keyword == "$ref":
            yield from _problems(value, defs[rule.rpartition("/")[2]], defs)
        elif keyword == "anyOf":
            tried = [next(_problems(value, option, defs), None) for option in rule]
            if None not in tried:
                yield tried[0] or ("", "")
        elif keyword == "properties" and isinstance(value, dict):
            for name in rule:
                if name in value:
                    yield from _inside(name, _problems(value[name], rule[name], defs))
        elif keyword == "items" and isinstance(value, list):
            for number, item in enumerate(value):
                yield from _inside(str(number), _problems(item, rule, defs))
        elif keyword not in ("properties", "items"):
            problem = _RULES[keyword](value, rule, schema)
            if problem:
                yield "", problem


def _inside(name: str, problems: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for place, problem in problems:
        yield f"{name}.{place}" if place else name, problem


def _type(value: Any, rule: Any, _: Any) -> str:
    return "" if _TYPES[rule](value) else f"is no {rule}"


def _required(value: Any, rule: Any, _: Any) -> str:
    missing = [name for name in rule if name not in value] if isinstance(value, dict) else []
    return f"lacks '{missing[0]}'" if missing else ""


def _additional(value: Any, rule: Any, schema: Mapping[str, Any]) -> str:
    if not isinstance(value, dict) or rule is not False:
        return ""
    strange = [name for name in value if name not in schema.get("properties", {})]
    return f"has an unknown field '{strange[0][:40]}'" if strange else ""


def _limit(fits: Callable[[Any, Any], bool], words: str) -> Callable[[Any, Any, Any], str]:
    def check(value: Any, rule: Any, _: Any) -> str:
        return "" if not _TYPES["number"](value) or fits(value, rule) else f"is not {words} {rule}"

    return check


def _size(
    of: type[str] | type[list[Any]], fits: Callable[[int, int], bool], words: str
) -> Callable[[Any, Any, Any], str]:
    def check(value: Any, rule: Any, _: Any) -> str:
        return "" if not isinstance(value, of) or fits(len(value), rule) else f"is {words} than {rule}"

    return check


def _pattern(value: Any, rule: Any, _: Any) -> str:
    return "" if not isinstance(value, str) or re.search(rule, value) else "is not such a text"


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


_RULES: dict[str, Callable[[Any, Any, Any], str]] = {
    "type": _type,
    "required": _required,
    "additionalProperties": _additional,
    "const": lambda value, rule, _: "" if _same(value, rule) else f"is not {rule!r}",
    "enum": lambda value, rule, _: "" if any(_same(value, r) for r in rule) else f"is none of {rule}",
    "minimum": _limit(lambda value, rule: value >= rule, "at least"),
    "maximum": _limit(lambda value, rule: value <= rule, "at most"),
    "exclusiveMinimum": _limit(lambda value, rule: value > rule, "above"),
    "minLength": _size(str, lambda length, rule: length >= rule, "shorter"),
    "maxLength": _size(str, lambda length, rule: length <= rule, "longer"),
    "minItems": _size(list, lambda length, rule: length >= rule, "shorter"),
    "maxItems": _size(list, lambda length, rule: length <= rule, "longer"),
    "pattern": _pattern,
}
