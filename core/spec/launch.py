"""One launch of a specified kernel: what it is called with, how it is compiled, whom it is not for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..device.client import Client
from ..device.opencl import cl
from ..device.profile import DeviceProfile
from ..errors import UnsupportedError, UsageError
from ..tuning.level import Level, anchor
from .spec import Argument, Configuration, KernelSpec, Reference


@dataclass(frozen=True)
class KernelInputs:
    """One call: the problem's size, and buffers and numpy scalars in the order of the arguments.

    `origin` are the caller's, where these have outputs of their own.
    """

    size: tuple[int, ...]
    args: tuple[Any, ...]
    origin: KernelInputs | None = None


def key_of(size: Sequence[int], level: Level) -> dict[str, Any]:
    """What is decided for: the problem's size, each extent rounded up to its bucket."""
    return {"problem_size": [anchor(extent, level) for extent in size]}


def options_of(spec: KernelSpec, configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """What the compiler is told: the specification's own options, and each parameter's value."""
    return (*spec.kernel.options, *(f"-D{name}={value}" for name, value in configuration.items()))


def check_accepts(
    spec: KernelSpec, profile: DeviceProfile, size: Sequence[int], configuration: Mapping[str, Any]
) -> None:
    """Raises UnsupportedError for a size or device this configuration is not for."""
    values = spec.values_for(size, configuration)
    for restriction in spec.restrictions:
        if not restriction(values):
            raise UnsupportedError(f"not for this size: {restriction.text}")
    items, most = prod(spec.block(configuration)), profile.max_work_group
    if items > most:
        raise UnsupportedError(f"a work-group of {items} items; the device's largest has {most}")


def launch(
    client: Client,
    spec: KernelSpec,
    configuration: Mapping[str, Any],
    size: Sequence[int],
    args: Sequence[Any],
    *,
    label: str = "",
) -> None:
    """One launch in one configuration, counted under `label` or the kernel's name. Not waited for."""
    kernel, (global_size, block) = spec.kernel, spec.launch_size(size, configuration)
    options = options_of(spec, configuration)
    client.run(
        kernel.source, kernel.name, global_size, block, *args, options=options, label=label or spec.name
    )


def as_specified(spec: KernelSpec, reference: Reference) -> tuple[KernelSpec, Configuration]:
    """The reference's kernel as a specification to launch, and its configuration."""
    assert reference.kernel is not None
    divisors = reference.grid_div or (None, None, None)
    configuration = {**spec.constants, **reference.configuration}
    return replace(spec, kernel=reference.kernel, grid_div=divisors), configuration


def made_up(
    spec: KernelSpec, argument: Argument, size: Sequence[int], rng: np.random.Generator
) -> np.ndarray[Any, Any] | np.generic | cl.LocalMemory:
    """An argument as the specification describes it. Arrays are the host's."""
    if argument.value is not None:
        return _scalar(argument, argument.value(spec.values_for(size)), size)
    count = count_of(spec, argument, size)
    if argument.local:
        return cl.LocalMemory(count * argument.dtype.itemsize)
    return filled(argument, count, rng)


def count_of(spec: KernelSpec, argument: Argument, size: Sequence[int]) -> int:
    """How many elements an array has. Raises UsageError where its expression gives no number of them."""
    assert argument.size is not None
    given = argument.size(spec.values_for(size))
    try:
        count = int(given)
    except (OverflowError, TypeError, ValueError):  # infinite, no number, a text
        count = -1
    if count < 0:
        raise UsageError(
            f"the size of {argument.name}, '{argument.size.text}', is {given!r} "
            f"for the problem size {size_text(size)}",
            hint="It must be a number of elements of at least 0.",
        )
    return count


def _scalar(argument: Argument, given: Any, size: Sequence[int]) -> np.generic:
    try:
        scalar: np.generic = argument.dtype.type(given)
    except (OverflowError, TypeError, ValueError) as error:
        assert argument.value is not None
        raise UsageError(
            f"the value of {argument.name}, '{argument.value.text}', is {given!r} "
            f"for the problem size {size_text(size)}, and no {argument.dtype}",
            hint="Give a number within the type's range, or another type.",
        ) from error
    return scalar


def size_text(size: Sequence[int]) -> str:
    """A problem size as it is typed: extents joined by x."""
    return "x".join(map(str, size))


def check_memory(client: Client, spec: KernelSpec, size: Sequence[int]) -> None:
    """Raises OutOfMemoryError where the arrays are more than the device has: before they are made."""
    arrays = [argument for argument in spec.arguments if argument.is_array]
    client.check_fits(*(count_of(spec, array, size) * array.dtype.itemsize for array in arrays))


def filled(
    argument: Argument, count: int, rng: np.random.Generator, into: np.ndarray[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Data for an array as its `fill` says, in `into` where that is given: fresh memory is slow."""
    dtype, fill = argument.dtype, argument.fill
    array = np.empty(count, dtype) if into is None else into
    if fill in (None, "random"):
        if dtype == np.float32:
            rng.random(count, np.float32, out=array)
        else:
            array[:] = rng.random(count, np.float32) if dtype.kind == "f" else rng.integers(0, 100, count)
    elif fill == "arange":
        array[:] = np.arange(count)
    else:
        array[:] = {"zeros": 0, "ones": 1}.get(str(fill), fill)
    return array
