"""What a shell is offered for values: fixed words, and what is stored. Nothing here opens a device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rooftune.config import Config
    from rooftune.store.browse import StoredDecision

Offer = tuple[str, str]
"""A word and what a shell may say of it."""


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Offers these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def several_of(*words: str) -> Callable[[str], list[str]]:
    """Offers a comma-separated list of words: the next one, behind those that are there."""

    def offer(incomplete: str) -> list[str]:
        *given, begun = incomplete.split(",")
        left = [word for word in words if word.startswith(begun) and word not in given]
        return [",".join([*given, word]) for word in left]

    return offer


def schemas(incomplete: str) -> list[str]:
    from rooftune.formats import schema_names

    return [name for name in schema_names() if name.startswith(incomplete)]


def environments(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(ctx, incomplete, _environments)


def decision_ids(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(ctx, incomplete, _ids)


def tuners(ctx: typer.Context, incomplete: str) -> list[Offer]:
    return _offered(ctx, incomplete, lambda config, given: _tuners(_stored(config, given), "matmul"))


def own_tuners(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Tuners of one's own, and specifications in the folder."""
    offered = _offered(ctx, incomplete, lambda config, given: _tuners(_stored(config, given)))
    return [*offered, *_specifications(incomplete)]


def own_kernels(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Kernels that were tuned from a file, and specifications in the folder."""
    offered = _offered(ctx, incomplete, _kernels)
    return [*offered, *_specifications(incomplete)]


def ids_of_tuner(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The decisions of the tuner that the argument before names."""
    return _offered(ctx, incomplete, _ids_of_tuner)


def _offered(
    ctx: typer.Context, incomplete: str, find: Callable[[Config, dict[str, Any]], Iterable[Offer]]
) -> list[Offer]:
    """What begins like the word; nothing where it can't be found out: a shell is no place for errors."""
    from rooftune.config import load_config

    given = ctx.params
    with suppress(Exception):
        config = load_config(given.get("common_config"))
        config = config.override(environment=given.get("common_environment"))
        fitting = [offer for offer in find(config, given) if offer[0].startswith(incomplete)]
        return [(word, _unquoted(said)) for word, said in fitting if _PLAIN.fullmatch(word)]
    return []


_PLAIN = re.compile(r"[\w./:,=+@%-]+")
"""Words that every shell takes as they are."""


def _unquoted(text: str) -> str:
    """A description that does not end the quotes that zsh is given it in."""
    return text.replace("'", "’").replace('"', "”")


def _stored(config: Config, given: dict[str, Any]) -> list[StoredDecision]:
    from rooftune.store.browse import open_environment, open_file, stored_decisions

    file = given.get("db")
    with closing(open_file(Path(file)) if file else open_environment(config)) as database:
        return stored_decisions(database)


def _environments(config: Config, given: dict[str, Any]) -> Iterator[Offer]:
    from rooftune.store.browse import list_environments

    for found in list_environments(config):
        yield found.name, f"{found.decisions} decisions"


def _ids(config: Config, given: dict[str, Any]) -> Iterator[Offer]:
    return _listed(_stored(config, given))


def _ids_of_tuner(config: Config, given: dict[str, Any]) -> Iterator[Offer]:
    from rooftune.store.browse import find_tuner

    stored = [item for item in _stored(config, given) if item.tuner != "matmul"]
    tuner = find_tuner(stored, str(given.get("shape")))
    return _listed(item for item in stored if item.tuner == tuner)


def _listed(stored: Iterable[StoredDecision]) -> Iterator[Offer]:
    from rooftune.store.browse import SHORT_ID, named_key

    for item in stored:
        yield item.id[:SHORT_ID], named_key(item.tuner, item.key)


def _tuners(stored: Iterable[StoredDecision], *always: str) -> Iterator[Offer]:
    from rooftune.store.browse import short_tuner

    names = dict.fromkeys([*always, *(item.tuner for item in stored)])
    for name in names:
        short = short_tuner(name)
        if name != "matmul" or name in always:
            yield short if short == name or short not in names else name, ""


def _kernels(config: Config, given: dict[str, Any]) -> Iterator[Offer]:
    stored = (item for item in _stored(config, given) if item.tuner.startswith("kernel:"))
    return _tuners(stored)


def _specifications(incomplete: str) -> list[Offer]:
    """TOML files that go on as the word does; configurations are none."""
    begun = incomplete.rpartition("/")[2]
    folder = incomplete[: len(incomplete) - len(begun)]
    with suppress(OSError):
        names = sorted(path.name for path in Path(folder or ".").glob("*.toml"))
        fitting = (name for name in names if name.startswith(begun) and name.lower() not in _CONFIGURATIONS)
        return [(f"{folder}{name}", "") for name in fitting]
    return []


_CONFIGURATIONS = ("cubecl.toml", "burn.toml", "cargo.toml", "pyproject.toml")
