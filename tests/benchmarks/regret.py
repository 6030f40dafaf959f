"""Regret of the tuned choice against the exhaustive best, and what tuning cost against measuring everything.

    python -m tests.benchmarks.regret [--device TEXT] [--levels balanced,extensive] [--only TEXT]
                                      [--rounds 9] [--budget 1.5] [--jobs N] [--lock FILE] [--json FILE]

For each case every supported candidate is compiled and sampled, interleaved, once a round; those that
take ten times the best are left out after their first run. Then each level tunes the key afresh, nothing
stored. Its choice and the exhaustive best are sampled in 8 pairs, A B B A, and the regret is the median of
the pairs' ratios; above 1.02 it is taken anew, from 24 pairs. What stays above 1.02 is put down to its
cause: the short circuit, a better candidate in a round that was never reached, one dropped or left out, or
noise (the better one was measured to the end and lost).

The cost of a choice is the time to compile and first run each candidate it looked at, as that took in the
exhaustive part, and the time it measured. The cost of everything is the same over all candidates. Probes
and proofs count on neither side. `--lock` names a file that is held locked while a case is sampled (not while
it is compiled), on a machine shared with others that take it too. Compiled programs are taken from no cache
and left in none; with `--jobs` (a GPU with dozens of slow compilations) all are compiled beforehand in so
many processes and kept, and compiling counts on neither side.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import exp, log
from pathlib import Path
from statistics import median

from rooftune.config import Config, load_config
from rooftune.device.binaries import BinaryCache
from rooftune.device.client import Client
from rooftune.errors import RooftuneError, UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.problem import Elem, Shape
from rooftune.matmul.tunables import MatmulCandidates, MatmulInputs
from rooftune.session import Session
from rooftune.shapes_run import random_inputs
from rooftune.tuning.decision import Decision
from rooftune.tuning.tunable import TunableSet

HOPELESS = 10.0
NOTABLE = 1.02
PAIRS = 8
LEAST_WINDOW_S = 100e-6

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
    """One case at one level. Times in seconds; `cost_s` and `exhaustive_s` without probes and proofs."""

    case: str
    level: str
    chosen: str
    best: str
    chosen_s: float
    best_s: float
    regret: float
    spread: float
    cause: str
    measured: int
    cost_s: float
    exhaustive_s: float


@dataclass
class Everything:
    """All candidates of a case measured: seconds to a first result, and medians where not hopeless."""

    first_result_s: dict[int, float] = field(default_factory=dict)
    once_s: dict[int, float] = field(default_factory=dict)
    medians: dict[int, float] = field(default_factory=dict)
    wall_s: float = 0.0

    @property
    def best(self) -> int:
        return min(self.medians, key=lambda index: self.medians[index])


CASES = (
    *(Case(shape) for shape in SHAPES_F32),
    *(Case(shape, "f16") for shape in SHAPES_F16),
    *(Case(shape, "f32", batch) for shape, batch in BATCHED),
)


def main() -> None:
    given = _arguments()
    levels = given.levels.split(",")
    results: list[Regret] = []
    cases = [case for case in CASES if given.only in case.label]
    if given.shard is not None:
        _compile(Client(given.device), cases, *map(int, given.shard.split("/")))
        return
    if given.jobs:
        _compile_in_processes(given.jobs)
    kept = Client(given.device) if given.jobs else None
    for case in cases:
        with nullcontext(kept) if kept else fresh_client(given.device) as client:
            results += _case(client, case, levels, given)
            _write(given.json, client, levels, results)
        gc.collect()  # sessions and their scratch buffers
    for level, line in _summaries(levels, results).items():
        print(f"{level}: " + ", ".join(f"{name} {value}" for name, value in line.items()))


@contextmanager
def fresh_client(device: str | None) -> Iterator[Client]:
    """A client that finds no compiled programs."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POCL_CACHE_DIR"] = folder
        yield Client(device, binaries=BinaryCache(Path(folder)))


def _write(path: Path | None, client: Client, levels: list[str], results: list[Regret]) -> None:
    if path is not None:
        summaries = _summaries(levels, results)
        record = {
            "device": client.device_id,
            "summary": summaries,
            "results": [asdict(r) for r in results],
        }
        path.write_text(json.dumps(record, indent=1))


def _summaries(levels: list[str], results: list[Regret]) -> dict[str, dict[str, object]]:
    return {level: _summary([r for r in results if r.level == level]) for level in levels}


def _compile_in_processes(jobs: int) -> None:
    """Compiles all programs of all cases into the user's cache, in so many processes."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.regret", *sys.argv[1:]]
    running = [subprocess.Popen([*command, "--shard", f"{shard}/{jobs}"]) for shard in range(jobs)]
    for process in running:
        process.wait()
    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)


def _compile(client: Client, cases: list[Case], shard: int, shards: int) -> None:
    """Compiles every `shards`-th candidate for all cases."""
    candidates = MatmulCandidates(client)
    for index, case in product(range(shard, len(CANDIDATES), shards), cases):
        problem = Shape.parse(case.shape).problem(Elem.parse(case.dtype), batch=case.batch)
        with suppress(UnsupportedError, RooftuneError):
            candidates.prepared(CANDIDATES[index], problem)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--levels", default="balanced,extensive")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each candidate")
    parser.add_argument("--budget", type=float, default=1.5, help="seconds of sampling a case, about")
    parser.add_argument("--lock", type=Path, help="a file to hold locked while a case is sampled")
    parser.add_argument("--jobs", type=int, default=0, help="compile everything first, in so many processes")
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="where to write all results")
    return parser.parse_args()


@contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Holds the file locked; None: nothing is held."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def session_without_memory(level: str) -> Session:
    """A session that stores no decisions and proves nothing; probe results are kept as always."""
    config: Config = load_config().override(level=level)
    return Session(
        replace(
            config,
            autotune=replace(config.autotune, disable_cache=True),
            proof=replace(config.proof, mode="off"),
        )
    )


def _case(client: Client, case: Case, levels: list[str], given: argparse.Namespace) -> list[Regret]:
    problem = Shape.parse(case.shape).problem(Elem.parse(case.dtype), batch=case.batch)
    inputs = random_inputs(client, problem)
    sessions = {level: session_without_memory(level) for level in levels}
    everything = first_results(client, next(iter(sessions.values())).tunables(client), inputs)
    found: list[Regret] = []
    with locked(given.lock):
        next(iter(sessions.values())).bounds(client, inputs)
        sample_all(client, next(iter(sessions.values())).tunables(client), inputs, everything, given)
        for level, session in sessions.items():
            tunables = session.tunables(client)
            try:
                outcome = session.decide(client, inputs)
            except RooftuneError as error:
                print(f"{case.label} {level}: {error}", file=sys.stderr)
                continue
            assert outcome.source == "tuned", outcome.source
            found.append(_compare(client, tunables, inputs, case, level, outcome.decision, everything))
    for regret in found:
        _show(regret)
    return found


def _show(regret: Regret) -> None:
    print(
        f"{regret.case:<24} {regret.level:<9} {regret.regret:6.3f} ±{regret.spread:5.3f}  "
        f"{regret.chosen.removeprefix('matmul_'):<26} best {regret.best.removeprefix('matmul_'):<26} "
        f"cost {regret.cost_s:6.2f} s of {regret.exhaustive_s:6.2f} s  {regret.cause}",
        flush=True,
    )


def first_results(client: Client, tunables: TunableSet, inputs: MatmulInputs) -> Everything:
    """Compiles and runs every candidate that can run; hopeless ones once only."""
    found = Everything()
    for index in _likely_first(tunables):
        run = _runner(tunables, index, inputs)
        try:
            start = time.perf_counter()
            warm_s = client.sample(run)
            found.first_result_s[index] = time.perf_counter() - start
            if warm_s <= 2 * HOPELESS * min(found.once_s.values(), default=warm_s):
                found.once_s[index] = client.sample(run)
        except UnsupportedError:
            continue
        except Exception as error:
            print(f"  {tunables[index].name}: {type(error).__name__}: {error}", file=sys.stderr)
    found.wall_s = sum(found.first_result_s.values()) + sum(found.once_s.values())
    return found


def sample_all(
    client: Client,
    tunables: TunableSet,
    inputs: MatmulInputs,
    everything: Everything,
    given: argparse.Namespace,
) -> None:
    """Samples all that are not hopeless, interleaved; at least three times each, within the budget."""
    once_s = everything.once_s
    bar_s = HOPELESS * min(once_s.values())
    live = [index for index in sorted(once_s) if once_s[index] <= bar_s]
    samples: dict[int, list[float]] = {index: [] for index in live}
    began = time.perf_counter()
    for turn in range(given.rounds):
        if turn >= 3 and time.perf_counter() - began > given.budget:
            break
        for index in live if turn % 2 == 0 else reversed(live):
            samples[index].append(client.sample(_runner(tunables, index, inputs), _repeats(once_s[index])))
    everything.medians = {index: median(values) for index, values in samples.items()}
    everything.wall_s += time.perf_counter() - began


def _likely_first(tunables: TunableSet) -> list[int]:
    """Candidates of specialised groups first, so that hopeless ones are known as such early."""
    groups = [{group.name for group, _ in tunable.memberships} for tunable in tunables.tunables]
    return sorted(range(len(groups)), key=lambda index: not groups[index] & {"cpu", "accelerated", "gemv"})


def _runner(tunables: TunableSet, index: int, inputs: MatmulInputs) -> Callable[[], object]:
    return lambda: tunables[index].fn(inputs)


def _repeats(seconds: float) -> int:
    return max(1, min(64, round(LEAST_WINDOW_S / seconds)))


def paired_ratios(
    client: Client, tunables: TunableSet, inputs: MatmulInputs, first: int, second: int, pairs: int = PAIRS
) -> tuple[list[float], float, float]:
    """Ratios first / second of samples taken in pairs, A B B A, sorted; and both medians in seconds."""
    a, b = _runner(tunables, first, inputs), _runner(tunables, second, inputs)
    client.sample(a)
    repeats = _repeats(client.sample(b))
    of_a: list[float] = []
    of_b: list[float] = []
    with client.exclusive():
        for turn in range(pairs):
            for run, into in ((a, of_a), (b, of_b)) if turn % 2 == 0 else ((b, of_b), (a, of_a)):
                into.append(client.sample(run, repeats))
    return sorted(x / y for x, y in zip(of_a, of_b, strict=True)), median(of_a), median(of_b)


def _compare(
    client: Client,
    tunables: TunableSet,
    inputs: MatmulInputs,
    case: Case,
    level: str,
    decision: Decision,
    everything: Everything,
) -> Regret:
    chosen, best = decision.index, everything.best
    pairs = PAIRS if chosen != best else 1
    ratios, chosen_s, best_s = paired_ratios(client, tunables, inputs, chosen, best, pairs)
    if chosen != best and median(ratios) > NOTABLE:
        ratios, chosen_s, best_s = paired_ratios(client, tunables, inputs, chosen, best, 3 * PAIRS)
    regret = 1.0 if chosen == best else max(1.0, median(ratios))
    looked_at = [e.index for e in decision.evidence if e.samples]
    return Regret(
        case.label,
        level,
        decision.name,
        tunables[best].name,
        chosen_s,
        best_s,
        regret,
        0.0 if chosen == best else _half_spread(ratios),
        _cause(decision, best, regret),
        len(looked_at),
        decision.timings.measure_s + sum(everything.first_result_s.get(index, 0.0) for index in looked_at),
        everything.wall_s,
    )


def _half_spread(ratios: list[float]) -> float:
    """Half the distance between the quartiles of sorted ratios."""
    return (ratios[-1 - len(ratios) // 4] - ratios[len(ratios) // 4]) / 2


def _cause(decision: Decision, best: int, regret: float) -> str:
    if regret <= NOTABLE:
        return ""
    if decision.short_circuit:
        return "short circuit"
    evidence = decision.evidence[best]
    if evidence.outcome == "dropped":
        return "dropped"
    if not evidence.timed:
        return f"not measured: {evidence.reason}"
    return "noise"


def _summary(results: list[Regret]) -> dict[str, object]:
    if not results:
        return {}
    worst = max(results, key=lambda r: r.regret)
    causes = [r.cause for r in results if r.cause]
    return {
        "cases": len(results),
        "geometric_mean": round(exp(sum(log(r.regret) for r in results) / len(results)), 4),
        "worst": round(worst.regret, 4),
        "worst_case": worst.case,
        "above_1.02": len(causes),
        "causes": {cause: causes.count(cause) for cause in sorted(set(causes))},
        "cost_share": round(sum(r.cost_s for r in results) / sum(r.exhaustive_s for r in results), 4),
        "mean_cost_share": round(sum(r.cost_s / r.exhaustive_s for r in results) / len(results), 4),
    }


if __name__ == "__main__":
    main()
