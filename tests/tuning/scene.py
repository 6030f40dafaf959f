"""A fake device, candidates on it, and a tuner that listens and stores: what tests of decisions share."""

from __future__ import annotations

from typing import Any

from rooftune.tuning.context import TuningContext
from rooftune.tuning.decision import Decision
from rooftune.tuning.tunable import Tunable, TunableSet, TuneGroup
from rooftune.tuning.tuner import LocalTuner

from .fakes import FakeCandidates, FakeClient, MemoryStore

MS = 1e-3


class Scene:
    """A fake device, candidates on it, and a tuner that listens and stores."""

    def __init__(self, **context: Any) -> None:
        self.client = FakeClient()
        self.made = FakeCandidates(self.client)
        self.records: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.store = MemoryStore()
        listeners: dict[str, Any] = {"sinks": [self.records.append], "warn": self.said.append}
        self.context = TuningContext(**{"store": self.store, **listeners, **context})
        self.tunables = TunableSet(lambda inputs: inputs)

    def add(self, name: str, seconds: Any, group: TuneGroup | None = None, **options: Any) -> Tunable:
        tunable = self.made.tunable(name, seconds, **options)
        if group is not None:
            tunable.group(group, 0)
        self.tunables.with_tunable(tunable)
        return tunable

    def decide(self, inputs: Any = 1) -> Decision:
        """As a new process would: nothing in memory."""
        return LocalTuner("test", self.context).decide(self.client, self.tunables, inputs).decision

    def runs(self, name: str) -> int:
        return self.made.runs.get(name, 0)

    def renew(self) -> None:
        """The same device and store, an empty list of candidates."""
        self.tunables = TunableSet(lambda inputs: inputs)
        self.made.runs.clear()


def outcomes(decision: Decision) -> dict[str, str]:
    return {evidence.name: evidence.outcome for evidence in decision.evidence}
