"""`tune probe`: what the device itself can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .complete import one_of
from .options import Common, common
from .render import (
    STARTING,
    emit,
    format_bytes,
    format_rate,
    format_seconds,
    named_rows,
    print_folded,
    print_lines,
    say,
    say_error,
    status_line,
    warn,
)
from .tuning import UNFINISHED

if TYPE_CHECKING:
    from rooftune.probes.result import ProbeResult

WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        autocompletion=one_of("launch-overhead", "compute", "bandwidth", "all"),
        help="launch-overhead, compute or bandwidth; or all.",
    ),
]
FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Measure again what is stored, and say by how much it moved.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        autocompletion=one_of("f32", "f64", "f16", "bf16", "tf32", "i8"),
        help="compute: only this element type: f32, f64, f16, bf16, or tf32 or i8 where units have it.",
    ),
]
AccessOption = Annotated[
    str | None,
    typer.Option(
        "--access",
        metavar="HOW",
        autocompletion=one_of("read", "write", "copy"),
        help="bandwidth: only read, write or copy.",
    ),
]
WorkingSetOption = Annotated[
    str | None,
    typer.Option(
        "--working-set",
        metavar="SIZE",
        help="bandwidth: bytes touched again and again, such as 64KiB or 1GiB; rounded up to a power of "
        "two, from 16KiB to the largest one in half the memory (of a CPU: in half of what is free now). "
        "Without it: more than any cache holds.",
    ),
]
ColdOption = Annotated[
    bool, typer.Option("--cold-reads", help="bandwidth: one pass at a time, with the caches emptied before.")
]
SweepOption = Annotated[
    bool,
    typer.Option(
        "--sweep",
        help="bandwidth: every working set, from 16KiB to the largest, or to what no cache of a CPU holds.",
    ),
]


@common("device", "environment", "config", "json")
def probe(
    common: Common,
    what: WhatArgument,
    fresh: FreshOption = False,
    dtype: DtypeOption = None,
    access: AccessOption = None,
    working_set: WorkingSetOption = None,
    cold_reads: ColdOption = False,
    sweep: SweepOption = False,
) -> int:
    """Measure what the device can do, or show what was measured before.

    Results are stored per device and driver version; tuning uses them as bounds.
    """
    settings = common.settings()

    with status_line(STARTING) as status:
        from rooftune.probes.report import BUSY_SPREAD, check_request, parse_size
        from rooftune.session import Session

        set_bytes = None if working_set is None else parse_size(working_set)
        check_request(what, dtype, access, set_bytes, cold_reads, sweep)
        session = Session(
            settings, json_stdout=common.json, warn=status.above(warn), probing=status.probing
        )
        client = session.client(common.device)
        if not common.json:
            status.above(say)(f"device: {client.device_name} ({client.profile.platform})")
        report = session.probe(
            client,
            what,
            dtype=dtype,
            access=access,
            working_set_bytes=set_bytes,
            cold_reads=cold_reads,
            sweep=sweep,
            fresh=fresh,
        )
        session.close(f"probe {what}")
    if common.json:
        emit("probe", report.to_json())
    else:
        rows = map(_row, report.results)
        print_lines(named_rows(("PROBE", "VALUE", "SPREAD", "FROM"), rows, right=("VALUE", "SPREAD")))
        print_folded(f"{_named(result)}: {_remark(result)}" for result in report.results if _remark(result))
        busy = [_named(result) for result in report.results if result.spread > BUSY_SPREAD]
        if busy:
            warn(
                f"the device seems busy with something else: samples spread by more than {BUSY_SPREAD:.0%} "
                f"for {', '.join(busy)}. On an idle machine --fresh gives truer values."
            )
        for failed in report.errors:
            say_error(failed["error"], hint="Is the device busy? Try again with --fresh.")
    return UNFINISHED if report.errors else 0


def _row(result: ProbeResult) -> tuple[str, ...]:
    origin = f"stored {result.at[:10]}" if result.cached else f"measured, {result.launches} launches"
    return (_named(result), _value(result), f"{result.spread:.1%}", origin)


def _named(result: ProbeResult) -> str:
    """What was probed in a few words: compute f32 plain, bandwidth read hot 1.0 GiB."""
    named = (result.facts.get(name) for name in ("dtype", "arithmetic", "access", "state"))
    words = [result.probe, *(str(word) for word in named if word is not None)]
    size = result.facts.get("working_set_bytes")
    return " ".join([*words, format_bytes(size)] if size is not None else words)


def _value(result: ProbeResult) -> str:
    if result.unit == "s":
        return format_seconds(result.value)
    if result.unit == "bytes/s":
        return format_rate(result.value, "B/s")
    return format_rate(result.value, "OP/s" if result.facts.get("dtype") == "i8" else "FLOP/s")


def _remark(result: ProbeResult) -> str:
    remarks = []
    if "window_s" in result.extra:
        window, profiled = result.extra["window_s"], result.extra["profiled_s"]
        remarks.append(
            f"wall on a plain queue; {format_seconds(profiled)} on a profiling queue; "
            f"event window {format_seconds(window)}"
        )
    if "same_as" in result.extra:
        remarks.append(f"added up in {result.extra['same_as']}, so the same")
    if result.moved is not None:
        more = "more" if result.moved >= 0 else "less"
        remarks.append(f"{abs(result.moved):.1%} {more} than what was stored")
    return "; ".join(remarks)
