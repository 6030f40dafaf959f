"""The file: what is stored stays, and whatever happens to the file, the job goes on."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.store import sql
from rooftune.store.database import Database
from rooftune.store.entry import Entry, namespace, parts, to_text
from rooftune.store.header import APPLICATION_ID, FileKind, read_header
from rooftune.store.schema import SCHEMA, STEPS

MAGIC = b"SQLite format 3\0"
PLACE = ("space", "key", "sum")


def entry(value: str = "1", key: str = "key") -> Entry:
    return Entry("space", key, "sum", value)


def open_at(path: Path, **options: object) -> Database:
    return Database(path, **options)  # type: ignore[arg-type]


def foreign(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);")
    return path.read_bytes()


def filled(path: Path, count: int = 30) -> list[Entry]:
    with closing(open_at(path)) as database:
        return [database.put(entry(to_text({"n": n, "pad": "x" * 3000}), f"key {n}")) for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "default.db"


class TestEntries:
    def test_what_is_put_is_there_for_the_next_process(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            assert database.get(*PLACE) is None
            database.put(entry("[1]"))
        with closing(open_at(path)) as database:
            found = database.get(*PLACE)
            assert found is not None and found.value == "[1]"
            assert not database.warnings

    @pytest.mark.parametrize("where", ["file", "memory"])
    def test_the_first_of_two_that_began_together_stays(self, path: Path, where: str) -> None:
        database = Database(path if where == "file" else None)
        began = database.version(*PLACE)
        assert began == 0
        assert database.put(entry("1"), began).value == "1"
        assert database.put(entry("2"), began).value == "1"
        again = database.version(*PLACE)
        assert database.put(entry("3"), again).value == "3"
        assert database.put(entry("4"), again).value == "3"
        assert database.put(entry("5")).value == "5"

    def test_a_version_is_never_used_twice(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            first = database.put(entry())
            database.delete([first])
            second = database.put(entry())
            assert second.version > first.version
            assert database.delete([first]) == 0
            assert database.get(*PLACE) is not None

    def test_ids_stay_when_the_value_changes(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            assert database.put(entry("1")).id == database.put(entry("2")).id

    def test_a_namespace_includes_those_below_it_only(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            for name in ("a", "a/b", "a/b/c", "ab", "a%", "b"):
                database.put(Entry(name, "k", "", "1"))
            assert [found.namespace for found in database.find("a")] == ["a", "a/b", "a/b/c"]
            assert len(database.find()) == 6

    def test_records_are_kept_in_order_and_the_oldest_dropped(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sql, "RECORDS_KEPT", 700)
        with closing(open_at(path)) as database:
            for number in range(1000):
                database.append([("records/v1/autotune", str(number))])
            values = [value for _, _, value in database.records("records")]
            assert values == [str(number) for number in range(300, 1000)]
            assert [value for _, _, value in database.records("records", newest=2)] == ["998", "999"]

    def test_the_sqlite_shell_can_read_it(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            database.put(entry(to_text({"winner": "x"})))
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT key, value FROM entries").fetchall()
        assert rows == [("key", '{"winner":"x"}')]

    def test_threads_share_it(self, path: Path) -> None:
        database = open_at(path)

        def work(number: int) -> None:
            for n in range(20):
                database.put(entry(str(n), f"{number} {n}"))
                assert database.get("space", f"{number} {n}", "sum") is not None

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(database.find()) == 160
        database.close()

    def test_a_closed_one_opens_again(self, path: Path) -> None:
        database = open_at(path)
        database.put(entry())
        database.close()
        assert database.get(*PLACE) is not None
        database.close()


@given(st.lists(st.text(min_size=1), min_size=1))
def test_namespaces_come_apart_as_they_were_put_together(texts: list[str]) -> None:
    assert parts(namespace(*texts)) == texts


class TestWhoseFileItIs:
    def test_the_marks_are_in_the_first_bytes_while_it_is_still_open(self, path: Path) -> None:
        database = open_at(path)
        header = read_header(path)
        assert (header.kind, header.schema) == (FileKind.OURS, SCHEMA)
        database.close()

    def test_a_file_of_no_bytes_is_a_new_one(self, path: Path) -> None:
        path.touch()
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.writable and not database.warnings

    @pytest.mark.parametrize("content", [b"text\n", b"\0" * 5000, MAGIC, MAGIC * 9])
    def test_a_file_of_something_else_is_left_alone(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.path == path.with_name("default.rooftune.db")
            assert "left alone" in database.warnings[0] and "default.rooftune.db" in database.warnings[0]
        assert path.read_bytes() == content

    def test_a_foreign_database_is_left_alone_with_its_journal(self, path: Path) -> None:
        before = foreign(path)
        journal = path.with_name("default.db-journal")
        journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + b"\0" * 600)
        stamp = path.stat().st_mtime_ns
        with closing(open_at(path)) as database:
            database.put(entry())
        with closing(open_at(path)) as database:
            assert database.get(*PLACE) is not None
        assert path.read_bytes() == before and path.stat().st_mtime_ns == stamp
        assert journal.exists()

    def test_with_both_names_taken_it_goes_on_in_memory(self, path: Path) -> None:
        other = path.with_name("default.rooftune.db")
        before = foreign(path), foreign(other)
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.get(*PLACE) is not None
            assert database.path is None and "left alone" in database.warnings[0]
        assert (path.read_bytes(), other.read_bytes()) == before

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
    def test_what_is_no_plain_file_is_not_opened(self, path: Path, make: Callable[[Path], None]) -> None:
        make(path)
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.path == path.with_name("default.rooftune.db")


class TestSchemas:
    def test_an_older_file_is_migrated_with_all_that_is_in_it(self, path: Path) -> None:
        filled(path, 3)

        def more(connection: sqlite3.Connection) -> None:
            connection.execute("ALTER TABLE entries ADD COLUMN more TEXT")

        newer = [*STEPS, more]
        with closing(open_at(path, steps=newer)) as database:
            assert len(database.find()) == 3 and database.writable
        assert read_header(path).schema == SCHEMA + 1

    def test_a_newer_file_is_read_and_not_changed(self, path: Path) -> None:
        filled(path, 3)
        with closing(open_at(path, steps=[*STEPS, lambda connection: None])) as database:
            assert database.writable
        before = path.read_bytes()
        with closing(open_at(path)) as database:
            assert len(database.find()) == 3
            database.put(entry())
            assert database.get(*PLACE) is not None
            assert not database.writable and "newer rooftune" in database.warnings[0]
        assert path.read_bytes() == before

    def test_a_newer_program_may_migrate_while_an_older_one_runs(self, path: Path) -> None:
        old = open_at(path)
        old.put(entry("1"))
        with closing(open_at(path, steps=[*STEPS, lambda connection: None])) as new:
            old.put(entry("2", "other"))
            assert "newer rooftune" in old.warnings[0]
            assert old.get("space", "other", "sum") is not None
            assert new.get("space", "other", "sum") is None
            assert new.get(*PLACE) is not None
        old.close()

    def test_a_migration_that_fails_changes_nothing(self, path: Path) -> None:
        filled(path, 3)
        before = path.read_bytes()

        def fails(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM entries")
            raise sqlite3.OperationalError("database or disk is full")

        with closing(open_at(path, steps=[*STEPS, fails])) as database:
            assert len(database.find()) == 3
            assert not database.writable and "disk is full" in database.warnings[0]
        assert path.read_bytes() == before


class TestDamage:
    def test_a_damaged_file_is_set_aside_and_what_can_be_read_is_kept(self, path: Path) -> None:
        entries = filled(path)
        raw = bytearray(path.read_bytes())
        middle = len(raw) // 8192 * 4096
        raw[middle : middle + 4096] = b"\xff" * 4096
        path.write_bytes(raw)
        with closing(open_at(path)) as database:
            kept = {found.key for found in database.find()}
            assert 20 <= len(kept) < 30
            assert kept <= {each.key for each in entries}
            database.put(entry())
            assert database.writable and not database.problems()
            (warning,) = database.warnings
        (aside,) = (each for each in path.parent.glob("default.db.damaged-*") if each.suffix[-1] == "Z")
        assert aside.name in warning and f"{len(kept)} of its entries" in warning
        assert aside.read_bytes() == bytes(raw)

    def test_the_wal_goes_aside_with_it(self, path: Path) -> None:
        database = open_at(path)
        database.put(entry())
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes()[:2000] + b"\xff" * 2096 + path.read_bytes()[4096:])
        copy.with_name("copy.db-wal").write_bytes(path.with_name("default.db-wal").read_bytes()[:100])
        database.close()
        with closing(open_at(copy)) as again:
            again.put(entry("2"))
            assert again.writable
        assert len(list(path.parent.glob("copy.db.damaged-*-wal"))) <= 1
        assert len(list(path.parent.glob("copy.db.damaged-*Z"))) == 1

    def test_a_changed_value_is_noticed_though_sqlite_does_not(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            database.put(entry(to_text({"winner": "candidate_1"})))
        path.write_bytes(path.read_bytes().replace(b"candidate_1", b"candidate_7"))
        with closing(open_at(path)) as database:
            assert database.get(*PLACE) is None
            assert "damaged" in database.warnings[0]
            assert database.problems() and not database.find()
            began = database.version(*PLACE)
            database.put(entry("new"), began)
            found = database.get(*PLACE)
            assert found is not None and found.value == "new" and not database.problems()

    def test_damage_that_happens_while_it_is_open(self, path: Path) -> None:
        filled(path, 100)
        database = open_at(path)
        size = path.stat().st_size
        with open(path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xa5" * (size - 4096))
        database.put(entry())
        assert database.get(*PLACE) is not None
        assert database.writable and not database.problems()
        database.close()

    def test_tables_that_were_renamed_count_as_damage(self, path: Path) -> None:
        filled(path, 3)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ALTER TABLE entries RENAME COLUMN checksum TO checksun")
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.writable and database.get(*PLACE) is not None

    def test_what_a_file_brings_along_does_not_run(self, path: Path) -> None:
        filled(path, 3)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "CREATE TRIGGER bad BEFORE INSERT ON entries BEGIN SELECT load_extension('x'); END"
            )
        with closing(open_at(path)) as database:
            database.put(entry())
            assert database.get(*PLACE) is not None

    def test_looking_at_a_damaged_file_does_not_change_it(self, path: Path) -> None:
        filled(path)
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 8192 * 4096 :][:4096] = b"\xff" * 4096
        path.write_bytes(raw[: len(raw) // 8192 * 4096] + b"\xff" * 4096)
        before = path.read_bytes()
        with closing(open_at(path, read_only=True)) as database:
            database.find()
        assert path.read_bytes() == before
        assert not list(path.parent.glob("*damaged*"))


class TestTrouble:
    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with closing(open_at(tmp_path / "file" / "sub" / "default.db")) as database:
            database.put(entry())
            assert database.get(*PLACE) is not None
            assert database.path is None and "cannot be made" in database.warnings[0]

    def test_a_name_too_long_for_a_file(self, tmp_path: Path) -> None:
        with closing(open_at(tmp_path / ("x" * 300 + ".db"))) as database:
            database.put(entry())
            assert database.get(*PLACE) is not None and database.warnings

    def test_a_file_deleted_under_it_is_made_anew(self, path: Path) -> None:
        database = open_at(path)
        database.put(entry("1"))
        for each in path.parent.glob("default.db*"):
            each.unlink()
        database.put(entry("2"))
        database.close()
        with closing(open_at(path)) as again:
            assert [found.value for found in again.find()] == ["2"]

    def test_a_file_set_aside_by_another_is_let_go(self, path: Path) -> None:
        database = open_at(path)
        database.put(entry("1"))
        for each in path.parent.glob("default.db*"):
            each.rename(each.with_name(each.name.replace("default.db", "aside.db")))
        with closing(open_at(path)) as fresh:
            database.put(entry("2"))
            assert [found.value for found in fresh.find()] == ["2"]
        database.close()

    def test_a_neighbour_that_holds_it_for_ever(self, path: Path) -> None:
        filled(path, 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            with closing(open_at(path, busy_s=0.1)) as database:
                database.put(entry())
                assert database.get(*PLACE) is not None
                assert database.get("space", "key 0", "sum") is not None
                assert "locked" in database.warnings[0]
            neighbour.execute("ROLLBACK")

    def test_a_neighbour_that_locks_everybody_out(self, path: Path) -> None:
        filled(path, 2)
        with closing(sqlite3.connect(path, isolation_level=None)) as neighbour:
            neighbour.execute("PRAGMA locking_mode = EXCLUSIVE")
            neighbour.execute("BEGIN EXCLUSIVE")
            neighbour.execute("UPDATE records SET at = at")
            with closing(open_at(path, busy_s=0.1)) as database:
                assert database.get("space", "key 0", "sum") is not None
                database.put(entry())
                assert database.get(*PLACE) is not None
                assert "locked" in database.warnings[0] and not database.writable
            neighbour.execute("ROLLBACK")

    def test_a_forked_child_opens_its_own(self, path: Path) -> None:
        database = open_at(path)
        database.put(entry("1"))
        child = os.fork()
        if child == 0:
            try:
                database.put(entry("2", "child"))
                database.close()
            finally:
                os._exit(0 if database.writable else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert database.get("space", "child", "sum") is not None
        database.put(entry("3", "parent"))
        database.close()
        with closing(open_at(path)) as again:
            assert len(again.find()) == 3

    def test_a_clock_that_went_back_changes_nothing(self, path: Path) -> None:
        with closing(open_at(path)) as database:
            database.put(Entry("space", "key", "sum", "1", at="2999-01-01T00:00:00.000000Z"))
            began = database.version(*PLACE)
            database.put(entry("2"), began)
            found = database.get(*PLACE)
            assert found is not None and found.value == "2"

    def test_two_processes_write_at_once(self, path: Path) -> None:
        code = (
            "import sys; from pathlib import Path; from rooftune.store.database import Database;"
            "from rooftune.store.entry import Entry; d = Database(Path(sys.argv[1]));"
            "[d.put(Entry('s', sys.argv[2] + str(n), '', '1')) for n in range(100)];"
            "d.close(); print(d.warnings)"
        )
        runs = [
            subprocess.Popen([sys.executable, "-c", code, str(path), name], stdout=subprocess.PIPE, text=True)
            for name in "abcd"
        ]
        assert [run.communicate()[0].strip() for run in runs] == ["[]"] * 4
        with closing(open_at(path)) as database:
            assert len(database.find()) == 400


def test_values_are_json_that_is_the_same_for_equal_values() -> None:
    assert to_text({"b": 1, "a": [1.5, "µ"]}) == '{"a":[1.5,"µ"],"b":1}'
    assert json.loads(to_text({"a": None})) == {"a": None}
    with pytest.raises(ValueError):
        to_text(float("nan"))


def test_the_application_id_is_a_positive_number() -> None:
    assert 0 < APPLICATION_ID < 1 << 31
