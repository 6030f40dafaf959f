"""Lists, choices, verification, environments."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.config import Config, EnvironmentConfig, load_config
from rooftune.errors import UsageError
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Problem, Shape
from rooftune.store.browse import (
    age_text,
    copy_environment,
    find_decisions,
    find_environment,
    key_text,
    list_environments,
    open_environment,
    open_file,
    parse_age,
    printable,
    remove_environment,
    select_decisions,
    stored_decisions,
    verify_file,
)
from rooftune.store.database import Database
from rooftune.store.entry import Entry
from rooftune.store.stores import Store

from .cold_run import NumbersClient, candidates, tune


def filled(path: Path | None, *keys: str) -> Database:
    database = Database(path)
    store = Store(database)
    tune(store, list(keys), NumbersClient(0.0), candidates(5))
    return database


def config_in(folder: Path, name: str = "default") -> Config:
    return Config(environment=EnvironmentConfig(name, folder))


def test_a_row_says_what_a_list_shows() -> None:
    database = filled(None, "a")
    checksum = candidates(5).checksum
    (item,) = stored_decisions(database, {"numbers": checksum})
    row = item.row()
    assert (row["winner"], row["measured"], row["median_s"]) == ("candidate_0", 5, 1e-3)
    assert (row["key"], row["level"], row["origin"], row["checksum_ok"]) == ("a", "balanced", "local", True)
    assert row["device"] == NumbersClient.device_id
    assert stored_decisions(database, {"numbers": "other"})[0].checksum_ok is False
    assert stored_decisions(database)[0].checksum_ok is None


def test_what_is_no_decision_is_listed_as_damaged() -> None:
    database = filled(None, "a")
    (entry,) = database.find("autotune")
    database.put(Entry(entry.namespace, '"b"', "x", '{"index": 3}'))
    assert [item.decision is None for item in stored_decisions(database)] == [False, True]


def test_ids_and_their_beginnings_name_decisions() -> None:
    stored = stored_decisions(filled(None, "a", "b", "c"))
    first = stored[0]
    assert find_decisions(stored, [first.id[:8], first.id.upper()]) == [first]
    for wrong in ("zz", "", " "):
        with pytest.raises(UsageError, match="no decision"):
            find_decisions(stored, [wrong])
    many = [item for item in stored_decisions(filled(None, *map(str, range(40))))]
    start = next(item.id[0] for item in many if sum(other.id[0] == item.id[0] for other in many) > 1)
    with pytest.raises(UsageError, match="several"):
        find_decisions(many, [start])


def test_choosing_by_tuner_device_and_age() -> None:
    database = filled(None, "a")
    (old,) = database.find("autotune")
    at = (datetime.now(timezone.utc) - timedelta(days=3)).isoformat()
    database.put(Entry(old.namespace, '"old"', old.checksum, old.value, at=at))
    stored = stored_decisions(database)
    assert len(select_decisions(stored)) == 2
    assert len(select_decisions(stored, tuner="numbers", device="NUMBERS|dev")) == 2
    assert select_decisions(stored, tuner="other") == select_decisions(stored, device="other") == []
    assert [item.key for item in select_decisions(stored, older_than=timedelta(days=2))] == ["old"]
    assert select_decisions(stored, older_than=timedelta(days=4)) == []


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("2m", 120), ("12h", 43200), ("1d", 86400)])
def test_ages(text: str, seconds: int) -> None:
    assert parse_age(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "3", "d", "-1d", "1.5h", "1y", "9999999d"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(UsageError, match="is no age"):
        parse_age(text)


@given(st.integers(-(10**6), 10**10))
def test_an_age_takes_four_columns(seconds: int) -> None:
    then = datetime.now(timezone.utc) - timedelta(seconds=min(seconds, 10**9))
    assert len(age_text(then.isoformat())) <= 4
    assert seconds > 0 or age_text(then.isoformat()) == "now"


@given(st.text())
def test_no_text_is_no_time(text: str) -> None:
    assert len(age_text(text)) <= 4


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("1024", "1024 f32"),
        ("16x8192x64T", "16x8192x64 f32 T @256"),
        ("512tT", "512 f32 tT"),
        ("1000", "1024 f32 @32"),
    ],
)
def test_keys_in_a_few_words(shape: str, text: str) -> None:
    assert key_text(MatmulAutotuneKey.build(Shape.parse(shape).problem()).to_json()) == text


def test_keys_of_batches_and_of_other_tuners() -> None:
    problem = Problem.of(64, 64, 64, batch=8, precision="tf32")
    assert key_text(MatmulAutotuneKey.build(problem).to_json()) == "64 b8 f32 tf32 @256"
    assert key_text({"n": [1, 2]}) == '{"n":[1,2]}'
    assert printable("a\x1b[2Jb\n") == "a?[2Jb?"


class TestVerify:
    def test_all_is_well(self, tmp_path: Path) -> None:
        filled(tmp_path / "a.db", "a", "b").close()
        assert verify_file(tmp_path / "a.db") == []
        assert verify_file(tmp_path / "missing.db") == []

    def test_what_is_wrong_is_said_and_nothing_changed(self, tmp_path: Path) -> None:
        file = tmp_path / "a.db"
        filled(file, "a", "b").close()
        file.write_bytes(file.read_bytes().replace(b'"level":"balanced"', b'"level":"balanceD"', 1))
        before = file.read_bytes()
        assert any("is damaged" in problem for problem in verify_file(file))
        raw = bytearray(before)
        raw[4096:6000] = b"\xff" * 1904
        file.write_bytes(raw)
        assert verify_file(file)
        assert file.read_bytes() == bytes(raw)
        file.write_text("text")
        assert "not a store" in verify_file(file)[0]


class TestOpening:
    def test_looking_makes_no_file(self, tmp_path: Path) -> None:
        with closing(open_environment(config_in(tmp_path))) as database:
            assert database.scan() == []
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "default.db").write_text("foreign")
        with closing(open_environment(config_in(tmp_path))) as database:
            assert database.scan() == [] and "left alone" in database.warnings[0]
        assert [path.name for path in tmp_path.iterdir()] == ["default.db"]

    def test_a_file_by_name(self, tmp_path: Path) -> None:
        filled(tmp_path / "a.db", "a").close()
        before = (tmp_path / "a.db").read_bytes()
        with closing(open_file(tmp_path / "a.db")) as database:
            assert len(stored_decisions(database)) == 1 and not database.writable
        assert (tmp_path / "a.db").read_bytes() == before
        (tmp_path / "text.db").write_text("text")
        for wrong, reason in (("missing.db", "there is no file"), ("text.db", "not a store")):
            with pytest.raises(UsageError, match=reason):
                open_file(tmp_path / wrong)


class TestEnvironments:
    def test_they_are_listed_with_their_decisions(self, tmp_path: Path) -> None:
        filled(tmp_path / "one.db", "a", "b").close()
        filled(tmp_path / "two.db", "a").close()
        (tmp_path / "text.db").write_text("text")
        found = list_environments(config_in(tmp_path, "two"))
        assert [(each.name, each.decisions, each.current) for each in found] == [
            ("one", 2, False), ("two", 1, True)
        ]  # fmt: skip
        assert all(each.size_bytes > 0 for each in found)
        assert list_environments(config_in(tmp_path / "missing")) == []

    def test_a_copy_has_it_all_and_is_one_file(self, tmp_path: Path) -> None:
        filled(tmp_path / "one.db", "a", "b").close()
        opened = filled(tmp_path / "one.db", "c")
        path = copy_environment(config_in(tmp_path), "one", "new name")
        opened.close()
        assert path.name == "new_name.db"
        assert verify_file(path) == []
        with closing(Database(path)) as database:
            assert len(database.find("autotune")) == 3 and database.writable
        with pytest.raises(UsageError, match="already"):
            copy_environment(config_in(tmp_path), "one", "new_name")
        with pytest.raises(UsageError, match="no environment"):
            copy_environment(config_in(tmp_path), "three", "four")

    def test_removing_one_leaves_nothing_of_it_and_all_of_the_others(self, tmp_path: Path) -> None:
        filled(tmp_path / "one.db", "a").close()
        opened = filled(tmp_path / "two.db", "a")
        remove_environment(find_environment(config_in(tmp_path), "two"))
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("two")] == []
        assert verify_file(tmp_path / "one.db") == []
        opened.put(Entry("s", "k", "", "1"))
        assert opened.get("s", "k") is not None
        opened.close()

    def test_foreign_files_are_not_removed(self, tmp_path: Path) -> None:
        (tmp_path / "text.db").write_text("text")
        with pytest.raises(UsageError, match="left alone"):
            find_environment(config_in(tmp_path), "text")
        assert (tmp_path / "text.db").exists()


def test_the_configuration_says_which_folder(tmp_path: Path) -> None:
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "stores"')
    (tmp_path / "stores").mkdir()
    filled(tmp_path / "stores" / "default.db", "a").close()
    os.chdir(tmp_path)
    assert [each.name for each in list_environments(load_config(env={}))] == ["default"]
