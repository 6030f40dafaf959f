"""A candidate in a round: what can be done with it, and how it stands so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

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


@dataclass
class Standing:
    """A contender, its samples so far, and why it is out if it is."""

    contender: Contender
    samples: Samples = field(default_factory=Samples)
    repeats: int = 1
    state: State = State.WAITING
    reason: str = ""
    error: Exception | None = None

    @property
    def index(self) -> int:
        return self.contender.index

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def rank(self) -> tuple[float, int]:
        """Smallest median first; equal: lowest index."""
        return self.samples.median, self.index
