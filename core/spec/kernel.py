"""A specified kernel on a device: its configurations as the tuner's candidates, calls of the best one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.client import Client
from ..errors import ArgumentError, UsageError
from ..matmul.problem import Elem
from ..proof.subject import KernelProof, SpecifiedKernel
from ..tuning.bounds import Bounds
from ..tuning.tunable import Tunable, TunableSet, separated_hash
from ..tuning.tuner import LocalTuner, Outcome
from .expression import Expression
from .launch import (
    KernelInputs,
    as_specified,
    check_accepts,
    check_memory,
    count_of,
    key_of,
    launch,
    made_up,
    options_of,
)
from .reference import compare, expected_by_numpy
from .search import SMALL, Search
from .spec import Argument, Configuration, KernelSpec, Reference

if TYPE_CHECKING:
    from ..session import Session


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
        self._subject = SpecifiedKernel.of(spec)
        self._references = _References(self)
        self._tuner = LocalTuner(spec.tuner, session.context)
        self._set = self._tuner.init(client, lambda _: self._tunables())

    def __repr__(self) -> str:
        return f"TunedKernel({self.spec.name!r}, {len(self.configurations)} configurations)"

    def __call__(
        self, *args: Any, problem_size: int | Sequence[int], queue: Any = None, wait_for: Any = None
    ) -> Any:
        """Enqueues the best configuration, tuning first if the size's key is new; returns its event.

        `args` are the kernel's arguments in the order of the specification: buffers, pyopencl arrays
        without an offset, or numbers. Raises UsageError for a wrong number of them, a wrong size, or a
        `wait_for` of another context.
        """
        self.client.check_events(wait_for or ())
        inputs = KernelInputs(self._size(problem_size), self._bound(args))
        with self.client.using(queue, wait_for):
            self._tuner.execute(self.client, self._set, inputs)
            return self.client.last_event

    def tune(self, problem_size: int | Sequence[int]) -> Outcome:
        """The decision for this size, tuned on made-up data if there is none."""
        return self.decide(self.inputs_for(self._size(problem_size)))

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
        return key_of(inputs.size, self._session.level)

    # --- candidates ----------------------------------------------------------------------------

    def _tunables(self) -> TunableSet:
        tunables = TunableSet(self.key, lambda key, inputs: self._measuring(inputs))
        tunables.called = "configuration"
        tunables.hint = "Mend the kernel or its specification."
        for configuration, name in zip(self.configurations, self._names, strict=True):
            tunables.with_tunable(self._tunable(configuration, name))
        if len(self.configurations) > SMALL:
            tunables.with_search(lambda key: Search(self.configurations))
        if self.spec.reference is not None:
            tunables.with_check(self._references.check)
        if self.spec.ops is not None or self.spec.nbytes is not None:
            tunables.with_bounds(
                lambda key, inputs: self._bounds(inputs), lambda key, inputs: self._bounds(inputs, again=True)
            )
        return tunables

    def _tunable(self, configuration: Configuration, name: str) -> Tunable:
        return Tunable(
            name,
            partial(self._run, configuration),
            digest=digest_of(self.spec, name),
            prepare=partial(self._prepare, configuration),
            proof=KernelProof(self._subject, configuration),
        )

    def _prepare(self, configuration: Configuration, inputs: KernelInputs) -> None:
        check_accepts(self.spec, self.client.profile, inputs.size, configuration)
        self.client.build(self.spec.kernel.source, options_of(self.spec, configuration))

    def _run(self, configuration: Configuration, inputs: KernelInputs) -> Configuration:
        """Enqueues it, and says what ran."""
        check_accepts(self.spec, self.client.profile, inputs.size, configuration)
        launch(self.client, self.spec, configuration, inputs.size, inputs.args)
        return configuration

    def _measuring(self, inputs: KernelInputs) -> KernelInputs:
        """The caller's inputs with outputs of our own, which begin as copies of the caller's."""
        args = list(inputs.args)
        for position, argument in enumerate(self.spec.arguments):
            if argument.output and argument.is_array:
                own = self.client.empty(args[position].size)
                self.client.copy(own, args[position], args[position].size)
                args[position] = own
        return replace(inputs, args=tuple(args), origin=inputs)

    def _bounds(self, inputs: KernelInputs, again: bool = False) -> Bounds:
        spec, values = self.spec, self.spec.values_for(inputs.size)
        ops, nbytes = (_amount(e, values) if e is not None else 0 for e in (spec.ops, spec.nbytes))
        return self._session.bounds_for(self.client, ops, nbytes, Elem.parse(spec.bound_dtype), again=again)

    # --- arguments -----------------------------------------------------------------------------

    def inputs_for(self, size: tuple[int, ...]) -> KernelInputs:
        """Arguments as the specification describes them, made up on the device."""
        check_memory(self.client, self.spec, size)
        self._session.foresee_kernel(self.spec, [size], self.client)
        rng = np.random.default_rng(0)
        made = (made_up(self.spec, argument, size, rng) for argument in self.spec.arguments)
        return KernelInputs(
            size, tuple(self.client.upload(arg) if isinstance(arg, np.ndarray) else arg for arg in made)
        )

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

    def check(self, inputs: KernelInputs, configuration: Configuration) -> None:
        """Raises WrongOutput unless the configuration gives what the reference says.

        It is run on the caller's outputs as they were, which its samples have changed in `inputs`.
        """
        kernel, reference = self._kernel, self._kernel.spec.reference
        assert reference is not None
        if getattr(self._thread, "inputs", None) is not inputs:
            self._thread.expected, self._thread.inputs = self._expected(reference, inputs), inputs
        with self._outputs_of(kernel.spec, configuration, inputs) as outputs:
            compare(reference, self._thread.expected, outputs)

    def _expected(self, reference: Reference, inputs: KernelInputs) -> dict[str, np.ndarray[Any, Any]]:
        spec = self._kernel.spec
        if reference.kernel is not None:
            with self._outputs_of(*as_specified(spec, reference), inputs) as outputs:
                return {name: output.copy() for name, output in outputs.items()}
        given = inputs.origin or inputs
        needed = {name for expression in reference.numpy.values() for name in expression.names}
        counts = {a.name: count_of(spec, a, inputs.size) for a in spec.arguments if a.is_array and a.output}
        with self._fetched(given, lambda argument: argument.name in needed) as arrays:
            values = {**spec.values_for(inputs.size), **arrays}
            expected = expected_by_numpy(reference, values, counts)
            return {name: _apart(array, arrays.values()) for name, array in expected.items()}

    @contextmanager
    def _outputs_of(
        self, spec: KernelSpec, configuration: Configuration, inputs: KernelInputs
    ) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """What a launch writes, begun anew. It is read where it lies, so only inside the block."""
        own, client = inputs, self._kernel.client
        if inputs.origin is None:
            own = self._kernel._measuring(inputs)
        else:
            for argument, mine, callers in zip(spec.arguments, inputs.args, inputs.origin.args, strict=True):
                if argument.output and argument.is_array:
                    client.copy(mine, callers, callers.size)
        launch(client, spec, configuration, own.size, own.args)
        with self._fetched(own, lambda argument: argument.output and argument.is_array) as outputs:
            yield outputs

    @contextmanager
    def _fetched(self, inputs: KernelInputs, wanted: Callable[[Argument], bool]) -> Iterator[dict[str, Any]]:
        """Scalars, and those elements of arrays that the specification speaks of."""
        spec, client = self._kernel.spec, self._kernel.client
        with ExitStack() as stack:
            fetched: dict[str, Any] = {}
            for argument, arg in zip(spec.arguments, inputs.args, strict=True):
                if not wanted(argument):
                    continue
                fetched[argument.name] = arg
                if argument.is_array:
                    count = max(count_of(spec, argument, inputs.size), 1)
                    nbytes = min(arg.size, count * argument.dtype.itemsize)
                    raw = stack.enter_context(client.reading(arg, 0, nbytes))
                    fetched[argument.name] = raw.view(argument.dtype)
            yield fetched


def _apart(array: np.ndarray[Any, Any], others: Iterable[Any]) -> np.ndarray[Any, Any]:
    """The array, copied where it is a view of memory that is not ours to keep."""
    shares = any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others)
    return array.copy() if shares else array


def digest_of(spec: KernelSpec, name: str) -> str:
    """The digest of the configuration of this name: of all that its times and its proof rest on."""
    kernel = spec.kernel
    return separated_hash(
        name,
        kernel.name,
        kernel.source,
        *kernel.options,
        repr(spec.grid_div),
        repr(spec.block_size_names),
        repr(spec.arguments),  # and the reference: what it was proven with
        repr(spec.reference),
    )


def name_of(configuration: Mapping[str, Any]) -> str:
    """A configuration as decisions name it: block_size_x=128,tile=2."""
    return ",".join(f"{name}={value}" for name, value in configuration.items()) or "as it is"


def _amount(expression: Expression, values: Mapping[str, Any]) -> int:
    given = expression(values)
    try:
        return int(given)
    except (OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"an amount of work in bounds, '{expression.text}', is {given!r}", hint="Give a finite number."
        ) from error


def _bound(argument: Argument, arg: Any) -> Any:
    if argument.value is not None:
        try:
            return argument.dtype.type(arg)
        except (OverflowError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"{argument.name} is given as {arg!r:.100}", hint=f"It must be a number, {argument.dtype}."
            ) from error
    if hasattr(arg, "base_data"):
        return arg.data
    return arg
