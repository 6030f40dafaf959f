"""Runs the command line and turns whatever happens into an exit code and a sentence a person can use."""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import typer
from rooftune.errors import RooftuneError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

from .render import emit_error, say_error, tolerate_any_encoding

DEFECT, USAGE, WORK, INTERRUPTED = 1, 2, 4, 130
LESS = "Give smaller shapes, or end programs that hold memory."
ENVIRONMENTAL = {
    errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE,
    errno.ENOMEM, errno.EAGAIN, errno.EFBIG,
}
"""What the system refuses for reasons of its own: full disks, quotas, rights, limits. No defect of ours."""
GROUPS = ("cache", "env")
"""Commands that have commands of their own."""
_OF_NO_COMMAND = ("key", "export")
"""Schemas of what is in files and in other outputs."""


def run(app: typer.Typer, argv: list[str] | None = None) -> NoReturn:
    """Run `app` on argv (default: the process's own) and exit.

    Exit codes: 0 done, 1 a defect of rooftune, 2 bad usage, shape, file or configuration, 3 no
    usable device, 4 the work was not or not fully possible, 130 interrupted. A reader that closes
    our pipe early (`tune keys | head -1`) has all it wants: that is 0.
    """
    args = sys.argv[1:] if argv is None else list(argv)
    _Ended.for_want_of_memory = False
    open_missing_streams()
    forgive_stderr()
    tolerate_any_encoding()
    try:
        code = _run(app, args)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
        code = 0
    except OSError as error:  # what was printed could not be written
        _let_go_of_stdout()
        code = _fail([], WORK, "system", *_refused(error, "standard output"))
    sys.exit(code)


class _Ended:
    for_want_of_memory = False


def leave_for_good(code: int) -> None:
    """Ends the process here where memory ran out: a driver that it ran out in may wait for ever at its own
    end, for a lock that it never gave back."""
    if not _Ended.for_want_of_memory:
        return
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)


def open_missing_streams() -> None:
    """Puts the null device where a standard stream is closed (`tune keys >&-`), or no output can go there.

    Else the next file opened, perhaps a database, takes that stream's number, and whatever a driver prints
    goes into it. A shell that starts us from a script may itself have that opened there, for reading.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if _serves(number, mode):
            continue
        null = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: often this one
        if null != number:
            os.dup2(null, number)
            os.close(null)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _serves(number: int, mode: str) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    if mode == "r" or fcntl is None:
        return True
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


class _Forgiving(io.FileIO):
    """Standard error as it must be for people: what can't be written there is lost and stops nothing."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def forgive_stderr() -> None:
    """A full disk or a reader that is gone at standard error changes no exit code."""
    old = sys.__stderr__
    if old is None or old is not sys.stderr:
        return
    try:
        raw = _Forgiving(old.fileno(), "w", closefd=False)
    except (OSError, ValueError):
        return
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=old.encoding, errors=old.errors, line_buffering=True
    )


def _run(app: typer.Typer, args: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        result = command.main(args=args, prog_name="tune", standalone_mode=False)
    except BrokenPipeError:
        raise
    except SystemExit as stop:  # the parser's own answer to a closed pipe
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    except RooftuneError as error:
        return _fail(args, error.exit_code, error.code, error.message, error.hint)
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except MemoryError as error:
        _Ended.for_want_of_memory = True
        said = str(error).strip().rstrip(".") or "a request was refused"
        return _fail(args, WORK, "memory", f"this machine has too little memory: {said}", LESS)
    except OSError as error:
        if error.errno not in ENVIRONMENTAL:
            return _defect(args, error)
        full = not error.filename and _stdout_is_full()
        where = "standard output" if full else _innermost_frame(error)
        return _fail(args, WORK, "system", *_refused(error, where))
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser's own errors, whichever click typer brings
            return _bad_usage(args, error)
        return _defect(args, error)
    code = result if isinstance(result, int) else 0
    if code == INTERRUPTED:
        return _fail(args, code, "interrupted", "interrupted", "")
    return code


def _stdout_is_full() -> bool:
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except (OSError, ValueError):
        return True
    return False


def _refused(error: OSError, where: str) -> tuple[str, str]:
    name = error.filename or where
    hint = "Make room, or allow it, and run this again."
    return f"the system refused: {error.strerror or error} ({name})", hint


def _bad_usage(args: list[str], error: Any) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "tune"
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":  # `tune` or a group alone: the message is its help
        if not wants_json(args):
            print(message, file=sys.stderr, flush=True)
            return USAGE
        message = "a command is missing"
    message = message[:1].lower() + message[1:].rstrip(".").replace(": Input should", ": it should")
    message = _meant(error, message) + _given(args, error, message)
    return _fail(args, USAGE, "usage", message, f"See '{path} --help'.")


def _meant(error: Any, message: str) -> str:
    """The one option that a mistyped one is nearest to, in place of the parser's list."""
    from difflib import get_close_matches

    if type(error).__name__ != "NoSuchOption":
        return message
    near = get_close_matches(error.option_name, error.possibilities or (), n=1)
    return f"no such option: {error.option_name}" + (f". Did you mean '{near[0]}'?" if near else "")


def _given(args: list[str], error: Any, message: str) -> str:
    """The value of the option that the parser refuses, where its message doesn't name it."""
    names = getattr(getattr(error, "param", None), "opts", ())
    if type(error).__name__ != "BadParameter":
        return ""
    for argument, following in zip(args, [*args[1:], ""], strict=True):
        name, equals, value = argument.partition("=")
        if name in names:
            value = value if equals else following
            return "" if f"'{value}'" in message else f": '{value}'"
    return ""


def _defect(args: list[str], error: Exception) -> int:
    where = _innermost_frame(error)
    said = str(error).strip() or "no message"
    message = f"a defect of rooftune: {type(error).__name__}: {said} (in {where})"
    hint = "Please report it with the command line and this text. ROOFTUNE_DEBUG=1 shows the whole traceback."
    if os.environ.get("ROOFTUNE_DEBUG") == "1":
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return _fail(args, DEFECT, "defect", message, hint)


def _innermost_frame(error: BaseException) -> str:
    frame = error.__traceback__
    if frame is None:
        return "an unknown place"
    while frame.tb_next:
        frame = frame.tb_next
    code = frame.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.tb_lineno}, {code.co_name}"


def _fail(args: list[str], exit_code: int, code: str, message: str, hint: str) -> int:
    if wants_json(args):
        emit_error(command_name(args), code, message, hint)
    else:
        say_error(message, hint)
    return exit_code


def wants_json(args: list[str]) -> bool:
    """Whether --json is among the options (what follows a lone `--` is not an option)."""
    options = args[: args.index("--")] if "--" in args else args
    return "--json" in options


def command_name(args: list[str]) -> str:
    """The command a command line names, for the schema of its error: `keys`, or `cache-ls` in a group.

    "error", the schema of all of them, where it names none.
    """
    words = [word for word in args if not word.startswith("-")]
    name = "-".join(words[:2] if words[:1] and words[0] in GROUPS else words[:1])
    from rooftune.formats import schema_names

    return name if name in schema_names() and name not in _OF_NO_COMMAND else "error"


def _let_go_of_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at exit cannot fail as well."""
    if sys.__stdout__ is None:
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # no more files may be opened
        sys.stdout = sys.__stdout__ = None  # type: ignore[misc]
        return
    os.dup2(null, sys.__stdout__.fileno())
    os.close(null)
