"""`tune plan`: the rounds of candidates for a shape, with each one's priorities and the reason for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from .complete import several_of
from .options import BatchOption, Common, DtypeOption, PrecisionOption, common, parse_elem
from .render import STARTING, emit, print_lines, status_line, wrapped

if TYPE_CHECKING:
    from rooftune.device.profile import DeviceProfile
    from rooftune.matmul.planned import PlannedCandidate, PlanView

ShapeArgument = Annotated[
    str,
    typer.Argument(metavar="SHAPE", help="N for a square or MxNxK, then t and/or T for transposed views."),
]


def _assumed(incomplete: str) -> list[str]:
    kinds = ("cpu", "gpu")
    return several_of(*("cmma", "mma", "tma") if "," in incomplete else kinds)(incomplete)


AssumeOption = Annotated[
    str | None,
    typer.Option(
        "--assume",
        metavar="DEVICE",
        autocompletion=_assumed,
        help="Plan for a device that need not be here: cpu or gpu, then any of ,cmma ,mma ,tma.",
    ),
]


@common("device", "level", "config", "json")
def plan(
    common: Common,
    shape: ShapeArgument,
    assume: AssumeOption = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Show which candidates a device would try for a shape, in which order and why.

    The next round is measured only while no candidate so far could be measured at all.
    Nothing is compiled or run. With --assume no device is needed.
    """
    from rooftune.matmul.planned import view_plan
    from rooftune.matmul.problem import Shape
    from rooftune.tuning.level import Level

    settings = common.settings(precision)
    problem = Shape.parse(shape).problem(
        parse_elem(dtype, precision), batch=batch, precision=settings.matmul.f32_precision
    )
    found = view_plan(
        shape.strip(),
        problem,
        _profile(common.device, assume),
        level=Level.parse(settings.autotune.level),
        assumed=assume is not None,
    )
    if common.json:
        emit("plan", found.to_json())
    else:
        print_lines(_lines(found))


def _profile(device: str | None, assume: str | None) -> DeviceProfile:
    if assume is not None:
        from rooftune.matmul.planned import assume_device

        return assume_device(assume)
    with status_line(STARTING):
        from rooftune.device.discovery import choose_device

        return choose_device(device).profile


def _lines(found: PlanView) -> Iterator[str]:
    yield from wrapped(f"{found.shape} on {found.device}, level {found.level.value}", "    ")
    yield from wrapped(f"key {found.key.short()}", "    ")
    for number, round_ in enumerate(found.rounds, 1):
        yield ""
        yield f"round {number}"
        for _, members in groupby(sorted(round_, key=_rank), key=_rank):
            yield from _group_lines(list(members))


def _rank(candidate: PlannedCandidate) -> tuple[str, int, int, str]:
    entry = candidate.entry
    return entry.group, entry.group_priority, entry.priority, entry.why


def _group_lines(members: list[PlannedCandidate]) -> Iterator[str]:
    """Candidates that have their place for the same reason, under that reason."""
    group, group_priority, priority, why = _rank(members[0])
    yield from wrapped(f"  {group} {group_priority}, inside it {priority}: {why}", "      ")
    for member in members:
        entry = member.entry
        known = not member.refusal or member.refusal in why
        mark = "" if not member.refusal else "  (unsupported)"
        yield from wrapped(f"    {entry.index:>2} {entry.name}{mark}", "       ")
        if not known:
            yield from wrapped(f"       {member.refusal}", "       ")
