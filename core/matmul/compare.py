"""Keys of several shapes side by side: which are equal, and what keeps the others apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ..tuning.level import Level
from .key import MatmulAutotuneKey
from .problem import Elem, Shape


@dataclass(frozen=True)
class KeyPair:
    """Two shapes that are compared; `fields` are those in which their keys differ."""

    a: str
    b: str
    fields: dict[str, tuple[Any, Any]]

    @property
    def equal(self) -> bool:
        return not self.fields


@dataclass(frozen=True)
class KeyComparison:
    """The keys of shapes, in the order given."""

    level: Level
    shapes: tuple[str, ...]
    keys: tuple[MatmulAutotuneKey, ...]

    def equal(self) -> list[list[str]]:
        """Shapes that share a key, group by group; a shape alone with its key is in none."""
        groups: dict[MatmulAutotuneKey, list[str]] = {}
        for shape, key in zip(self.shapes, self.keys, strict=True):
            groups.setdefault(key, []).append(shape)
        return [shapes for shapes in groups.values() if len(shapes) > 1]

    def pairs(self) -> Iterator[KeyPair]:
        """Every pair that shares the anchored m, n and k, equal or not; two shapes alone in any case."""
        for (a, key_a), (b, key_b) in combinations(zip(self.shapes, self.keys, strict=True), 2):
            if len(self.shapes) == 2 or _size(key_a) == _size(key_b):
                yield KeyPair(a, b, key_a.differences(key_b))

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level.value,
            "keys": [
                {"shape": shape, "key": key.to_json()}
                for shape, key in zip(self.shapes, self.keys, strict=True)
            ],
            "equal": self.equal(),
            "differences": [
                {"a": pair.a, "b": pair.b, "fields": {name: list(both) for name, both in pair.fields.items()}}
                for pair in self.pairs()
                if not pair.equal
            ],
        }


def compare_keys(
    shapes: Sequence[str],
    elem: Elem = Elem.F32,
    *,
    batch: int = 1,
    precision: str = "full",
    level: Level = Level.BALANCED,
) -> KeyComparison:
    """The keys of shapes written as on the command line. Raises UsageError for one that is no shape."""
    problems = [Shape.parse(shape).problem(elem, batch=batch, precision=precision) for shape in shapes]
    keys = tuple(MatmulAutotuneKey.build(problem, level) for problem in problems)
    return KeyComparison(level, tuple(shape.strip() for shape in shapes), keys)


def _size(key: MatmulAutotuneKey) -> tuple[int, int, int]:
    return key.definition.m, key.definition.n, key.definition.k
