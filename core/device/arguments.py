"""A kernel's arguments: set one by one, and what is wrong said in the words of its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import WorkError
from ..units import kind_text, with_article
from .opencl import cl

_MISFITS = {
    cl.status_code.INVALID_ARG_SIZE,
    cl.status_code.INVALID_ARG_VALUE,
    cl.status_code.INVALID_MEM_OBJECT,
    cl.status_code.INVALID_VALUE,
}
HINT = (
    "Give one argument for each of the kernel's parameters, in its order: an array for a pointer, "
    "a number of the parameter's own type for anything else."
)


class KernelArguments:
    """A kernel object, and how its arguments are set. One thread's, as the kernel is."""

    def __init__(self, kernel: cl.Kernel, name: str, source: str) -> None:
        self.kernel = kernel
        self._name = name
        self._source = source
        self._count = int(kernel.num_args)

    def set(self, args: Sequence[Any]) -> cl.Kernel:
        """The kernel with these arguments. Raises WorkError where they are too few, too many, or misfits."""
        if len(args) != self._count:
            raise self._wrong_count(len(args))
        for position, arg in enumerate(args):
            try:
                self.kernel.set_arg(position, getattr(arg, "data", arg) if hasattr(arg, "base_data") else arg)
            except cl.Error as error:
                if error.code not in _MISFITS:
                    raise
                raise self._misfit(position, arg) from error
        return self.kernel

    def _wrong_count(self, given: int) -> WorkError:
        parameters = parameters_of(self._source, self._name)
        listed = f": {', '.join(parameters)}" if len(parameters) == self._count else ""
        return WorkError(
            f"the kernel {self._name} takes {_counted(self._count)}{listed}; {given} given", hint=HINT
        )

    def _misfit(self, position: int, arg: Any) -> WorkError:
        parameters = parameters_of(self._source, self._name)
        known = parameters[position] if len(parameters) == self._count else ""
        parameter = f"'{known}'" if known else "something else"
        return WorkError(
            f"argument {position + 1} of the kernel {self._name} is {described(arg)}; it takes {parameter}",
            hint=HINT,
        )


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def described(arg: Any) -> str:
    """What kind of argument something is, in words."""
    if isinstance(arg, (np.generic, np.ndarray)):
        number = np.ndim(arg) == 0
        return f"{with_article(str(arg.dtype))} of {arg.nbytes} bytes" if number else "a numpy array"
    if isinstance(arg, cl.LocalMemory):
        return f"local memory of {arg.size} bytes"
    if isinstance(arg, cl.MemoryObjectHolder) or hasattr(arg, "base_data"):
        return "an array on the device"
    return f"{kind_text(arg)} of Python"


def parameters_of(source: str, name: str) -> list[str]:
    """The parameters of a kernel as its source writes them; empty where they are not to be seen there."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    found = re.search(rf"\bvoid\s+{re.escape(name)}\s*\(([^()]*)\)", text)
    if found is None:
        return []
    parameters = [" ".join(part.split()) for part in found.group(1).split(",")]
    return parameters if all(parameters) else []
