"""Verdicts: what is remembered, what is stored, what costs no worker, and what happens where none can run."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from rooftune.config import ProofConfig
from rooftune.errors import UnsupportedError
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.problem import Elem, Problem
from rooftune.proof import adversaries
from rooftune.proof.prover import DeviceProver, Prover, reference_of
from rooftune.proof.subject import MatmulProof
from rooftune.store.database import Database
from rooftune.store.stores import ProofStore
from rooftune.tuning.tunable import Tunable

from tests.adversaries import trials

NAMED = {candidate.name: candidate for candidate in adversaries.CANDIDATES}


def inputs(m=70, elem=Elem.F32):
    return SimpleNamespace(problem=Problem.of(m, 67, 65, elem))


def tunables(client, *names):
    return {i: adversaries.tunable(client, NAMED[name]) for i, name in enumerate(names)}


@pytest.fixture
def store():
    return ProofStore(Database(None))


@pytest.fixture
def make(client, store, strays):
    made = []

    def prover(mode="worker", timeout_s=10.0, workers=1, store=store, **options):
        made.append(DeviceProver(client, store, ProofConfig(mode, timeout_s, workers), **options))
        return made[-1]

    yield prover
    for prover in made:
        prover.close()


def test_right_wrong_and_build_errors_are_stored_and_not_tried_again(client, make):
    names = ("good", "writes_nan", "does_not_build")
    first = make()
    told = list(first.prove(tunables(client, *names), None, inputs()).values())
    assert [v.passed for v in told] == [True, False, False]
    assert {v.where for v in told} == {"worker"}
    second = make()
    again = second.prove(tunables(client, *names), None, inputs())
    assert [again[i].passed for i in (1, 2)] == [False, False]
    assert again[1].reason == told[1].reason
    assert second.usage.workers <= 1  # only for the good one, on the problem at hand


def test_with_the_suite_proven_another_problem_is_run_alone(client, make):
    prover = make()
    good = tunables(client, "good")
    assert prover.prove(good, None, inputs())[0].passed
    assert prover.prove(good, None, inputs())[0].passed
    launches = prover.usage.launches
    assert prover.prove(good, None, inputs(m=71))[0].passed
    assert prover.usage.launches - launches <= 2
    assert prover.usage.compiles <= 1


def test_a_time_out_is_remembered_but_not_stored(client, make):
    prover = make(timeout_s=1.0)
    hangs = tunables(client, "never_ends")
    verdict = prover.prove(hangs, None, inputs())[0]
    assert verdict.passed is False and "outlasted" in verdict.reason
    workers = prover.usage.workers
    assert prover.prove(hangs, None, inputs())[0] == verdict
    assert prover.usage.workers == workers
    fresh = make(mode="off")
    assert fresh._store.load(client.device_id, {}) is None
    assert fresh._recall({"digest": hangs[0].digest}) is None


def test_what_is_unsupported_costs_no_worker(client, make):
    prover = make()
    verdict = prover.prove(tunables(client, "good"), None, inputs(elem=Elem.F64))[0]
    assert verdict.unsupported and "f32" in verdict.reason
    assert prover.usage.workers == 0


def test_a_candidate_that_plans_nothing_right_is_at_fault_not_the_caller(client, make):
    class Broken:
        name = digest = "broken"

        def plan(self, problem, profile):
            raise ZeroDivisionError("tile of 0")

    verdict = make().prove({3: Tunable("broken", print, proof=MatmulProof(Broken()))}, None, inputs())[3]
    assert verdict.passed is False and "tile of 0" in verdict.reason


def test_off_proves_nothing(client, make):
    prover = make(mode="off")
    assert prover.prove(tunables(client, "writes_nan"), None, inputs())[0].passed is None


def test_inline_proves_in_this_process(client, make):
    prover = make(mode="inline")
    names = ("good", "wrong_at_a_tile_edge", "writes_out_of_bounds", "allocates_too_much", "does_not_build")
    told = prover.prove(tunables(client, *names), None, inputs())
    assert [told[i].passed for i in told] == [True, False, False, False, False]
    assert {v.where for v in told.values()} == {"inline"}
    assert "before the output" in told[2].reason
    assert "no memory" in told[3].reason


def test_where_workers_cannot_run_proofs_are_run_here_and_say_so(client, make, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    said = []
    prover = make(warn=said.append)
    told = prover.prove(tunables(client, "good", "writes_nan"), None, inputs())
    assert [(v.passed, v.where) for v in told.values()] == [(True, "inline"), (False, "inline")]
    assert "cannot be started" in prover.fallback
    assert said == [f"candidates are proven in this process, not in workers: {prover.fallback}"]


def test_what_nobody_asks_for_is_given_up(client, make, strays):
    prover = make(timeout_s=100.0)
    told = prover.prove(tunables(client, "good", "never_ends"), None, inputs())
    assert told[0].passed
    del told
    assert not any(worker.ticket for worker in prover._pool._workers)


def test_a_tunable_of_ones_own_is_proven_by_its_trial(client, make):
    prover = make(timeout_s=3.0, workers=2)
    own = {
        i: Tunable(trial.__name__, print, proof=trial)
        for i, trial in enumerate((trials.right, trials.wrong, trials.aborts))
    }
    told = prover.prove(own, "key", None)
    assert [v.passed for v in told.values()] == [True, False, False]
    assert "1 is not 2" in told[1].reason
    assert make().prove(own, "key", None)[0].passed


def test_a_trial_that_cannot_be_imported_is_run_here(client, make):
    ran = []

    def local(client, name, key):
        ran.append(key)
        if key == "refuse":
            raise UnsupportedError("not this key")

    assert reference_of(local) == ""
    told = make().prove({0: Tunable("local", print, proof=local)}, "some", None)
    assert (told[0].passed, told[0].where, ran) == (True, "inline", ["some"])
    assert make().prove({0: Tunable("local", print, proof=local)}, "refuse", None)[0].unsupported


def test_a_tunable_without_a_proof_is_let_through(client, make):
    assert make().prove({0: Tunable("unproven", print)}, "key", None)[0].passed is None


def test_the_real_candidates_are_right_here(client, make):
    """Those that this device's first round would try for a product of odd extents."""
    prover = make(timeout_s=60.0, workers=2)
    names = ("matmul_cpu_gemm_packed", "matmul_simple_unit_min_tile_size", "matmul_simple_cyclic_mma")
    chosen = {
        i: Tunable(c.name, print, digest=c.digest, proof=MatmulProof(c))
        for i, c in enumerate(CANDIDATES) if c.name in names
    }
    for verdict in prover.prove(chosen, None, inputs()).values():
        assert verdict.unsupported or verdict.passed, verdict.reason


def test_one_prover_for_each_client(client):
    prover = Prover(config=ProofConfig("off"))
    assert prover.of(client) is prover.of(client)
    with prover.paused(client):
        assert prover.usage.workers == 0


def test_importing_the_check_needs_no_device():
    code = "import sys, rooftune.proof.check; sys.exit('pyopencl' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
