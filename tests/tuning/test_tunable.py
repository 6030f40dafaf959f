from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import pytest
from rooftune.errors import UsageError
from rooftune.tuning.tunable import Tunable, TunableSet, key_text, separated_hash


def named(*names: str) -> TunableSet:
    tunables = TunableSet(lambda inputs: inputs)
    for name in names:
        tunables.with_tunable(Tunable(name, lambda inputs: inputs))
    return tunables


def test_the_checksum_depends_on_every_name_and_their_order() -> None:
    lists = [("a", "b"), ("b", "a"), ("a",), ("ab",), ("a", "b", "c")]
    checksums = {named(*names).checksum for names in lists}
    assert len(checksums) == 5
    assert named("a", "b").checksum == named("a", "b").checksum


def test_names_are_kept_apart_in_the_checksum() -> None:
    assert named("ab", "c").checksum != named("a", "bc").checksum
    assert separated_hash('a","b') != separated_hash("a", "b")


def test_adding_a_candidate_later_changes_the_checksum() -> None:
    tunables = named("a")
    before = tunables.checksum
    assert tunables.with_tunable(Tunable("b", lambda inputs: inputs)).checksum != before


def test_two_candidates_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="'a'"):
        named("a", "a")


def test_a_candidate_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError):
        named("")


def test_the_digest_changes_with_version_and_source_and_can_be_given() -> None:
    def made(**options: Any) -> str:
        return Tunable("a", lambda inputs: inputs, **options).digest

    assert len({made(), made(version="2"), made(source="x"), made(version="2", source="x")}) == 4
    assert made(digest="mine") == "mine"


def test_equal_keys_have_equal_texts_however_they_are_made() -> None:
    @dataclass(frozen=True)
    class Key:
        n: int

        def to_json(self) -> dict[str, int]:
            return {"n": self.n, "a": 1}

    assert key_text(Key(3)) == key_text({"a": 1, "n": 3})
    assert key_text((1, "x")) == key_text([1, "x"])


def test_keys_equal_in_python_but_not_in_json_are_kept_apart() -> None:
    assert len({key_text([1]), key_text([1.0]), key_text([True])}) == 3


@pytest.mark.parametrize("key", [nan, {1, 2}, object(), b"bytes"])
def test_a_key_that_is_not_json_is_refused_with_what_is_allowed(key: Any) -> None:
    with pytest.raises(UsageError) as caught:
        key_text(key)
    assert "to_json" in caught.value.hint
