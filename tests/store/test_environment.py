"""The environment's name, folder and file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.config import load_config
from rooftune.folders import stand_in_for_user_cache, user_cache_folder
from rooftune.store import open_store
from rooftune.store.environment import environment_folder, environment_name, locate
from rooftune.tuning.place import Place


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("default", "default"),
        ("my env/2", "my_env_2"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("", "default"),
        (".", "default"),
        ("..", "default"),
        ("....", "default"),
        ("größe", "gr__e"),
        ("A.b_c-9", "A.b_c-9"),
    ],
)
def test_names_are_safe_as_file_names(text: str, name: str) -> None:
    assert environment_name(text) == name


@given(st.text())
def test_no_name_leads_out_of_the_folder(text: str) -> None:
    folder = Path("/somewhere")
    path = locate(text, folder).path
    assert path is not None
    assert Path(os.path.normpath(path)).parent == folder


def test_target_is_beside_the_outermost_cargo_file(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert environment_folder("target", inner) == user_cache_folder()
    (inner / "Cargo.toml").touch()
    assert environment_folder("target", inner) == inner / "target" / "rooftune"
    (tmp_path / "Cargo.toml").touch()
    assert environment_folder("target", inner) == tmp_path / "target" / "rooftune"


def test_the_other_roots(tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").touch()
    assert environment_folder("local", tmp_path) == tmp_path
    assert environment_folder("global", tmp_path) == user_cache_folder()
    assert environment_folder(tmp_path / "x", tmp_path) == tmp_path / "x"


def test_the_configured_environment_is_opened(tmp_path: Path) -> None:
    (tmp_path / "cubecl.toml").write_text('[environment]\nname = "my env"\npath = "stores"')
    store = open_store(load_config(cwd=tmp_path, env={}))
    assert store.path == tmp_path / "stores" / "my_env.db"
    assert store.path.exists()
    store.close()


def test_without_a_home_it_goes_on_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "~/.cache/x")
    warnings: list[str] = []
    store = open_store(load_config(env={}), warn=warnings.append)
    assert store.path is None
    assert "no home folder" in warnings[0]
    row = Place("t", "balanced", "d", "c", "k")
    store.decisions.save(row, {"a": 1}, began_at_row_version=None)
    assert store.decisions.load(row) == {"a": 1, "origin": "local"}


def test_a_stand_in_for_the_cache_folder_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    stand_in_for_user_cache(tmp_path)
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path)
    assert user_cache_folder() == Path("/proc/nowhere/rooftune")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert user_cache_folder() == tmp_path / "other" / "rooftune"


def test_a_deleted_current_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    config = load_config(env={})
    assert environment_folder(config.environment.path) == user_cache_folder()
    assert locate("x", "local").path is None


def test_switched_off_caches_are_memory_only(tmp_path: Path) -> None:
    env = {"CUBECL_AUTOTUNE_CACHE": "0", "CUBECL_THROUGHPUT_CACHE": "0"}
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "local"')
    row = Place("t", "balanced", "d", "c", "k")
    for _ in range(2):
        store = open_store(load_config(cwd=tmp_path, env=env), cwd=tmp_path)
        assert store.decisions.load(row) is None
        assert store.probes.load("d", 1, {}) is None
        store.decisions.save(row, {"a": 1}, began_at_row_version=None)
        store.probes.save("d", 1, {}, {"value": 1.0})
        assert store.decisions.load(row) is not None
        assert store.probes.load("d", 1, {}) is not None
        store.close()
