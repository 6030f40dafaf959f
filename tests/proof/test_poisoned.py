"""A kernel that really faults while it runs and loses its context. Only a GPU's driver survives that.

On a CPU runtime a kernel is part of the process: an illegal address ends the process (that is what workers
are for, and the adversaries show it), and the runtime never gets to report it. What such a runtime can report
as failed is a command whose dependency failed, and a context that is none of its own: `test_fallback` has
both. Here, on an NVIDIA GPU, a kernel reads an illegal address in a child process, which poisons the child's
own context and nothing else; another process goes on as if nothing had happened.

    pytest tests/proof/test_poisoned.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rooftune.device.discovery import list_devices

GPUS = [d for d in list_devices() if d.usable and d.profile.capability is not None]
pytestmark = pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU: a CPU runtime has no fault it can report")

CHILD = '''
import json, sys
from pathlib import Path
import numpy as np
from rooftune.config import ProofConfig
from rooftune.device.client import Client
from rooftune.device.faults import waiting
from rooftune.errors import DeviceFaultError
from rooftune.proof.prover import Prover
from rooftune.store.database import Database
from rooftune.store.stores import DecisionStore
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tunable import Tunable, TunableSet
from rooftune.tuning.tuner import LocalTuner

SOURCE = """
__kernel void twice(__global const float *x, __global float *y, int rounds, ulong stray)
{
    float v = x[get_global_id(0)];
    for (int r = 0; r < rounds; ++r) v = v * 1.0000001f;
    if (stray) v = *(__global const float *)stray;
    y[get_global_id(0)] = 2.0f * x[get_global_id(0)] + (v == 0.5f ? 1.0e-30f : 0.0f);
}
"""
device, folder, act = sys.argv[1:]
client, count = Client(int(device)), 4096
x = np.linspace(1, 2, count, dtype=np.float32)
inputs = (client.upload(x), client.empty(4 * count))
stray = act != "tune"

def run(rounds, stray):
    client.run(SOURCE, "twice", (count,), None, *inputs, np.int32(rounds), np.uint64(stray))
    return inputs[1]

fast = Tunable("fast", lambda inputs: run(0, 64 if stray else 0))
slow = Tunable("slow", lambda inputs: run(40000, 0))
context = TuningContext(
    store=DecisionStore(Database(Path(folder) / "store.db")), prover=Prover(config=ProofConfig("off"))
)
tuner = LocalTuner("doubling", context)
tunables = tuner.init(client, lambda _: (
    TunableSet(key=lambda inputs: "double").with_tunable(slow).with_tunable(fast)
))
said = []
def doing(what):
    try:
        what()
    except DeviceFaultError as error:
        said.append(str(error))

def read():
    with waiting("fast"):
        client.sync()
        client.download(inputs[1], 4)

outcome = tuner.decide(client, tunables, inputs)
found = [outcome.decision.name, outcome.source]
doing(lambda: tuner.execute(client, tunables, inputs))
if act == "poison":
    try:
        read()
    except DeviceFaultError as error:
        said.append(str(tuner.condemn(client, tunables, inputs, error)))
    doing(client.sync)
print(json.dumps({"found": found, "said": said}))
'''


def child(act, folder):
    run = [sys.executable, "-c", CHILD, str(GPUS[0].index), str(folder), act]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_kernel_that_faults_loses_its_context_and_its_decision_and_nothing_else(tmp_path):
    tuned = child("tune", tmp_path)
    assert tuned == {"found": ["fast", "tuned"], "said": []}
    poisoned = child("poison", tmp_path)
    assert poisoned["found"] == ["fast", "disk"]
    assert "candidate fast faulted while running" in poisoned["said"][0]
    assert len(poisoned["said"]) >= 2  # the context stays lost, and that is said in words too
    after = child("tune", tmp_path)
    assert after["found"] == ["slow", "tuned"]
    assert after["said"] == []
