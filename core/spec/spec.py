"""A specification as data: what its file says, checked, with errors that name the file and the place."""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SpecError, UsageError
from ..matmul.problem import Shape
from .expression import Expression

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

Configuration = dict[str, int | float | str]
"""One value for each tunable parameter."""

KERNEL = "kernel:"
"""What the tuner's name of a specified kernel begins with."""

AXES = ("x", "y", "z")
TYPES = (
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
FILLS = ("random", "zeros", "ones", "arange")
MOST_CONFIGURATIONS = 100_000
MOST_BYTES = 16 << 20


MOST_NAME_LENGTH = 100


@dataclass(frozen=True)
class Argument:
    """An argument of the kernel: an array of `size` elements, or a scalar of `value`, or local memory.

    `fill` is what an array begins as; None where the specification does not say: random elements.
    """

    name: str
    dtype: np.dtype[Any]
    size: Expression | None = None
    value: Expression | None = None
    fill: str | float | None = None
    output: bool = False
    local: bool = False

    @property
    def is_array(self) -> bool:
        return self.size is not None and not self.local


@dataclass(frozen=True)
class Reference:
    """What the outputs must be: numpy expressions by output, or another kernel that computes them."""

    numpy: Mapping[str, Expression] = field(default_factory=dict)
    kernel: KernelText | None = None
    configuration: Configuration = field(default_factory=dict)
    grid_div: tuple[tuple[Expression, ...] | None, ...] | None = None
    atol: float = 1e-6
    rtol: float = 1e-4


@dataclass(frozen=True)
class KernelText:
    """A kernel's source and its name there."""

    name: str
    source: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelSpec:
    """One kernel, its tunable parameters, and what it is called with. `text` is the file it came from."""

    name: str
    kernel: KernelText
    problem_sizes: tuple[tuple[int, ...], ...]
    tune_params: Mapping[str, tuple[int | float | str, ...]]
    arguments: tuple[Argument, ...]
    restrictions: tuple[Expression, ...] = ()
    grid_div: tuple[tuple[Expression, ...] | None, ...] = (None, None, None)
    block_size_names: tuple[str, ...] = tuple(f"block_size_{axis}" for axis in AXES)
    reference: Reference | None = None
    ops: Expression | None = None
    nbytes: Expression | None = None
    bound_dtype: str = "f32"
    text: str = ""
    path: Path | None = None

    @property
    def tuner(self) -> str:
        """What its decisions are stored under."""
        return f"{KERNEL}{self.name}"

    def configurations(self) -> list[Configuration]:
        """All that no restriction rules out, in the order of the parameters' values.

        A restriction that depends on the problem's size is looked at when the size is known.
        """
        names = list(self.tune_params)
        always = [r for r in self.restrictions if r.names <= set(names)]
        found = (dict(zip(names, values, strict=True)) for values in product(*self.tune_params.values()))
        return [configuration for configuration in found if all(r(configuration) for r in always)]

    @property
    def constants(self) -> dict[str, int | float | str]:
        """Parameters with a single value: they may be used wherever sizes are computed."""
        return {name: values[0] for name, values in self.tune_params.items() if len(values) == 1}

    def values_for(
        self, size: Sequence[int], configuration: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """What expressions may use: parameters, problem_size_x, problem_size_y and problem_size_z."""
        full = (*size, 1, 1)[:3]
        sizes = {f"problem_size_{axis}": extent for axis, extent in zip(AXES, full, strict=True)}
        return {**(self.constants if configuration is None else configuration), **sizes}

    def block(self, configuration: Mapping[str, Any]) -> tuple[int, ...]:
        """The work-group: block_size_x, block_size_y, block_size_z, each 1 unless given."""
        return tuple(int(configuration.get(name, 1)) for name in self.block_size_names)

    def launch_size(
        self, size: Sequence[int], configuration: Mapping[str, Any]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Global and local size. Each axis of the problem is divided by its divisors, rounded up."""
        values, block = self.values_for(size, configuration), self.block(configuration)
        groups = []
        for axis in range(3):
            extent = size[axis] if axis < len(size) else 1
            divisors = self.grid_div[axis]
            by = block[axis] if divisors is None else prod(int(d(values)) for d in divisors)
            if by < 1:
                raise UsageError(
                    f"grid_div_{AXES[axis]} of {self.name} gives {by}", hint="It must be at least 1."
                )
            groups.append(-(-extent // by))
        return tuple(g * b for g, b in zip(groups, block, strict=True)), block


def sources_of(spec: KernelSpec) -> dict[str, str]:
    """The texts of its source files, by the names that its own text has for them."""
    data = tomllib.loads(spec.text)
    sources = {data["kernel_source"]: spec.kernel.source}
    if spec.reference is not None and spec.reference.kernel is not None:
        sources[data["reference"]["kernel_source"]] = spec.reference.kernel.source
    return sources


def _why(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _limited_text(path: Path) -> str:
    """What a file says; one that never ends, as /dev/zero, is not read to its end."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES:,} bytes")
    return data.decode("utf-8")


def load_spec(path: str | Path) -> KernelSpec:
    """The specification in a TOML file. Raises SpecError, naming file and place, for one that is wrong."""
    path = Path(path)
    try:
        text = _limited_text(path)
    except (OSError, ValueError) as error:  # not UTF-8, or a path with a null character
        raise SpecError(
            f"the specification {path} can't be read: {_why(error)}", hint="Give the path of a TOML file."
        ) from error
    return parse_spec(text, path)


def parse_spec(text: str, path: Path | None = None, sources: Mapping[str, str] | None = None) -> KernelSpec:
    """The specification in a TOML text. Source files are beside `path`, or in `sources` by name."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path or 'the specification'} is not TOML: {error}") from error
    return _Reader(data, text, path, sources or {}).spec()


class _Reader:
    def __init__(
        self, data: dict[str, Any], text: str, path: Path | None, sources: Mapping[str, str]
    ) -> None:
        self.data = data
        self.text = text
        self.path = path
        self.sources = sources

    def spec(self) -> KernelSpec:
        data = self.data
        self.known(data, "", _KEYS)
        kernel = self.kernel(data, "")
        params = self.tune_params()
        bounds = self.table(data, "bounds")
        self.known(bounds, "bounds", ("ops", "bytes", "dtype"))
        names = tuple(self.strings(data, "block_size_names") or (f"block_size_{axis}" for axis in AXES))
        spec = KernelSpec(
            name=self.name(kernel),
            kernel=kernel,
            problem_sizes=self.problem_sizes(),
            tune_params=params,
            arguments=self.arguments(),
            restrictions=tuple(self.expressions(data, "restrictions", set(params) | _SIZES)),
            grid_div=tuple(self.divisors(data, axis, params) for axis in AXES),
            block_size_names=(*names, *(f"block_size_{axis}" for axis in AXES[len(names) :]))[:3],
            ops=self.expression(bounds, "bounds.ops", bounds.get("ops"), None),
            nbytes=self.expression(bounds, "bounds.bytes", bounds.get("bytes"), None),
            bound_dtype=self.of_type(bounds, "dtype", str, "f32"),
            text=self.text,
            path=self.path,
            reference=self.reference(params),
        )
        self.check(spec)
        return spec

    # --- parts ---------------------------------------------------------------------------------

    def name(self, kernel: KernelText) -> str:
        """What commands and lists call it: where paths and shapes may stand as well, it must not be one."""
        name: str = self.of_type(self.data, "name", str, kernel.name)
        shown = f"is {name[:MOST_NAME_LENGTH]!r}"
        if not name or not name.isprintable() or name != name.strip() or len(name) > MOST_NAME_LENGTH:
            raise self.wrong("name", shown, f"One to {MOST_NAME_LENGTH} characters that can be printed.")
        if "/" in name or name.endswith(".toml") or Shape.fits(name):
            raise self.wrong("name", f"{shown}, which commands take for a path or a shape", "Take a word.")
        return name

    def kernel(self, table: Mapping[str, Any], where: str) -> KernelText:
        name = self.of_type(table, "kernel_name", str, None, where)
        if not (name.isidentifier() and name.isascii()):
            raise self.wrong(f"{where}kernel_name", f"is {name[:100]!r}", "A kernel of its source.")
        file = self.of_type(table, "kernel_source", str, None, where)
        options = tuple(self.strings(table, "compiler_options"))
        if "\n" in file:
            return KernelText(name, file, options)
        return KernelText(name, self.source(file, where), options)

    def source(self, file: str, where: str) -> str:
        if file in self.sources:
            return self.sources[file]
        place = (self.path.parent if self.path is not None else Path()) / file
        try:
            return _limited_text(place)
        except (OSError, ValueError) as error:  # not UTF-8, or a path with a null character
            raise self.wrong(
                f"{where}kernel_source:",
                f"the file {place} can't be read: {_why(error)}",
                "Its path is relative to the file.",
            ) from error

    def tune_params(self) -> dict[str, tuple[int | float | str, ...]]:
        table = self.table(self.data, "tune_params")
        params: dict[str, tuple[int | float | str, ...]] = {}
        for name, values in table.items():
            listed = values if isinstance(values, list) else [values]
            if not name.isidentifier() or not listed:
                raise self.wrong(f"tune_params.{name}", "needs a name that is a C identifier, and values", "")
            for value in listed:
                if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                    raise self.wrong(f"tune_params.{name}", f"has the value {value!r}", "Numbers or text.")
            if len(set(listed)) < len(listed):
                raise self.wrong(f"tune_params.{name}", "has a value twice", "List each value once.")
            params[name] = tuple(listed)
        if prod(len(values) for values in params.values()) > MOST_CONFIGURATIONS:
            raise self.wrong(
                "tune_params", f"makes more than {MOST_CONFIGURATIONS} configurations", "Use fewer."
            )
        return params

    def problem_sizes(self) -> tuple[tuple[int, ...], ...]:
        given = self.data.get("problem_size")
        if given is None:
            raise self.wrong("problem_size", "is missing", "Such as 4096, [1024, 1024], or a list of those.")
        listed = given if isinstance(given, list) else [given]
        sizes = listed if listed and all(isinstance(size, list) for size in listed) else [listed]
        for size in sizes:
            right = 1 <= len(size) <= 3 and all(type(extent) is int and extent >= 1 for extent in size)
            if not right:
                raise self.wrong("problem_size", f"has {size!r}", "One to three whole numbers of at least 1.")
        return tuple(tuple(size) for size in sizes)

    def arguments(self) -> tuple[Argument, ...]:
        listed = self.data.get("arguments")
        if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
            raise self.wrong(
                "arguments", "is missing", "One [[arguments]] table for each argument, in order."
            )
        found = tuple(self.argument(entry, f"arguments[{i}]") for i, entry in enumerate(listed))
        names = [argument.name for argument in found]
        if len(set(names)) < len(names):
            raise self.wrong("arguments", "has two of the same name", "Names must differ.")
        return found

    def argument(self, entry: Mapping[str, Any], where: str) -> Argument:
        self.known(entry, where, ("name", "type", "size", "value", "fill", "output", "local"))
        name = self.of_type(entry, "name", str, None, f"{where}.")
        kind = self.of_type(entry, "type", str, None, f"{where}.")
        if kind not in TYPES:
            raise self.wrong(
                f"{where}.type", f"is '{kind}'", f"Types are {', '.join(TYPES)}.{_near(kind, TYPES)}"
            )
        if ("size" in entry) == ("value" in entry):
            raise self.wrong(
                where, f"'{name}' needs either size or value", "size for an array, value for a scalar."
            )
        fill = entry.get("fill")
        if fill is not None and (
            isinstance(fill, bool)
            or not isinstance(fill, (int, float, str))
            or (isinstance(fill, str) and fill not in FILLS)
        ):
            raise self.wrong(f"{where}.fill", f"is {fill!r}", f"A number, or one of {', '.join(FILLS)}.")
        if isinstance(fill, (int, float)) and not _can_hold(np.dtype(kind), fill):
            raise self.wrong(f"{where}.fill", f"is {fill!r}", f"A number that {kind} can hold.")
        allowed = self.constants() | _SIZES
        return Argument(
            name,
            np.dtype(kind),
            self.expression(entry, f"{where}.size", entry.get("size"), allowed),
            self.expression(entry, f"{where}.value", entry.get("value"), allowed),
            fill,
            self.of_type(entry, "output", bool, False, f"{where}."),
            self.of_type(entry, "local", bool, False, f"{where}."),
        )

    def constants(self) -> set[str]:
        params = self.table(self.data, "tune_params")
        return {name for name, values in params.items() if not isinstance(values, list) or len(values) == 1}

    def divisors(
        self, table: Mapping[str, Any], axis: str, params: Mapping[str, Any]
    ) -> tuple[Expression, ...] | None:
        if f"grid_div_{axis}" not in table:
            return None
        return tuple(self.expressions(table, f"grid_div_{axis}", set(params) | _SIZES))

    def reference(self, params: Mapping[str, Any]) -> Reference | None:
        if "reference" not in self.data:
            return None
        table = self.table(self.data, "reference")
        self.known(
            table, "reference",
            ("numpy", "kernel_name", "kernel_source", "compiler_options", "atol", "rtol", "configuration",
             *(f"grid_div_{axis}" for axis in AXES)),
        )  # fmt: skip
        by_kernel = "kernel_name" in table
        if by_kernel == ("numpy" in table):
            raise self.wrong("reference", "needs either numpy or kernel_name", "One of the two.")
        texts = self.table(table, "numpy")
        from .reference import FUNCTIONS

        expressions = {}
        for name, text in texts.items():
            try:
                expressions[name] = Expression(text, FUNCTIONS)
            except UsageError as error:
                raise self.wrong(f"reference.numpy.{name}", error.message, error.hint) from error
        configuration = self.table(table, "configuration")
        divisors = tuple(self.divisors(table, axis, {**params, **configuration}) for axis in AXES)
        return Reference(
            numpy=expressions,
            kernel=self.kernel(table, "reference.") if by_kernel else None,
            configuration={**configuration},
            grid_div=divisors if any(d is not None for d in divisors) else None,
            atol=self.number(table, "atol", 1e-6),
            rtol=self.number(table, "rtol", 1e-4),
        )

    # --- whole ---------------------------------------------------------------------------------

    def check(self, spec: KernelSpec) -> None:
        outputs = {argument.name for argument in spec.arguments if argument.output and argument.is_array}
        self.check_blocks(spec, spec.tune_params, "tune_params")
        if not spec.configurations():
            raise self.wrong("restrictions", "leave no configuration", "Loosen them.")
        if spec.reference is None:
            return
        fixed = {name: (value,) for name, value in spec.reference.configuration.items()}
        self.check_blocks(spec, fixed, "reference.configuration")
        if not outputs:
            raise self.wrong("arguments", "has no output to compare with the reference", "Set output = true.")
        unknown = set(spec.reference.numpy) - outputs
        if unknown:
            raise self.wrong(
                f"reference.numpy.{min(unknown)}",
                "is not an output",
                f"Outputs: {', '.join(sorted(outputs))}.",
            )

    def check_blocks(self, spec: KernelSpec, params: Mapping[str, Sequence[Any]], where: str) -> None:
        for name in spec.block_size_names:
            for value in params.get(name, ()):
                if type(value) is not int or value < 1:
                    raise self.wrong(
                        f"{where}.{name}",
                        f"has the value {value!r}",
                        "It is an extent of the work-group: whole numbers of at least 1.",
                    )

    # --- values --------------------------------------------------------------------------------

    def wrong(self, where: str, what: str, hint: str) -> SpecError:
        file = self.path or "the specification"
        return SpecError(f"{file}: {where} {what}", hint=hint)

    def known(self, table: Mapping[str, Any], where: str, keys: Sequence[str]) -> None:
        for key in table:
            if key not in keys:
                place = f"{where}.{key}" if where else key
                raise self.wrong(place, "is not known", f"Known are {', '.join(keys)}.{_near(key, keys)}")

    def table(self, data: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = data.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "must be a table", f"Write [{key}].")
        return value

    def of_type(
        self, table: Mapping[str, Any], key: str, kind: type[Any], default: Any, where: str = ""
    ) -> Any:
        value = table.get(key, default)
        if value is None:
            raise self.wrong(f"{where}{key}", "is missing", "")
        if not isinstance(value, kind):
            raise self.wrong(f"{where}{key}", f"is {value!r}", f"It must be {_ARTICLES[kind]}.")
        return value

    def number(self, table: Mapping[str, Any], key: str, default: float) -> float:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise self.wrong(f"reference.{key}", f"is {value!r}", "A number of at least 0.")
        return float(value)

    def strings(self, table: Mapping[str, Any], key: str) -> list[str]:
        value = table.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            raise self.wrong(key, f"is {value!r}", "Text, or a list of texts.")
        return listed

    def expressions(self, table: Mapping[str, Any], key: str, names: set[str]) -> Iterator[Expression]:
        value = table.get(key, [])
        for text in value if isinstance(value, list) else [value]:
            found = self.expression(table, key, text, names)
            if found is not None:
                yield found

    def expression(
        self, table: Mapping[str, Any], where: str, text: Any, names: set[str] | None
    ) -> Expression | None:
        if text is None:
            return None
        if isinstance(text, bool) or not isinstance(text, (str, int, float)):
            raise self.wrong(where, f"is {text!r}", "An expression is a text or a number.")
        try:
            found = Expression(text)
        except UsageError as error:
            raise self.wrong(where, f"is wrong: {error.message}", error.hint) from error
        unknown = found.names - (names if names is not None else self.constants() | _SIZES)
        if unknown:
            near = _near(min(unknown), names or ())
            raise self.wrong(where, f"uses '{min(unknown)}', which is not known here", f"{near}".strip())
        return found


_SIZES = {f"problem_size_{axis}" for axis in AXES}
_KEYS = (
    "name", "kernel_name", "kernel_source", "compiler_options", "problem_size", "tune_params", "restrictions",
    "block_size_names", "grid_div_x", "grid_div_y", "grid_div_z", "arguments", "reference", "bounds",
)  # fmt: skip
_ARTICLES = {str: "a text", bool: "true or false"}


def _can_hold(dtype: np.dtype[Any], number: int | float) -> bool:
    if dtype.kind == "f":
        return True
    limits = np.iinfo(dtype)
    return bool(limits.min <= number <= limits.max)


def _near(word: str, known: Sequence[str] | set[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
