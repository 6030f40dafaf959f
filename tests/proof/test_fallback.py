"""A winner that worked when it was tuned and fails later: what the call does, what becomes of the decision.

Real kernels on a real device; a new tuner on the same store stands for the next process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from rooftune.config import ProofConfig
from rooftune.errors import OutOfMemoryError, UnsupportedError
from rooftune.proof.prover import Prover
from rooftune.store.database import Database
from rooftune.store.stores import DecisionStore
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tunable import Tunable, TunableSet
from rooftune.tuning.tuner import LocalTuner

SOURCE = """
__kernel void twice(__global const float *x, __global float *y, int rounds)
{
    const size_t i = get_global_id(0);
    float v = x[i];
    for (int r = 0; r < rounds; ++r) v = v * 1.0000001f;
    y[i] = 2.0f * x[i] + (v == 0.5f ? 1.0e-30f : 0.0f);
}
"""
COUNT = 4096


@dataclass
class Scene:
    """Doubling numbers with a fast candidate, whose `fault` can be switched on, and a slow one."""

    client: object
    store: DecisionStore
    fault: str = ""
    warnings: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.x = np.linspace(1, 2, COUNT, dtype=np.float32)
        self.inputs = (self.client.upload(self.x), self.client.empty(4 * COUNT))

    def tuner(self):
        context = TuningContext(
            store=self.store, prover=Prover(config=ProofConfig("off")), warn=self.warnings.append
        )
        return LocalTuner("doubling", context)

    def fast(self, inputs):
        if self.fault == "build":
            self.client.kernel("this is no program", "twice")
        if self.fault == "unsupported":
            raise UnsupportedError("not these very numbers")
        if self.fault == "memory":
            self.client.empty(1 << 60)
        kernel = self.client.kernel(SOURCE, "twice")
        kernel.set_args(*inputs, *([] if self.fault == "arguments" else [np.int32(0)]))
        local = (7,) if self.fault == "enqueue" else None
        self.client.enqueue(kernel, (COUNT,), local)
        self.ran.append("fast")
        return inputs[1]

    def slow(self, inputs):
        kernel = self.client.kernel(SOURCE, "twice")
        kernel.set_args(*inputs, np.int32(4000))
        self.client.enqueue(kernel, (COUNT,), None)
        self.ran.append("slow")
        return inputs[1]

    def build(self, client):
        return (
            TunableSet(key=lambda inputs: "double")
            .with_tunable(Tunable("slow", self.slow)).with_tunable(Tunable("fast", self.fast))
        )

    def call(self, tuner):
        """One call; asserts its result and says which candidate computed it."""
        out = tuner.execute(self.client, tuner.init(self.client, self.build), self.inputs)
        assert np.array_equal(np.frombuffer(self.client.download(out, 4 * COUNT), np.float32), 2 * self.x)
        return self.ran[-1]

    def decided(self):
        fresh = self.tuner()
        return fresh.decide(self.client, fresh.init(self.client, self.build), self.inputs)


@pytest.fixture
def scene(client):
    scene = Scene(client, DecisionStore(Database(None)))
    assert scene.call(scene.tuner()) == "fast"
    return scene


@pytest.mark.parametrize("fault", ["build", "arguments", "enqueue"])
def test_what_cannot_be_run_is_replaced_said_once_and_tuned_again(scene, fault):
    scene.fault = fault
    tuner = scene.tuner()
    assert scene.call(tuner) == "slow"
    assert len(scene.warnings) == 1 and "fast could not be run" in scene.warnings[0]
    assert scene.call(tuner) == "slow"
    assert len(scene.warnings) == 1
    assert scene.decided().decision.name == "slow"


def test_unsupported_for_this_very_problem_changes_nothing_stored(scene):
    scene.fault = "unsupported"
    assert scene.call(scene.tuner()) == "slow"
    assert scene.warnings == []
    found = scene.decided()
    assert (found.decision.name, found.source) == ("fast", "disk")


def test_too_little_memory_is_said_and_the_decision_stays(scene):
    scene.fault = "memory"
    with pytest.raises(OutOfMemoryError, match="no memory"):
        scene.call(scene.tuner())
    found = scene.decided()
    assert (found.decision.name, found.source) == ("fast", "disk")


def test_all_broken_raises_the_first_ones_error(client):
    scene = Scene(client, DecisionStore(Database(None)))
    tuner = scene.tuner()
    scene.call(tuner)
    scene.fault, scene.slow = "build", scene.fast
    with pytest.raises(Exception, match="refused the program"):
        fresh = scene.tuner()
        fresh.execute(client, fresh.init(client, scene.build), scene.inputs)
