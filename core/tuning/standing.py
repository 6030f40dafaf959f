"""A candidate in a round: what can be done with it, and how it stands so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from .foresight import NOTHING_FORESEEN, Foresight
from .samples import Samples


class State(Enum):
    """How a contender stands in its round."""

    WAITING = "waiting"
    LIVE = "live"
    DROPPED = "dropped"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"
    DISQUALIFIED = "disqualified"


@dataclass(frozen=True)
class Contender:
    """A candidate in a round.

    `sample(repeats)` gives device seconds per execution. `prepare()` proves and compiles it, while the
    device is not held. Either raises UnsupportedError to be passed over, anything else to be
    disqualified. `floor_s()` gives seconds it certainly needs, or None.
    """

    index: int
    name: str
    sample: Callable[[int], float]
    prepare: Callable[[], object] = lambda: None
    floor_s: Callable[[], float | None] = lambda: None
    foresight: Foresight = NOTHING_FORESEEN


@dataclass
class Standing:
    """A contender, its warm-up, samples so far and floor in seconds, and why it is out if it is.

    `steadied`: its samples are of more executions than one needs to be measured at all. `checks_s`: runs that
    only told whether others were slowed by chance. They are no samples: they lie where others were measured.
    """

    contender: Contender
    samples: Samples = field(default_factory=Samples)
    checks_s: list[float] = field(default_factory=list)
    repeats: int = 1
    warm_up_s: float = 0.0
    floor_s: float | None = None
    state: State = State.WAITING
    reason: str = ""
    error: Exception | None = None
    steadied: bool = False

    @property
    def index(self) -> int:
        return self.contender.index

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def runs(self) -> int:
        """How often it was timed, the warm-up included."""
        return 1 + len(self.samples)

    @property
    def least_s(self) -> float:
        """The shortest it ever took, in seconds, whether that counts for its rank or not."""
        return min(self.warm_up_s, *self.samples.values)

    @property
    def foreseen(self) -> tuple[float, float, int]:
        """What orders the first pass: expected seconds, else floor times factor where that is known."""
        factor = self.contender.foresight.factor
        likely_s = (self.floor_s or 0.0) * factor if self.expected_s is None else self.expected_s
        return likely_s, factor, self.index

    @property
    def expected_s(self) -> float | None:
        return self.contender.foresight.expected_s

    @property
    def timed(self) -> bool:
        return bool(len(self.samples))

    def is_kin_of(self, other: Standing) -> bool:
        return self.contender.foresight.kin == other.contender.foresight.kin is not None

    def judged_by(self, kin: Standing) -> float:
        """Seconds it would take if it were as far from what is foreseen of it as its kin was."""
        if self.expected_s and kin.expected_s:
            return kin.samples.best * self.expected_s / kin.expected_s
        factor = self.contender.foresight.factor / kin.contender.foresight.factor
        if self.floor_s and kin.floor_s:
            factor = max(factor, self.floor_s / kin.floor_s)
        return kin.least_s * factor

    @property
    def rank(self) -> tuple[float, int]:
        """Smallest median first; equal: lowest index."""
        return self.samples.median, self.index
