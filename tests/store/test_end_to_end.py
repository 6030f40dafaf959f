"""The store under real runs of `tune shapes`: killed, crowded, mutated, on a full disk, carried elsewhere."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rooftune.config import Config, EnvironmentConfig, ProofConfig
from rooftune.device.discovery import list_devices
from rooftune.store.browse import stored_decisions, verify_file
from rooftune.store.database import Database
from rooftune.store.header import FileKind, read_header

from .test_disk import disk, fill, run
from .test_mutations import MUTATIONS

pytestmark = pytest.mark.skipif(
    not any(found.usable for found in list_devices()), reason="there is no usable OpenCL device"
)

_ = disk  # the fixture, used by name below
KNOWN = ("8", "16")
CONFIG = '[environment]\npath = "local"\n[proof]\nmode = "inline"\n'


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def sources(self) -> list[str]:
        return [shape["source"] for shape in self.json["shapes"]]


def start(folder: Path, *args: str) -> Any:
    """`tune` in a folder of its own, whose configuration keeps the store there."""
    folder.mkdir(exist_ok=True)
    with suppress(OSError):
        (folder / "cubecl.toml").write_text(CONFIG)
    return subprocess.Popen(
        [sys.executable, "-m", "rooftune.cli", *args], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: Any, code: int = 0) -> Ran:
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    assert "Traceback" not in err, err
    return Ran(process.returncode, out, err)


def tune(folder: Path, *args: str, code: int = 0) -> Ran:
    return finish(start(folder, *args), code)


def shapes(folder: Path, *args: str, code: int = 0) -> Ran:
    return tune(folder, "shapes", *args, "--repeat", "1", "--json", code=code)


@pytest.fixture(scope="module")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store with this device's probe results and decisions for the known shapes."""
    folder = tmp_path_factory.mktemp("seed")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("CUBECL_")]:
            patch.delenv(name)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        assert shapes(folder, *KNOWN).sources == ["tuned"] * len(KNOWN)
    yield folder / "default.db"


def planted(folder: Path, seed: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(seed, folder / "default.db"))


def decided(file: Path) -> set[str]:
    with closing(Database(file)) as database:
        assert not database.warnings, database.warnings
        return {item.id for item in stored_decisions(database)}


def test_what_was_tuned_is_warm_in_another_environment_after_export_and_import(
    tmp_path: Path, seed: Path
) -> None:
    planted(tmp_path / "one", seed)
    log = tune(tmp_path / "one", "cache", "log", "--json").json["records"]
    assert [record["kind"] for record in log if record["kind"] != "compilation"] == [
        "autotune", "autotune", "sessions"
    ]  # fmt: skip
    tune(tmp_path / "one", "cache", "export", "../out.json")
    taken = tune(tmp_path / "two", "cache", "import", "../out.json", "--json").json["taken"]
    assert len(taken) == len(KNOWN)
    warm = shapes(tmp_path / "two", *KNOWN, "--warm")
    assert warm.sources == ["disk"] * len(KNOWN)
    measured = {"ComputeThroughput", "MemoryThroughput", "LaunchOverhead"}
    for shape in warm.json["shapes"]:
        assert shape["launches"]["first"]["MatmulEntry"] == 1
        assert shape["launches"]["first"]["ProofEntry"] > 0  # what was found elsewhere is proven here, once
        assert not measured & shape["launches"]["first"].keys()
    warm = shapes(tmp_path / "two", *KNOWN, "--warm")
    assert warm.sources == ["disk"] * len(KNOWN)
    assert all(shape["launches"]["first"] == {"MatmulEntry": 1} for shape in warm.json["shapes"])
    entries = tune(tmp_path / "two", "cache", "ls", "--json").json["entries"]
    assert {entry["origin"] for entry in entries} == {"imported"}
    assert shapes(tmp_path / "two", "300", "--warm", code=4).json["shapes"][0]["error"]


def test_one_more_candidate_is_measured_against_the_best_known(tmp_path: Path, seed: Path) -> None:
    from rooftune.matmul.candidates import CANDIDATES
    from rooftune.matmul.problem import Shape
    from rooftune.session import Session
    from rooftune.shapes_run import random_inputs
    from rooftune.tuning.tunable import Tunable, TunableSet
    from rooftune.tuning.tuner import LocalTuner

    planted(tmp_path, seed)
    config = Config(environment=EnvironmentConfig("default", tmp_path), proof=ProofConfig(mode="off"))
    session = Session(config)
    client = session.client()
    inputs = random_inputs(client, session.problem(Shape.parse(KNOWN[0])))
    assert session.decide(client, inputs).source == "disk"
    candidates = session.candidates(client)

    def more(client: Any) -> TunableSet:
        naive = partial(candidates.run, CANDIDATES[0])
        tunables = candidates.tunables(session.level, lambda inputs: session.bounds(client, inputs))
        return tunables.with_tunable(Tunable("matmul_one_more", naive, source="another"))

    tuner = LocalTuner("matmul", session.context)
    outcome = tuner.decide(client, tuner.init(client, more), inputs)
    assert outcome.source == "tuned" and len(outcome.decision.evidence) == 34
    measured = [each.name for each in outcome.decision.evidence if each.timed and not each.kept]
    assert "matmul_one_more" in measured and len(measured) <= 2
    session.store.close()


def crowd(folder: Path, seed: Path, processes: int, keys: list[str]) -> None:
    planted(folder, seed)
    before = len(decided(folder / "default.db"))
    runs = []
    for _ in range(processes):
        wanted = random.sample(keys, len(keys))
        runs.append(start(folder, "shapes", *wanted, "--repeat", "1", "--json"))
    sources = Counter(source for each in runs for source in finish(each).sources)
    assert sources == {"tuned": len(keys), "disk": len(keys) * (processes - 1)}
    assert len(decided(folder / "default.db")) == before + len(keys)
    assert verify_file(folder / "default.db") == []


def test_processes_that_meet_the_same_cold_keys_tune_each_once(tmp_path: Path, seed: Path) -> None:
    crowd(tmp_path / "crowd", seed, 3, ["32", "64"])


@pytest.mark.long
def test_sixteen_processes_that_meet_four_cold_keys_tune_each_once(tmp_path: Path, seed: Path) -> None:
    crowd(tmp_path / "crowd", seed, 16, ["32", "64", "100", "200"])


def kill_at_random(folder: Path, seed: Path, kills: int) -> None:
    """Cold runs on one store, each killed; what a line of output said was decided must be there for good."""
    file = planted(folder, seed)
    known = decided(file)
    hits: Counter[str] = Counter()
    for number in range(kills):
        sizes = [
            f"{2 ** random.randrange(1, 8)}x{2 ** random.randrange(1, 8)}x{number + 1}" for _ in range(6)
        ]
        process = start(folder, "shapes", *sizes, "--repeat", "1")
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=random.uniform(0.3, 6.0))
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        hits["finished" if " next 1" in out else "killed early"] += 1
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        now = decided(file)
        assert known <= now
        assert len(now) >= len(known) or not out
        known = now
    print(f"{kills} kills, {len(known)} decisions in the end, {dict(hits)}")
    assert verify_file(file) == []
    assert shapes(folder, *KNOWN).sources == ["disk"] * len(KNOWN)


def test_killed_runs_lose_no_decision(tmp_path: Path, seed: Path) -> None:
    kill_at_random(tmp_path / "killed", seed, 3)


@pytest.mark.long
def test_two_hundred_killed_runs_lose_no_decision(tmp_path: Path, seed: Path) -> None:
    kill_at_random(tmp_path / "killed", seed, 200)


def mutate_many(folder: Path, seed: Path, count: int, first: int) -> Counter[str]:
    """Runs on mutated copies of the store; a job on each, foreign files as they were."""
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        rng = random.Random(number)
        place = folder / str(number)
        file = planted(place, seed)
        file.write_bytes(rng.choice(MUTATIONS)(rng, bytearray(seed.read_bytes())))
        before, foreign = file.read_bytes(), read_header(file).kind is FileKind.FOREIGN
        ran = shapes(place, KNOWN[0])
        assert ran.json["shapes"][0]["error"] is None
        if foreign:
            assert file.read_bytes() == before and "left alone" in ran.err
        outcomes["foreign" if foreign else ran.sources[0]] += 1
        shutil.rmtree(place)
    return outcomes


def test_runs_on_mutated_stores(tmp_path: Path, seed: Path) -> None:
    mutate_many(tmp_path, seed, 4, 2)


@pytest.mark.long
def test_runs_on_a_hundred_mutated_stores(tmp_path: Path, seed: Path) -> None:
    print(dict(mutate_many(tmp_path, seed, 100, 100)))


def test_a_run_on_a_full_disk(disk: Path, seed: Path) -> None:
    shutil.copy(seed, disk / "default.db")
    (disk / "cubecl.toml").write_text(CONFIG)
    fill(disk, 0)
    ran = shapes(disk, *KNOWN, "32")
    assert ran.sources == ["disk"] * len(KNOWN) + ["tuned"]
    assert "in memory for this run" in ran.err


def test_a_run_without_a_usable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.delenv("XDG_CACHE_HOME")
    process = subprocess.Popen(
        [sys.executable, "-m", "rooftune.cli", "shapes", KNOWN[0], "--repeat", "1", "--json"],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    ran = finish(process)
    assert ran.sources == ["tuned"]
    assert "/proc/nowhere" in ran.err and "nothing is stored beyond this run" in ran.err


def test_a_run_in_a_read_only_folder(disk: Path, seed: Path) -> None:
    shutil.copy(seed, disk / "default.db")
    (disk / "cubecl.toml").write_text(CONFIG)
    assert run("mount", "-o", "remount,ro", str(disk))
    ran = shapes(disk, *KNOWN, "32")
    assert ran.sources == ["disk"] * len(KNOWN) + ["tuned"]
    assert "in memory for this run" in ran.err
    assert len(tune(disk, "cache", "ls", "--json").json["entries"]) == len(KNOWN)
