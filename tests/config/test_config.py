"""Which file is found, what it may say, and what variables and options change."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooftune.config import Config, load_config
from rooftune.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "cubecl.toml.example"


def load(folder: Path, text: str, name: str = "cubecl.toml", env: dict[str, str] | None = None) -> Config:
    (folder / name).write_text(text)
    return load_config(cwd=folder, env=env or {})


def refused(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return caught.value.message


def test_nothing_configured_gives_the_defaults(tmp_path: Path) -> None:
    config = load_config(cwd=Path(tmp_path.anchor), env={})  # of folders above tests' own we know nothing
    assert config == Config()
    assert config.source is None
    assert not config.warnings


def test_the_example_holds_every_key_at_its_default() -> None:
    config = load_config(EXAMPLE, env={})
    assert config == Config()
    assert not config.warnings
    text = EXAMPLE.read_text()
    for section in (
        "autotune",
        "bench",
        "logger",
        "decisions",
        "throughput",
        "environment",
        "matmul",
        "proof",
    ):
        for key in vars(getattr(config, section)):
            assert f"\n{key} =" in text or f"\n# {key} =" in text, f"{section}.{key}"


def test_the_search_goes_upwards_and_the_first_found_wins(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "cubecl.toml").write_text('[environment]\nname = "outer"')
    assert load_config(cwd=inner, env={}).environment.name == "outer"
    (tmp_path / "a" / "CubeCL.toml").write_text('[environment]\nname = "nearer"')
    config = load_config(cwd=inner, env={})
    assert config.environment.name == "nearer"
    assert config.source == tmp_path / "a" / "CubeCL.toml"


def test_a_burn_file_counts_only_with_its_cubecl_table(tmp_path: Path) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / "cubecl.toml").write_text('[environment]\nname = "outer"')
    (inner / "burn.toml").write_text("[other]\nx = 1\nautotune = 3")
    assert load_config(cwd=inner, env={}).environment.name == "outer"
    (inner / "burn.toml").write_text('[other]\nx = 1\n[cubecl.environment]\nname = "burn"')
    assert load_config(cwd=inner, env={}).environment.name == "burn"


def test_a_cubecl_file_comes_before_a_burn_file_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "Burn.toml").write_text('[cubecl.environment]\nname = "burn"')
    assert load(tmp_path, '[environment]\nname = "cubecl"').environment.name == "cubecl"


def test_a_folder_named_like_the_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cubecl.toml").mkdir()
    assert load_config(cwd=tmp_path, env={}) == Config()


def test_every_key_is_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
        [autotune]
        level = 2
        disable_cache = true
        disable_short_circuit = "on"
        bench = { min_samples = 4, max_samples = 20, speed_factor = 2, adaptive = false }
        [autotune.logger]
        level = "full"
        file = "log/a.txt"
        [autotune.decisions]
        stdout = true
        [throughput]
        disable_cache = 1
        [environment]
        path = { directory = "target" }
        [matmul]
        f32_precision = "tf32"
        [proof]
        mode = "off"
        timeout_s = 0.5
        workers = 3
        """,
    )
    assert config.autotune.level == "extensive"
    assert config.autotune.disable_cache and config.autotune.disable_short_circuit
    assert (config.bench.min_samples, config.bench.max_samples, config.bench.speed_factor) == (4, 20, 2.0)
    assert not config.bench.adaptive
    assert config.logger.file == tmp_path / "log" / "a.txt"
    assert config.decisions.stdout and config.throughput.disable_cache
    assert config.environment.path == tmp_path / "target"
    assert config.matmul.f32_precision == "tf32"
    assert (config.proof.mode, config.proof.timeout_s, config.proof.workers) == ("off", 0.5, 3)
    assert not config.warnings


@pytest.mark.parametrize("word", ["target", "local", "global"])
def test_the_three_words_for_a_root_are_not_folders(tmp_path: Path, word: str) -> None:
    assert load(tmp_path, f'[environment]\npath = "{word}"').environment.path == word


def test_any_other_path_is_a_folder_relative_to_the_file(tmp_path: Path) -> None:
    inner = tmp_path / "deep"
    inner.mkdir()
    (tmp_path / "cubecl.toml").write_text('[environment]\npath = "stores"')
    assert load_config(cwd=inner, env={}).environment.path == tmp_path / "stores"


def test_tables_of_cubecl_alone_are_fine(tmp_path: Path) -> None:
    text = "[profiling]\nx = 1\n[compilation]\ny = 2\n[streaming]\nz = 3\n[memory]\nw = 4"
    assert not load(tmp_path, text).warnings


def test_an_unknown_key_is_a_warning_that_names_the_nearest(tmp_path: Path) -> None:
    config = load(tmp_path, "[autotune]\n\n[autotune.bench]\nmin_sample = 4\n")
    (warning,) = config.warnings
    assert "cubecl.toml:4" in warning and "'min_sample'" in warning and "'min_samples'" in warning
    assert config == Config()


def test_an_unknown_table_is_a_warning(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "[autotunes]\nlevel = 1").warnings
    assert "autotunes" in warning and "[autotune]" in warning


@pytest.mark.parametrize(
    ("text", "line", "key", "allowed"),
    [
        ('[autotune]\nlevel = "fast"', 2, "level", "balanced"),
        ("[autotune]\nlevel = 4", 2, "level", "0 to 3"),
        ("[autotune]\nlevel = true", 2, "level", "balanced"),
        ("[autotune]\n\n[autotune.bench]\n# why\nmin_samples = 0", 5, "min_samples", "1 or more"),
        ("[autotune.bench]\nmax_samples = 2.5", 2, "max_samples", "whole number"),
        ("[autotune.bench]\nspeed_factor = 0.9", 2, "speed_factor", "1.0 or more"),
        ("[autotune.bench]\nspeed_factor = nan", 2, "speed_factor", "1.0 or more"),
        ("[autotune.bench]\nbudget_s = 0", 2, "budget_s", "above 0"),
        ("[autotune.bench]\nmax_samples = 2", 2, "max_samples", "min_samples = 3"),
        ("[autotune.bench]\nmin_samples = 11", 2, "min_samples", "max_samples = 10"),
        ("autotune.bench.adaptive = 3", 1, "adaptive", "true or false"),
        ('[environment]\npath = ""', 2, "path", "a folder"),
        ("[environment]\nname = 3", 2, "name", "a text"),
        ("[matmul]\nf32_precision = 'half'", 2, "f32_precision", "tf32"),
        ("[proof]\nmode = 'maybe'", 2, "mode", "inline"),
        ("[proof]\nworkers = -1", 2, "workers", "0 or more"),
        ("\nenvironment = { name = 3 }", 2, "name", "a text"),
        ("x = 1\nautotune = 3", 2, "autotune", "table"),
        ("[autotune]\nbench = 3", 2, "bench", "table"),
    ],
)
def test_a_wrong_value_names_file_line_key_and_what_is_allowed(
    tmp_path: Path, text: str, line: int, key: str, allowed: str
) -> None:
    message = refused(tmp_path, text)
    assert message.startswith(f"{tmp_path / 'cubecl.toml'}:{line}: ")
    assert key in message and allowed in message


def test_a_wrong_value_in_a_burn_file_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "burn.toml").write_text("[autotune]\nlevel = 9\n[cubecl.autotune]\nlevel = 9")
    with pytest.raises(ConfigError, match=r"burn\.toml:4: "):
        load_config(cwd=tmp_path, env={})


def test_what_is_not_toml_or_not_text_is_refused(tmp_path: Path) -> None:
    assert "cubecl.toml:2" in refused(tmp_path, "[autotune]\nlevel = = 3")
    (tmp_path / "cubecl.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(cwd=tmp_path, env={})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "missing.toml", env={})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path, env={})


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    text = '[autotune]\nlevel = "full"\ndisable_cache = false\n[environment]\nname = "file"'
    env = {
        "CUBECL_AUTOTUNE_LEVEL": "0",
        "CUBECL_AUTOTUNE_CACHE": "off",
        "CUBECL_THROUGHPUT_CACHE": "0",
        "CUBECL_AUTOTUNE_SHORT_CIRCUIT": "False",
        "CUBECL_AUTOTUNE_BENCH_ADAPTIVE": "0",
        "CUBECL_ENVIRONMENT": "v",
    }
    config = load(tmp_path, text, env=env)
    assert config.autotune.level == "minimal"
    assert config.autotune.disable_cache and config.autotune.disable_short_circuit
    assert config.throughput.disable_cache and not config.bench.adaptive
    assert config.environment.name == "v"
    assert not config.warnings


@pytest.mark.parametrize(
    ("text", "on"), [("1", True), ("true", True), ("ON", True), ("0", False), ("off", False)]
)
def test_switches(tmp_path: Path, text: str, on: bool) -> None:
    assert load_config(cwd=tmp_path, env={"CUBECL_AUTOTUNE_CACHE": text}).autotune.disable_cache is not on


def test_a_switch_that_says_anything_else_is_a_warning_and_changes_nothing(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, env={"CUBECL_AUTOTUNE_CACHE": "maybe"})
    assert config == Config()
    assert "CUBECL_AUTOTUNE_CACHE" in config.warnings[0] and "maybe" in config.warnings[0]


def test_a_level_variable_that_is_no_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CUBECL_AUTOTUNE_LEVEL"):
        load_config(cwd=tmp_path, env={"CUBECL_AUTOTUNE_LEVEL": "7"})


def test_empty_variables_count_as_unset(tmp_path: Path) -> None:
    env = {"CUBECL_AUTOTUNE_LEVEL": "", "CUBECL_AUTOTUNE_CACHE": "", "CUBECL_ENVIRONMENT": ""}
    config = load_config(cwd=tmp_path, env=env)
    assert config == Config() and not config.warnings


def test_options_win_over_everything(tmp_path: Path) -> None:
    config = load_config(cwd=tmp_path, env={"CUBECL_AUTOTUNE_LEVEL": "0"})
    config = config.override(level="3", environment="e", f32_precision="tf32")
    assert (config.autotune.level, config.environment.name, config.matmul.f32_precision) == (
        "full",
        "e",
        "tf32",
    )
    with pytest.raises(ConfigError, match="--level"):
        config.override(level="5")
