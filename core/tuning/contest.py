"""Tuning one key: which candidates are measured, in which rounds, and the decision that comes of it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from ..errors import DeviceFaultError, MeasurementError, OutOfMemoryError, UnsupportedError, WorkError
from ..waiting import Stopwatch
from .bounds import CLOCK_NOISE, Bounds
from .context import TuningClient, TuningContext, Verdict
from .decision import Check, Decision, Evidence, OutcomeKind, Timings, utc_now
from .drift import drift
from .events import Event, ProofFailed, reason_of
from .failures import FAULT_HINT, FaultWhileTuning, fault_reason, nothing_ran
from .foresight import NOTHING_FORESEEN, Foresight
from .level import Level
from .plan import make_plan
from .reuse import Reuse
from .schedule import LEAST_WINDOW_S, Contender, RoundResult, Standing, State, run_round
from .ties import TieBreak
from .tunable import SearchStrategy, TunableSet, key_text

_OUTCOMES: dict[State, OutcomeKind] = {
    State.LIVE: "measured",
    State.DROPPED: "dropped",
    State.UNSUPPORTED: "unsupported",
    State.DISQUALIFIED: "error",
}
FINALISTS = 6
FINALISTS_AT_LEAST = 3
FINAL_FACTOR = 1.25
"""After a search, so many that are within this factor of the best are measured against one another anew: few
samples may be bad ones, so there are some whatever the factor."""

FINAL_WINDOW_S = 3e-3
"""There a sample is of as many executions as last this long, as programs call a kernel again and again: the
first after another kernel finds the caches as that left them."""

FINAL_SAMPLES = 5
"""Samples of a finalist at most; those that lie close are sampled in pairs then."""

QUICK_SAMPLES = 6
"""Samples of a candidate in a turn of a search at most. The first ones after proofs are slow on CPUs: fewer
would compare one turn's beginning with the next one's."""

PROBED_AGAIN = 3
"""How often peaks are measured once more at most in a tuning, for candidates that beat them."""

COMPILERS = min(4, os.cpu_count() or 1)

_NOT_REACHED = "another was good enough before its turn came"


def tune_key(
    client: TuningClient,
    context: TuningContext,
    tuner: str,
    tunables: TunableSet,
    key: Any,
    inputs: Any,
    reuse: Reuse,
    watch: Stopwatch | None = None,
) -> Decision:
    """Measures what must be measured for this key and decides. `watch` was started with the call.

    Raises WorkError when no candidate ran, OutOfMemoryError when memory was the reason, and
    FaultWhileTuning when a candidate lost the device.
    """
    contest = Contest(client, context, tuner, tunables, key, inputs, watch or Stopwatch())
    if reuse.leader is None:
        contest.prove_ahead()
    contest.probe()
    return contest.decide(reuse)


def single_decision(
    client: TuningClient, context: TuningContext, tuner: str, tunables: TunableSet, key: Any, inputs: Any
) -> Decision:
    """The decision for a set of one candidate: it wins, and nothing is measured.

    Raises WorkError when it can be proven, and its proof failed.
    """
    contest = Contest(client, context, tuner, tunables, key, inputs)
    if tunables[0].proof is not None:
        try:
            contest.heed(0, contest.proofs([0]).get(0, Verdict(None)))
        except ProofFailed as error:
            raise WorkError(f"the only candidate, {tunables[0].name}, failed its proof: {error}") from error
    contest.evidence[0] = contest.blank(0, "skipped", "the only candidate")
    return contest.decision(0)


@dataclass
class Contest:
    """One key's tuning under way."""

    client: TuningClient
    context: TuningContext
    tuner: str
    tunables: TunableSet
    key: Any
    inputs: Any
    watch: Stopwatch = field(default_factory=Stopwatch)
    measuring_inputs: Any = None
    bounds: Bounds | None = None
    limit_s: float | None = None
    evidence: dict[int, Evidence] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    checks: dict[int, Check] = field(default_factory=dict)
    spent_s: dict[str, float] = field(default_factory=dict)
    short_circuit: bool = False
    tie_break: TieBreak | None = None
    memory_error: OutOfMemoryError | None = None
    ahead: Mapping[int, Verdict] | None = None
    checked_ahead: bool = False
    asked: int = 0
    """How many candidates the search has asked for, those of its turn under way included."""
    searched: int = 0
    """The same of the turns that are over."""
    told: int = 0
    """The last count that progress was told of in this round: it never goes back."""
    comparing: bool = False
    probed_again: int = 0

    # What is good enough

    def prove_ahead(self) -> None:
        """Has the first round's proofs begun, so that workers start and compile while peaks are probed."""
        plan = make_plan(self.tunables.tunables, self.key)
        if self.tunables.bounds is None or not plan:
            return
        if self.searches:
            planned = {entry.index for turn in plan for entry in turn}
            first = [index for index in self.first_proposals if index in planned]
        else:
            first = [entry.index for entry in plan[0]]
        self.ahead = self.proofs(first)

    def probe(self) -> None:
        """Asks for the bounds, which may have to be measured first."""
        if self.tunables.bounds is None:
            return
        self.context.progress("probe", 0, 1)
        with self.timed("probe_s"):
            try:
                self.stand_by(self.tunables.bounds(self.key, self.inputs))
            except (MeasurementError, OutOfMemoryError) as error:
                self.context.warn(f"the peaks can't be probed, so nothing stops early: {reason_of(error)}")
        self.context.progress("probe", 1, 1)

    def stand_by(self, bounds: Bounds | None) -> None:
        """Takes these bounds, and the limit that belongs to them."""
        self.bounds = bounds
        if self.context.level is not Level.FULL:
            self.limit_s = bounds.limit_s if bounds is not None else None

    @property
    def tolerance(self) -> float:
        """How many times the least possible time is good enough."""
        wanted = self.context.short_circuit and self.context.level is not Level.FULL
        return self.bounds.tolerance if wanted and self.bounds is not None else 1.0

    # Rounds

    def decide(self, reuse: Reuse) -> Decision:
        self.evidence.update(reuse.barred)
        plan = [[entry.index for entry in entries] for entries in make_plan(self.tunables.tunables, self.key)]
        winner = None
        if self.searches:
            winner = self.by_search({i for turn in plan for i in turn})
        else:
            winner = self.from_old_evidence(reuse, plan)
        if winner is None:
            winner = self.from_scratch(plan)
        if winner is None:
            raise nothing_ran(self.client.device_name, self.evidence, self.memory_error, self.tunables)
        self.report_defects()
        return self.decision(winner)

    def from_scratch(self, plan: list[list[int]]) -> int | None:
        """Round after round, until one has a winner."""
        for indexes in plan:
            winner = self.play([index for index in indexes if not self.is_out(index)])
            if winner is not None:
                return winner
        return None

    @property
    def searches(self) -> bool:
        return self.tunables.search is not None and self.context.level is not Level.FULL

    def by_search(self, planned: set[int]) -> int | None:
        """Turn after turn of what the search proposes, each against the best so far; then the best few."""
        leader: int | None = None
        measured: dict[int, float | None] = {}
        proposals = self.first_proposals
        while proposed := [i for i in proposals if i in planned]:
            self.searched, self.asked = self.asked, self.asked + len(proposed)
            fresh = [index for index in proposed if not self.is_out(index)]
            self.compile_ahead(self.sound(fresh))
            before = leader
            leader = self.play([*fresh, *([leader] if leader is not None else [])], quick=True)
            if self.short_circuit:
                return leader
            if before is not None:
                measured = self.at_todays_speed(measured, before)
            measured |= {i: self.fastest_s(i) for i in proposed}
            proposals = self.search.propose(measured)
        best = sorted((s, i) for i, s in measured.items() if s is not None and not self.is_out(i))
        finalists = [
            index
            for place, (seconds, index) in enumerate(best[:FINALISTS])
            if place < FINALISTS_AT_LEAST or seconds <= FINAL_FACTOR * best[0][0]
        ]
        self.comparing, self.told = True, 0
        return self.play(finalists)

    def at_todays_speed(self, measured: dict[int, float | None], leader: int) -> dict[int, float | None]:
        """Times of earlier turns, shorter by as much as those of their leader, measured again, are by now.

        Something else slowed the whole turn: beside later ones, nobody in it would look good.
        """
        earlier_s, now_s = measured.get(leader), self.fastest_s(leader)
        if earlier_s is None or now_s is None or now_s >= earlier_s:
            return measured
        return {i: s if s is None else s * now_s / earlier_s for i, s in measured.items()}

    @cached_property
    def first_proposals(self) -> Sequence[int]:
        """What the search proposes first: it may be asked that once only."""
        return self.search.propose({})

    @cached_property
    def search(self) -> SearchStrategy:
        assert self.tunables.search is not None
        return self.tunables.search(self.key)

    def fastest_s(self, index: int) -> float | None:
        """Its best sample: of few samples the median still has what else the machine did in it."""
        known = self.evidence.get(index)
        return min(known.samples, default=None) if known is not None and known.median_s else None

    def sound(self, indexes: list[int]) -> list[int]:
        """Those whose proof has not failed. Workers take them all at once, whatever their number."""
        verdicts, passed = self.begun(indexes), []
        for index in indexes:
            if self.tunables[index].proof is not None:
                self.tell(0, len(indexes), "prove")
            with self.timed("prove_s"):
                verdict = verdicts.get(index, Verdict(None))
            if verdict.passed is not False and not verdict.unsupported:
                passed.append(index)
        return passed

    def compile_ahead(self, indexes: list[int]) -> None:
        """Compiles on several cores, before the device is held; what fails fails again in its turn."""
        prepares = [p for index in indexes if (p := self.tunables[index].prepare) is not None]
        if self.measuring_inputs is None:
            self.measuring_inputs = self.tunables.inputs(self.key, self.inputs)
        with self.timed("compile_s"), warnings.catch_warnings(), ThreadPoolExecutor(COMPILERS) as pool:
            warnings.simplefilter("ignore")  # filters belong to the process: threads can't set them apart
            for future in [pool.submit(prepare, self.measuring_inputs) for prepare in prepares]:
                future.exception()

    def from_old_evidence(self, reuse: Reuse, plan: list[list[int]]) -> int | None:
        """Measures only what is new, against the old best. None when that gave no winner."""
        leader = reuse.leader
        turn = next((turn for turn, indexes in enumerate(plan) if leader in indexes), None)
        if leader is None or turn is None:
            return None
        asked = [index for indexes in plan[: turn + 1] for index in indexes]
        newcomers = [index for index in asked if index not in reuse.known and index not in self.evidence]
        self.evidence = {**reuse.known, **self.evidence}
        winner = self.play([*newcomers, leader]) if newcomers else leader
        if winner is None:
            self.evidence = {i: e for i, e in self.evidence.items() if not e.kept or i in reuse.barred}
        return winner

    def is_out(self, index: int) -> bool:
        known = self.evidence.get(index)
        return known is not None and known.outcome in ("error", "fault", "unsupported")

    def play(self, indexes: list[int], *, quick: bool = False) -> int | None:
        """Measures candidates against one another until one of them wins or all are disqualified.

        `quick`: with few samples, for a turn of a search; an output found right before is not looked at.

        Dropped candidates never win a round. Should every survivor be disqualified, or one for whose times
        others were passed over, all that are left are measured anew, against one another. Should a round have
        stopped at one that was not good enough, it goes on without those dropped.
        """
        left = indexes
        while indexes:
            result = self.measure(indexes, quick)
            known = self.checks if quick else {}
            winner = next(
                (s.index for s in result.ranking if s.index in known or self.output_holds(s.index)), None
            )
            won = winner is not None and not self.misled(result)
            if winner is not None and won and not (result.short_circuit and self.stopped_too_soon(winner)):
                first = result.ranking[0].index == winner
                self.short_circuit, self.tie_break = result.short_circuit, result.tie_break if first else None
                return winner
            left = [index for index in left if not self.is_out(index)]
            indexes = [i for i in left if not won or self.evidence[i].outcome != "dropped"]
        return None

    def stopped_too_soon(self, winner: int) -> bool:
        """Whether the limit it was inside came of peaks probed too low, and it is outside the right one."""
        before_s, median_s = self.limit_s, self.evidence[winner].median_s
        self.mend_peaks()
        if self.limit_s == before_s or (self.limit_s and median_s and median_s <= self.limit_s):
            return False
        self.events.append(Event("LimitLowered", self.tunables[winner].name))
        return True

    def misled(self, result: RoundResult) -> bool:
        """Whether some were passed over for the times of one that is disqualified by now."""
        timed_out = any(standing.timed and self.is_out(standing.index) for standing in result.standings)
        return timed_out and any(standing.state is State.SKIPPED for standing in result.standings)

    def measure(self, indexes: list[int], quick: bool = False) -> RoundResult:
        settings, level = self.context.settings, self.context.level
        if quick:
            most = min(QUICK_SAMPLES, settings.max_samples)
            settings = replace(settings, min_samples=min(most, settings.min_samples), max_samples=most)
        if self.comparing and settings.adaptive:
            most = max(FINAL_SAMPLES, settings.min_samples)
            settings = replace(settings, max_samples=min(most, settings.max_samples))
        if not self.searches:
            self.told = 0
        result = run_round(
            list(self.contenders(indexes)),
            settings,
            self.limit_s if self.context.short_circuit else None,
            tolerance=self.tolerance,
            may_drop=level is not Level.FULL,
            break_ties=not quick,
            least_window_s=FINAL_WINDOW_S if self.comparing else LEAST_WINDOW_S,
            hold=self.hold,
            progress=lambda done, total: self.tell(done, total, "measure"),
        )
        self.spend("measure_s", result.measure_s)
        self.events += [*result.events, *filter(None, [drift(result.standings)])]
        for standing in result.standings:
            self.note(standing)
        return result

    def contenders(self, indexes: list[int]) -> Iterator[Contender]:
        verdicts = self.begun(indexes)
        if self.measuring_inputs is None:
            self.measuring_inputs = self.tunables.inputs(self.key, self.inputs)
        turn = count()  # they are not prepared in the order of their indexes

        def tell(phase: str, done: int) -> None:
            self.tell(done, len(indexes), phase)

        for index in indexes:
            yield Contender(
                index,
                self.tunables[index].name,
                self.sampler(index),
                self.preparer(index, verdicts, tell, turn),
                self.floor(index),
                self.foresight(index),
            )

    def begun(self, indexes: list[int]) -> Mapping[int, Verdict]:
        """Their proofs: those begun ahead, if they are of the same candidates."""
        verdicts, self.ahead = self.ahead, None
        return verdicts if verdicts is not None and set(verdicts) == set(indexes) else self.proofs(indexes)

    def proofs(self, indexes: list[int]) -> Mapping[int, Verdict]:
        with self.timed("prove_s"):
            first = sorted(indexes, key=lambda index: (self.foresight(index).order, index))
            candidates = {index: self.tunables[index] for index in first}
            return self.context.prover.prove(self.client, candidates, self.key, self.inputs)

    def hold(self) -> ExitStack:
        """The device for us alone, and proof workers at rest."""
        with ExitStack() as stack:
            stack.enter_context(self.context.prover.paused(self.client))
            stack.enter_context(self.client.exclusive())
            return stack.pop_all()

    # One candidate

    def sampler(self, index: int) -> Callable[[int], float]:
        tunable = self.tunables[index]

        def sample(repeats: int) -> float:
            try:
                return self.client.sample(lambda: tunable.fn(self.measuring_inputs), repeats)
            except DeviceFaultError as error:
                raise self.fault(index, error) from error

        return sample

    def tell(self, done: int, total: int, phase: str) -> None:
        """Progress. The turns of a search count together, as a part of the most that it may ask for."""
        if self.comparing:
            phase = "compare"
        elif self.searches:
            done, total = min(self.searched + done, self.asked), self.search.most
        self.told = max(self.told, done)
        self.context.progress(phase, self.told, total)

    def preparer(
        self,
        index: int,
        verdicts: Mapping[int, Verdict],
        tell: Callable[[str, int], object],
        turn: Iterator[int],
    ) -> Callable[[], None]:
        def prepare() -> None:
            done = next(turn)
            try:
                if self.tunables[index].proof is not None:
                    tell("prove", done)
                with self.timed("prove_s"):
                    self.check_ahead(index)
                    verdict = verdicts.get(index, Verdict(None))
                self.heed(index, verdict)
                if self.tunables[index].prepare is not None:
                    tell("compile", done)
                self.compile(index)
            except DeviceFaultError as error:
                raise self.fault(index, error) from error

        return prepare

    def check_ahead(self, index: int) -> None:
        """While a worker is busy: what the check of outputs needs, whoever wins."""
        ahead = self.tunables.check_ahead
        if ahead is not None and not self.checked_ahead and self.tunables[index].proof is not None:
            self.checked_ahead = True
            with suppress(Exception):  # the check itself will meet it again, and say so
                ahead(self.measuring_inputs)

    def compile(self, index: int) -> None:
        prepare = self.tunables[index].prepare
        if prepare is None:
            return
        with self.timed("compile_s"):
            prepare(self.measuring_inputs)

    def heed(self, index: int, verdict: Verdict) -> None:
        if verdict.unsupported:
            raise UnsupportedError(verdict.reason)
        if verdict.passed is None:
            return
        self.checks[index] = Check(self.tunables[index].name, verdict.passed, verdict.reason, verdict.where)
        if not verdict.passed:
            raise ProofFailed(verdict.reason or "its proof failed")

    def floor(self, index: int) -> Callable[[], float | None]:
        floor = self.tunables.floor
        if floor is None:
            return lambda: None
        return lambda: floor(self.key, self.inputs, self.tunables[index])

    def foresight(self, index: int) -> Foresight:
        foresee = self.tunables.foresight
        return NOTHING_FORESEEN if foresee is None else foresee(self.key, self.inputs, self.tunables[index])

    def output_holds(self, index: int) -> bool:
        """Looks at a contender's output once more: a kernel may be right at first and wrong later."""
        check, tunable = self.tunables.check, self.tunables[index]
        if check is None:
            return True
        try:
            output = tunable.fn(self.measuring_inputs)
            self.client.sync()
            check(self.measuring_inputs, output)
        except DeviceFaultError as error:
            raise self.fault(index, error) from error
        except Exception as error:
            reason = f"its output after the last sample is wrong: {reason_of(error)}"
            self.checks[index] = Check(tunable.name, False, reason)
            self.evidence[index] = replace(self.evidence[index], outcome="error", reason=reason)
            self.events.append(Event("Disqualified", tunable.name, reason))
            return False
        self.checks.setdefault(index, Check(tunable.name, True))
        return True

    # Evidence

    def note(self, standing: Standing) -> None:
        if isinstance(standing.error, OutOfMemoryError):
            self.memory_error = standing.error
        outcome = _OUTCOMES.get(standing.state, "skipped")
        known = self.evidence.get(standing.index)
        if outcome == "skipped" and known is not None and known.outcome != "skipped":
            return
        reason = _NOT_REACHED if standing.state is State.WAITING else standing.reason
        self.evidence[standing.index] = replace(
            self.blank(standing.index, outcome, reason),
            samples=tuple(standing.samples.values),
            repeats=standing.repeats,
        )

    def blank(self, index: int, outcome: OutcomeKind, reason: str) -> Evidence:
        tunable = self.tunables[index]
        return Evidence(index, tunable.name, tunable.digest, outcome, reason=reason)

    def report_defects(self) -> None:
        """What is above the roofline, though peaks were probed again, is said; no peak is made up for it."""
        self.mend_peaks()
        shares = self.above_roofline()
        self.events += [Event("RooflineExceeded", name, share) for name, share in shares.items()]
        if shares:
            name, share = max(shares.items(), key=lambda item: item[1])
            self.context.warn(
                f"{name} ran at {share:.2f} times the roofline, more than clock noise ({CLOCK_NOISE:.0%}) "
                f"explains: a peak of {self.client.device_name} was probed too low. On an idle machine, "
                "measure the peaks again with `tune probe all --fresh`, then tune with --cold"
            )

    def mend_peaks(self) -> None:
        """A median below the roofline means that a peak was probed too low, perhaps in a busy moment.

        It is probed once more, a few times at most.
        """
        while self.probed_again < PROBED_AGAIN and self.above_roofline() and self.probe_again():
            pass

    def above_roofline(self) -> dict[str, float]:
        """The shares of the roofline that candidates reached, of those that clock noise does not explain."""
        reached = {
            evidence.name: self.bounds.share(evidence.median_s)
            for evidence in self.evidence.values()
            if self.bounds is not None and evidence.median_s
        }
        return {name: share for name, share in reached.items() if share and share > 1 + CLOCK_NOISE}

    def probe_again(self) -> bool:
        """Whether the peaks could be measured once more."""
        again = self.tunables.bounds_again
        if again is None:
            return False
        self.probed_again += 1
        with self.timed("probe_s"), suppress(MeasurementError, OutOfMemoryError):
            self.stand_by(again(self.key, self.inputs) or self.bounds)
            return True
        return False

    def decision(self, index: int, bad: str = "") -> Decision:
        plan = make_plan(self.tunables.tunables, self.key)
        planned = {entry.index for entries in plan for entry in entries}
        searched = self.tunables.search is not None
        untried = "not reached by the search" if searched else "an earlier round had a winner"
        unknown = [
            self.blank(
                other,
                "skipped",
                untried if other in planned else "not meant for this key",
            )
            for other in range(len(self.tunables))
            if other not in self.evidence
        ]
        evidence = sorted([*self.evidence.values(), *unknown], key=lambda e: e.index)
        return Decision(
            key=json.loads(key_text(self.key)),
            index=index,
            evidence=tuple(evidence),
            tuner=self.tuner,
            checksum=self.tunables.checksum,
            level=str(self.context.level),
            device_id=self.client.device_id,
            device=self.client.device_name,
            environment=self.context.environment,
            at=utc_now(),
            bounds=self.bounds,
            limit_s=self.limit_s,
            short_circuit=self.short_circuit,
            tie_break=self.tie_break,
            events=tuple(self.events),
            checks=tuple(self.checks[i] for i in sorted(self.checks)),
            timings=Timings(**self.spent_s, wait_s=self.watch.waited_s),
            bad=bad,
            measured_on=self.measured_on(index),
        )

    def measured_on(self, winner: int) -> Any:
        """Which problem its samples are of; None where that is unknown: kept ones may be of another."""
        known, problem = self.evidence[winner], self.tunables.problem
        if problem is None or known.kept or not known.timed:
            return None
        return json.loads(json.dumps(problem(self.key, self.inputs)))

    # When it goes wrong

    def fault(self, index: int, error: DeviceFaultError) -> FaultWhileTuning:
        name = self.tunables[index].name
        reason = fault_reason(name, error)
        self.evidence[index] = self.blank(index, "fault", reason)
        return FaultWhileTuning(reason, hint=FAULT_HINT, decision=self.decision(index, bad=reason))

    # Time

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        watch = Stopwatch()
        try:
            yield
        finally:
            self.spend(name, watch.worked_s)

    def spend(self, name: str, seconds: float) -> None:
        self.spent_s[name] = self.spent_s.get(name, 0.0) + seconds
