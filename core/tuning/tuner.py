"""The tuner: which candidate serves a call, from memory, from the store, or by measuring.

A key is tuned once, however many threads meet it. A stored winner that can't run never fails a call
that another candidate can serve.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from ..errors import DeviceFaultError, OutOfMemoryError, UnsupportedError, UsageError, WorkError
from ..waiting import Stopwatch
from .contest import single_decision, tune_key
from .context import TuningClient, TuningContext, default_context
from .decision import Decision, read_decision
from .events import reason_of
from .failures import (
    ACQUITTED_HINT,
    FAULT_HINT,
    FaultWhileTuning,
    LostDevices,
    fault_reason,
    not_its_fault,
)
from .memory import DecisionTable, Slot
from .place import Place
from .plan import make_plan
from .reuse import reuse_from
from .tunable import Tunable, TunableSet, key_text

Source = Literal["tuned", "disk", "memory"]
Client = TypeVar("Client", bound=TuningClient)


@dataclass(frozen=True)
class Outcome:
    """The decision for a call and where it came from; `note` says why a stored one was not used."""

    decision: Decision
    source: Source
    tunable: Tunable
    note: str = ""


class Call(NamedTuple):
    """One call's operands, and the slot its decision has in memory."""

    client: TuningClient
    tunables: TunableSet
    key: Any
    inputs: Any
    slot: Slot
    watch: Stopwatch


class LocalTuner:
    """Tunes one operation, on any number of devices.

    `name` keeps its decisions apart from those of other operations in the store; by default it is the
    module and name of the function given to `init`. Without a `context` the default one is used.
    """

    def __init__(self, name: str | None = None, context: TuningContext | None = None) -> None:
        self._name = name
        self._context = context
        self._sets: dict[int, tuple[Any, TunableSet]] = {}
        self._table = DecisionTable()
        self._lost = LostDevices()
        self._lock = threading.RLock()

    @property
    def name(self) -> str:
        """What its decisions are stored under. Raises UsageError before there is a name."""
        if self._name is None:
            raise UsageError(
                "the tuner has no name to store decisions under",
                hint="Call init() first, or make it with LocalTuner('name').",
            )
        return self._name

    @property
    def context(self) -> TuningContext:
        """Settings, store, prover and listeners."""
        return self._context or default_context()

    @property
    def decisions(self) -> DecisionTable:
        """The decisions of this process; `revision` tells when what was derived from one is old."""
        return self._table

    def init(self, client: Client, build: Callable[[Client], TunableSet]) -> TunableSet:
        """The candidates for this client's device: `build(client)`, called once in the process."""
        with self._lock:
            if self._name is None:
                self._name = _name_of(build)
            if id(client) not in self._sets:
                self._sets[id(client)] = (client, build(client))
            return self._sets[id(client)][1]

    def execute(self, client: TuningClient, tunables: TunableSet, inputs: Any) -> Any:
        """Runs the fastest candidate on `inputs`, tuning first if the key is new. Returns its output.

        The work is enqueued, not waited for. Raises WorkError when no candidate can run,
        OutOfMemoryError, and DeviceFaultError naming the candidate that lost the device.
        """
        call = self._call(client, tunables, inputs)
        return self._run(call, self._decide(call).decision)

    def decide(self, client: TuningClient, tunables: TunableSet, inputs: Any) -> Outcome:
        """The decision for these inputs, tuning if there is none. Does not run the winner on them.

        Raises WorkError when no candidate ran, or the context forbids measuring and the key is new.
        """
        return self._decide(self._call(client, tunables, inputs))

    def forget(self, client: TuningClient, tunables: TunableSet, inputs: Any) -> None:
        """Drops the decision for these inputs from memory; a stored one stays."""
        self._table.drop(self._call(client, tunables, inputs).slot)

    def condemn(
        self, client: TuningClient, tunables: TunableSet, inputs: Any, error: Exception
    ) -> DeviceFaultError:
        """Marks the decision for these inputs bad, since its winner was found to have lost the device.

        Returns the error to raise. The next process tunes the key again, without that candidate.
        """
        self._lost.add(client)
        call = self._call(client, tunables, inputs)
        entry = self._table.get(call.slot)
        if entry is None:
            return DeviceFaultError(f"the device was lost: {reason_of(error)}", hint=FAULT_HINT)
        return self._condemn(call, entry.decision, entry.decision.index, error)

    # Deciding

    def _decide(self, call: Call) -> Outcome:
        claim = self._table.claim(call.slot)
        if isinstance(claim, Decision):
            return _outcome(call, claim, "memory")
        decision = error = None
        try:
            outcome = self._find_or_tune(call)
            decision = outcome.decision
            return outcome
        except Exception as failure:
            spare = None if isinstance(failure, DeviceFaultError) else self._table.keep(call.slot)
            if spare is not None:
                return _outcome(call, spare, "memory", reason_of(failure))
            error = failure
            raise
        finally:
            self._table.settle(call.slot, claim, decision, error)

    def _find_or_tune(self, call: Call) -> Outcome:
        context, tunables = self.context, call.tunables
        if not len(tunables):
            raise UsageError(
                f"tuner {self.name} has no candidates", hint="Add at least one with with_tunable()."
            )
        if len(tunables) == 1:
            decision = single_decision(call.client, context, self.name, tunables, call.key, call.inputs)
            return self._publish(call, decision)
        place = self._place(call)
        began_at = context.store.row_version(place)
        stored = read_decision(context.store.load(place))
        problem = self._problem_with(stored, call) if stored is not None else ""
        if stored is not None and not problem:
            return _outcome(call, stored, "disk")
        return self._claim_and_tune(call, began_at, problem)

    def _claim_and_tune(self, call: Call, began_at: int | None, note: str) -> Outcome:
        """Tunes, unless another process that was at it already has decided meanwhile."""
        store, place = self.context.store, self._place(call)
        if not self.context.measure:
            return self._tune(call, began_at, note)
        with store.claim(place, began_at_row_version=began_at) as claim:
            meanwhile = read_decision(claim.decision)
            if meanwhile is None:
                return self._tune(call, began_at, note)
            problem = self._problem_with(meanwhile, call)
            if problem:
                return self._tune(call, store.row_version(place), problem)
            return _outcome(call, meanwhile, "disk")

    def _tune(self, call: Call, began_at: int | None, note: str) -> Outcome:
        """Measures, stores and publishes; of two processes that tuned at once the first one's stands."""
        context, place = self.context, self._place(call)
        if not context.measure:
            raise WorkError(
                f"no decision for this key can be used: {note}" if note else "this key has no decision yet",
                hint=f"{context.forbidden_by} forbids measuring: tune it once without that.",
            )
        self._lost.check(call.client)
        reuse = reuse_from(self._previous(call), call.tunables, self._broken(call))
        try:
            decision = tune_key(
                call.client, context, self.name, call.tunables, call.key, call.inputs, reuse, call.watch
            )
        except FaultWhileTuning as fault:
            self._lost.add(call.client)
            context.store.save(place, fault.decision.to_json(), began_at_row_version=began_at)
            raise
        standing = read_decision(context.store.save(place, decision.to_json(), began_at_row_version=began_at))
        if standing is None or self._problem_with(standing, call):
            standing = decision
        return self._publish(call, standing, note)

    def _publish(self, call: Call, decision: Decision, note: str = "") -> Outcome:
        for sink in self.context.sinks:
            sink(decision.record())
        for told in self.context.decided:
            told(decision)
        return _outcome(call, decision, "tuned", note)

    def _previous(self, call: Call) -> Iterator[Decision]:
        """Earlier decisions on this key, for whatever candidates, newest first."""
        entry = self._table.get(call.slot)
        if entry is not None:
            yield entry.decision
        others = self.context.store.others(self._place(call))
        yield from filter(None, map(read_decision, others))

    def _problem_with(self, stored: Decision, call: Call) -> str:
        """Why a stored decision can't be used today; empty when it can."""
        tunables, broken = call.tunables, self._broken(call)
        if stored.bad:
            return stored.bad
        if [evidence.name for evidence in stored.evidence] != [tunable.name for tunable in tunables.tunables]:
            return "it is for other candidates"
        if stored.digest != tunables[stored.index].digest:
            return f"its winner {stored.name} has changed"
        if stored.index in broken:
            return f"its winner {stored.name} can't be run: {broken[stored.index]}"
        if stored.origin == "imported":
            return self._problem_with_import(stored, call)
        return ""

    def _problem_with_import(self, stored: Decision, call: Call) -> str:
        """What was found elsewhere is proven here before it is used."""
        store, place = self.context.store, self._place(call)
        if store.proven_here(place):
            return ""
        winner = {stored.index: call.tunables[stored.index]}
        verdict = self.context.prover.prove(call.client, winner, call.key, call.inputs)[stored.index]
        if verdict.passed is False:
            return f"it was imported, and its winner {stored.name} is not right here: {verdict.reason}"
        if verdict.passed:
            store.set_proven_here(place)
        return ""

    # Running

    def _run(self, call: Call, decision: Decision) -> Any:
        broken: dict[int, Exception] = {}
        refusals = []
        for index in _order(call, decision):
            tunable = call.tunables[index]
            try:
                output = tunable.fn(call.inputs)
            except UnsupportedError as error:
                refusals.append(f"{tunable.name}: {reason_of(error)}")
            except (OutOfMemoryError, UsageError):
                raise
            except DeviceFaultError as error:
                raise self._condemn(call, decision, index, error) from error
            except Exception as error:
                broken[index] = error
            else:
                if broken:
                    self._set_aside(call, decision.index, broken, served_by=tunable.name)
                return output
        if broken:
            raise next(iter(broken.values()))
        raise WorkError(
            "no candidate can run this problem: " + "; ".join(refusals[:3]),
            hint="It shares its key with problems that can be run. The reasons are the candidates' own.",
        )

    def _set_aside(self, call: Call, winner: int, broken: dict[int, Exception], *, served_by: str) -> None:
        """Remembers candidates that could not be run, says so once, and has the key tuned again."""
        fresh = self._table.set_aside(call.slot, {i: reason_of(error) for i, error in broken.items()})
        for index, reason in fresh.items():
            self.context.warn(
                f"{call.tunables[index].name} could not be run ({reason}); {served_by} ran instead"
                + ("; the key will be tuned again" if index == winner else "")
            )

    def _condemn(self, call: Call, decision: Decision, index: int, error: Exception) -> DeviceFaultError:
        self._lost.add(call.client)
        name = decision.evidence[index].name
        if self._right_alone(call, index):
            return DeviceFaultError(not_its_fault(name, error), hint=ACQUITTED_HINT)
        reason = fault_reason(name, error)
        self._table.drop(call.slot)
        place, store = self._place(call), self.context.store
        bad = decision.condemned(index, reason)
        store.save(place, bad.to_json(), began_at_row_version=store.row_version(place))
        return DeviceFaultError(reason, hint=FAULT_HINT)

    def _right_alone(self, call: Call, index: int) -> bool:
        """Whether it is shown to be right where nothing else runs: a lost queue is noticed by anybody."""
        try:
            verdict = self.context.prover.alone(call.client, call.tunables[index], call.key, call.inputs)
        except Exception:
            return False
        return verdict.passed is True

    # Places

    def _call(self, client: TuningClient, tunables: TunableSet, inputs: Any) -> Call:
        context, key = self.context, tunables.key(inputs)
        slot = Slot(
            client.device_id,
            context.environment,
            str(context.level),
            tunables.checksum,
            tunables.fingerprint,
            key_text(key),
        )
        return Call(client, tunables, key, inputs, slot, Stopwatch())

    def _place(self, call: Call) -> Place:
        slot = call.slot
        return Place(self.name, slot.level, slot.device_id, slot.checksum, slot.key)

    def _broken(self, call: Call) -> dict[int, str]:
        entry = self._table.get(call.slot)
        return dict(entry.broken) if entry else {}


def _outcome(call: Call, decision: Decision, source: Source, note: str = "") -> Outcome:
    return Outcome(decision, source, call.tunables[decision.index], note)


def _order(call: Call, decision: Decision) -> Iterator[int]:
    """The winner, then the other measured candidates, fastest first, then those never tried."""
    yield decision.index
    out = {evidence.index for evidence in decision.evidence if evidence.outcome in ("error", "fault")}
    out.add(decision.index)
    measured = [evidence.index for evidence in decision.ranking]
    planned = [entry.index for entries in make_plan(call.tunables.tunables, call.key) for entry in entries]
    yield from (index for index in dict.fromkeys([*measured, *planned]) if index not in out)


def _name_of(build: Callable[..., Any]) -> str:
    module = getattr(build, "__module__", "") or ""
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
    return f"{module}.{getattr(build, '__qualname__', type(build).__name__)}"
