"""Configuration: a `cubecl.toml` found from the current folder upwards, then environment variables.

The same files and variables configure CubeCL, so tables that only CubeCL knows are passed over.
Environment variables win over the file; command-line options win over both (`Config.override`).
"""

from __future__ import annotations

import difflib
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .folders import absolute

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

LEVELS = ("minimal", "balanced", "extensive", "full")
PRECISIONS = ("full", "tf32")
PROOF_MODES = ("worker", "inline", "off")
LOG_LEVELS = ("disabled", "minimal", "full")
ROOTS = ("target", "local", "global")

_FILES = ("cubecl.toml", "CubeCL.toml", "burn.toml", "Burn.toml")
MOST_BYTES = 1 << 20
_CUBECL_ONLY = ("profiling", "compilation", "streaming", "memory")
_TRUE, _FALSE = ("1", "true", "on"), ("0", "false", "off")


@dataclass(frozen=True)
class AutotuneConfig:
    """How hard to look. `level` is one of LEVELS."""

    level: str = "balanced"
    disable_cache: bool = False
    disable_short_circuit: bool = False


@dataclass(frozen=True)
class BenchConfig:
    """How candidates are sampled; `budget_s` is what one round may last, in seconds."""

    min_samples: int = 3
    max_samples: int = 10
    short_circuit_samples: int = 2
    speed_factor: float = 1.5
    adaptive: bool = True
    budget_s: float = 30.0


@dataclass(frozen=True)
class LoggerConfig:
    """Where the log for people goes, and how much of it (one of LOG_LEVELS)."""

    level: str = "minimal"
    stdout: bool = False
    stderr: bool = False
    file: Path | None = None


@dataclass(frozen=True)
class DecisionsConfig:
    """Where each decision goes as one line of JSON."""

    stdout: bool = False
    stderr: bool = False
    file: Path | None = None


@dataclass(frozen=True)
class ThroughputConfig:
    """Whether probe results are stored."""

    disable_cache: bool = False


@dataclass(frozen=True)
class EnvironmentConfig:
    """Which store: its name, and its folder: one of ROOTS, or a path."""

    name: str = "default"
    path: str | Path = "target"

    def __post_init__(self) -> None:
        if self.path not in ROOTS:  # a text that is no root is a folder too, never taken for the default
            object.__setattr__(self, "path", Path(self.path).expanduser().absolute())


@dataclass(frozen=True)
class MatmulConfig:
    """What f32 products may use: one of PRECISIONS."""

    f32_precision: str = "full"


@dataclass(frozen=True)
class ProofConfig:
    """Where candidates are proven (one of PROOF_MODES), how long one may take, by how many workers.

    `workers` 0 means as many as there are cores, at most 4.
    """

    mode: str = "worker"
    timeout_s: float = 20.0
    workers: int = 0


@dataclass(frozen=True)
class Config:
    """Everything that can be configured, where it came from, and what was odd about it."""

    autotune: AutotuneConfig = field(default_factory=AutotuneConfig)
    bench: BenchConfig = field(default_factory=BenchConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    decisions: DecisionsConfig = field(default_factory=DecisionsConfig)
    throughput: ThroughputConfig = field(default_factory=ThroughputConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    matmul: MatmulConfig = field(default_factory=MatmulConfig)
    proof: ProofConfig = field(default_factory=ProofConfig)
    source: Path | None = field(default=None, compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def override(
        self,
        *,
        level: str | int | None = None,
        environment: str | None = None,
        f32_precision: str | None = None,
    ) -> Config:
        """A copy with command-line options applied; None keeps what is there. ConfigError if wrong."""
        config = self
        if level is not None:
            config = replace(
                config, autotune=replace(config.autotune, level=_option("--level", level, _level))
            )
        if environment is not None:
            config = replace(config, environment=replace(config.environment, name=environment))
        if f32_precision is not None:
            precision = _option("--precision", f32_precision, _one_of(*PRECISIONS))
            config = replace(config, matmul=replace(config.matmul, f32_precision=precision))
        return config


class _Refused(Exception):
    """A value a rule does not take; the text says what it would take."""


Parser = Callable[[Any], Any]


def _switch(value: Any) -> bool:
    text = str(value).strip().lower()
    if not isinstance(value, (bool, int, str)) or text not in _TRUE + _FALSE:
        raise _Refused("true or false (1/0 and on/off will do)")
    return text in _TRUE


def _one_of(*names: str) -> Parser:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value.strip().lower() not in names:
            raise _Refused("one of " + ", ".join(f'"{name}"' for name in names))
        return value.strip().lower()

    return parse


def _level(value: Any) -> str:
    text = str(value).strip().lower()
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        if text in LEVELS:
            return text
        if text in ("0", "1", "2", "3"):
            return LEVELS[int(text)]
    raise _Refused('one of "minimal", "balanced", "extensive", "full", or their number 0 to 3')


def _whole(at_least: int) -> Parser:
    def parse(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise _Refused(f"a whole number, {at_least} or more")
        return value

    return parse


def _number(what: str, accepts: Callable[[float], bool]) -> Parser:
    def parse(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _Refused(what)
        if not math.isfinite(value) or not accepts(value):
            raise _Refused(what)
        return float(value)

    return parse


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Refused("a text in quotes")
    return value


def _folder_path(text: Any, folder: Path) -> Path:
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise _Refused("a path in quotes, not empty")
    return folder / Path(text).expanduser() if text.startswith("~/") else folder / text


def _root(value: Any, folder: Path) -> str | Path:
    if isinstance(value, dict) and set(value) == {"directory"}:
        return _folder_path(value["directory"], folder)
    if isinstance(value, str) and value in ROOTS:
        return value
    if isinstance(value, str) and value.strip():
        return _folder_path(value, folder)
    raise _Refused('"target", "local", "global", a folder, or { directory = "a folder" }')


def _rules(folder: Path) -> dict[str, dict[str, Parser]]:
    """Every table, by its path in the file, and what each of its keys takes."""
    sink: dict[str, Parser] = {
        "stdout": _switch,
        "stderr": _switch,
        "file": lambda value: _folder_path(value, folder),
    }
    return {
        "autotune": {"level": _level, "disable_cache": _switch, "disable_short_circuit": _switch},
        "autotune.bench": {
            "min_samples": _whole(1),
            "max_samples": _whole(1),
            "short_circuit_samples": _whole(1),
            "speed_factor": _number("a number, 1.0 or more", lambda x: x >= 1),
            "adaptive": _switch,
            "budget_s": _number("seconds, above 0", lambda x: x > 0),
        },
        "autotune.logger": {"level": _one_of(*LOG_LEVELS), **sink},
        "autotune.decisions": sink,
        "throughput": {"disable_cache": _switch},
        "environment": {"name": _text, "path": lambda value: _root(value, folder)},
        "matmul": {"f32_precision": _one_of(*PRECISIONS)},
        "proof": {
            "mode": _one_of(*PROOF_MODES),
            "timeout_s": _number("seconds, above 0", lambda x: x > 0),
            "workers": _whole(0),
        },
    }


@dataclass(frozen=True)
class _Document:
    """One parsed file: its text is kept so that an error can name a line."""

    path: Path
    text: str
    data: dict[str, Any]
    prefix: tuple[str, ...] = ()

    def where(self, table: str, key: str = "") -> str:
        wanted = (*self.prefix, *table.split("."), *([key] if key else []))
        return f"{self.path}:{_line_of(self.text, wanted)}"


def load_config(
    path: str | os.PathLike[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """The configuration in force.

    `path` names a file to read instead of searching from `cwd` upwards. Raises ConfigError for a file that
    cannot be read and for a wrong type or value; what is only odd is in `.warnings`.
    """
    document = _read(Path(path), explicit=True) if path is not None else _find(cwd)
    config = Config() if document is None else _from_document(document)
    return _with_variables(config, os.environ if env is None else env)


def _find(cwd: str | os.PathLike[str] | None) -> _Document | None:
    try:
        start = Path(cwd if cwd is not None else os.getcwd()).absolute()
    except OSError:  # the current folder was deleted
        return None
    for folder in (start, *start.parents):
        for name in _FILES:
            document = _read(folder / name) if _is_file(folder / name) else None
            if document is not None:
                return document
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _limited_text(path: Path) -> str:
    """What the file says; a device that never ends (`--config /dev/zero`) is not read to its end."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        large = f"{path}: is larger than {MOST_BYTES:,} bytes"
        raise ConfigError(large, hint="A configuration is a TOML file.")
    return data.decode("utf-8")


def _read(path: Path, explicit: bool = False) -> _Document | None:
    """The file's document; None for a burn.toml without a `[cubecl]` table that was not asked for by name."""
    path = absolute(path)
    try:
        text = _limited_text(path)
        data = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror or error})", hint="Name a readable TOML file."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text", hint="A configuration is a TOML file.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        raise ConfigError(
            f"{path}:{line.group(1) if line else 1}: not valid TOML: {error}",
            hint="See cubecl.toml.example for every table and key.",
        ) from error
    if path.name.lower() != "burn.toml":
        return _Document(path, text, data)
    if "cubecl" not in data:
        return _Document(path, text, {}) if explicit else None
    if not isinstance(data["cubecl"], dict):
        raise ConfigError(f"{path}:{_line_of(text, ('cubecl',))}: cubecl must be a table, [cubecl]")
    return _Document(path, text, data["cubecl"], ("cubecl",))


def _from_document(document: _Document) -> Config:
    rules = _rules(document.path.parent)
    warnings = [*_unknown_tables(document, rules)]
    sections: dict[str, Any] = {}
    for table, keys in rules.items():
        given = _table(document, table)
        warnings += _unknown_keys(document, table, given, keys, rules)
        values = {key: _value(document, table, key, given[key], keys[key]) for key in given if key in keys}
        name = table.rpartition(".")[2]
        sections[name] = replace(getattr(Config(), name), **values)
    bench = sections["bench"]
    if bench.max_samples < bench.min_samples:
        key = "max_samples" if "max_samples" in _table(document, "autotune.bench") else "min_samples"
        raise ConfigError(
            f"{document.where('autotune.bench', key)}: max_samples = {bench.max_samples} "
            f"is below min_samples = {bench.min_samples}",
            hint="Set [autotune.bench] max_samples to min_samples or more.",
        )
    return Config(**sections, source=document.path, warnings=tuple(warnings))


def _table(document: _Document, table: str) -> dict[str, Any]:
    data: Any = document.data
    path: list[str] = []
    for part in table.split("."):
        path.append(part)
        data = data.get(part, {})
        if not isinstance(data, dict):
            name = ".".join(path)
            raise ConfigError(f"{document.where(name)}: {name} must be a table, [{name}]")
    return data


def _value(document: _Document, table: str, key: str, value: Any, parse: Parser) -> Any:
    try:
        return parse(value)
    except _Refused as allowed:
        raise ConfigError(
            f"{document.where(table, key)}: [{table}] {key} = {_shown(value)} is not allowed; "
            f"it takes {allowed}",
            hint="See cubecl.toml.example for every table and key.",
        ) from None


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = f'"{text}"' if isinstance(value, str) else text
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown_tables(document: _Document, rules: Mapping[str, object]) -> Iterator[str]:
    known = sorted({table.partition(".")[0] for table in rules})
    for name in document.data:
        if name not in known and name not in _CUBECL_ONLY:
            nearest = _nearest(name, known)
            yield f"{document.where(name)}: unknown table or key '{name}'; the nearest known is [{nearest}]"


def _unknown_keys(
    document: _Document,
    table: str,
    given: Mapping[str, Any],
    keys: Mapping[str, Parser],
    rules: Mapping[str, object],
) -> Iterator[str]:
    known = [*keys, *(other.rpartition(".")[2] for other in rules if other.rpartition(".")[0] == table)]
    for key in given:
        if key not in known:
            nearest = _nearest(key, known)
            yield (
                f"{document.where(table, key)}: unknown key '{key}' in [{table}]; "
                f"the nearest known is '{nearest}'"
            )


def _nearest(word: str, known: list[str]) -> str:
    return difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.0)[0]


def _line_of(text: str, wanted: tuple[str, ...]) -> int:
    """The 1-based line that sets `wanted`, or the nearest table around it (an inline table, a header)."""
    best, depth = 1, 0
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        table = re.match(r"\s*\[+([^\[\]]+)\]", line)
        assignment = None if table else re.match(r"\s*([\w.\-\"' ]+?)\s*=", line)
        if table:
            header = _parts(table.group(1))
        here = (*header, *(_parts(assignment.group(1)) if assignment else ()))
        if not (table or assignment) or here != wanted[: len(here)] or len(here) <= depth:
            continue
        best, depth = number, len(here)
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _with_variables(config: Config, env: Mapping[str, str]) -> Config:
    """The configuration with the CUBECL_* variables on top; an empty variable counts as unset."""
    warnings = list(config.warnings)

    def switch(name: str) -> bool | None:
        text = env.get(name, "")
        if not text.strip():
            return None
        try:
            return _switch(text)
        except _Refused as allowed:
            warnings.append(f"{name}={_shown(text)} changes nothing: it takes {allowed}")
            return None

    autotune, bench, throughput, environment = (
        config.autotune,
        config.bench,
        config.throughput,
        config.environment,
    )
    if level := env.get("CUBECL_AUTOTUNE_LEVEL", "").strip():
        autotune = replace(autotune, level=_option("CUBECL_AUTOTUNE_LEVEL", level, _level))
    if (cache := switch("CUBECL_AUTOTUNE_CACHE")) is not None:
        autotune = replace(autotune, disable_cache=not cache)
    if (short_circuit := switch("CUBECL_AUTOTUNE_SHORT_CIRCUIT")) is not None:
        autotune = replace(autotune, disable_short_circuit=not short_circuit)
    if (adaptive := switch("CUBECL_AUTOTUNE_BENCH_ADAPTIVE")) is not None:
        bench = replace(bench, adaptive=adaptive)
    if (cache := switch("CUBECL_THROUGHPUT_CACHE")) is not None:
        throughput = replace(throughput, disable_cache=not cache)
    if name := env.get("CUBECL_ENVIRONMENT", ""):
        environment = replace(environment, name=name)
    return replace(
        config,
        autotune=autotune,
        bench=bench,
        throughput=throughput,
        environment=environment,
        warnings=tuple(warnings),
    )


def _option(name: str, value: Any, parse: Parser) -> Any:
    try:
        return parse(value)
    except _Refused as allowed:
        raise ConfigError(f"{name} {_shown(value)} is not allowed; it takes {allowed}") from None
