"""Does tuning the same key again choose the same winner, or one as good?

    python -m tests.benchmarks.stability [--device TEXT] [--shapes 64,1000,…] [--runs 10] [--level LEVEL]
                                         [--busy] [--lock FILE] [--json FILE]

Each shape is tuned cold, `--runs` times over; peaks are probed once. Then every winner is sampled against
the one chosen most often, in pairs, and counts as the same when it takes at most 2 % longer.
`--busy` does it all once more while another process keeps one core busy (`--busy-only`: only that); the pairs
are then sampled with that process stopped, for how good a winner is does not depend on who else ran. Nine
runs in ten should agree: the exit code is 1 where fewer do. The JSON has what each run saw of its best two.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rooftune.device.client import Client
from rooftune.matmul.problem import Elem, Shape
from rooftune.shapes_run import random_inputs
from rooftune.tuning.decision import Decision

from .brute_force import runner
from .pairs import compare
from .regret import locked, session_without_memory

AS_GOOD = 1.02
WANTED = 0.9
CPU_SHAPES = "64,256,1000,1024,2048,333,1x4096x4096,4096x1x4096,16x2048x2048,4096x64x1024,128x128x8192,1024T"
GPU_SHAPES = "256,1000,1024,4096,1x4096x4096,128x128x8192"


@dataclass(frozen=True)
class Stability:
    """One shape: who won how often, and how much longer each winner takes than the most frequent one."""

    shape: str
    busy: bool
    wins: dict[str, int]
    ratios: dict[str, float]
    short_circuits: int
    median_cost_s: float
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def agree(self) -> float:
        """The share of runs that chose the most frequent winner, or one as good."""
        good = sum(runs for name, runs in self.wins.items() if self.ratios[name] <= AS_GOOD)
        return good / sum(self.wins.values())


def main() -> int:
    given = _arguments()
    client = Client(given.device)
    shapes = given.shapes or (CPU_SHAPES if client.profile.is_cpu else GPU_SHAPES)
    results = []
    passes = (True,) if given.busy_only else (False, True) if given.busy else (False,)
    for busy in passes:
        with _one_core_busy(busy) as rest:
            for shape in shapes.split(","):
                with locked(given.lock):
                    results.append(_stability(client, shape, given, busy, rest))
                _show(results[-1])
    if given.json:
        rows = [{**asdict(result), "agree": result.agree} for result in results]
        given.json.write_text(json.dumps({"device": client.device_id, "results": rows}, indent=1))
    unsteady = sum(result.agree < WANTED for result in results)
    print(
        f"{len(results) - unsteady} of {len(results)} shapes: the same winner, or one within 2 %, in 9 of 10"
    )
    return 1 if unsteady else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--shapes", help="comma-separated")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--level", default="balanced")
    parser.add_argument("--busy", action="store_true", help="once more with one core kept busy")
    parser.add_argument("--busy-only", action="store_true", help="with one core kept busy, and not without")
    parser.add_argument("--lock", type=Path, help="a file to hold locked while a shape is looked at")
    parser.add_argument("--json", type=Path, help="where to write all results")
    return parser.parse_args()


@contextmanager
def _one_core_busy(busy: bool) -> Iterator[Callable[[], AbstractContextManager[object]]]:
    """Yields what to hold while that core is to be free."""
    if not busy:
        yield nullcontext
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    @contextmanager
    def rest() -> Iterator[None]:
        other.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            other.send_signal(signal.SIGCONT)

    try:
        yield rest
    finally:
        other.kill()
        other.wait()


def _stability(
    client: Client,
    text: str,
    given: argparse.Namespace,
    busy: bool,
    rest: Callable[[], AbstractContextManager[object]],
) -> Stability:
    inputs = random_inputs(client, Shape.parse(text).problem(Elem.F32))
    decisions: list[Decision] = []
    with rest():  # peaks are stored once, whenever that was
        session_without_memory(given.level).bounds(client, inputs)
    for _ in range(given.runs):
        session = session_without_memory(given.level)  # a new one: what a session decided it remembers
        session.bounds(client, inputs)
        outcome = session.decide(client, inputs)
        assert outcome.source == "tuned", outcome.source
        decisions.append(outcome.decision)
    tunables = session.tunables(client)
    wins = Counter(decision.index for decision in decisions)
    usual = wins.most_common(1)[0][0]
    ratios = {usual: 1.0}
    with rest():
        for index in wins:
            if index != usual:
                pair = runner(tunables, index, inputs), runner(tunables, usual, inputs)
                ratios[index] = compare(client, *pair).median
    name = {index: tunables[index].name for index in wins}
    return Stability(
        text,
        busy,
        {name[index]: runs for index, runs in wins.most_common()},
        {name[index]: ratio for index, ratio in ratios.items()},
        sum(decision.short_circuit for decision in decisions),
        median(decision.timings.measure_s for decision in decisions),
        [_seen(decision) for decision in decisions],
    )


def _seen(decision: Decision) -> dict[str, Any]:
    """How the winner won, the samples of the best two in seconds, and why others were not in the end."""
    return {
        "winner": decision.name,
        "short_circuit": decision.short_circuit,
        "tie_break": decision.tie_break.to_json() if decision.tie_break else None,
        "samples": {e.name: list(e.samples) for e in decision.ranking[:2]},
        "out": {e.name: [e.reason, *e.samples] for e in decision.evidence if e.outcome == "dropped"},
        "not_tried": {e.name: e.reason for e in decision.evidence if e.outcome == "skipped"},
    }


def _show(result: Stability) -> None:
    who = ", ".join(
        f"{name.removeprefix('matmul_')} {runs}x" + f" ({result.ratios[name]:.2f})"
        for name, runs in result.wins.items()
    )
    print(
        f"{result.shape:<16} {'busy' if result.busy else '':<5} {result.agree:4.0%}  {who}; "
        f"{result.short_circuits} short circuits, {result.median_cost_s * 1e3:.0f} ms each",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
