"""rooftune: finds the fastest kernel for an OpenCL device, and shows why it is the fastest.

    import rooftune as rt
    c = rt.matmul(a, b)              # numpy in, numpy out; pyopencl arrays in, pyopencl array out

Importing it opens no device: what needs pyopencl is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import bounds_for, decisions, devices, enqueue_matmul, kernel, matmul, probe, tune
    from .config import Config, load_config
    from .device.client import Client
    from .errors import (
        ArgumentError,
        BuildError,
        ConfigError,
        DeviceError,
        DeviceFaultError,
        DtypeError,
        OutOfMemoryError,
        RooftuneError,
        SpecError,
        UnsupportedError,
        UsageError,
        WorkError,
    )
    from .session import Session
    from .tuning.bounds import Bound, Bounds
    from .tuning.context import TuningContext
    from .tuning.level import Level, anchor
    from .tuning.tunable import Tunable, TunableSet, TuneGroup
    from .tuning.tuner import LocalTuner

__version__ = "0.1.0"

_WHERE = {
    ".api": ("bounds_for", "decisions", "devices", "enqueue_matmul", "kernel", "matmul", "probe", "tune"),
    ".config": ("Config", "load_config"),
    ".device.client": ("Client",),
    ".errors": (
        "ArgumentError",
        "BuildError",
        "ConfigError",
        "DeviceError",
        "DeviceFaultError",
        "DtypeError",
        "OutOfMemoryError",
        "RooftuneError",
        "SpecError",
        "UnsupportedError",
        "UsageError",
        "WorkError",
    ),
    ".session": ("Session",),
    ".tuning.bounds": ("Bound", "Bounds"),
    ".tuning.level": ("Level", "anchor"),
    ".tuning.tunable": ("TuneGroup", "Tunable", "TunableSet"),
    ".tuning.tuner": ("LocalTuner",),
}
_LATER = {name: module for module, names in _WHERE.items() for name in names}
"""Public names by the module they come from, imported at their first use: the command starts at once."""

__all__ = [
    "ArgumentError",
    "Bound",
    "Bounds",
    "BuildError",
    "Client",
    "Config",
    "ConfigError",
    "DeviceError",
    "DeviceFaultError",
    "DtypeError",
    "Level",
    "LocalTuner",
    "OutOfMemoryError",
    "RooftuneError",
    "Session",
    "SpecError",
    "Tunable",
    "TunableSet",
    "TuneGroup",
    "TuningContext",
    "UnsupportedError",
    "UsageError",
    "WorkError",
    "anchor",
    "bounds_for",
    "decisions",
    "devices",
    "enqueue_matmul",
    "kernel",
    "load_config",
    "matmul",
    "probe",
    "tune",
]


# Importing the package `matmul` binds its name here, once. Done now and undone, the name is the function's.
import_module(".matmul", __name__)
del globals()["matmul"]


def _session_context() -> TuningContext:
    context: TuningContext = import_module(".session", __name__).default_session().context
    return context


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'rooftune' has no attribute {name!r}")
    value = _imported(name)
    if _LATER[name] == ".api":  # pyopencl is imported now, and the rest costs little
        for other in sorted(_LATER.keys() - globals().keys()):
            _imported(other)
        globals().pop("__getattr__", None)  # Python reads attributes of a module without it faster
    return value


def _imported(name: str) -> Any:
    if name == "LocalTuner":  # one that is given no context stores what it decides where `matmul` does
        import_module(".tuning.context", __name__).make_default_context_with(_session_context)
    value = globals()[name] = getattr(import_module(_LATER[name], __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
