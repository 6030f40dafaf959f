"""Mutated, cut off, foreign or empty files: the job is done, and foreign files stay as they are."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from rooftune.store.database import Database
from rooftune.store.header import FileKind, read_header
from rooftune.store.stores import Store

from .cold_run import NumbersClient, candidates, tune

KNOWN = [f"known {number}" for number in range(12)]
SIDES = ("", "-wal", "-shm", "-journal")
Mutation = Callable[[random.Random, bytearray], bytes]


def _flips(rng: random.Random, raw: bytearray) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def _flips_in_the_first_page(rng: random.Random, raw: bytearray) -> bytes:
    for _ in range(rng.choice((1, 2, 8))):
        raw[rng.randrange(min(len(raw), 4096))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def _flips_behind_the_marks(rng: random.Random, raw: bytearray) -> bytes:
    for _ in range(rng.choice((1, 2, 8, 200))):
        raw[rng.randrange(72, len(raw))] ^= 1 << rng.randrange(8)
    return bytes(raw)


def _hole(rng: random.Random, raw: bytearray) -> bytes:
    begin = rng.randrange(len(raw))
    size = min(rng.choice((16, 512, 4096, 20000)), len(raw) - begin)
    raw[begin : begin + size] = rng.choice((b"\0" * size, b"\xff" * size, rng.randbytes(size)))
    return bytes(raw)


def _cut(rng: random.Random, raw: bytearray) -> bytes:
    return bytes(
        raw[: rng.choice((rng.randrange(len(raw)), rng.randrange(200), len(raw) // 4096 // 2 * 4096))]
    )


def _longer(rng: random.Random, raw: bytearray) -> bytes:
    return bytes(raw) + rng.randbytes(rng.choice((1, 4096, 9999)))


def _pages_swapped(rng: random.Random, raw: bytearray) -> bytes:
    pages = [raw[at : at + 4096] for at in range(0, len(raw), 4096)]
    rest = pages[1:]
    rng.shuffle(rest)
    return bytes(b"".join([pages[0], *rest]))


def _text(rng: random.Random, raw: bytearray) -> bytes:
    return rng.choice((b"not a database\n" * 40, "größe\n".encode(), b"{}", raw[:16] + b"text"))


def _empty(rng: random.Random, raw: bytearray) -> bytes:
    return b""


def _noise(rng: random.Random, raw: bytearray) -> bytes:
    return rng.randbytes(rng.choice((1, 99, 5000)))


MUTATIONS: tuple[Mutation, ...] = (
    _flips, _flips, _flips, _flips_in_the_first_page, _flips_behind_the_marks, _flips_behind_the_marks, _hole,
    _hole, _cut, _longer, _pages_swapped, _text, _empty, _noise,
)  # fmt: skip


def _prepare(folder: Path) -> tuple[bytes, bytes, bytes]:
    """A closed store's file, an open one's file and WAL, and the file of somebody else's database."""
    file = folder / "source.db"
    store = Store(Database(file))
    tune(store, KNOWN[:6], NumbersClient(0.0), candidates(5))
    store.close()
    store = Store(Database(file))
    tune(store, KNOWN, NumbersClient(0.0), candidates(5))
    opened, wal = file.read_bytes(), file.with_name("source.db-wal").read_bytes()
    store.close()
    theirs = folder / "theirs.db"
    with closing(sqlite3.connect(theirs)) as connection:
        connection.executescript("CREATE TABLE t (x); PRAGMA application_id = 77; INSERT INTO t VALUES (1);")
    return (file.read_bytes(), opened + b"WAL" + wal, theirs.read_bytes())


def _job(file: Path) -> str:
    """What a run does: a known key, a new key. Says what became of the file."""
    foreign = read_header(file).kind is FileKind.FOREIGN
    before = {suffix: _bytes_of(file, suffix) for suffix in SIDES}
    warnings: list[str] = []
    store = Store(Database(file, warn=warnings.append))
    done = tune(store, [KNOWN[0], KNOWN[7], "new"], NumbersClient(0.0), candidates(5))
    store.close()
    assert {winner for _, winner in done.values()} == {"candidate_0"}
    if foreign:
        assert {suffix: _bytes_of(file, suffix) for suffix in SIDES} == before
        assert any("left alone" in warning for warning in warnings)
        return "left alone"
    aside = list(file.parent.glob(f"{file.name}.damaged-*"))
    if aside:
        assert any("set aside" in warning for warning in warnings)
    again = Store(Database(file, warn=warnings.append))
    fine = again.database.writable
    if fine:
        rerun = tune(again, ["new"], NumbersClient(0.0), candidates(5))
        assert rerun["new"][0] == "disk", (rerun, warnings)
        # A value changed where SQLite cannot see it counts as missing, and is replaced when it is wanted.
        assert all(problem.startswith("entry ") for problem in again.database.problems())
    again.close()
    return "set aside" if aside else "read only" if not fine else "as it was"


def _bytes_of(file: Path, suffix: str) -> bytes | None:
    path = file.with_name(file.name + suffix)
    return path.read_bytes() if path.exists() else None


def mutate_many(folder: Path, count: int, seed: int) -> Counter[str]:
    closed, opened, theirs = _prepare(folder)
    outcomes: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(seed + number)
        place = folder / str(number)
        place.mkdir()
        file = place / "default.db"
        if number % 20 == 0:
            file.write_bytes(theirs)
        elif number % 3:
            file.write_bytes(rng.choice(MUTATIONS)(rng, bytearray(closed)))
        else:
            main, _, wal = opened.partition(b"WAL")
            mutated = rng.choice(MUTATIONS)(rng, bytearray(rng.choice((main, wal))))
            in_wal = rng.random() < 0.6
            file.write_bytes(main if in_wal else mutated)
            file.with_name("default.db-wal").write_bytes(mutated if in_wal else wal)
        outcomes[_job(file)] += 1
        for each in place.iterdir():
            os.unlink(each)
    return outcomes


def test_mutated_files(tmp_path: Path) -> None:
    outcomes = mutate_many(tmp_path, 60, seed=1)
    assert outcomes["left alone"] and outcomes["set aside"]


@pytest.mark.long
def test_a_thousand_mutated_files(tmp_path: Path) -> None:
    print(dict(mutate_many(tmp_path, 1000, seed=1000)))
