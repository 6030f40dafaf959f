"""`tune cache` and `tune env`, on stores that a tuner filled."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest
from rooftune.cli.cache import _evidence_lines, _list_rows
from rooftune.formats import load_schema
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Shape
from rooftune.store.database import Database
from rooftune.store.schema import STEPS
from rooftune.store.stores import Store
from rooftune.tuning.decision import Decision, Evidence
from rooftune.tuning.place import Place

from ..store.cold_run import NumbersClient, candidates
from ..store.cold_run import tune as tune_keys


def fits(name: str, value: Any) -> Any:
    jsonschema.Draft202012Validator(load_schema(name)).validate(value)
    return value


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The environment of the current folder, with four decisions, a probe result, a proof and records."""
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "local"')
    path = tmp_path / "default.db"
    store = Store(Database(path))
    tune_keys(store, ["a", "b", "c"], NumbersClient(0.0), candidates(5))
    key = json.dumps(MatmulAutotuneKey.build(Shape.parse("8192x8192x4096tT").problem()).to_json())
    (found, *_) = store.database.find("autotune")
    decision = json.loads(found.value)
    decision["key"] = json.loads(key)
    place = Place("matmul", "balanced", "a very long device|" * 6, "sum", key)
    store.decisions.save(place, decision, began_at_row_version=None)
    store.probes.save("device", 1, "p", {"value": 1.0})
    store.proofs.save("device", "p", {"passed": True})
    store.records.append("autotune", {"key": json.loads(key), "winner": "x", "median_s": 1e-3})
    own = {"tuner": "kernel:scale", "key": {"problem_size": [64]}, "winner": "y"}
    store.records.append("autotune", own)
    store.records.append("compilation", {"kernels": "chain;tile", "seconds": 0.5})
    store.records.append("sessions", {"command": "shapes 64"})
    store.close()
    return path


def test_ls_fits_eighty_columns(
    tune: Callable[..., Any], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = tune("cache", "ls")
    assert ran.code == 0 and not ran.err
    path, *lines = ran.out.splitlines()
    assert path == str(store)
    assert all(len(line) <= 80 for line in lines), lines
    assert sum("candidate_0" in line for line in lines) == 4
    assert any("8192x8192x4096" in line for line in lines)
    assert any(line.startswith("  proofs/") for line in lines)


def test_ls_leaves_nothing_out_where_there_is_room(tune: Callable[..., Any], store: Path) -> None:
    assert "a very long device|" * 6 in tune("cache", "ls").out


def test_ls_json(tune: Callable[..., Any], store: Path) -> None:
    listed = fits("cache-ls", tune("cache", "ls", "--json").json)
    assert listed["path"] == str(store)
    assert [entry["winner"] for entry in listed["entries"]] == ["candidate_0"] * 4
    counted = [each["namespace"].split("/")[0] for each in listed["namespaces"]]
    assert counted == ["autotune", "autotune", "proofs", "records", "records", "records", "throughput"]
    assert sum(each["entries"] for each in listed["namespaces"]) == 10


def test_ls_of_nothing(tune: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBECL_ENVIRONMENT", "nothing-yet")
    ran = tune("cache", "ls")
    assert ran.code == 0 and "no decisions" in ran.out
    assert fits("cache-ls", tune("cache", "ls", "--json").json)["entries"] == []
    assert not Path(tune("cache", "path").out.strip()).exists()


def test_show(tune: Callable[..., Any], store: Path) -> None:
    id = tune("cache", "ls", "--json").json["entries"][0]["id"]
    ran = tune("cache", "show", id[:6])
    assert ran.code == 0
    assert all(f"candidate_{index}" in ran.out for index in range(5))
    shown = fits("cache-show", tune("cache", "show", id, "--json").json)
    assert shown["id"] == id and len(shown["decision"]["evidence"]) == 5
    ran = tune("cache", "show", "ffffffffffff", "--json")
    assert ran.code == 2
    fits("error", ran.json)


@pytest.mark.parametrize("width", [80, 1000])
def test_names_of_many_parameters_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"block_size_x=128,{'parameter=1,' * 5}last={last}" for last in (1, 2)]
    ranking = [Evidence(i, name, "digest", "measured", samples=(1e-3,)) for i, name in enumerate(names)]
    facts = {"tuner": "own", "ranking": ranking, "evidence": ranking, "median_s": 1e-3, "tie_break": None}
    decision = SimpleNamespace(share_of=lambda evidence: 0.5, **facts)
    lines = list(_evidence_lines(cast(Decision, decision)))
    folded = "".join(line.removeprefix("    ") for line in lines)
    assert all(name in folded for name in names)
    assert len(lines) == (8 if width == 80 else 4)
    assert len({line.index("measured") for line in lines if "measured" in line}) == 1


def test_a_reason_of_several_lines_keeps_them_and_other_control_characters_go(capsys):
    reason = "it does not compile:\n<source>:3:5: error: x\n\t\x1b[31mfoo\n    ^"
    evidence = (Evidence(0, "bad", "digest", "error", reason=reason),)
    decision = SimpleNamespace(tuner="own", ranking=[], evidence=evidence, median_s=None, tie_break=None)
    lines = list(_evidence_lines(cast(Decision, decision)))
    log = ["<source>:3:5: error: x", "        ?[31mfoo", "    ^"]
    assert lines[1:] == ["error: it does not compile:", *log, "  0 bad"]


def test_rm(tune: Callable[..., Any], store: Path) -> None:
    ids = [entry["id"] for entry in tune("cache", "ls", "--json").json["entries"]]
    assert tune("cache", "rm").code == 2
    refused = tune("cache", "rm", ids[0])
    assert refused.code == 2 and "--yes" in refused.err
    assert fits("cache-rm", tune("cache", "rm", ids[0], "--yes", "--json").json)["removed"] == [ids[0]]
    assert "removed 0" in tune("cache", "rm", "--older-than", "1d", "--yes").out
    assert "removed 1" in tune("cache", "rm", "--device", "very long", "--yes").out
    assert "removed 2" in tune("cache", "rm", "--tuner", "numbers", "--yes").out
    assert tune("cache", "rm", "--older-than", "soon", "--yes").code == 2
    listed = tune("cache", "ls", "--json").json
    assert listed["entries"] == []
    assert {each["namespace"].split("/")[0] for each in listed["namespaces"]} == {
        "proofs", "throughput", "records"
    }  # fmt: skip


def test_rm_takes_a_tuner_s_name_as_ls_shows_it(tune: Callable[..., Any], store: Path) -> None:
    filled = Store(Database(store))
    (decision, *_) = filled.decisions.all()
    for tuner in ("kernel:scale", "kernel:numbers"):
        place = Place(tuner, "balanced", "device", "sum", "[1]")
        filled.decisions.save(place, {**decision, "tuner": tuner}, began_at_row_version=None)
    filled.close()
    none = tune("cache", "rm", "--tuner", "scales", "--yes")
    assert "removed 0" in none.out
    assert "these have: kernel:numbers, kernel:scale, matmul, numbers" in none.err
    assert "removed 1" in tune("cache", "rm", "--tuner", "scale", "--yes").out
    assert "removed 3" in tune("cache", "rm", "--tuner", "numbers", "--yes").out, "not kernel:numbers"
    assert "removed 1" in tune("cache", "rm", "--tuner", "kernel:numbers", "--yes").out


def test_rm_asks(tune: Callable[..., Any], store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert "removed 0" in tune("cache", "rm", "--all").out
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert "removed 4" in tune("cache", "rm", "--all").out


def test_verify(tune: Callable[..., Any], store: Path) -> None:
    assert fits("cache-verify", tune("cache", "verify", "--json").json)["ok"]
    store.write_bytes(store.read_bytes().replace(b'"level":"balanced"', b'"level":"balanceD"', 1))
    ran = tune("cache", "verify", "--json")
    assert ran.code == 4 and not fits("cache-verify", ran.json)["ok"]
    assert tune("cache", "verify", "--db", "missing.db").code == 2


def test_export_and_import(tune: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    ran = tune("cache", "export", "out.json", "--tuner", "numbers", "--json")
    assert len(fits("cache-export", ran.json)["exported"]) == 3
    assert tune("cache", "export", "out.json").code == 2
    fits("export", json.loads((tmp_path / "out.json").read_text()))
    ran = tune("cache", "import", "out.json", "--environment", "other", "--json")
    assert ran.code == 0 and len(fits("cache-import", ran.json)["taken"]) == 3
    entries = tune("cache", "ls", "--environment", "other", "--json").json["entries"]
    assert {entry["origin"] for entry in entries} == {"imported"}
    again = tune("cache", "import", "out.json")
    assert again.code == 0 and "refused 3" in again.out and "made on this machine" in again.out
    data = json.loads((tmp_path / "out.json").read_text())
    data["entries"][0]["decision"]["index"] = 1
    (tmp_path / "out.json").write_text(json.dumps(data))
    ran = tune("cache", "import", "out.json", "--environment", "third")
    assert ran.code == 4 and "checksum is wrong" in ran.out and "imported 2" in ran.out
    assert tune("cache", "import", "missing.json").code == 2


def test_import_into_a_store_that_cannot_be_written(
    tune: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    assert tune("cache", "export", "out.json").code == 0
    (tmp_path / "file").touch()
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "file/sub"')
    ran = tune("cache", "import", "out.json")
    assert ran.code == 4 and "nothing was imported" in ran.err


def test_rm_from_a_store_that_is_only_read(tune: Callable[..., Any], store: Path) -> None:
    with closing(Database(store, steps=[*STEPS, lambda connection: None])):
        pass
    ran = tune("cache", "rm", "--all", "--yes")
    assert ran.code == 4 and "nothing was removed" in ran.err and "newer rooftune" in ran.err


def test_another_file(tune: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.db"
    store.rename(file)
    before = file.read_bytes()
    assert len(tune("cache", "ls", "--db", "elsewhere.db", "--json").json["entries"]) == 4
    assert tune("cache", "log", "--db", "elsewhere.db").code == 0
    assert tune("cache", "verify", "--db", "elsewhere.db").code == 0
    assert file.read_bytes() == before
    assert "removed 4" in tune("cache", "rm", "--all", "--yes", "--db", "elsewhere.db").out
    (tmp_path / "text.db").write_text("text")
    for command in (["ls"], ["show", "a"], ["rm", "a"], ["log"], ["export", "x.json"]):
        ran = tune("cache", *command, "--db", "text.db", "--json")
        assert ran.code == 2
        fits("error", ran.json)
        assert ran.json["schema"] == f"rooftune/cache-{command[0]}/1"


def test_log(tune: Callable[..., Any], store: Path) -> None:
    records = fits("cache-log", tune("cache", "log", "--json").json)["records"]
    assert [record["kind"] for record in records] == ["autotune", "autotune", "compilation", "sessions"]
    lines = tune("cache", "log", "--kind", "autotune").out.splitlines()
    assert len(lines) == 2 and "winner x" in lines[0] and "8192x8192x4096 f32 tT" in lines[0]
    assert lines[1].endswith("autotune: key kernel:scale 64, winner y")
    compiled = tune("cache", "log", "--kind", "compilation").out
    assert compiled.endswith("compilation: kernels chain tile, took 500.00ms\n")
    assert tune("cache", "log", "--kind", "other").code == 2
    assert tune("cache", "log", "-n", "1").out.count("\n") == 1


def test_env(tune: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    assert fits("env-copy", tune("env", "copy", "default", "spare", "--json").json)["path"]
    listed = fits("env-ls", tune("env", "ls", "--json").json)
    assert [(each["name"], each["current"]) for each in listed["environments"]] == [
        ("default", True), ("spare", False)
    ]  # fmt: skip
    assert "* default" in tune("env", "ls").out
    assert tune("env", "rm", "spare").code == 2
    assert tune("env", "rm", "missing", "spare", "--yes").code == 2
    assert (tmp_path / "spare.db").exists()
    assert fits("env-rm", tune("env", "rm", "spare", "--yes", "--json").json)["removed"]
    assert not (tmp_path / "spare.db").exists()
    assert tune("env", "copy", "missing", "x").code == 2


def test_a_damaged_store_is_listed_all_the_same(tune: Callable[..., Any], store: Path) -> None:
    raw = bytearray(store.read_bytes())
    raw[4096:4200] = b"\xff" * 104
    store.write_bytes(raw)
    ran = tune("cache", "ls")
    assert ran.code == 0 and "set aside" in ran.err
    with closing(Database(store)) as database:
        assert database.writable


def test_a_long_key_has_its_winner_below_and_the_other_rows_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rest = ["1.243ms", "24%", "1m", "local"]
    rows = [
        ["37d52f96", "total aligned=true length=1048576", "total_4_wide_rows", *rest],
        ["ddb49898", "16 f32 @64", "matmul_cpu_gemm_packed", *rest],
        ["c231a9db", "32 f32", "m" * 60, *rest],
    ]
    lines = list(_list_rows(("ID", "KEY", "WINNER", "TIME", "ROOF", "AGE", "FROM"), rows))
    assert len(lines) == 6 and max(map(len, lines)) <= 80
    assert lines[1].startswith("37d52f96 total aligned=true length=1048576 ")
    assert lines[2] == "         total_4_wide_rows" and lines[5] == "         " + "m" * 60
    assert lines[3].startswith("ddb49898 16 f32 @64 matmul_cpu_gemm_packed ")
    assert len({line.index("1.243ms") for line in (lines[1], lines[3], lines[4])}) == 1


def test_the_path_is_that_of_the_file_in_use(tune: Callable[..., Any], store: Path) -> None:
    assert tune("cache", "path").out == f"{store}\n"
    (store.parent / "default.db").write_text("of another program")
    assert tune("cache", "path").out == f"{store.parent / 'default.rooftune.db'}\n"


def test_removing_with_json_does_not_ask(tune: Callable[..., Any], store: Path) -> None:
    ran = tune("cache", "rm", "--all", "--json")
    assert ran.code == 2 and "--json leaves no room for a question" in ran.json["error"]["message"]
