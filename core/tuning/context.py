"""What the tuner is given from outside: settings, a store, a prover, a device's client, and who listens.

The protocols say all the tuner knows of devices, databases and proofs; each has its own room elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .decision import Decision
from .level import Level
from .place import Place
from .samples import BenchSettings
from .tunable import Tunable


class TuningClient(Protocol):
    """One device, as far as the tuner needs it."""

    @property
    def device_id(self) -> str:
        """The same for equal devices with the same driver; decisions are stored under it."""

    @property
    def device_name(self) -> str:
        """For people."""

    def sample(self, fn: Callable[[], Any], repeats: int) -> float:
        """Runs `fn` so often, back to back; device seconds per execution, gaps between them left out.

        Raises MeasurementError when a window comes back as zero or unresolved.
        """

    def sync(self) -> None:
        """Waits until everything enqueued has finished."""

    def exclusive(self) -> AbstractContextManager[object]:
        """Holds the device against other threads and processes that measure on it."""


@dataclass(frozen=True)
class Verdict:
    """What a proof found: right (True), wrong (False, with the reason), or not proven (None).

    `unsupported` means that the candidate refuses this problem: it is passed over, not at fault.
    """

    passed: bool | None
    reason: str = ""
    where: Literal["worker", "inline", "off"] = "off"
    unsupported: bool = False


class Prover(Protocol):
    """Shows that candidates compute the right result, before their samples count."""

    def prove(
        self, client: TuningClient, tunables: Mapping[int, Tunable], key: Any, inputs: Any
    ) -> Mapping[int, Verdict]:
        """Starts proving the candidates of one round, by index, and answers for each.

        The answer is looked up one candidate at a time, in ascending order, each when its first sample
        is due and never while the device is held. So it may be a mapping that waits for a verdict only
        when asked for it: a verdict that a short circuit makes needless is then not waited for.
        """

    def paused(self, client: TuningClient) -> AbstractContextManager[object]:
        """Held while samples are taken, so that workers don't disturb them."""

    def alone(self, client: TuningClient, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        """Runs it anew in a process of its own, whatever is known. Neither passed nor not: it could not.

        Asked for when the device was lost: what was noticed at one launch may be another one's doing.
        """


class Claim(Protocol):
    """The right to tune a key, or the decision that made it needless."""

    @property
    def decision(self) -> dict[str, Any] | None:
        """What another process decided meanwhile, as `load` gives it; None: tune."""


@dataclass(frozen=True)
class FreeClaim:
    """A claim with nobody to wait for."""

    decision: dict[str, Any] | None = None


class DecisionStore(Protocol):
    """Decisions that outlive the process, as JSON data under their places."""

    def load(self, place: Place) -> dict[str, Any] | None:
        """The decision stored for exactly this, or None."""

    def others(self, place: Place) -> Sequence[dict[str, Any]]:
        """Decisions there under any checksum, newest first: their evidence may still hold."""

    def row_version(self, place: Place) -> int | None:
        """Tells apart the row that stands now from one written later; None when there is no row."""

    def save(
        self,
        place: Place,
        decision_json: dict[str, Any],
        *,
        began_at_row_version: int | None,
    ) -> dict[str, Any]:
        """Stores a decision, unless another was since `began_at_row_version`. Returns the one that stands."""

    def proven_here(self, place: Place) -> bool:
        """Whether the imported decision that stands there now was proven on this machine before."""

    def set_proven_here(self, place: Place) -> None:
        """Remembers that the imported decision that stands there now was proven on this machine."""

    def claim(
        self,
        place: Place,
        *,
        began_at_row_version: int | None,
    ) -> AbstractContextManager[Claim]:
        """Held while a key is tuned and saved: of several processes one tunes it, the others wait here.

        Waits a bounded time. What another process decided since `began_at_row_version` comes back in
        the claim, and nothing is left to tune.
        """


class NoStore:
    """Keeps nothing: decisions live in this process only."""

    def load(self, place: Place) -> dict[str, Any] | None:
        return None

    def others(self, place: Place) -> Sequence[dict[str, Any]]:
        return ()

    def row_version(self, place: Place) -> int | None:
        return None

    def save(
        self,
        place: Place,
        decision_json: dict[str, Any],
        *,
        began_at_row_version: int | None,
    ) -> dict[str, Any]:
        return decision_json

    def proven_here(self, place: Place) -> bool:
        return False

    def set_proven_here(self, place: Place) -> None:
        pass

    def claim(
        self,
        place: Place,
        *,
        began_at_row_version: int | None,
    ) -> AbstractContextManager[Claim]:
        return nullcontext(FreeClaim())


class NoProver:
    """Proves nothing and lets every candidate be measured."""

    def prove(
        self, client: TuningClient, tunables: Mapping[int, Tunable], key: Any, inputs: Any
    ) -> Mapping[int, Verdict]:
        return {index: Verdict(None) for index in tunables}

    def paused(self, client: TuningClient) -> AbstractContextManager[object]:
        return nullcontext()

    def alone(self, client: TuningClient, tunable: Tunable, key: Any, inputs: Any) -> Verdict:
        return Verdict(None)


def _silent(*_: object) -> None:
    pass


@dataclass
class TuningContext:
    """Everything around a tuning that is not the problem itself.

    `sinks` get each new decision's record, `decided` the decision itself, `warn` a sentence for the user,
    `progress` (phase, done, total), with phase "probe", or "prove", "compile" and "measure" (which count
    candidates that have had their first sample, in a search of the most it may ask for) and "compare" (the
    best of a search once more); around a tuning also "operands" and "call". None of them is called while
    samples are taken. `measure=False` refuses to tune: a key without a decision then raises WorkError, which
    names `forbidden_by` as what to leave out.
    """

    level: Level = Level.BALANCED
    settings: BenchSettings = field(default_factory=BenchSettings)
    short_circuit: bool = True
    environment: str = "default"
    measure: bool = True
    forbidden_by: str = "measure=False"
    store: DecisionStore = field(default_factory=NoStore)
    prover: Prover = field(default_factory=NoProver)
    sinks: Sequence[Callable[[dict[str, Any]], object]] = ()
    decided: Sequence[Callable[[Decision], object]] = ()
    warn: Callable[[str], object] = _silent
    progress: Callable[[str, int, int], object] = _silent


_default: TuningContext | None = None
_make_default: Callable[[], TuningContext] = TuningContext


def default_context() -> TuningContext:
    """The context of tuners that were given none; made when one is first needed."""
    global _default
    if _default is None:
        _default = _make_default()
    return _default


def set_default_context(context: TuningContext) -> None:
    """Replaces the context of all tuners that were given none."""
    global _default
    _default = context


def make_default_context_with(make: Callable[[], TuningContext]) -> None:
    """`make()` gives the context of tuners that were given none, should one be needed."""
    global _make_default
    _make_default = make
