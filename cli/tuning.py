"""What commands that tune share: options, session, and how a first call and the next ones are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Common
from .render import (
    WORTH_SAYING_S,
    StatusLine,
    emit,
    format_seconds,
    print_folded,
    say,
    say_error,
    spent,
    warn,
)

if TYPE_CHECKING:
    from rooftune.config import Config
    from rooftune.device.client import Client
    from rooftune.device.counters import Counts
    from rooftune.matmul.problem import Problem
    from rooftune.session import Session
    from rooftune.tuned_run import Cost
    from rooftune.tuning.decision import Decision

ColdOption = Annotated[
    bool,
    typer.Option(
        "--cold", help="Forget these keys and this device's probe results, and replace them when done."
    ),
]
WarmOption = Annotated[
    bool, typer.Option("--warm", help="Refuse to measure: a key that is not known is an error.")
]
RepeatOption = Annotated[int, typer.Option("--repeat", metavar="N", min=0, help="Calls after the first.")]

UNFINISHED = 4
_DOING = {
    "operands": "making operands",
    "probe": "probing",
    "prove": "proving",
    "compile": "compiling",
    "measure": "measuring",
    "compare": "comparing the best",
    "call": "calling",
}
_UNMEASURED = ("operands", "prove", "compile")
"""Phases in which nothing is measured."""


def check_cold_or_warm(cold: bool, warm: bool) -> None:
    """Raises UsageError for both."""
    from rooftune.errors import UsageError

    if cold and warm:
        raise UsageError(
            "--cold and --warm exclude each other", hint="--cold measures anew, --warm refuses to."
        )


def open_session(
    common: Common,
    settings: Config,
    status: StatusLine,
    cold: bool,
    warm: bool,
    problems: Iterable[Problem] = (),
) -> Session:
    """A session whose progress and warnings go to the status line.

    Workers for products that will have to be tuned are started before the imports that take as long.
    """
    from rooftune.foresight import workers_for
    from rooftune.store.stores import open_store

    store = open_store(settings, warn=status.above(warn))
    workers = None if warm else workers_for(settings, store, common.device, problems, cold=cold)

    from rooftune.session import Session

    return Session(
        settings,
        cold=cold,
        measure=not warm,
        forbidden_by="--warm",
        json_stdout=common.json,
        warn=status.above(warn),
        progress=lambda phase, done, total: status.progress(
            _DOING[phase], done, total, counting=phase in _UNMEASURED
        ),
        probing=status.probing,
        store=store,
        workers=workers,
    )


def say_device(common: Common, status: StatusLine, client: Client) -> None:
    if not common.json:
        status.above(say)(f"device: {client.device_name} ({client.profile.platform})")


def named_in(status: StatusLine, total: int) -> Callable[[str], None]:
    """Called with the label of each of `total` problems as it begins: several are told apart in progress."""
    numbers = count(1)

    def begin(label: str) -> None:
        number = next(numbers)
        status.subject = f"{label} ({number} of {total}): " if total > 1 else ""

    return begin


def shown_as_done(
    common: Common, status: StatusLine, lines: Callable[[Any], Iterator[str]]
) -> Callable[[Any], object]:
    """Prints what `lines` has of a run, unless the output is JSON."""
    return lambda run: None if common.json else status.above(print_folded)(lines(run))


def finish(common: Common, command: str, report: Any, costs: dict[str, Cost]) -> None:
    """The report as JSON, or the errors by label. Exits with UNFINISHED if there are any."""
    if common.json:
        emit(command, report.to_json())
    else:
        for label, cost in costs.items():
            if cost.error is not None:
                say_error(f"{label}: {cost.error}")
    if not report.complete:
        raise typer.Exit(UNFINISHED)


def call_lines(label: str, cost: Cost) -> Iterator[str]:
    """What the first call cost, and the next ones."""
    yield f"{label} first:{format_seconds(cost.first_s):>13}  {_launches(cost.first)}"
    if cost.next_s:
        shown = cost.to_json()["next"]
        times = f"min {format_seconds(shown['min_s'])} median {format_seconds(shown['median_s'])}"
        yield f"{label} next {len(cost.next_s)}: {times}  {_launches(cost.next)}"


def winner_text(cost: Cost, decision: Decision) -> str:
    """The winner, its time, and how good that is."""
    share = f", {decision.roofline:.0%} of the roofline" if decision.roofline is not None else ""
    limit = f", limit {format_seconds(decision.limit_s)}" if decision.limit_s is not None else ""
    stopped = ", stopped early" if decision.short_circuit else ""
    return f"{decision.name} ({cost.source}): {format_seconds(decision.median_s)}{share}{limit}{stopped}"


def smaller_medians(decision: Decision) -> Iterator[str]:
    """Why a candidate with a smaller median than the winner's is not the winner, if there is one."""
    least_s, tie = decision.median_s, decision.tie_break
    smaller = [e.name for e in decision.ranking if e.median_s and least_s and e.median_s < least_s]
    others = [name for name in smaller if tie is None or tie.winner != decision.name or tie.loser != name]
    if tie is not None and len(others) < len(smaller):
        yield f"{tie.loser} has the smaller median, but not pair by pair: within noise"
    if others:
        yield "a smaller median than the winner's is of fewer samples, or within noise"


def spent_lines(cost: Cost) -> Iterator[str]:
    """Where the time of a tuning went, or of waiting for another process's."""
    if cost.source == "tuned" and cost.decision is not None:
        yield f"  time spent: {spent(cost.decision.timings)}"
    elif cost.waited_s is not None and cost.waited_s >= WORTH_SAYING_S:
        yield f"  waited {format_seconds(cost.waited_s)} for another process"


def _launches(counts: Counts) -> str:
    named = [f"{label}={count}" for label, count in sorted(counts.launches.items())]
    if counts.compiles:
        named.append(f"~compile={counts.compiles}")
    return f"launches={counts.total} [{', '.join(named)}]"
