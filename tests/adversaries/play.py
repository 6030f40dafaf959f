"""Tunes one product with the named adversaries, as a process of its own: prints what was decided, as JSON.

    python -m tests.adversaries.play DEVICE SECONDS MODE NAME…
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from rooftune.config import ProofConfig
from rooftune.device.client import Client
from rooftune.matmul.problem import Problem
from rooftune.matmul.tunables import MatmulInputs
from rooftune.proof.adversaries import EVERY, tunable
from rooftune.proof.output import OutputCheck
from rooftune.proof.prover import Prover
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tunable import TunableSet
from rooftune.tuning.tuner import LocalTuner


def main(device: str, timeout_s: str, mode: str, *names: str) -> None:
    client = Client(int(device))
    problem = Problem.of(130, 131, 129)
    rng = np.random.default_rng(5)
    lhs, rhs = (rng.standard_normal(op.shape).astype(np.float32) for op in (problem.lhs, problem.rhs))
    out = client.empty(problem.out.size_bytes)
    inputs = MatmulInputs(problem, client.upload(lhs), client.upload(rhs), out)
    prover = Prover(config=ProofConfig(mode=mode, timeout_s=float(timeout_s), workers=2))
    tuner = LocalTuner("adversaries", TuningContext(prover=prover))

    def build(client: Client) -> TunableSet:
        tunables = TunableSet(key=lambda inputs: "130").with_check(OutputCheck(client))
        for candidate in EVERY:
            if candidate.name in names:
                tunables.with_tunable(tunable(client, candidate))
        return tunables

    began_s = time.monotonic()
    try:
        outcome = tuner.decide(client, tuner.init(client, build), inputs)
        result = {
            "winner": outcome.tunable.name,
            "reasons": {e.name: e.reason for e in outcome.decision.evidence},
            "checks": [check.record() for check in outcome.decision.checks],
        }
    except Exception as error:
        result = {"winner": None, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps({**result, "wall_s": time.monotonic() - began_s, "workers": prover.usage.workers}))


if __name__ == "__main__":
    main(*sys.argv[1:])
