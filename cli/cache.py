"""`tune cache`: what is stored: listed, shown, checked, removed, carried to other machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .complete import decision_ids, one_of, tuners
from .options import Common, common
from .render import (
    columns,
    emit,
    format_bound,
    format_bytes,
    format_seconds,
    named_rows,
    print_lines,
    say,
    warn,
    wrapped,
)
from .tuning import smaller_medians

if TYPE_CHECKING:
    from rooftune.config import Config
    from rooftune.store.browse import StoredDecision
    from rooftune.store.database import Database
    from rooftune.tuning.decision import Decision, Evidence

NOT_POSSIBLE = 4
"""Exit code: the work was not, or not fully, possible."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Stored decisions: list, show, check, remove, export and import them.",
)

DbOption = Annotated[
    Path | None,
    typer.Option("--db", metavar="FILE", help="This file instead of the environment's.", show_default=False),
]
IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        autocompletion=decision_ids,
        help="Ids from `tune cache ls`, or beginnings of them.",
        show_default=False,
    ),
]
TunerOption = Annotated[
    str | None,
    typer.Option(
        "--tuner",
        metavar="NAME",
        autocompletion=tuners,
        help="Those of this tuner: matmul for the products of `tune shapes`, or your own by the name before "
        "the key in `tune cache ls`: kernel:NAME for one of `tune kernel`.",
    ),
]
OfDeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="TEXT", help="Those whose device id contains this text.")
]
OlderOption = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Those older than this: 12h, 30d, 8w.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@app.command("ls")
@common("environment", "config", "json")
def ls(common: Common, db: DbOption = None) -> None:
    """List what is stored: entries by namespace, then every decision.

    A key is its bucketed size (MxNxK where they differ), batch, element type, t and T for transposed
    operands, ? for one with gaps between its elements, reversed or broadcast, and @32 where strides are
    multiples of 32 bytes only. Before the keys of other tuners is their name, that of kernels of
    `tune kernel` after `kernel:`.
    """
    with closing(_open(common.settings(), db)) as database:
        stored, counts = _stored(database), database.counts()
        path = str(db or database.path or _path(common.settings()))
    if not common.json:
        print_lines(_list_lines(path, counts, stored))
        return
    names = ("namespace", "entries", "bytes")
    emit(
        "cache-ls",
        {
            "path": path,
            "namespaces": [dict(zip(names, count, strict=True)) for count in counts],
            "entries": [item.row() for item in stored],
        },
    )


@app.command("show")
@common("environment", "config", "json")
def show(
    common: Common,
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID", autocompletion=decision_ids, help="An id from `tune cache ls`, or its beginning."
        ),
    ],
    db: DbOption = None,
) -> None:
    """Show a decision with all its evidence."""
    from rooftune.store.browse import find_decisions

    with closing(_open(common.settings(), db)) as database:
        (item,) = find_decisions(_stored(database), [id])
    if common.json:
        decision = item.decision.to_json() if item.decision else None
        row = {**item.row(), "checksum": item.entry.checksum}
        emit("cache-show", {**row, "decision": decision})
    else:
        print_lines(_show_lines(item))


@app.command("rm")
@common("environment", "config", "json")
def rm(
    common: Common,
    ids: IdsArgument = None,
    tuner: TunerOption = None,
    device: OfDeviceOption = None,
    older_than: OlderOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every decision.")] = False,
    yes: YesOption = False,
    db: DbOption = None,
) -> None:
    """Remove decisions: by id, by tuner, device or age, or all of them.

    Several of the options together remove what fits all of them. Asks first, unless --yes is given.
    """
    from rooftune.errors import UsageError, WorkError

    if not (ids or tuner or device or older_than or everything):
        raise UsageError("nothing is chosen", hint="Give ids, --tuner, --device, --older-than or --all.")
    with closing(_open(common.settings(), db, write=True)) as database:
        chosen = _choose(database, ids, tuner, device, older_than)
        removed = 0
        what = f"{_count(len(chosen), 'decision')}{_of_tuners(chosen)}"
        if chosen and confirmed(f"Remove {what}?", yes, common.json):
            removed = database.delete([item.entry for item in chosen])
            left = {entry.id for entry, _ in database.scan("autotune")}
            if left.intersection(item.id for item in chosen):
                raise WorkError("the store can't be written: nothing was removed", hint=_trouble(database))
    if common.json:
        emit("cache-rm", {"removed": [item.id for item in chosen] if removed else [], "count": removed})
    else:
        print_lines([f"removed {_count(removed, 'decision')}"])


@app.command("path")
@common("environment", "config", "json")
def path(common: Common) -> None:
    """Print the path of the environment's file, there or not.

    Where that is a file of another program, the one beside it that is used instead.
    """
    from rooftune.store.browse import used_path

    found = str(used_path(common.settings()))
    if common.json:
        emit("cache-path", {"path": found})
    else:
        print_lines([found])


@app.command("verify")
@common("environment", "config", "json")
def verify(common: Common, db: DbOption = None) -> int:
    """Check the file and every entry in it; exit 4 when something is wrong. Changes nothing."""
    from rooftune.errors import UsageError
    from rooftune.store.browse import verify_file

    if db is not None and not db.exists():
        raise UsageError(f"there is no file {db}", hint="`tune env ls` lists the environments there are.")
    file = db or _path(common.settings())
    problems = verify_file(file)
    if common.json:
        emit("cache-verify", {"path": str(file), "ok": not problems, "problems": problems})
    else:
        print_lines([*problems, f"{file}: {'all is well' if not problems else 'something is wrong'}"])
    return NOT_POSSIBLE if problems else 0


@app.command("export")
@common("environment", "config", "json")
def export(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The JSON file to write.")],
    ids: IdsArgument = None,
    tuner: TunerOption = None,
    device: OfDeviceOption = None,
    older_than: OlderOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if there is one.")] = False,
    db: DbOption = None,
) -> None:
    """Write decisions to a JSON file that `tune cache import` takes: all, or the chosen ones."""
    from rooftune.errors import UsageError
    from rooftune.store.transfer import write_export

    if file.exists() and not force:
        raise UsageError(f"there is a file {file} already", hint="Give another name, or --force.")
    with closing(_open(common.settings(), db)) as database:
        chosen = _choose(database, ids, tuner, device, older_than)
    sound = [item for item in chosen if item.decision is not None and not item.decision.bad]
    write_export(file, [item.entry for item in sound])
    if common.json:
        emit("cache-export", {"file": str(file), "exported": [item.id for item in sound]})
    else:
        left = len(chosen) - len(sound)
        said = f"; {_count(left, 'entry', 'entries')} damaged or found faulty left out" if left else ""
        print_lines([f"exported {_count(len(sound), 'decision')} to {file}{said}"])


@app.command("import")
@common("environment", "config", "json")
def import_(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tune cache export` wrote.")],
    db: DbOption = None,
) -> int:
    """Take decisions from a file that `tune cache export` wrote.

    Only what is valid in every part is taken, and a decision made on this machine always stays. What
    was imported is proven here before it is used. Exit 4 when something invalid was refused.
    """
    from rooftune.errors import WorkError
    from rooftune.store.transfer import import_decisions, read_export

    data = read_export(file)
    with closing(_open(common.settings(), db, write=True, create=True)) as database:
        if not database.writable:
            raise WorkError("the store cannot be written, so nothing was imported", hint=_trouble(database))
        report = import_decisions(database, data)
        path = str(database.path)
    if common.json:
        refused = [{"id": item.id, "reason": item.reason, "invalid": item.invalid} for item in report.refused]
        emit("cache-import", {"path": path, "taken": list(report.taken), "refused": refused})
    else:
        print_lines(f"refused {item.id}: {item.reason}" for item in report.refused)
        print_lines([f"imported {_count(len(report.taken), 'decision')}, refused {len(report.refused)}"])
    return NOT_POSSIBLE if any(item.invalid for item in report.refused) else 0


@app.command("log")
@common("environment", "config", "json")
def log(
    common: Common,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            autocompletion=one_of("autotune", "compilation", "sessions"),
            help="autotune, compilation or sessions.",
        ),
    ] = None,
    newest: Annotated[
        int, typer.Option("-n", "--newest", metavar="N", min=1, help="So many of the newest records.")
    ] = 50,
    db: DbOption = None,
) -> None:
    """Show what happened: tunings, compilations, sessions; the newest last."""
    from rooftune.errors import UsageError
    from rooftune.store.stores import RECORD_KINDS, Records

    if kind is not None and kind not in RECORD_KINDS:
        raise UsageError(f"'{kind}' is no kind of record", hint=f"Kinds are {', '.join(RECORD_KINDS)}.")
    with closing(_open(common.settings(), db)) as database:
        records = Records(database).read(kind, newest)
    if common.json:
        emit("cache-log", {"records": records})
    else:
        print_lines(line for record in records for line in _log_lines(record))
        print_lines(["no records"] if not records else [])


# -- opening and choosing


def _open(config: Config, db: Path | None, *, write: bool = False, create: bool = False) -> Database:
    from rooftune.store.browse import open_environment, open_file
    from rooftune.store.stores import open_store

    if db is not None:
        return open_file(db, write=write, warn=warn)
    if create:
        return open_store(config, warn=warn).database
    return open_environment(config, warn=warn)


def _trouble(database: Database) -> str:
    return database.warnings[-1] if database.warnings else ""


def _path(config: Config) -> Path:
    from rooftune.store.browse import environment_path

    return environment_path(config)


def _stored(database: Database) -> list[StoredDecision]:
    from rooftune.matmul.candidates import CANDIDATES
    from rooftune.store.browse import stored_decisions
    from rooftune.tuning.tunable import separated_hash

    return stored_decisions(database, {"matmul": separated_hash(*(each.name for each in CANDIDATES))})


def _choose(
    database: Database, ids: list[str] | None, tuner: str | None, device: str | None, older_than: str | None
) -> list[StoredDecision]:
    from rooftune.foresight import TUNER
    from rooftune.store.browse import (
        find_decisions,
        find_tuner,
        parse_age,
        printable,
        select_decisions,
        short_tuner,
    )

    stored = _stored(database)
    if tuner is not None:
        named = tuner if tuner == TUNER else find_tuner(stored, tuner)
        tuners = sorted({item.tuner for item in stored})
        if named not in tuners:
            names = ", ".join(map(printable, tuners))
            say(f"tuner '{tuner}' has no decisions here; {f'these have: {names}' if names else 'none has'}")
        for other in tuners:
            if other != named and short_tuner(other) == tuner:
                say(f"{printable(other)} is another tuner: its decisions are not among these")
        tuner = named or tuner
    if ids:
        stored = find_decisions(stored, ids)
    age = parse_age(older_than) if older_than is not None else None
    return select_decisions(stored, tuner=tuner, device=device, older_than=age)


def _of_tuners(chosen: Sequence[StoredDecision]) -> str:
    """Whose decisions these are, for the question whether to remove them."""
    from rooftune.store.browse import printable

    return f" of {', '.join(sorted({printable(item.tuner) for item in chosen}))}"


def confirmed(question: str, yes: bool, as_json: bool) -> bool:
    """Whether a removal is wanted. UsageError where nobody can be asked and --yes is missing."""
    import sys

    from rooftune.errors import UsageError

    if yes:
        return True
    if as_json or not sys.stdin.isatty():
        why = "--json leaves no room for a question" if as_json else "there is no terminal to ask on"
        raise UsageError(f"{why}; nothing was removed", hint="Give --yes to remove without asking.")
    return typer.confirm(question, err=True)


# -- human output


def _list_lines(
    path: str, counts: Sequence[tuple[str, int, int]], stored: Sequence[StoredDecision]
) -> Iterator[str]:
    from rooftune.store.browse import printable

    yield path
    if counts:
        wide = columns(sys.stdout) - 21
        names = [("  " + fit(printable(name), wide), str(n), format_bytes(size)) for name, n, size in counts]
        yield from named_rows(("  NAMESPACE", "ENTRIES", "SIZE"), names, right=("ENTRIES", "SIZE"))
    if not stored:
        yield "no decisions" if Path(path).exists() else "no decisions: this file is not there yet"
        return
    yield ""
    headings = ("ID", "KEY", "WINNER", "TIME", "ROOF", "AGE", "FROM")
    yield from _list_rows(headings, map(_list_row, stored))
    remarks = {_remark(item) for item in stored}
    if " *" in remarks:
        yield "* made for another list of candidates than today's"
    if " !" in remarks:
        yield "! its winner was found to be faulty; the key will be tuned again"


def _list_row(item: StoredDecision) -> list[str]:
    from rooftune.spec.brief import brief_names
    from rooftune.store.browse import SHORT_ID, age_text, named_key, printable

    decision = item.decision
    share = decision.roofline if decision else None
    return [
        item.id[:SHORT_ID],
        fit(named_key(item.tuner, item.key), columns(sys.stdout) - 46),
        printable(brief_names(decision)(decision.name)) if decision else "damaged",
        _time(decision.median_s if decision else None),
        f"{share:.0%}" if share is not None else "-",
        age_text(item.entry.at),
        ("import" if item.entry.origin == "imported" else "local") + _remark(item),
    ]


def _list_rows(headings: Sequence[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """Whole rows: where key and winner find no room side by side, the winner has a line of its own below."""
    table = [[*headings], *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = columns(sys.stdout) - sum(widths) - len(widths) + 1 + widths[1] + widths[2]
    widths[1:3] = _shared(room, [(len(row[1]), len(row[2])) for row in table])
    for row in table:
        below = "" if len(row[1]) <= widths[1] and len(row[2]) <= widths[2] else row[2]
        cells = [*row[:2], "" if below else row[2], *row[3:]]
        across = [*widths]
        if below:  # the key has the winner's room too
            cells[1:3], across[1:3] = [cells[1]], [widths[1] + 1 + widths[2]]
        figures = len(cells) - 4
        yield " ".join(
            f"{cell:>{width}}" if figures <= i < figures + 3 else f"{cell:{width}}"
            for i, (cell, width) in enumerate(zip(cells, across, strict=True))
        ).rstrip()
        if below:
            yield from wrapped(f"{'':{widths[0]}} {below}", " " * (widths[0] + 1))


def _shared(room: int, lengths: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How wide keys and winners are, so that as many pairs as can be (the first surely) lie side by side.

    Together they hold the longest key.
    """
    (least_key, least_winner), *_ = lengths

    def fitting(key: int) -> list[tuple[int, int]]:
        winner = max(room - key, least_winner)
        return [pair for pair in lengths if pair[0] <= key and pair[1] <= winner]

    choices = {key for key, _ in lengths if key >= least_key}
    side_by_side = fitting(max(choices, key=lambda key: (len(fitting(key)), -key)))
    key, winner = (max(column) for column in zip(*side_by_side, strict=True))
    longest = max(key for key, _ in lengths)
    return key, max(winner, longest - key - 1)


def _remark(item: StoredDecision) -> str:
    if item.decision is not None and item.decision.bad:
        return " !"
    return " *" if item.checksum_ok is False and item.decision is not None else ""


def _show_lines(item: StoredDecision) -> Iterator[str]:
    from rooftune.spec.brief import brief_names
    from rooftune.store.browse import own_key_text

    facts: dict[str, object] = {
        "id": item.id,
        "key": json.dumps(item.key, ensure_ascii=False),
        "device": item.device_id,
        "tuner": item.tuner,
        "level": item.level,
        "checksum": item.entry.checksum
        + {True: "", None: "", False: " (not today's candidates)"}[item.checksum_ok],
        "origin": item.entry.origin,
        "decided": item.entry.at,
    }
    decision = item.decision
    if decision is None:
        facts["damaged"] = "what is stored is no decision"
    else:
        brief = brief_names(decision)
        facts["winner"] = brief(decision.name)
        if decision.measured_on is not None:
            facts["measured on"] = own_key_text(decision.measured_on)
        facts["limit"] = format_seconds(decision.limit_s)
        for bound in decision.bounds.bounds if decision.bounds else ():
            facts[f"bound {bound.resource}"] = format_bound(bound)
        facts["short circuit"] = "yes" if decision.short_circuit else "no"
        if decision.tie_break is not None:
            facts["tie"] = brief(f"over {decision.tie_break.loser}, {decision.tie_break.sure} sure")
        if decision.bad:
            facts["bad"] = brief(decision.bad)
    for name, value in facts.items():
        first, *more = printable_lines(str(value)).split("\n")
        yield from wrapped(f"{name:14} {first}", " " * 15)
        yield from (f"{'':14} {line}" for line in more)
    if decision is not None:
        yield from _evidence_lines(decision)


def _evidence_lines(decision: Decision) -> Iterator[str]:
    """The candidates with samples, best first; then the others, those with one reason together."""
    from rooftune.spec.brief import brief_names
    from rooftune.store.browse import printable

    brief = brief_names(decision)
    rows = [_evidence_row(decision, evidence, brief(evidence.name)) for evidence in decision.ranking]
    yield from [""] if rows else []
    yield from named_rows(_EVIDENCE, rows, right=_EVIDENCE[2:])
    for remark in smaller_medians(decision):
        yield from wrapped(f"    {printable(brief(remark))}", "    ")
    others: dict[str, list[str]] = {}
    for evidence in decision.evidence:
        if not evidence.timed:
            why = f"{evidence.outcome}: {evidence.reason}" if evidence.reason else evidence.outcome
            others.setdefault(why, []).append(f"{evidence.index:>3} {printable(brief(evidence.name))}")
    for why, names in others.items():
        yield ""
        yield from wrapped(printable_lines(brief(why)), "    ")
        for name in names:
            yield from wrapped(name, "    ")


_EVIDENCE = ("  # CANDIDATE", "OUTCOME", "SAMPLES", "MEDIAN", "ROOF")


def _evidence_row(decision: Decision, evidence: Evidence, name: str) -> list[str]:
    from rooftune.store.browse import printable

    share = decision.share_of(evidence)
    return [
        f"{evidence.index:>3} {printable(name)}",
        evidence.outcome,
        str(len(evidence.samples)),
        _time(evidence.median_s),
        f"{share:.0%}" if share else "-",
    ]


def printable_lines(text: str) -> str:
    """Text with its line breaks, as compilers write them, and without other control characters."""
    from rooftune.store.browse import printable

    return "\n".join(printable(line.expandtabs()) for line in text.splitlines())


_FIRST = ("command", "key", "winner", "median_s", "limit_s", "kernels")
_TIMES = ("median_s", "limit_s", "wall_s", "seconds")
_LABELS = {"median_s": "median", "limit_s": "limit", "wall_s": "took", "seconds": "took"}


def _log_lines(record: dict[str, Any]) -> Iterator[str]:
    from rooftune.store.browse import named_key, own_key_text, printable

    names = [name for name in _FIRST if name in record]
    names += [name for name in record if name not in (*_FIRST, "kind", "at", "tuner")]
    shown = {name: record[name] for name in names if record[name] not in ([], None)}
    if "key" in shown:
        tuner, key = record.get("tuner"), shown["key"]
        shown["key"] = named_key(tuner, key) if isinstance(tuner, str) else own_key_text(key)
    shown |= {name: _time(shown[name]) for name in _TIMES if name in shown}
    if "kernels" in shown:
        shown["kernels"] = shown["kernels"].replace(";", " ")
    said = ", ".join(f"{_LABELS.get(name, name)} {_said(value)}" for name, value in shown.items())
    yield from wrapped(f"{record['at'][:19]}Z {record['kind']}: {printable(said)}", "    ")


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _time(seconds: float | None) -> str:
    """A time in at most eight columns: 405.90ms."""
    text = format_seconds(seconds)
    number = text.rstrip("nµms")
    if len(text) <= 8 or "." not in number:
        return text
    unit, whole = text[len(number) :], number.partition(".")[0]
    return f"{float(number):.{max(0, 7 - len(unit) - len(whole))}f}{unit}"


def fit(text: str, width: int) -> str:
    """The text, its middle left out where it is too long; a few characters always stay."""
    width = max(width, 12)
    if len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - width :]}"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
