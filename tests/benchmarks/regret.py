"""Regret of the tuned choice against the exhaustive best, and what tuning cost against measuring everything.

    python -m tests.benchmarks.regret [--device TEXT] [--levels balanced,extensive] [--only TEXT]
                                      [--rounds 9] [--json FILE]

For each case every supported candidate is sampled, interleaved, once a round; candidates that take
ten times the best are left out after the first. The tuned choice (a fresh tuning, nothing stored) and
the exhaustive best are then sampled in pairs, A B B A, and the regret is the ratio of their medians.
A regret above 1.02 is put down to its cause: the short circuit, a better candidate in a round that
was never reached, or noise (the better one was measured and lost).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median

from rooftune.config import Config, load_config
from rooftune.device.client import Client
from rooftune.errors import RooftuneError, UnsupportedError
from rooftune.matmul.problem import Elem, Shape
from rooftune.matmul.tunables import MatmulInputs
from rooftune.session import Session
from rooftune.shapes_run import random_inputs
from rooftune.tuning.decision import Decision
from rooftune.tuning.tunable import TunableSet

HOPELESS = 10.0
NOTABLE = 1.02
PAIRS = 8

SHAPES_F32 = [
    "64",
    "128",
    "256",
    "512",
    "768",
    "1000",
    "1024",
    "1536",
    "2048",
    "1x4096x4096",
    "1x4096x4096T",
    "4096x1x4096",
    "4096x1x4096t",
    "16x2048x2048",
    "2048x16x2048",
    "4096x64x1024",
    "64x4096x1024",
    "128x128x8192",
    "64x64x65536",
    "32x32x16384",
    "1x1x100000",
    "256x256x4096",
    "333",
    "1023",
    "1025",
    "511x513x515",
    "97x1031x63",
    "1024T",
    "1024t",
    "512tT",
    "1000x500x2000tT",
    "1024x1024x1",
    "1024x1024x16",
    "4096x4096x64",
]
SHAPES_F16 = ["256", "512", "1000", "1024", "1024T", "1x4096x4096", "64x4096x1024", "128x128x4096"]
BATCHED = (("32", 32), ("64", 16), ("128", 8), ("256x64x128", 4))


@dataclass(frozen=True)
class Case:
    shape: str
    dtype: str = "f32"
    batch: int = 1

    @property
    def label(self) -> str:
        return f"{self.shape} {self.dtype}" + (f" batch {self.batch}" if self.batch > 1 else "")


@dataclass(frozen=True)
class Regret:
    """One case at one level. Times in seconds; `cost_s` without probes, as `exhaustive_s`."""

    case: str
    level: str
    chosen: str
    best: str
    chosen_s: float
    best_s: float
    regret: float
    spread: float
    cause: str
    cost_s: float
    exhaustive_s: float


CASES = (
    *(Case(shape) for shape in SHAPES_F32),
    *(Case(shape, "f16") for shape in SHAPES_F16),
    *(Case(shape, "f32", batch) for shape, batch in BATCHED),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device")
    parser.add_argument("--levels", default="balanced,extensive")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    client = Client(given.device)
    results: list[Regret] = []
    for case in CASES:
        if given.only in case.label:
            results += _case(client, case, given.levels.split(","), given.rounds)
    summary = {level: _summary([r for r in results if r.level == level]) for level in given.levels.split(",")}
    for level, line in summary.items():
        print(f"{level}: " + ", ".join(f"{name} {value:.3f}" for name, value in line.items()))
    if given.json:
        record = {"device": client.device_id, "summary": summary, "results": [asdict(r) for r in results]}
        given.json.write_text(json.dumps(record, indent=1))


def _case(client: Client, case: Case, levels: list[str], rounds: int) -> list[Regret]:
    problem = Shape.parse(case.shape).problem(Elem.parse(case.dtype), batch=case.batch)
    inputs = random_inputs(client, problem)
    sessions = {level: _session(client, level) for level in levels}
    sets = {level: session.tunables(client) for level, session in sessions.items()}
    decisions: dict[str, Decision] = {}
    for level, session in sessions.items():
        try:
            decisions[level] = session.decide(client, inputs).decision
        except RooftuneError as error:
            print(f"{case.label} {level}: {error}", file=sys.stderr)
    began = time.perf_counter()
    medians = _exhaustive(client, next(iter(sets.values())), inputs, rounds)
    exhaustive_s = time.perf_counter() - began
    best = min(medians, key=lambda index: medians[index])
    found = []
    for level, decision in decisions.items():
        regret = _compare(client, sets[level], inputs, case, level, decision, best, exhaustive_s)
        print(
            f"{regret.case:<26} {level:<9} {regret.regret:6.3f} ±{regret.spread:5.3f}  "
            f"{regret.chosen.removeprefix('matmul_'):<28} best {regret.best.removeprefix('matmul_'):<28} "
            f"cost {regret.cost_s:6.2f}s of {regret.exhaustive_s:6.2f}s  {regret.cause}",
            flush=True,
        )
        found.append(regret)
    return found


def _session(client: Client, level: str) -> Session:
    config: Config = load_config().override(level=level)
    config = replace(config, autotune=replace(config.autotune, disable_cache=True))
    return Session(config)


def _exhaustive(client: Client, tunables: TunableSet, inputs: MatmulInputs, rounds: int) -> dict[int, float]:
    """Median seconds of every candidate that can run and is not hopeless."""
    runs: dict[int, Callable[[], object]] = {}
    first: dict[int, float] = {}
    for index in _likely_first(tunables):
        tunable = tunables[index]
        run = _runner(tunables, index, inputs)
        try:
            warm = client.sample(run)
            if warm > 2 * HOPELESS * min(first.values(), default=warm):
                continue
            first[index] = client.sample(run)
        except UnsupportedError:
            continue
        except Exception as error:
            print(f"  {tunable.name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        runs[index] = run
    fastest = min(first.values())
    live = [index for index in runs if first[index] <= HOPELESS * fastest]
    repeats = {index: max(1, min(64, round(100e-6 / first[index]))) for index in live}
    samples: dict[int, list[float]] = {index: [] for index in live}
    for _ in range(rounds):
        for index in live:
            samples[index].append(client.sample(runs[index], repeats[index]))
    return {index: median(values) for index, values in samples.items()}


def _likely_first(tunables: TunableSet) -> list[int]:
    """Candidates of the cpu and accelerated groups first, so that hopeless ones are known as such early."""
    groups = [{group.name for group, _ in tunable.memberships} for tunable in tunables.tunables]
    return sorted(range(len(groups)), key=lambda index: not groups[index] & {"cpu", "accelerated", "gemv"})


def _runner(tunables: TunableSet, index: int, inputs: MatmulInputs) -> Callable[[], object]:
    return lambda: tunables[index].fn(inputs)


def _compare(
    client: Client,
    tunables: TunableSet,
    inputs: MatmulInputs,
    case: Case,
    level: str,
    decision: Decision,
    best: int,
    exhaustive_s: float,
) -> Regret:
    chosen = decision.index
    a, b = _runner(tunables, chosen, inputs), _runner(tunables, best, inputs)
    once = client.sample(b)
    repeats = max(1, min(64, round(100e-6 / once)))
    of_a: list[float] = []
    of_b: list[float] = []
    for turn in range(PAIRS if chosen != best else 1):
        for run, into in ((a, of_a), (b, of_b)) if turn % 2 == 0 else ((b, of_b), (a, of_a)):
            into.append(client.sample(run, repeats))
    ratios = sorted(x / y for x, y in zip(of_a, of_b, strict=True))
    regret = 1.0 if chosen == best else max(1.0, median(of_a) / median(of_b))
    spread = 0.0 if chosen == best else (ratios[-2] - ratios[1]) / 2
    spent = decision.timings
    return Regret(
        case.label,
        level,
        decision.name,
        tunables[best].name,
        median(of_a),
        median(of_b),
        regret,
        spread,
        _cause(decision, best, regret),
        spent.compile_s + spent.measure_s + spent.prove_s,
        exhaustive_s,
    )


def _cause(decision: Decision, best: int, regret: float) -> str:
    if regret <= NOTABLE:
        return ""
    if not decision.evidence[best].timed:
        return "short circuit" if decision.short_circuit else "round never reached"
    return "short circuit" if decision.short_circuit else "noise"


def _summary(results: list[Regret]) -> dict[str, float]:
    if not results:
        return {}
    return {
        "geometric mean": exp(sum(log(r.regret) for r in results) / len(results)),
        "worst": max(r.regret for r in results),
        "cost share": sum(r.cost_s for r in results) / sum(r.exhaustive_s for r in results),
        "mean cost share": sum(r.cost_s / r.exhaustive_s for r in results) / len(results),
    }


if __name__ == "__main__":
    main()
