"""A winner that worked when it was tuned and fails later: what the call does, what becomes of the decision.

Real kernels on a real device; a new tuner on the same store stands for the next process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest
from rooftune.config import Config, EnvironmentConfig, ProofConfig
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.faults import waiting
from rooftune.device.opencl import cl
from rooftune.errors import DeviceFaultError, OutOfMemoryError, UnsupportedError
from rooftune.matmul.operation import matmul
from rooftune.proof.prover import Prover
from rooftune.session import Session
from rooftune.store.database import Database
from rooftune.store.stores import DecisionStore
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tunable import Tunable, TunableSet
from rooftune.tuning.tuner import LocalTuner

DEFAULT = next((d.platform for d in list_devices() if d.usable), "")
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
STAGED = "NVIDIA" not in DEFAULT
"""Whether the runtime refuses kernels of another context, and tells of failed events."""
staged = pytest.mark.skipif(not STAGED, reason="can't be staged there; test_poisoned.py loses a real context")


@dataclass
class Scene:
    """Doubling numbers with a fast candidate, whose `fault` can be switched on, and a slow one."""

    client: object
    store: DecisionStore
    fault: str = ""
    proof: str = ""
    warnings: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.x = np.linspace(1, 2, COUNT, dtype=np.float32)
        self.inputs = (self.client.upload(self.x), self.client.empty(4 * COUNT))

    @cached_property
    def elsewhere(self):
        return Client(self.client.device)

    def failed_event(self):
        """What waits for it never runs: its own event ends as failed."""
        event = cl.UserEvent(self.client.context)
        event.set_status(cl.status_code.OUT_OF_RESOURCES)
        return event

    def tuner(self):
        self.prover = Prover(config=ProofConfig("worker" if self.proof else "off"))
        context = TuningContext(store=self.store, prover=self.prover, warn=self.warnings.append)
        return LocalTuner("doubling", context)

    def fast(self, inputs):
        if self.fault == "build":
            self.client.kernel("this is no program", "twice")
        if self.fault == "unsupported":
            raise UnsupportedError("not these very numbers")
        if self.fault == "memory":
            self.client.empty(1 << 60)
        if self.fault == "lost":  # a kernel of another context: the runtime says so with INVALID_CONTEXT
            inputs = (self.elsewhere.upload(self.x), self.elsewhere.empty(4 * COUNT))
        client = self.elsewhere if self.fault == "lost" else self.client
        kernel = client.kernel(SOURCE, "twice")
        kernel.set_args(*inputs, *([] if self.fault == "arguments" else [np.int32(0)]))
        local = (7,) if self.fault == "enqueue" else None
        waits = [self.failed_event()] if self.fault == "later" else None
        self.client.enqueue(kernel, (COUNT,), local, wait_for=waits)
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
            .with_tunable(Tunable("slow", self.slow))
            .with_tunable(Tunable("fast", self.fast, proof=self.proof or None))
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


def condemned(scene, error):
    """The error names the candidate; this process and the next one tune again, without it."""
    assert "candidate fast faulted while running" in str(error)
    scene.fault = ""
    found = scene.decided()
    assert (found.decision.name, found.source) == ("slow", "tuned")
    assert {e.name: e.outcome for e in found.decision.evidence}["fast"] == "fault"
    assert scene.call(scene.tuner()) == "slow"


@staged
def test_a_lost_queue_or_context_is_one_clear_error_and_a_bad_decision(scene):
    scene.fault = "lost"
    with pytest.raises(DeviceFaultError) as caught:
        scene.call(scene.tuner())
    assert "OpenCL error -34" in str(caught.value)
    condemned(scene, caught.value)


@staged
@pytest.mark.parametrize(
    "trial, said",
    [("right", "other work on this device is to blame"), ("segfaults", "fast faulted while running")],
)
def test_a_lost_device_condemns_only_who_fails_alone_too(scene, strays, trial, said):
    """It is noticed at the launch after the one to blame: by anybody's."""
    tuner = scene.tuner()
    assert scene.call(tuner) == "fast"
    scene.proof, scene.fault = f"tests.adversaries.trials:{trial}", "lost"
    tuner = scene.tuner()
    with pytest.raises(DeviceFaultError, match=said) as caught:
        scene.call(tuner)
    scene.prover.close()
    assert "OpenCL error -34" in str(caught.value)
    scene.proof = scene.fault = ""
    found = scene.decided()
    stays = ("fast", "disk") if trial == "right" else ("slow", "tuned")
    assert (found.decision.name, found.source) == stays


@pytest.mark.skipif("Intel" not in DEFAULT, reason="PoCL hangs or ends the process when a dependency failed")
def test_a_fault_seen_only_while_waiting_makes_the_decision_bad_too(scene):
    scene.fault = "later"
    tuner = scene.tuner()
    tunables = tuner.init(scene.client, scene.build)
    tuner.execute(scene.client, tunables, scene.inputs)  # enqueued, and nothing seen yet
    with pytest.raises(DeviceFaultError, match="faulted while running") as caught, waiting("fast"):
        scene.client.last_event.wait()
    condemned(scene, tuner.condemn(scene.client, tunables, scene.inputs, caught.value))


def test_every_rule_one_after_another_in_one_process(scene):
    """The device is still there after each of them: only the decision changes, and as its rule says."""
    for fault in ("unsupported", "memory", "build", "arguments", "enqueue", *(["lost"] if STAGED else [])):
        scene.store, scene.fault = DecisionStore(Database(None)), ""
        assert scene.call(scene.tuner()) == "fast"
        scene.fault, tuner = fault, scene.tuner()
        if fault in ("memory", "lost"):
            with pytest.raises(OutOfMemoryError if fault == "memory" else DeviceFaultError):
                scene.call(tuner)
        else:
            assert scene.call(tuner) == "slow"
        scene.fault = ""
        after = "fast" if fault in ("unsupported", "memory", "build", "arguments", "enqueue") else "slow"
        assert scene.call(scene.tuner()) == after


@staged
def test_a_product_whose_reading_back_fails_condemns_its_winner(isolated, tmp_path, monkeypatch):
    """A real product by the real winner; waiting for it meets a failed event, and the runtime says so."""
    config = Config(environment=EnvironmentConfig(path=str(tmp_path)), proof=ProofConfig("off"))
    session = Session(config)
    a = np.ones((24, 24), np.float32)
    assert (matmul(session, a, a) == 24).all()
    winner = next(iter(session.store.decisions.all()))
    session.hot_numpy.forget()

    def lost(*_args, **_options):
        event = cl.UserEvent(session.client().context)
        event.set_status(cl.status_code.OUT_OF_RESOURCES)
        with waiting(""):
            event.wait()

    with monkeypatch.context() as patch:
        patch.setattr(session.client(), "read_into", lost)
        with pytest.raises(DeviceFaultError, match="faulted while running"):
            matmul(session, a, a)
    (bad,) = session.store.decisions.all()
    assert bad["bad"] and bad["index"] == winner["index"]


def test_all_broken_raises_the_first_ones_error(client):
    scene = Scene(client, DecisionStore(Database(None)))
    tuner = scene.tuner()
    scene.call(tuner)
    scene.fault, scene.slow = "build", scene.fast
    with pytest.raises(Exception, match="refused the program"):
        fresh = scene.tuner()
        fresh.execute(client, fresh.init(client, scene.build), scene.inputs)
