"""Configurations of a specified kernel tried on arrays of our own: the same code in a worker and in the
user's process.

Every array lies between guards. An output begins as NaN, so that what is not written shows; as the
specification's `fill` says where it has one, and where its reference reads what it begins as. What the
outputs must be is computed once for a problem size, and every configuration is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..device.client import Client
from ..errors import OutOfMemoryError
from ..spec.launch import (
    as_specified,
    check_accepts,
    count_of,
    filled,
    launch,
    made_up,
    options_of,
    size_text,
)
from ..spec.reference import WrongOutput, compare, expected_by_numpy
from ..spec.spec import Argument, Configuration, KernelSpec, parse_spec
from .check import WrongResult
from .operands import GUARD_BYTES, UNWRITTEN
from .trial import ENTRY, Outcome, Phase, TooLarge, judged

REFERENCE = "the reference"
"""The case of what fails before any configuration is to blame."""

Hold = Callable[[], AbstractContextManager[object]]
Outputs = Mapping[str, np.ndarray[Any, Any]]


class KernelTrials:
    """Configurations of one kernel and problem size after another; the latest one's arrays are kept."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._about: object = None
        self._bench: _Bench | None = None

    def __call__(self, job: Mapping[str, Any], *, phase: Phase, hold: Hold) -> Outcome:
        """Tries one configuration. `job` has `kernel` (text and sources), `size` and `configuration`."""
        about = (job["kernel"], job["size"])
        if self._bench is None or self._about != about:
            self._bench = None  # lets go of the earlier one's arrays first
            spec = parse_spec(job["kernel"]["text"], None, job["kernel"]["sources"])
            self._bench, self._about = _Bench(self._client, spec, tuple(job["size"])), about
        bench = self._bench
        case = f"problem size {size_text(job['size'])}"
        ready = judged(partial(bench.make_ready, partial(phase, case=REFERENCE), hold), REFERENCE, 0)
        if ready.status == "skipped":
            return ready
        if ready.status != "right":
            return replace(ready, reason=f"{REFERENCE} can't be computed: {ready.reason}")
        return judged(partial(bench.try_out, job["configuration"], partial(phase, case=case), hold), case, 1)


class _Bench:
    """One kernel and problem size: arguments, and what the outputs must be."""

    def __init__(self, client: Client, spec: KernelSpec, size: tuple[int, ...]) -> None:
        self.client = client
        self.spec = spec
        self.size = size
        self.args: list[Any] = []
        self.expected: Outputs | None = None

    @property
    def arrays(self) -> list[_Guarded]:
        return [arg for arg in self.args if isinstance(arg, _Guarded)]

    def make_ready(self, phase: Callable[[str], object], hold: Hold) -> None:
        """Makes the arguments, and computes the reference. Once."""
        if not self.args:
            phase("check")
            self._make_args(unwritten=True)
        if self.expected is None and self.spec.reference is not None:
            self.expected = (
                self._by_numpy(phase) if self.spec.reference.numpy else self._by_kernel(phase, hold)
            )

    def try_out(self, configuration: Configuration, phase: Callable[[str], object], hold: Hold) -> None:
        """Raises what went wrong: UnsupportedError, BuildError, WrongResult, …"""
        check_accepts(self.spec, self.client.profile, self.size, configuration)
        with self._outputs_of(self.spec, configuration, phase, hold) as outputs:
            if self.spec.reference is None or self.expected is None:
                return
            try:
                compare(self.spec.reference, self.expected, outputs)
            except WrongOutput as error:
                raise WrongResult(str(error)) from error

    @contextmanager
    def _outputs_of(
        self, spec: KernelSpec, configuration: Configuration, phase: Callable[[str], object], hold: Hold
    ) -> Iterator[Outputs]:
        """What a configuration writes, inside the block; nothing else may have been written to."""
        client, kernel = self.client, spec.kernel
        phase("build")
        client.build(kernel.source, options_of(spec, configuration))
        phase("wait")
        with ExitStack() as reading:
            with hold(), client.naming(spec.name):
                phase("run")
                for array in self.arrays:
                    array.begin(client)
                args = [arg.elements if isinstance(arg, _Guarded) else arg for arg in self.args]
                launch(client, spec, configuration, self.size, args, label=ENTRY)
                client.sync()
                for array in self.arrays:
                    array.check_guards(client)
                outputs = [array for array in self.arrays if array.argument.output]
                written = {a.argument.name: reading.enter_context(a.reading(client)) for a in outputs}
            phase("check")
            yield written

    def _make_args(self, *, unwritten: bool) -> None:
        rng = np.random.default_rng(0)
        self.args = [self._made(argument, unwritten, rng) for argument in self.spec.arguments]

    def _made(self, argument: Argument, unwritten: bool, rng: np.random.Generator) -> Any:
        if not argument.is_array:
            return made_up(self.spec, argument, self.size, rng)
        array = _Guarded.of(self.client, argument, count_of(self.spec, argument, self.size))
        if unwritten and self._may_be_unwritten(argument):
            array.given.view(np.uint8)[:] = UNWRITTEN
        else:
            filled(argument, array.given.size, rng, array.given)
        return array

    def _may_be_unwritten(self, argument: Argument) -> bool:
        reference = self.spec.reference
        if reference is None or argument.fill is not None or not argument.output:
            return False
        read = any(argument.name in e.names for e in reference.numpy.values())
        return not read and (argument.name in reference.numpy or reference.kernel is not None)

    # --- what the outputs must be --------------------------------------------------------------

    def _by_numpy(self, phase: Callable[[str], object]) -> Outputs:
        reference = self.spec.reference
        assert reference is not None
        phase("check")
        arrays = {array.argument.name: array.given for array in self.arrays}
        scalars = {
            argument.name: arg
            for argument, arg in zip(self.spec.arguments, self.args, strict=True)
            if argument.value is not None
        }
        values = {**self.spec.values_for(self.size), **scalars, **arrays}
        counts = {a.argument.name: count_of(self.spec, a.argument, self.size) for a in self.arrays}
        return expected_by_numpy(reference, values, counts)

    def _by_kernel(self, phase: Callable[[str], object], hold: Hold) -> Outputs:
        assert self.spec.reference is not None
        spec, configuration = as_specified(self.spec, self.spec.reference)
        outputs = self._copied(spec, configuration, phase, hold)
        if any(_has_unwritten(output) for output in outputs.values()):
            # It reads what the outputs begin as, or leaves some of that.
            self._make_args(unwritten=False)
            outputs = self._copied(spec, configuration, phase, hold)
        return outputs

    def _copied(
        self, spec: KernelSpec, configuration: Configuration, phase: Callable[[str], object], hold: Hold
    ) -> Outputs:
        with self._outputs_of(spec, configuration, phase, hold) as outputs:
            return {name: output.copy() for name, output in outputs.items()}


@dataclass
class _Guarded:
    """An array argument: what it begins as, on the host, and its memory on the device between two guards.

    `elements` is the part of `memory` between them, and is let go of first, as it comes first: NVIDIA's
    driver doesn't keep a buffer for its parts, and ends the process when one of them is released after it.
    """

    argument: Argument
    raw: NDArray[np.uint8]
    nbytes: int
    elements: Any
    memory: Any

    @classmethod
    def of(cls, client: Client, argument: Argument, count: int) -> _Guarded:
        nbytes = max(count, 1) * argument.dtype.itemsize
        raw = np.empty(GUARD_BYTES + -(-nbytes // 64) * 64 + GUARD_BYTES, np.uint8)
        raw[:GUARD_BYTES] = raw[GUARD_BYTES + nbytes :] = UNWRITTEN
        try:
            memory = client.empty(raw.nbytes)
        except OutOfMemoryError as error:
            raise TooLarge(f"not tried beforehand: {error}") from error
        return cls(argument, raw, nbytes, memory.get_sub_region(GUARD_BYTES, nbytes), memory)

    @property
    def given(self) -> NDArray[Any]:
        return self.raw[GUARD_BYTES : GUARD_BYTES + self.nbytes].view(self.argument.dtype)

    def begin(self, client: Client) -> None:
        try:
            client.write(self.memory, self.raw)
        except OutOfMemoryError as error:
            raise TooLarge(f"not tried beforehand: {error}") from error

    @contextmanager
    def reading(self, client: Client) -> Iterator[NDArray[Any]]:
        """The elements, for the length of the block."""
        with client.reading(self.memory, GUARD_BYTES, self.nbytes) as raw:
            yield raw.view(self.argument.dtype)

    def check_guards(self, client: Client) -> None:
        """Raises WrongResult if a byte beside the elements changed."""
        end = GUARD_BYTES + self.nbytes
        for place, first, nbytes in (("before", 0, GUARD_BYTES), ("after", end, self.raw.nbytes - end)):
            guard = np.empty(nbytes, np.uint8)
            client.read_part(guard, self.memory, first)
            changed = int(np.count_nonzero(guard != UNWRITTEN))
            if changed:
                raise WrongResult(f"it wrote {changed} bytes {place} the elements of {self.argument.name}")


def _has_unwritten(output: NDArray[Any]) -> bool:
    """Whether it shows what it began as: that, or a NaN that came of it, whose bits devices choose."""
    as_bytes = output.view(np.uint8).reshape(-1, output.itemsize)
    return bool((as_bytes == UNWRITTEN).all(axis=1).any() or (output != output).any())
