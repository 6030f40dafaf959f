"""`tune explain`: one decision from key to verdict, the page to read when something looks wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .complete import ids_of_tuner, own_tuners
from .options import BatchOption, Common, DtypeOption, PrecisionOption, check_of_shapes, common, parse_elem
from .render import (
    STARTING,
    emit,
    format_bound,
    format_seconds,
    named_rows,
    print_lines,
    spent,
    status_line,
    warn,
    wrapped,
)
from .tuning import smaller_medians

if TYPE_CHECKING:
    from rooftune.explained import Explanation


WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        autocompletion=own_tuners,
        help="A shape, as for `tune shapes`; or a kernel of your own: SPEC.toml, or the name before its "
        "key in `tune cache ls`.",
    ),
]
WhichArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SIZE",
        autocompletion=ids_of_tuner,
        help="Of a kernel tuned for several: the problem size. Or the decision's id.",
        show_default=False,
    ),
]


@common()
def explain(
    common: Common,
    shape: WhatArgument,
    size: WhichArgument = None,
    dtype: DtypeOption = "f32",
    batch: BatchOption = 1,
    precision: PrecisionOption = None,
) -> None:
    """Explain a stored decision: key, plan, limit, evidence, and why the winner won.

    For a shape, or for a kernel of your own that `tune kernel` or the library has tuned.
    """
    from rooftune.matmul.problem import Shape

    parsed = Shape.parse(shape) if Shape.fits(shape) else None
    elem = parse_elem(dtype, precision)
    _check_fitting(parsed is not None, size)
    check_of_shapes(parsed is not None, dtype, batch, precision)
    settings = common.settings(precision)
    with status_line(STARTING) as status:
        from rooftune.explained import explain as explain_shape
        from rooftune.explained import explain_own
        from rooftune.session import Session

        session = Session(settings, json_stdout=common.json, warn=status.above(warn))
        if parsed is None:
            found = explain_own(session, shape, size, common.device)
        else:
            found = explain_shape(
                session, parsed, elem=elem, batch=batch, precision=precision, device=common.device
            )
    if common.json:
        emit("explain", found.to_json())
        return
    from rooftune.spec.brief import brief_names

    brief = brief_names(found.decision)
    print_lines(_head(found, brief))
    print_lines(named_rows(_COLUMNS, _rows(found, brief), right=_COLUMNS[1:6]))
    print_lines(_foot(found, brief))


def _check_fitting(is_shape: bool, size: str | None) -> None:
    from rooftune.errors import UsageError

    if is_shape and size is not None:
        raise UsageError(
            f"'{size}' is one argument too many", hint="One shape is explained at a time; so is one kernel."
        )


_COLUMNS = ["CANDIDATE", "MEDIAN", "TIMES", "SPREAD", "N", "ROOF", "PROOF", "OUTCOME"]
_INDENT = " " * 8
_MOST_NAMES = 8


def _part(label: str, *lines: str) -> Iterator[str]:
    """Lines under a label in the margin, folded at the width of the terminal."""
    for number, line in enumerate(lines):
        yield from wrapped(f"{label if number == 0 else '':<8}{line}", _INDENT + "  ")


Brief = Callable[[str], str]


def _head(found: Explanation, brief: Brief) -> Iterator[str]:
    from rooftune.store.browse import printable

    decision = found.decision
    yield from wrapped(f"{printable(found.title)} on {decision.device}", "    ")
    origin = ", imported" if decision.origin == "imported" else ""
    yield from wrapped(
        f"decided {decision.at} at level {decision.level}, environment {decision.environment}{origin}", "    "
    )
    yield ""
    share = f", {decision.roofline:.0%} of the roofline" if decision.roofline is not None else ""
    time = f": {format_seconds(decision.median_s)}{share}" if decision.median_s is not None else ""
    yield from _part("Winner", brief(f"{decision.name}{time}"), brief(f"{found.verdict()}."))
    yield from _part("Beware", *(brief(f"- {sign}") for sign in found.signs()))
    yield ""
    yield from _part("Key", found.key, *found.key_reasons)
    yield ""
    yield from _part("Plan", *_plan(found))
    yield ""
    yield from _part("Limit", *_limit(found))
    yield ""


def _plan(found: Explanation) -> Iterator[str]:
    if found.plan is None:
        yield f"{len(found.decision.evidence)} {found.called}s, {found.decision.measured} of them measured"
        return
    rounds = found.plan.rounds
    yield f"{len(rounds)} rounds, {found.rounds_played} reached; the next only if nothing ran"
    for number, members in enumerate(rounds[: found.rounds_played], 1):
        runnable = sum(not member.refusal for member in members)
        yield f"round {number}, {len(members)} candidates, {runnable} of them run here"
        groups: dict[str, list[str]] = {}
        for member in members:
            entry = member.entry
            why = f" ({entry.why})" if entry.why else ""
            heading = f"{entry.group} {entry.group_priority}, inside it {entry.priority}{why}"
            groups.setdefault(heading, []).append(entry.name)
        for heading, names in groups.items():
            yield f"  {heading}: {_some(names)}"


def _limit(found: Explanation) -> Iterator[str]:
    decision = found.decision
    if decision.bounds is None or not decision.bounds.bounds:
        yield "none: no peak is known, so nothing stops early"
        return
    for bound in decision.bounds.bounds:
        binds = ", the roofline" if bound.least_s == decision.bounds.roofline_s else ""
        yield f"{bound.resource}: {format_bound(bound)}{binds}"
    if decision.limit_s is None:
        yield "no limit at this level: nothing stops early"
        return
    threshold = decision.bounds.bounds[0].threshold or 1.0
    window = format_seconds(decision.bounds.launch_window_s)
    yield (
        f"limit {format_seconds(decision.limit_s)}: the roofline / {threshold:g} (level {decision.level}) "
        f"+ {window}, the window of an empty kernel"
    )


def _rows(found: Explanation, brief: Brief) -> Iterator[list[str]]:
    from rooftune.store.browse import printable

    best_s = found.decision.median_s
    digits = len(str(max((e.index for e in found.evidence), default=10)))
    for e in found.evidence:
        share, spread = found.decision.share_of(e), found.spread_of(e)
        yield [
            f"{e.index:>{max(digits, 2)}} {printable(brief(e.name))}",
            format_seconds(e.median_s),
            f"{e.median_s / best_s:.2f}" if e.median_s and best_s else "",
            f"{spread:.0%}" if spread is not None else "",
            str(len(e.samples)) if e.samples else "",
            f"{share:.0%}" if share is not None else "",
            found.proof_of(e),
            ("winner" if e.index == found.decision.index else e.outcome) + (", kept" if e.kept else ""),
        ]


def _foot(found: Explanation, brief: Brief) -> Iterator[str]:
    if found.evidence:
        yield ""
    shown = [e for e in found.evidence if e.index != found.decision.index]
    yield from _part("Note", *map(brief, smaller_medians(found.decision)))
    lines = [brief(f"{_some(names)}: {reason}") for reason, names in found.reasons(shown).items()]
    yield from _part("Out", *lines)
    untried = [brief(f"{_some(names)}: {reason}") for reason, names in found.reasons(found.skipped).items()]
    yield from _part("Untried", *untried)
    timings = found.decision.timings
    total_s = sum(vars(timings).values())
    yield from _part("Cost", ": ".join(filter(None, (format_seconds(total_s), spent(timings)))))


def _some(names: list[str]) -> str:
    """The first names of a long list, and how many more there are."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"

