"""Every candidate of a problem measured, what that costs, and which are the best."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean, median

from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.tunables import MatmulInputs
from rooftune.tuning.ties import in_turn
from rooftune.tuning.tunable import TunableSet

HOPELESS = 10.0
FULL_SAMPLES = 10
"""What a brute force tuner takes of each candidate: the tuner's own max_samples."""

NEAR = 1.05
MOST_RIVALS = 3
LEAST_WINDOW_S = 100e-6
COMPILERS = 4
"""As many as a tuner's proof workers."""


@dataclass
class Cost:
    """Wall seconds of one candidate: compiling, its first run, and one sample after that."""

    compile_s: float = 0.0
    first_run_s: float = 0.0
    sample_s: float = 0.0
    samples: int = 0

    @property
    def once_s(self) -> float:
        """What is spent once only: compiling, and what the first run takes longer than a sample."""
        return self.compile_s + max(0.0, self.first_run_s - self.sample_s)

    @property
    def brute_force_s(self) -> float:
        """Compiled, warmed up, and given the full number of samples, whoever it is."""
        return self.compile_s + self.first_run_s + FULL_SAMPLES * self.sample_s

    @property
    def lean_s(self) -> float:
        """As it was measured here: the hopeless are left out after their first run."""
        return self.compile_s + self.first_run_s + self.samples * self.sample_s


Programs = frozenset[tuple[str, tuple[str, ...]]]
"""What a candidate needs compiled: texts and options."""


@dataclass
class Everything:
    """All candidates of a case: wall seconds of each, and device medians where not hopeless."""

    costs: dict[int, Cost] = field(default_factory=dict)
    programs: dict[int, Programs] = field(default_factory=dict)
    device_s: dict[int, float] = field(default_factory=dict)
    medians: dict[int, float] = field(default_factory=dict)

    @property
    def best(self) -> int:
        return min(self.medians, key=lambda index: self.medians[index])

    @property
    def near_best(self) -> list[int]:
        """The best few: their order may be noise."""
        ranked = sorted(self.medians, key=lambda index: self.medians[index])
        bar_s = NEAR * self.medians[ranked[0]]
        return [index for index in ranked if self.medians[index] <= bar_s][:MOST_RIVALS]

    @property
    def brute_force_s(self) -> float:
        return sum(cost.brute_force_s for cost in self.costs.values())

    @property
    def lean_s(self) -> float:
        return sum(cost.lean_s for cost in self.costs.values())

    def compile_s(self, indexes: list[int]) -> float:
        """What compiling these took, code generation at the first launch included.

        Candidates with the same programs were compiled once, at the expense of the first of them.
        """
        wanted = {index for index in indexes if index in self.costs}
        wanted |= {self.who_compiled(index) for index in wanted}
        return sum(self.costs[index].once_s for index in wanted)

    def side_by_side_s(self, indexes: Iterable[int]) -> float:
        """The same by COMPILERS compilers at once, each of which takes the next one as it gets ready."""
        wanted = dict.fromkeys(self.who_compiled(index) for index in indexes if index in self.costs)
        ready_s = [0.0] * COMPILERS
        for index in wanted:
            first = min(range(COMPILERS), key=lambda compiler: ready_s[compiler])
            ready_s[first] += self.costs[index].once_s
        return max(ready_s)

    @property
    def brute_force_side_by_side_s(self) -> float:
        """Brute force that compiles side by side, and then measures."""
        once_s = sum(cost.once_s for cost in self.costs.values())
        return self.brute_force_s - once_s + self.side_by_side_s(self.costs)

    def who_compiled(self, index: int) -> int:
        """The first one with the same programs."""
        mine = self.programs.get(index)
        return next((other for other in self.costs if mine and self.programs.get(other) == mine), index)


def compile_all(
    client: Client, tunables: TunableSet, inputs: MatmulInputs, known_s: dict[int, float]
) -> Everything:
    """Compiles and runs each candidate that can run. `known_s`: what compiling took, if done before."""
    found = Everything()
    for index in likely_first(tunables):
        prepare, run, cost = tunables[index].prepare, runner(tunables, index, inputs), Cost()
        try:
            programs = programs_of(client, tunables, index, inputs)
            fresh = programs not in found.programs.values()
            start = time.perf_counter()
            if prepare is not None:
                prepare(inputs)
            compiled = time.perf_counter()
            warm_s = client.sample(run)
            ran = time.perf_counter()
            cost.compile_s = known_s.get(index, compiled - start) if fresh else compiled - start
            cost.first_run_s, cost.sample_s = ran - compiled, warm_s
            hopeless = warm_s > 2 * HOPELESS * min(found.device_s.values(), default=warm_s)
            found.device_s[index] = warm_s if hopeless else client.sample(run)
            if not hopeless:
                cost.sample_s = time.perf_counter() - ran
        except UnsupportedError:
            continue
        except Exception as error:
            print(f"  {tunables[index].name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        found.costs[index] = cost
        found.programs[index] = programs
    return found


def programs_of(client: Client, tunables: TunableSet, index: int, inputs: MatmulInputs) -> Programs:
    """Raises UnsupportedError where the candidate refuses the problem."""
    return programs_in(tunables[index].proof.candidate.plan(inputs.problem, client.profile))


def programs_in(plan: LaunchPlan) -> Programs:
    return frozenset((call.source, call.options) for call in plan.calls)


def sample_all(
    client: Client,
    tunables: TunableSet,
    inputs: MatmulInputs,
    everything: Everything,
    rounds: int,
    budget_s: float,
) -> None:
    """Samples all that are not hopeless, interleaved; at least three times each, within the budget."""
    device_s = everything.device_s
    bar_s = HOPELESS * min(device_s.values())
    live = [index for index in sorted(device_s) if device_s[index] <= bar_s]
    samples: dict[int, list[float]] = {index: [] for index in live}
    walls: dict[int, list[float]] = {index: [] for index in live}
    began = time.perf_counter()
    for turn in range(rounds):
        if turn >= 3 and time.perf_counter() - began > budget_s:
            break
        for index in in_turn(live, turn):
            start = time.perf_counter()
            samples[index].append(client.sample(runner(tunables, index, inputs), _repeats(device_s[index])))
            walls[index].append(time.perf_counter() - start)
    for index in live:
        everything.costs[index].sample_s = fmean(walls[index])
        everything.costs[index].samples = len(walls[index])
    everything.medians = {index: median(values) for index, values in samples.items()}


def likely_first(tunables: TunableSet) -> list[int]:
    """Candidates of specialised groups first, so that hopeless ones are known as such early."""
    groups = [{group.name for group, _ in tunable.memberships} for tunable in tunables.tunables]
    return sorted(range(len(groups)), key=lambda index: not groups[index] & {"cpu", "accelerated", "gemv"})


def runner(tunables: TunableSet, index: int, inputs: MatmulInputs) -> Callable[[], object]:
    return lambda: tunables[index].fn(inputs)


def _repeats(seconds: float) -> int:
    return max(1, min(64, round(LEAST_WINDOW_S / seconds)))
