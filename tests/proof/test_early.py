"""Workers that start before the device is known: where a key is surely cold, and nowhere else."""

from __future__ import annotations

import os
import time

import pytest
from rooftune.config import Config, EnvironmentConfig, ProofConfig
from rooftune.kernel_run import tune_kernel
from rooftune.matmul.problem import Shape
from rooftune.proof.pool import Pool
from rooftune.proof.prover import _hello
from rooftune.session import Session
from rooftune.shapes_run import tune_shapes
from rooftune.spec.spec import parse_spec

from ..spec.test_kernel import RIGHT, SPEC
from .test_pool import job

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need a POSIX system")


def test_workers_wait_for_their_hello_however_long_it_takes(client, strays, monkeypatch):
    monkeypatch.setattr("rooftune.proof.pool.START_TIMEOUT_S", 5.0)
    pool = Pool(None, workers=1, timeout_s=5)
    pool.warm_up()
    time.sleep(6)
    assert len(strays()) == 1 and pool.usage.workers == 0
    pool.introduce(_hello(client))
    assert pool.submit(job("right")).wait().status == "right"
    assert pool.usage.workers == 1
    pool.close()


def test_workers_that_get_no_hello_end_with_the_pool(strays):
    pool = Pool(None, workers=2, timeout_s=5)
    pool.warm_up()
    pool.close()
    time.sleep(0.2)
    assert strays() == []


@pytest.fixture
def sessions(isolated, tmp_path, strays):
    made = []

    def session(**options):
        config = Config(environment=EnvironmentConfig(path=str(tmp_path)), proof=ProofConfig("worker"))
        made.append(Session(config, **options))
        return made[-1]

    yield session
    for each in made:
        each.prover.close()


def started(session, text):
    """Whether the session foresees a tuning of this shape and has workers for it."""
    session.foresee([session.problem(Shape.parse(text))])
    return session.prover._early is not None


def test_only_a_key_that_is_surely_cold_has_workers_started(sessions):
    first = sessions()
    assert started(first, "40")
    (run,) = tune_shapes(first, first.client(), [Shape.parse("40")], repeat=0).shapes
    assert run.cost.source == "tuned" and run.cost.proof.launches > 0
    first.close("test")
    assert not started(sessions(), "40")
    assert not started(sessions(), "0x5x5")
    assert not started(sessions(measure=False), "700")
    assert started(sessions(cold=True), "40")
    assert started(sessions(), "700")


def test_workers_of_a_kernel_that_were_started_early_are_counted(sessions):
    session = sessions()
    spec = parse_spec(SPEC, None, {"scale.cl": RIGHT})
    session.foresee_kernel(spec, spec.problem_sizes)
    (run,) = tune_kernel(session, session.client(), spec, repeat=0).sizes
    assert run.cost.proof.launches > 0 and run.cost.proof.workers > 0


def test_once_a_device_is_open_nothing_is_foreseen(sessions):
    session = sessions()
    session.client()
    assert not started(session, "700")
