"""Errors that reach a user. Each says what was given, what is allowed and what to do."""

from __future__ import annotations


class RooftuneError(Exception):
    """Base of every error rooftune raises on purpose.

    `code` is a stable word for programs, `hint` a sentence on what to do, `exit_code` what the
    command `tune` exits with.
    """

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Message and hint as sentences, so that a traceback says what to do too."""
        if not self.hint:
            return self.message
        between = "\n" if "\n" in self.message else ". "
        return f"{self.message.rstrip('.')}{between}{self.hint}"


class UsageError(RooftuneError, ValueError):
    """A wrong shape, option, file or value."""

    code = "usage"
    exit_code = 2


class DtypeError(UsageError, TypeError):
    """An element type, or a mix of them, that is not supported."""

    code = "dtype"


class ArgumentError(UsageError, TypeError):
    """An argument that is another kind of thing than the one it must be."""

    code = "argument"


class ConfigError(UsageError):
    """A configuration file with a wrong type or value; the message names file, line and key."""

    code = "config"


class SpecError(UsageError):
    """A specification of a kernel that is not one; the message names its file and the place."""

    code = "spec"


class DeviceError(RooftuneError, ValueError):
    """No OpenCL device, or none or several that match the wanted one."""

    code = "device"
    exit_code = 3


class WorkError(RooftuneError, RuntimeError):
    """The work was not possible, or not fully: no candidate ran, or `--warm` met a cold key."""

    code = "work"
    exit_code = 4


class OutOfMemoryError(WorkError):
    """The device has too little memory for this problem. Never discards a decision."""

    code = "memory"


class DeviceFaultError(WorkError):
    """A kernel faulted while running; its queue is lost. Names the candidate."""

    code = "fault"


class BuildError(WorkError):
    """The OpenCL compiler refused a program; the message carries the end of its log."""

    code = "build"


class UnsupportedError(Exception):
    """A candidate refuses this problem or device. Raised before anything is compiled.

    Not a fault: the next candidate is tried and nothing stored changes.
    """


class MeasurementError(Exception):
    """A device window came back as zero or unresolved; disqualifies the candidate."""
