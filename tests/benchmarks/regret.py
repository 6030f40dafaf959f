"""Regret of the tuned choice against the exhaustive best, and what tuning cost against measuring everything.

    python -m tests.benchmarks.regret [--device TEXT] [--levels balanced,extensive] [--only TEXT,TEXT…]
                                      [--rounds 10] [--budget 1.5] [--pair-budget 8] [--jobs N] [--lock FILE]
                                      [--cases FROM:TO] [--stop-after SECONDS] [--json FILE] [--add]
    python -m tests.benchmarks.regret --merge FILE,FILE… [--json FILE]

For each case every supported candidate is compiled and sampled, interleaved, once a round; those that
take ten times the best are left out after their first run. Then each level tunes the key afresh, nothing
stored. Its choice is compared with the exhaustive best in pairs, more of them while the interval of
the median ratio is wide; the regret is that median, never below 1. Where several candidates lie within 5 % of
the best, the one that does best against the choice in a first series of pairs is taken, and compared anew.
What stays above 1.02 is put down to its cause: the short circuit, a better candidate in a round that was
never reached, one dropped or left out, or noise (the better one was measured to the end and lost).

The cost of a choice is the time to compile each candidate it looked at, as that took in the exhaustive part,
and the time it measured. It is given as a share of two things. *Brute force* compiles every supported
candidate, warms it up once and takes ten samples, the tuner's own maximum, of each; of a hopeless one, a
sample is reckoned to take the device time of its first run. *Lean* is what this benchmark does itself:
hopeless ones run once only. Probes and proofs count on no side. `--lock` names a file that is held locked,
shared while a case is compiled and for itself alone while it is sampled, on a machine shared with others that
take it too. Each case has a process of its own, in which a tiny kernel has woken the compiler, as the probes
do before a tuner compiles; programs are taken from no cache and left in none. With `--jobs` (a GPU with many
slow compilations) all cases share one process, all is compiled beforehand in so many others and kept, and
what that took there counts. Either way it is wall time of one compilation after another, on both sides, and
what several candidates share is compiled and counted once. *Side by side* is the same with four compilers at
once on both sides, as many as a tuner has proof workers.

Also looked at: whether any candidate's median lies below its floor, which would be a defect. A long list can
be run in pieces with `--cases` and, should time be short, `--stop-after`, which begins no further case;
`--merge` sums up the pieces.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from math import exp, log
from pathlib import Path

from rooftune.config import Config, load_config
from rooftune.device.binaries import BinaryCache
from rooftune.device.client import Client
from rooftune.errors import RooftuneError, UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.problem import Elem, Shape
from rooftune.matmul.tunables import MatmulInputs
from rooftune.session import Session
from rooftune.shapes_run import random_inputs
from rooftune.tuning.decision import Decision
from rooftune.tuning.tunable import TunableSet

from .brute_force import Everything, compile_all, programs_in, runner, sample_all
from .pairs import Ratio, compare

NOTABLE = 1.02

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
    """One case at one level. Times in seconds; costs without probes and proofs.

    `low` and `high` bound the ratio with 95 % confidence, `spread` is half the distance of its quartiles.
    """

    case: str
    level: str
    chosen: str
    best: str
    chosen_s: float
    best_s: float
    regret: float
    low: float
    high: float
    spread: float
    pairs: int
    cause: str
    measured: int
    compile_s: float
    measure_s: float
    brute_force_s: float
    lean_s: float
    side_by_side_s: float = 0.0
    brute_force_side_by_side_s: float = 0.0
    below_floor: dict[str, float] = field(default_factory=dict)

    @property
    def cost_s(self) -> float:
        return self.compile_s + self.measure_s


CASES = (
    *(Case(shape) for shape in SHAPES_F32),
    *(Case(shape, "f16") for shape in SHAPES_F16),
    *(Case(shape, "f32", batch) for shape, batch in BATCHED),
)


def main() -> None:
    given = _arguments()
    levels = given.levels.split(",")
    if given.merge:
        _merge(given, levels)
        return
    cases = chosen_cases(given.only)[_slice(given.cases)]
    if given.shard is not None:
        _compile(client_with(given.device, given.programs), cases, *map(int, given.shard.split("/")))
        return
    results = _kept(given.json, cases) if given.add else []
    started = time.monotonic()
    together = given.jobs or given.alone
    for found in _here(cases, levels, given) if together else _each_alone(cases, given):
        results += found
        _write(given.json, given.device, levels, results)
        if time.monotonic() - started > given.stop_after:
            break
    if not given.alone:
        _show_summaries(levels, results)


def _here(cases: list[Case], levels: list[str], given: argparse.Namespace) -> Iterator[list[Regret]]:
    """All cases in this process."""
    with no_programs_kept() as folder:
        compiled_s = _compile_in_processes(given.jobs, folder) if given.jobs else {}
        kept = client_with(given.device, folder) if given.jobs else None
        for case in cases:
            with nullcontext(kept) if kept else fresh_client(given.device, folder) as client:
                if not kept:
                    client.warm_up()
                yield _case(client, case, levels, given, compiled_s.get(case.label, {}))
            gc.collect()  # sessions and their scratch buffers


def _each_alone(cases: list[Case], given: argparse.Namespace) -> Iterator[list[Regret]]:
    """Each case in a process of its own: what one compiled would be half compiled for the next."""
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            answer = Path(folder, f"{number}.json")
            command = [sys.executable, "-m", "tests.benchmarks.regret", *sys.argv[1:], "--alone"]
            ran = subprocess.run([*command, "--only", case.label, "--cases", ":", "--json", str(answer)])
            if ran.returncode or not answer.exists():
                print(f"{case.label}: its process ended with {ran.returncode}", file=sys.stderr)
                continue
            yield [Regret(**row) for row in json.loads(answer.read_text())["results"]]


def _merge(given: argparse.Namespace, levels: list[str]) -> None:
    records = [json.loads(Path(name).read_text()) for name in given.merge.split(",")]
    rows = {(row["case"], row["level"]): row for record in records for row in record["results"]}
    results = [Regret(**row) for row in rows.values()]
    _write(given.json, records[0]["device"], levels, results)
    _show_summaries(levels, results)


def _slice(text: str) -> slice:
    """FROM:TO, either of which may be left out."""
    begin, _, end = text.partition(":")
    return slice(int(begin or 0), int(end) if end else None)


def _show_summaries(levels: list[str], results: list[Regret]) -> None:
    for level, line in _summaries(levels, results).items():
        print(f"{level}: " + ", ".join(f"{name} {value}" for name, value in line.items()))


def chosen_cases(only: str) -> list[Case]:
    """Cases whose label is one of these, or, where none is exactly that, contains it."""
    found = []
    for text in only.split(","):
        exact = [case for case in CASES if case.label in (text, f"{text} f32")]
        found += exact or [case for case in CASES if text in case.label]
    return [case for case in CASES if case in found]


@contextmanager
def no_programs_kept() -> Iterator[Path]:
    """A folder for compiled programs; PoCL and NVIDIA's driver read once in a process where theirs is."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["POCL_CACHE_DIR"] = f"{folder}/pocl"
        os.environ["CUDA_CACHE_PATH"] = f"{folder}/nvidia"
        yield Path(folder)


def client_with(device: str | None, folder: Path) -> Client:
    """A client that has its compiled programs in this folder."""
    for needed in ("pocl", "ours", "nvidia"):
        (folder / needed).mkdir(parents=True, exist_ok=True)
    return Client(device, binaries=BinaryCache(folder / "ours"))


@contextmanager
def fresh_client(device: str | None, folder: Path) -> Iterator[Client]:
    """A client that finds no compiled programs."""
    for kept in folder.iterdir():
        shutil.rmtree(kept, ignore_errors=True)
    yield client_with(device, folder)


def _kept(path: Path, cases: list[Case]) -> list[Regret]:
    """What a file has of other cases."""
    rows = json.loads(path.read_text())["results"] if path.exists() else []
    anew = {case.label for case in cases}
    return [Regret(**row) for row in rows if row["case"] not in anew]


def _write(path: Path | None, device: str | None, levels: list[str], results: list[Regret]) -> None:
    if path is not None:
        summaries = _summaries(levels, results)
        record = {
            "device": device,
            "summary": summaries,
            "results": [asdict(r) for r in results],
        }
        path.write_text(json.dumps(record, indent=1))


def _summaries(levels: list[str], results: list[Regret]) -> dict[str, dict[str, object]]:
    return {level: _summary([r for r in results if r.level == level]) for level in levels}


def _compile_in_processes(jobs: int, folder: Path) -> dict[str, dict[int, float]]:
    """Compiles all programs of all cases into the folder, in so many processes.

    Returns the seconds that took, by case and candidate, also where an earlier case needed the programs.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.regret", *sys.argv[1:]]
    running = [
        subprocess.Popen(
            [*command, "--shard", f"{shard}/{jobs}", "--programs", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for shard in range(jobs)
    ]
    taken_s: dict[str, dict[int, float]] = {}
    for process in running:
        for line in process.communicate()[0].splitlines():
            label, index, seconds = line.split("\t")
            taken_s.setdefault(label, {})[int(index)] = float(seconds)
    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)
    return taken_s


def _compile(client: Client, cases: list[Case], shard: int, shards: int) -> None:
    """Compiles every `shards`-th candidate for all cases, and prints what each took."""
    took_s: dict[tuple[str, tuple[str, ...]], float] = {}
    for index in range(shard, len(CANDIDATES), shards):
        for case in cases:
            problem = Shape.parse(case.shape).problem(Elem.parse(case.dtype), batch=case.batch)
            with suppress(UnsupportedError, RooftuneError):
                plan = CANDIDATES[index].plan(problem, client.profile)
                for call in plan.calls:
                    if (call.source, call.options) not in took_s:
                        began = time.perf_counter()
                        client.build(call.source, call.options, call.rewrite)
                        took_s[call.source, call.options] = time.perf_counter() - began
                seconds = sum(took_s[program] for program in programs_in(plan))
                print(case.label, index, seconds, sep="\t", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--levels", default="balanced,extensive")
    parser.add_argument("--only", default="", help="cases with these labels, or labels that contain this")
    parser.add_argument("--rounds", type=int, default=10, help="samples of each candidate")
    parser.add_argument("--budget", type=float, default=1.5, help="seconds of sampling a case, about")
    parser.add_argument(
        "--pair-budget", type=float, default=8.0, help="seconds of pairs a comparison, at most"
    )
    parser.add_argument("--lock", type=Path, help="a file to hold locked while a case is sampled")
    parser.add_argument("--jobs", type=int, default=0, help="compile everything first, in so many processes")
    parser.add_argument("--cases", default=":", help="FROM:TO, counted from 0, of those chosen")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="begin no case after so long")
    parser.add_argument("--merge", help="sum up these JSON files and measure nothing")
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="where to write all results")
    parser.add_argument("--add", action="store_true", help="keep what the JSON file has of other cases")
    return parser.parse_args()


@contextmanager
def locked(path: Path | None, *, shared: bool = False) -> Iterator[None]:
    """Holds the file locked; None: nothing is held."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
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


def _case(
    client: Client, case: Case, levels: list[str], given: argparse.Namespace, compiled_s: dict[int, float]
) -> list[Regret]:
    problem = Shape.parse(case.shape).problem(Elem.parse(case.dtype), batch=case.batch)
    inputs = random_inputs(client, problem)
    sessions = {level: session_without_memory(level) for level in levels}
    first = next(iter(sessions.values()))
    with locked(given.lock, shared=True):
        everything = compile_all(client, first.tunables(client), inputs, compiled_s)
    found: list[Regret] = []
    with locked(given.lock):
        first.bounds(client, inputs)
        sample_all(client, first.tunables(client), inputs, everything, given.rounds, given.budget)
        below = below_floor(first.tunables(client), inputs, everything)
        versus = Versus(client, first.tunables(client), inputs, everything, given.pair_budget)
        for level, session in sessions.items():
            try:
                outcome = session.decide(client, inputs)
            except RooftuneError as error:
                print(f"{case.label} {level}: {error}", file=sys.stderr)
                continue
            assert outcome.source == "tuned", outcome.source
            found.append(_compare(versus, case, level, outcome.decision, below))
    for regret in found:
        _show(regret)
    return found


def _show(regret: Regret) -> None:
    print(
        f"{regret.case:<24} {regret.level:<9} {regret.regret:6.3f} [{regret.low:.3f} {regret.high:.3f}]  "
        f"{regret.chosen.removeprefix('matmul_'):<26} best {regret.best.removeprefix('matmul_'):<26} "
        f"cost {regret.compile_s:5.2f} + {regret.measure_s:5.2f} s of {regret.brute_force_s:6.2f} s, "
        f"lean {regret.lean_s:6.2f} s  {regret.cause}",
        flush=True,
    )


@dataclass
class Versus:
    """Candidates of one case against one another; each two are compared once, whatever level chose one."""

    client: Client
    tunables: TunableSet
    inputs: MatmulInputs
    everything: Everything
    budget_s: float
    known: dict[tuple[int, int], Ratio] = field(default_factory=dict)

    def best(self, chosen: int) -> tuple[int, Ratio]:
        """The best candidate, and how much longer the chosen one takes: 1 if that is the best itself."""
        near = self.everything.near_best
        rivals = [index for index in near if index != chosen]
        if not rivals:
            seconds = self.everything.medians[chosen]
            return chosen, Ratio(1.0, 1.0, 1.0, 0.0, 0, seconds, seconds)
        best = max(rivals, key=lambda index: self.ratio(chosen, index).median)
        if self.ratio(chosen, best).median <= 1.0:
            return chosen, replace(self.ratio(chosen, best), median=1.0)
        if len(rivals) > 1:  # the worst of several comparisons is biased: compared anew
            self.known[chosen, best] = self.compared(chosen, best)
        return best, self.ratio(chosen, best)

    def ratio(self, first: int, second: int) -> Ratio:
        if (second, first) in self.known:
            return self.known[second, first].inverse
        if (first, second) not in self.known:
            self.known[first, second] = self.compared(first, second)
        return self.known[first, second]

    def compared(self, first: int, second: int) -> Ratio:
        runs = [runner(self.tunables, index, self.inputs) for index in (first, second)]
        return compare(self.client, runs[0], runs[1], self.budget_s)


def below_floor(tunables: TunableSet, inputs: MatmulInputs, everything: Everything) -> dict[str, float]:
    """Who took less than its floor says it needs, and how much of that: there should be none."""
    assert tunables.floor is not None
    found = {}
    for index, median_s in everything.medians.items():
        floor_s = tunables.floor(tunables.key(inputs), inputs, tunables[index])
        if floor_s is not None and median_s < floor_s:
            found[tunables[index].name] = median_s / floor_s
            print(f"  {tunables[index].name} took {median_s / floor_s:.2f} of its floor", file=sys.stderr)
    return found


def _compare(versus: Versus, case: Case, level: str, decision: Decision, below: dict[str, float]) -> Regret:
    everything = versus.everything
    best, ratio = versus.best(decision.index)
    regret = max(1.0, ratio.median)
    looked_at = [e.index for e in decision.evidence if e.samples]
    return Regret(
        case=case.label,
        level=level,
        chosen=decision.name,
        best=versus.tunables[best].name,
        chosen_s=ratio.first_s,
        best_s=ratio.second_s,
        regret=regret,
        low=ratio.low,
        high=ratio.high,
        spread=ratio.spread,
        pairs=ratio.pairs,
        cause=_cause(decision, best, regret),
        measured=len(looked_at),
        compile_s=everything.compile_s(looked_at),
        measure_s=decision.timings.measure_s,
        brute_force_s=everything.brute_force_s,
        lean_s=everything.lean_s,
        side_by_side_s=everything.side_by_side_s(looked_at),
        brute_force_side_by_side_s=everything.brute_force_side_by_side_s,
        below_floor=below,
    )


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
    costs = [r.cost_s for r in results]
    return {
        "cases": len(results),
        "geometric_mean": round(exp(sum(log(r.regret) for r in results) / len(results)), 4),
        "worst": round(worst.regret, 4),
        "worst_case": worst.case,
        "above_1.02": len(causes),
        "below_floor": sum(len(r.below_floor) for r in results),
        "causes": {cause: causes.count(cause) for cause in sorted(set(causes))},
        **_shares("brute_force", costs, [r.brute_force_s for r in results]),
        **_shares("lean", costs, [r.lean_s for r in results]),
        **_shares(
            "brute_force_side_by_side",
            [r.side_by_side_s + r.measure_s for r in results],
            [r.brute_force_side_by_side_s for r in results],
        ),
    }


def _shares(name: str, costs_s: list[float], everything_s: list[float]) -> dict[str, float]:
    """Cost of tuning: of all cases together, and as the mean of the cases' shares."""
    if not all(everything_s):
        return {}
    shares = [cost_s / seconds for cost_s, seconds in zip(costs_s, everything_s, strict=True)]
    return {
        f"cost_of_{name}": round(sum(costs_s) / sum(everything_s), 4),
        f"mean_cost_of_{name}": round(sum(shares) / len(shares), 4),
    }


if __name__ == "__main__":
    main()
