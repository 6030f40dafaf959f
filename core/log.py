"""The log for people: each decision in a sentence, or with what became of every candidate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from .config import LoggerConfig
from .store.browse import named_key, printable
from .tuning.decision import Decision
from .units import time_text

_LINE_START = "\r\x1b[K"
"""Begins the line anew: progress may stand in it."""
Sink = Callable[[Decision], object]


def log_sinks(config: LoggerConfig, json_stdout: bool = False) -> list[Sink]:
    """Where the log goes. With `json_stdout` what is meant for stdout goes to stderr."""
    if config.level == "disabled":
        return []
    full = config.level == "full"
    sinks: list[Sink] = []
    if config.stdout:
        sinks.append(partial(_print, sys.stderr if json_stdout else sys.stdout, full))
    if config.stderr:
        sinks.append(partial(_print, sys.stderr, full))
    if config.file is not None:
        sinks.append(partial(_append, config.file, full))
    return sinks


def entry(tuner: str, record: Mapping[str, Any], *, full: bool) -> Iterator[str]:
    """The lines for a tuner's decision, by its record: one, with `full` one more for each that was tried."""
    outcomes = [result["outcome"] for result in record["results"]]
    measured = [outcome["Ok"] for outcome in outcomes if "Ok" in outcome]
    errors = [outcome["Err"] for outcome in outcomes if "Err" in outcome]
    winner = next((each for each in measured if each["index"] == record["fastest_index"]), None)
    won = f"{winner['name']}, {_time(winner)}" if winner else "the only candidate, not measured"
    said = f"tuned {named_key(tuner, record['key'])} on {record['device']} at level {record['level']}"
    yield printable(f"{record['at']} {said}: {won}; {len(measured)} of {len(outcomes)} candidates measured")
    if not full:
        return
    for each in measured:
        yield printable(f"    {_time(each):>10}  {each['name']}")
    for failed in (error["Unknown"] for error in errors if "Unknown" in error):
        reason = failed["err"].partition("\n")[0]
        yield printable(f"    {'failed':>10}  {failed['name']}: {reason}")


def _time(measured: Mapping[str, Any]) -> str:
    median = measured["computation"]["median"]
    return time_text(median["secs"] + median["nanos"] / 1e9, digits=4)


def _print(stream: TextIO, full: bool, decision: Decision) -> None:
    if stream.isatty():
        stream.write(_LINE_START)
    for line in entry(decision.tuner, decision.record(), full=full):
        print(line, file=stream, flush=True)


def _append(path: Path, full: bool, decision: Decision) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in entry(decision.tuner, decision.record(), full=full))
