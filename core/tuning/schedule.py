"""Sampling one round: who is measured when, who is dropped, when to stop, and who wins.

First pass, candidate by candidate, those that need least first: warm up, take one sample, and stop
everything if that candidate shows to be inside the limit. Then one sample for each live candidate,
interleaved, so that a change of the machine's speed hits all of them, until nothing more is to be learnt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from statistics import median

from ..errors import DeviceFaultError, MeasurementError, UnsupportedError
from ..units import time_text
from .events import Event, reason_of
from .samples import ENOUGH_FOR_SPREAD, UNSTEADY_RANGE, BenchSettings, Samples
from .standing import Contender, Standing, State
from .ties import TieBreak, in_turn, median_within, paired_verdict, sign_confidence

LEAST_WINDOW_S = 100e-6
"""Executions summed into one sample last this long: the window of one tiny kernel is noise."""

MOST_REPEATS = 64
HOPELESS_FACTOR = 10.0
"""After the first pass a candidate slower than this many times the best is dropped at once."""

OUTRUN_FACTOR = 3.0
"""A candidate whose first runs all take longer than this many times the leader's best is dropped at once."""

SHORT_RUN_S = 10e-3
"""Shorter runs may all be slow by chance, and cost little: two more are taken before they drop anybody."""

DISTURBED_RUN_S = 50e-3
"""Before shorter runs drop anybody, the leader has another: if that is slow too, something else slows it."""

TELLING_RUN_S = 0.25
"""A first run as long as this, and HOPELESS_FACTOR times the leader's best, is not repeated."""

KIN_FACTOR = 2.0
"""A candidate is not expected to do this many times better, for what is foreseen of it, than the best of its
kin did."""

KNOWN_KIN_FACTOR = 1.02
"""The same where both have a formula for what they take: that compares kin better than others."""

EXPECTED_FACTOR = 1.2
"""Nor is one to do this many times better than its formula says."""

SURVIVOR_FLOOR = 2
TIE_SAMPLES = 20
SHORT_TIE_SAMPLES, SHORT_TIE_S = 480, 2.4
BRIEF_TIE_SAMPLES, BRIEF_TIE_S = 960, 0.2
"""Samples shorter than SHORT_SAMPLE_S are noisier, and cheap: so many are taken, or as fit in so many seconds
(by either line, whichever is more), until it is as sure as TIE_CONFIDENCE who wins, or that nothing hangs on
it (MATTERS)."""

SHORT_SAMPLE_S = 5e-3
TIE_CONFIDENCE = 0.999
"""It is asked after each pair, so a toss-up looks decided more often than that. In 1,800 recorded pairs each
of kernels of Intel's runtime and PoCL 2 to 5 % apart, with a core busy, this and 480 samples found the better
one in 95 to 100 % of trials; 240 samples or 0.95 did in 85 to 99 %. Of 480 samples of 150 µs on an unsteady
machine the median's error is still 1 %."""

MATTERS = 0.01
"""As large a share of their times two must differ by for more pairs to be worth it."""

MOST_RIVALS = 3
LEAST_PAIRS = 5
"""Fewer pairs than this tell nothing, however clear they look; of short samples on an unsteady device fewer
than TIE_SAMPLES."""

CLOSE = 0.03
"""Medians of a few samples that lie this close, as a share of the smaller one, count as a tie as well."""

SHORT_CLOSE = 0.5
"""The same for samples shorter than SHORT_SAMPLE_S, whose few tell little."""

UNSTEADY_CLOSE = 1.0
"""The same for those whose samples show that something else uses the device now and then."""

UNSTEADY_STRETCH = 3.0
"""There samples up to so many times as long count as short: they are, when nothing else runs."""

AGREED = 0.8
"""A tie is gone before TIE_SAMPLES only where so large a share of the pairs is for the smaller median."""

PLAIN_WARM_UPS = 3
"""Warm-ups of a candidate when sampling is not adaptive."""


@dataclass
class RoundResult:
    """The survivors, the one to win first, and what happened to everybody."""

    ranking: list[Standing]
    standings: list[Standing]
    events: list[Event]
    short_circuit: bool
    tie_break: TieBreak | None
    measure_s: float

    @property
    def winner(self) -> Standing | None:
        return self.ranking[0] if self.ranking else None


Hold = Callable[[], AbstractContextManager[object]]


def run_round(
    contenders: Sequence[Contender],
    settings: BenchSettings,
    limit_s: float | None = None,
    *,
    tolerance: float = 1.0,
    may_drop: bool = True,
    break_ties: bool = True,
    least_window_s: float = LEAST_WINDOW_S,
    hold: Hold = nullcontext,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> RoundResult:
    """Measures contenders against one another and ranks the survivors.

    `limit_s` is the time good enough to stop at, None for none. `tolerance` is how many times its least
    possible time is good enough: who could better the leader by less than that is not measured.
    `may_drop=False` keeps slow ones to the end, `break_ties=False` leaves a near tie as it is. A sample is of
    as many executions, one after another, as last `least_window_s`; where that is longer than usual, a tie
    needs no more of them than one of long kernels does. `hold()` keeps the device for one's own
    while samples are taken; `progress(done, total)` is called outside it. Any error disqualifies its
    candidate; only DeviceFaultError ends the round, since nothing runs on that device afterwards.
    """
    if not settings.adaptive:
        limit_s, may_drop = None, False
    steadied = least_window_s > LEAST_WINDOW_S
    standings = [
        Standing(contender, steadied=steadied) for contender in sorted(contenders, key=lambda c: c.index)
    ]
    race = _Race(
        standings, settings, limit_s, may_drop, hold, clock, progress, break_ties, tolerance, least_window_s
    )
    race.first_pass()
    if not race.short_circuit:
        race.rounds()
    return RoundResult(
        race.ranking(), standings, race.events, race.short_circuit is not None, race.tie, race.spent_s
    )


@dataclass
class _Race:
    standings: list[Standing]
    settings: BenchSettings
    limit_s: float | None
    may_drop: bool
    hold: Hold
    clock: Callable[[], float]
    progress: Callable[[int, int], object]
    break_ties: bool = True
    tolerance: float = 1.0
    least_window_s: float = LEAST_WINDOW_S
    events: list[Event] = field(default_factory=list)
    short_circuit: Standing | None = None
    tie: TieBreak | None = None
    tie_winner: Standing | None = None
    round: int = 0
    held_s: float = 0.0
    held_since: float | None = None

    # Who is where

    @property
    def live(self) -> list[Standing]:
        return [standing for standing in self.standings if standing.state is State.LIVE]

    @property
    def leader(self) -> Standing | None:
        """Who had the best sample so far."""
        return min(self.live, key=lambda standing: standing.samples.best, default=None)

    def ranking(self) -> list[Standing]:
        if self.short_circuit:
            return [self.short_circuit]
        survivors = sorted(self.live, key=lambda standing: standing.rank)
        if self.tie_winner in survivors:
            survivors.sort(key=lambda standing: standing is not self.tie_winner)
        return survivors

    # Time

    @property
    def spent_s(self) -> float:
        """Time spent measuring; waiting for the device, proofs and compilers is not in it."""
        since = 0.0 if self.held_since is None else self.clock() - self.held_since
        return self.held_s + since

    @property
    def out_of_time(self) -> bool:
        return self.spent_s >= self.settings.budget_s

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with self.hold():
            self.held_since = self.clock()
            try:
                yield
            finally:
                self.held_s, self.held_since = self.spent_s, None

    # First pass

    def first_pass(self) -> None:
        for done, standing in enumerate(self.in_order()):
            if self.cannot_win(standing) or not self.prepared(standing):
                continue
            self.progress(done, len(self.standings))
            with self.measuring():
                twins = self.twins(standing) if self.enter(standing) else None
                if twins == []:
                    self.stop_with(self.play_off(standing))
            if twins:
                self.stop_after_a_look_at(twins, standing)
            if self.short_circuit:
                break
        self.progress(len(self.standings), len(self.standings))

    def in_order(self) -> list[Standing]:
        """By ascending index; but those foreseen to need more come later, when a leader is known."""
        if not self.may_drop:
            return self.standings
        for standing in self.standings:
            standing.floor_s = standing.contender.floor_s()
        return sorted(self.standings, key=lambda standing: standing.foreseen)

    def cannot_win(self, standing: Standing) -> bool:
        """Whether it is not worth compiling: by its floor, or by what was seen of its kin."""
        leader = self.leader
        if leader is None or not self.may_drop:
            return False
        reason = self.too_late(standing, leader)
        if not reason and not self.is_compiled(standing):
            reason = self.unlikely(standing, leader) or self.hopeless_kin(standing, leader)
        if reason:
            self.retire(standing, State.SKIPPED, reason)
        return bool(reason)

    def too_late(self, standing: Standing, leader: Standing) -> str:
        """Why its floor is too high, or empty. A level that takes less than the best does so here, too."""
        floor_s, leader_s = standing.floor_s, leader.samples.best
        if floor_s is None or floor_s * self.tolerance < leader_s:
            return ""
        needs, takes = time_text(floor_s, digits=4), time_text(leader_s, digits=4)
        what = "can't win" if floor_s >= leader_s else "can't win by enough"
        return f"{what}: needs {needs} at the least, {leader.name} took {takes}"

    def is_compiled(self, standing: Standing) -> bool:
        """Whether another's program serves it: then a look at it is cheap."""
        program = standing.contender.foresight.program
        return any(s.timed and s.contender.foresight.program == program is not None for s in self.standings)

    def unlikely(self, standing: Standing, leader: Standing) -> str:
        """Why it is not expected to win, or empty. If the leader was faster than expected, others may be."""
        expected_s, leader_s = standing.expected_s, leader.samples.best
        if expected_s is None:
            return ""
        expected_s *= min(1.0, leader_s / (leader.expected_s or leader_s))
        if expected_s < EXPECTED_FACTOR * leader_s:
            return ""
        return f"expected to take {time_text(expected_s)}, {leader.name} took {time_text(leader_s)}"

    def hopeless_kin(self, standing: Standing, leader: Standing) -> str:
        """Why it is hopeless going by its kin, or empty."""
        kin = [other for other in self.standings if other.timed and other.is_kin_of(standing)]
        nearest = min(kin, key=standing.judged_by, default=None)
        if nearest is None:
            return ""
        factor = standing.judged_by(nearest) / leader.samples.best
        if factor < (KNOWN_KIN_FACTOR if standing.expected_s and nearest.expected_s else KIN_FACTOR):
            return ""
        return f"going by {nearest.name}, it would take {factor:.3g} times as long as {leader.name}"

    def prepared(self, standing: Standing) -> bool:
        try:
            standing.contender.prepare()
        except DeviceFaultError:
            raise
        except Exception as error:
            self.disqualify(standing, error)
            return False
        return True

    def enter(self, standing: Standing) -> bool:
        """Warm-up and first samples; whether it is good enough to stop at."""
        leader = self.leader
        leader_s = leader.samples.best if leader else inf
        standing.state = State.LIVE
        if not self.warmed_up(standing) or self.outrun_at_once(standing, leader_s):
            return False
        if not self.take_first_sample(standing):
            return False
        if leader and self.may_drop and standing.least_s > OUTRUN_FACTOR * leader_s:
            while standing.runs < _runs_wanted(standing) and self.gets_more(standing):
                if not self.take_sample(standing):
                    return False
            if self.drop_if_hopeless(standing, leader) or standing.state is not State.LIVE:
                return False
        return self.is_good_enough(standing)

    def warmed_up(self, standing: Standing) -> bool:
        for _ in range(1 if self.settings.adaptive else PLAIN_WARM_UPS):
            window_s = self.measure(standing, 1)
            if window_s is None:
                return False
            standing.warm_up_s = window_s
            standing.repeats = self.repeats_for(window_s)
        return True

    def repeats_for(self, window_s: float) -> int:
        return min(max(ceil(self.least_window_s / window_s), 1), MOST_REPEATS)

    def outrun_at_once(self, standing: Standing, leader_s: float) -> bool:
        """Drops who took so long that no second run is needed. Its one run is its evidence."""
        run_s = standing.warm_up_s
        if not self.may_drop or run_s < TELLING_RUN_S or run_s <= HOPELESS_FACTOR * leader_s:
            return False
        self.keep(standing, run_s)
        self.retire(standing, State.DROPPED, f"its first run took {run_s / leader_s:.0f} times the best")
        return True

    def drop_if_hopeless(self, standing: Standing, leader: Standing) -> bool:
        """Drops who is far behind, unless it may have been slowed by chance."""
        reason = _hopeless(standing, leader)
        if not reason or self.disturbed(standing, leader):
            return False
        self.retire(standing, State.DROPPED, reason)
        return True

    def disturbed(self, standing: Standing, leader: Standing) -> bool:
        """Whether something else slows short runs down: the leader's next one, or some before, or its own.

        Then it gets one more itself.
        """
        if standing.least_s >= DISTURBED_RUN_S or not self.gets_more(standing):
            return False
        run_s = self.measure(leader, leader.repeats)
        if run_s is None:
            return True
        leader.checks_s.append(run_s)
        seen = Samples([*leader.samples.values, *leader.checks_s])
        few = len(standing.samples) < ENOUGH_FOR_SPREAD
        varied = few and (seen.unsteady or standing.samples.unsteady)
        doubtful = varied or run_s > UNSTEADY_RANGE * seen.best
        if doubtful:
            self.take_sample(standing)
        return doubtful

    def take_first_sample(self, standing: Standing) -> bool:
        """A sample far shorter than the warm-up promised was a warm-up still, and is taken anew."""
        seconds = self.measure(standing, standing.repeats)
        if seconds is not None and 2 * standing.repeats * seconds < self.least_window_s:
            promised, standing.repeats = standing.repeats, self.repeats_for(seconds)
            if standing.repeats > promised:
                seconds = self.measure(standing, standing.repeats)
        return self.keep(standing, seconds)

    def is_good_enough(self, standing: Standing) -> bool:
        """Samples a candidate that lies inside the limit until enough samples do, or one does not."""
        limit_s, wanted = self.limit_s, self.settings.short_circuit_samples
        if limit_s is None or wanted > self.settings.max_samples:
            return False
        while standing.samples.values[-1] <= limit_s:
            if len(standing.samples) >= wanted:
                return True
            if not self.take_sample(standing):
                return False
        return False

    def twins(self, standing: Standing) -> list[Standing]:
        """Those not yet tried that need no more compiling, where a look at them costs next to nothing."""
        program = standing.contender.foresight.program
        waiting = [s for s in self.standings if s.state is State.WAITING] if _short(standing) else []
        return [s for s in waiting if program is not None and s.contender.foresight.program == program]

    def stop_after_a_look_at(self, twins: list[Standing], standing: Standing) -> None:
        """Stops, unless nobody is left to stop with. Who of them is tried first then decides nothing."""
        ready = [twin for twin in twins if self.prepared(twin)]
        with self.measuring():
            for twin in ready:
                twin.state = State.LIVE
                if self.warmed_up(twin):
                    self.take_first_sample(twin)
            self.stop_with(self.play_off(standing))

    # Rounds

    def rounds(self) -> None:
        with self.measuring():
            self.review()
            while not self.finished():
                self.sample_each()
                self.review()
            if not self.short_circuit and self.break_ties:
                self.break_tie()

    def sample_each(self) -> None:
        self.round += 1
        for standing in in_turn(self.live, self.round):
            if self.gets_more(standing):
                self.take_sample(standing)

    def gets_more(self, standing: Standing) -> bool:
        return not self.out_of_time and len(standing.samples) < self.settings.max_samples

    def review(self) -> None:
        """Between two rounds: is one good enough, and who is too slow to go on?"""
        if self.limit_s is not None:
            enough = self.settings.short_circuit_samples
            inside = [s for s in self.live if s.samples.inside(self.limit_s) >= enough]
            if inside:
                best = min(inside, key=lambda standing: standing.rank)
                self.stop_with(self.play_off(best, clear=not self.contested(best)))
        if self.short_circuit:
            return
        if self.may_drop and self.leader:
            self.drop_hopeless(self.leader)
        if self.may_drop and self.leader:
            self.drop_slow(self.leader)

    def drop_hopeless(self, leader: Standing) -> None:
        for standing in self.live:
            if leader.state is State.LIVE:
                self.drop_if_hopeless(standing, leader)

    def drop_slow(self, leader: Standing) -> None:
        """Compares one's best with the leader's median: one outlier, slow or lucky, drops nobody."""
        few_tell_little = self.break_ties and _short(leader)  # else who comes near is met again later
        factor = max(self.settings.speed_factor, OUTRUN_FACTOR if few_tell_little else 1.0)
        bar_s = factor * leader.samples.median
        known = [s for s in self.live if len(s.samples) >= self.settings.min_samples]
        slow = [s for s in known if s.samples.best > bar_s]
        if few_tell_little and _unsteady(*self.live):
            slow = [s for s in slow if len(s.samples) >= ENOUGH_FOR_SPREAD]
        spare = max(len(self.live) - SURVIVOR_FLOOR, 0)
        slow.sort(key=lambda standing: standing.samples.best, reverse=True)
        for standing in slow[:spare]:
            self.retire(standing, State.DROPPED, f"more than {factor:g} times the leader's median")

    def finished(self) -> bool:
        live, settings = self.live, self.settings
        if not live or self.short_circuit or self.out_of_time:
            return True
        if all(len(standing.samples) >= settings.max_samples for standing in live):
            return True
        if not settings.adaptive or min(len(standing.samples) for standing in live) < settings.min_samples:
            return False
        return len(live) == 1 or all(
            s.samples.converged or len(s.samples) >= settings.max_samples for s in live
        )

    # Ties

    def break_tie(self) -> None:
        """While the best are closer than their own spread, paired samples decide: A B B A B A A B …"""
        survivors = self.ranking()
        if self.settings.adaptive and survivors:
            first, rivals = survivors[0], survivors[1:]
            if any(_slowed(first, rival) for rival in rivals):
                rivals.sort(key=lambda standing: standing.samples.best)
            self.tie_winner = self.champion(first, rivals)
            self.tie = self.tie if self.tie_winner else None

    def contested(self, best: Standing) -> bool:
        """Whether another live one may well be faster than the best inside the limit."""
        others = [standing for standing in self.live if standing is not best]
        return any(
            other.rank < best.rank
            or _within_spread(best, other)
            or (_short(best, other) and _too_close(best, other))
            for other in others
        )

    def play_off(self, standing: Standing, *, clear: bool = False) -> Standing | None:
        """Who wins a short circuit: the one inside the limit, or another measured already that beats it.

        That other one was passed over for a single sample, perhaps a slow one by chance.
        """
        rivals = sorted((live for live in self.live if live is not standing), key=lambda live: live.rank)
        factor = OUTRUN_FACTOR if _short(standing) else self.settings.speed_factor
        near = [live for live in rivals if live.samples.best <= factor * standing.samples.best]
        if clear or not self.break_ties:
            return standing
        winner = self.champion(standing, near, whatever_the_gap=True) or standing
        return winner if winner.state is State.LIVE else None

    def champion(
        self, best: Standing, rivals: list[Standing], whatever_the_gap: bool = False
    ) -> Standing | None:
        """Who is left of the best and its nearest rivals, each of which the one so far meets in pairs."""
        met = None
        for rival in rivals[:MOST_RIVALS]:
            met = self.pair_off(best, rival, whatever_the_gap) or met
            best = met or best
            if best.state is not State.LIVE:
                return None
        return met

    def pair_off(self, first: Standing, second: Standing, whatever_the_gap: bool) -> Standing | None:
        """The one who wins most pairs; None where none were needed, or one of the two failed."""
        differences: list[float] = []
        if not (whatever_the_gap or _too_close(first, second)):
            return None
        while not self.out_of_time:
            if not all(self.take_sample(standing) for standing in in_turn([first, second], len(differences))):
                return None
            differences.append(first.samples.values[-1] - second.samples.values[-1])
            if _pairs_suffice(differences, first, second):
                break
        if not differences:
            return None
        even = first.index < second.index
        self.tie = paired_verdict(differences, first.name, second.name, first_wins_even=even)
        self.events.append(Event("TieBreak", self.tie.winner, self.tie.to_json()))
        return first if self.tie.winner == first.name else second

    # One measurement

    def take_sample(self, standing: Standing) -> bool:
        return self.keep(standing, self.measure(standing, standing.repeats))

    def keep(self, standing: Standing, seconds: float | None) -> bool:
        if seconds is None:
            return False
        standing.samples.add(seconds)
        self.events.append(Event("TuningStep", standing.name, seconds))
        return True

    def measure(self, standing: Standing, repeats: int) -> float | None:
        try:
            seconds = standing.contender.sample(repeats)
            if not isfinite(seconds) or seconds <= 0:
                raise MeasurementError(f"the device reported a window of {seconds} s")
        except DeviceFaultError:
            raise
        except Exception as error:
            self.disqualify(standing, error)
            return None
        return seconds

    def stop_with(self, standing: Standing | None) -> None:
        """Ends everything; with None, who was to win was disqualified, and it goes on."""
        if standing is None:
            return
        self.short_circuit = standing
        self.events.append(Event("ShortCircuit", standing.name))

    def disqualify(self, standing: Standing, error: Exception) -> None:
        standing.error = error
        unsupported = isinstance(error, UnsupportedError)
        self.retire(standing, State.UNSUPPORTED if unsupported else State.DISQUALIFIED, reason_of(error))

    def retire(self, standing: Standing, state: State, reason: str) -> None:
        standing.state, standing.reason = state, reason
        self.events.append(Event(state.value.capitalize(), standing.name, reason))


def _hopeless(standing: Standing, leader: Standing) -> str:
    """Why it is too far behind to go on, or empty. One run may be slow by chance, hardly each of them."""
    least_s, leader_s = standing.least_s, leader.samples.best
    if least_s > OUTRUN_FACTOR * leader_s and standing.runs >= _runs_wanted(standing):
        return f"each of its runs took over {least_s / leader_s:.1f} times the best"
    if standing.samples.best > HOPELESS_FACTOR * leader_s:
        return f"more than {HOPELESS_FACTOR:g} times the best"
    return ""


def _runs_wanted(standing: Standing) -> int:
    """So many runs, the warm-up among them, must all be slow before they drop a candidate."""
    return 4 if standing.least_s < SHORT_RUN_S else 2


def _too_close(first: Standing, second: Standing) -> bool:
    """Whether medians don't tell. On an unsteady device best samples may: one may have been slowed more.

    There medians tell nothing where the one with the smaller has the longer best sample.
    """
    share = CLOSE
    if _short(first, second):
        share = SHORT_CLOSE
        if _unsteady(first, second):
            less_s, more_s = sorted((first.samples.best, second.samples.best))
            if more_s < (1 + SHORT_CLOSE) * less_s or _contradict(first.samples, second.samples):
                return True
            share = UNSTEADY_CLOSE
    close_s = share * min(first.samples.median, second.samples.median)
    return _gap_s(first, second) < close_s or _within_spread(first, second)


def _contradict(first: Samples, second: Samples) -> bool:
    """Whether the best samples are for one and the medians for the other."""
    return (first.best - second.best) * (first.median - second.median) < 0


def _short(*standings: Standing) -> bool:
    if any(standing.steadied for standing in standings):
        return False
    bar_s = SHORT_SAMPLE_S * (UNSTEADY_STRETCH if _unsteady(*standings) else 1.0)
    return all(standing.repeats * standing.samples.best < bar_s for standing in standings)


def _pairs_suffice(differences: list[float], first: Standing, second: Standing) -> bool:
    if len(differences) < LEAST_PAIRS:
        return False
    if 2 * len(differences) < TIE_SAMPLES:
        return not _slowed(first, second) and _settled(differences, first, second)
    if not _short(first, second):
        return 2 * len(differences) >= TIE_SAMPLES
    sample_s = max(standing.repeats * standing.samples.median for standing in (first, second))
    short = min(SHORT_TIE_SAMPLES, int(SHORT_TIE_S / sample_s))
    brief = min(BRIEF_TIE_SAMPLES, int(BRIEF_TIE_S / sample_s))
    most = max(short, brief, TIE_SAMPLES)
    if 2 * len(differences) >= most or sign_confidence(differences) >= TIE_CONFIDENCE:
        return True
    matters_s = MATTERS * min(first.samples.median, second.samples.median)
    return median_within(differences, matters_s)


def _settled(differences: list[float], first: Standing, second: Standing) -> bool:
    """Whether more pairs would tell nothing new: no tie any more, or one wins them all, and not by a hair."""
    clear_s = CLOSE * min(first.samples.median, second.samples.median)
    one_sided = all(d > 0 for d in differences) or all(d < 0 for d in differences)
    if one_sided:
        return abs(median(differences)) > clear_s or not _too_close(first, second)
    first_is_less = first.samples.median < second.samples.median
    agreeing = sum((difference < 0) == first_is_less for difference in differences)
    return agreeing >= AGREED * len(differences) and not _too_close(first, second)


def _unsteady(*standings: Standing) -> bool:
    return any(standing.samples.unsteady for standing in standings)


def _slowed(*standings: Standing) -> bool:
    """Whether they are short samples of a device that others use, too: a few pairs may mislead."""
    return _short(*standings) and _unsteady(*standings)


def _within_spread(first: Standing, second: Standing) -> bool:
    return _gap_s(first, second) < max(first.samples.iqr, second.samples.iqr)


def _gap_s(first: Standing, second: Standing) -> float:
    return abs(first.samples.median - second.samples.median)
