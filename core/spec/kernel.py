"""A specified kernel on a device: its configurations as the tuner's candidates, calls of the best one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.client import Client
from ..device.opencl import cl
from ..errors import UnsupportedError, UsageError
from ..matmul.problem import Elem
from ..tuning.bounds import Bounds
from ..tuning.level import anchor
from ..tuning.tunable import Tunable, TunableSet, separated_hash
from ..tuning.tuner import LocalTuner, Outcome
from .reference import compare, expected_by_numpy
from .search import SMALL, Search
from .spec import Argument, Configuration, KernelSpec, KernelText

if TYPE_CHECKING:
    from ..session import Session


@dataclass(frozen=True)
class KernelInputs:
    """One call: the problem's size, and buffers and numpy scalars in the order of the arguments."""

    size: tuple[int, ...]
    args: tuple[Any, ...]


class TunedKernel:
    """A specified kernel. Called with a problem size, it runs the best configuration for that size.

    Made by `rooftune.kernel`. Safe to share between threads.
    """

    def __init__(self, session: Session, client: Client, spec: KernelSpec) -> None:
        self.spec = spec
        self.client = client
        self.configurations = spec.configurations()
        self._names = [name_of(c) for c in self.configurations]
        self._session = session
        self._tuner = LocalTuner(f"kernel:{spec.name}", session.context)
        self._set = self._tuner.init(client, lambda _: self._tunables())
        self._references = _References(self)

    def __repr__(self) -> str:
        return f"TunedKernel({self.spec.name!r}, {len(self.configurations)} configurations)"

    def __call__(
        self, *args: Any, problem_size: int | Sequence[int], queue: Any = None, wait_for: Any = None
    ) -> Any:
        """Enqueues the best configuration, tuning first if the size's key is new; returns its event.

        `args` are the kernel's arguments in the order of the specification: buffers, pyopencl arrays
        without an offset, or numbers. Raises UsageError for a wrong number of them or a wrong size.
        """
        inputs = KernelInputs(self._size(problem_size), self._bound(args))
        with self.client.using(queue, wait_for):
            self._tuner.execute(self.client, self._set, inputs)
            return self.client.last_event

    def tune(self, problem_size: int | Sequence[int]) -> Outcome:
        """The decision for this size, tuned on made-up data if there is none."""
        return self._tuner.decide(self.client, self._set, self.inputs_for(self._size(problem_size)))

    def best(self, problem_size: int | Sequence[int]) -> Configuration:
        """The parameters decided for this size. Tunes if it must."""
        return self.configurations[self.tune(problem_size).decision.index]

    def run(self, inputs: KernelInputs) -> Any:
        """Runs the decided configuration on inputs of this module's own making."""
        return self._tuner.execute(self.client, self._set, inputs)

    def decide(self, inputs: KernelInputs) -> Outcome:
        """The decision for these inputs, tuned on them if there is none."""
        return self._tuner.decide(self.client, self._set, inputs)

    def key(self, inputs: KernelInputs) -> dict[str, Any]:
        """What is decided for: the problem's size, each extent rounded up to its bucket."""
        return {"problem_size": [anchor(extent, self._session.level) for extent in inputs.size]}

    # --- candidates ----------------------------------------------------------------------------

    def _tunables(self) -> TunableSet:
        tunables = TunableSet(self.key, lambda key, inputs: self._measuring(inputs))
        for configuration, name in zip(self.configurations, self._names, strict=True):
            tunables.with_tunable(self._tunable(configuration, name))
        if len(self.configurations) > SMALL:
            tunables.with_search(lambda key: Search(self.configurations))
        if self.spec.reference is not None:
            tunables.with_check(lambda inputs, outputs: self._references.check(inputs))
        if self.spec.ops is not None or self.spec.nbytes is not None:
            tunables.with_bounds(lambda key, inputs: self._bounds(inputs))
        return tunables

    def _tunable(self, configuration: Configuration, name: str) -> Tunable:
        kernel = self.spec.kernel
        return Tunable(
            name,
            partial(self._run, configuration),
            digest=separated_hash(
                name, kernel.name, kernel.source, *kernel.options, repr(self.spec.grid_div)
            ),
            prepare=partial(self._prepare, configuration),
        )

    def _options(self, configuration: Mapping[str, Any]) -> tuple[str, ...]:
        return (*self.spec.kernel.options, *(f"-D{name}={value}" for name, value in configuration.items()))

    def _prepare(self, configuration: Configuration, inputs: KernelInputs) -> None:
        self._accept(configuration, inputs)
        self.client.build(self.spec.kernel.source, self._options(configuration))

    def _accept(self, configuration: Configuration, inputs: KernelInputs) -> None:
        """Raises UnsupportedError for a size or device this configuration is not for."""
        spec = self.spec
        values = spec.values_for(inputs.size, configuration)
        for restriction in spec.restrictions:
            if not restriction(values):
                raise UnsupportedError(f"not for this size: {restriction.text}")
        items, most = prod(spec.block(configuration)), self.client.profile.max_work_group
        if items > most:
            raise UnsupportedError(f"a work-group of {items} items; the device's largest has {most}")

    def _run(self, configuration: Configuration, inputs: KernelInputs) -> list[Any]:
        self._accept(configuration, inputs)
        kernel = self.spec.kernel
        launch(self.client, self.spec, kernel, self._options(configuration), configuration, inputs)
        return [inputs.args[i] for i, a in enumerate(self.spec.arguments) if a.output]

    def _measuring(self, inputs: KernelInputs) -> KernelInputs:
        """The caller's inputs with outputs of our own, which begin as copies of the caller's."""
        args = list(inputs.args)
        for position, argument in enumerate(self.spec.arguments):
            if argument.output and argument.is_array:
                own = self.client.empty(args[position].size)
                self.client.copy(own, args[position], args[position].size)
                args[position] = own
        return replace(inputs, args=tuple(args))

    def _bounds(self, inputs: KernelInputs) -> Bounds:
        spec, values = self.spec, self.spec.values_for(inputs.size)
        ops, nbytes = (int(e(values)) if e is not None else 0 for e in (spec.ops, spec.nbytes))
        return self._session.bounds_for(self.client, ops, nbytes, Elem.parse(spec.bound_dtype))

    # --- arguments -----------------------------------------------------------------------------

    def inputs_for(self, size: tuple[int, ...]) -> KernelInputs:
        """Arguments as the specification describes them, made up on the device."""
        rng, values = np.random.default_rng(0), self.spec.values_for(size)
        return KernelInputs(
            size, tuple(self._made(argument, values, rng) for argument in self.spec.arguments)
        )

    def _made(self, argument: Argument, values: Mapping[str, Any], rng: np.random.Generator) -> Any:
        if argument.value is not None:
            return argument.dtype.type(argument.value(values))
        assert argument.size is not None
        count = int(argument.size(values))
        if argument.local:
            return cl.LocalMemory(count * argument.dtype.itemsize)
        return self.client.upload(filled(argument, count, rng))

    def _bound(self, args: Sequence[Any]) -> tuple[Any, ...]:
        arguments = self.spec.arguments
        if len(args) != len(arguments):
            raise UsageError(
                f"{self.spec.name} takes {len(arguments)} arguments, {len(args)} were given",
                hint="They are " + ", ".join(argument.name for argument in arguments) + ".",
            )
        return tuple(_bound(argument, arg) for argument, arg in zip(arguments, args, strict=True))

    def _size(self, given: int | Sequence[int]) -> tuple[int, ...]:
        size = (given,) if isinstance(given, int) else tuple(int(extent) for extent in given)
        if not 1 <= len(size) <= 3 or min(size) < 1:
            raise UsageError(f"a problem size of {given!r}", hint="One to three numbers of at least 1.")
        return size


class _References:
    """What the outputs must be, computed once for each set of measuring inputs in this thread."""

    def __init__(self, kernel: TunedKernel) -> None:
        self._kernel = kernel
        self._thread = threading.local()

    def check(self, inputs: KernelInputs) -> None:
        """Raises WrongOutput unless the outputs are what the reference says.

        An output that is read as well, which a candidate has changed already, can't be checked.
        """
        kernel = self._kernel
        reference = kernel.spec.reference
        assert reference is not None
        if getattr(self._thread, "inputs", None) is not inputs:
            self._thread.expected, self._thread.inputs = self._expected(inputs), inputs
        outputs = {name: self._fetched(inputs, name) for name in self._thread.expected}
        compare(reference, self._thread.expected, outputs)

    def _expected(self, inputs: KernelInputs) -> dict[str, np.ndarray[Any, Any]]:
        kernel, spec = self._kernel, self._kernel.spec
        reference = spec.reference
        assert reference is not None
        if reference.kernel is None:
            values = spec.values_for(inputs.size)
            arrays = {a.name: self._fetched(inputs, a.name) for a in spec.arguments if not a.local}
            return expected_by_numpy(reference, {**values, **arrays})
        own = kernel._measuring(inputs)
        configuration = {**spec.constants, **reference.configuration}
        options = tuple(f"-D{name}={value}" for name, value in configuration.items())
        shaped = spec if reference.grid_div is None else replace(spec, grid_div=reference.grid_div)
        if reference.grid_div is None:
            shaped = replace(spec, grid_div=(None, None, None))
        text: KernelText = reference.kernel
        launch(kernel.client, shaped, text, (*text.options, *options), configuration, own)
        return {a.name: self._fetched(own, a.name) for a in spec.arguments if a.output and a.is_array}

    def _fetched(self, inputs: KernelInputs, name: str) -> Any:
        spec = self._kernel.spec
        position = next(i for i, argument in enumerate(spec.arguments) if argument.name == name)
        arg = inputs.args[position]
        if not spec.arguments[position].is_array:
            return arg
        return np.frombuffer(self._kernel.client.download(arg, arg.size), spec.arguments[position].dtype)


def launch(
    client: Client,
    spec: KernelSpec,
    kernel: KernelText,
    options: Sequence[str],
    configuration: Mapping[str, Any],
    inputs: KernelInputs,
) -> None:
    """One launch of a kernel in one configuration. Enqueued, not waited for."""
    size, block = spec.launch_size(inputs.size, configuration)
    client.run(kernel.source, kernel.name, size, block, *inputs.args, options=options, label=spec.name)


def filled(argument: Argument, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Data for an array as its `fill` says."""
    dtype, fill = argument.dtype, argument.fill
    if fill == "random":
        if dtype.kind == "f":
            return rng.random(count, np.float32).astype(dtype)
        return rng.integers(0, 100, count).astype(dtype)
    if fill == "arange":
        return np.arange(count).astype(dtype)
    number = {"zeros": 0, "ones": 1}.get(str(fill), fill)
    return np.full(count, number, dtype)


def name_of(configuration: Mapping[str, Any]) -> str:
    """A configuration as decisions name it: block_size_x=128,tile=2."""
    return ",".join(f"{name}={value}" for name, value in configuration.items()) or "as it is"


def _bound(argument: Argument, arg: Any) -> Any:
    if argument.value is not None:
        return argument.dtype.type(arg)
    if hasattr(arg, "base_data"):
        return arg.data
    return arg
