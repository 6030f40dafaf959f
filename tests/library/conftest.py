"""Sessions on the real devices of this machine, without tuning where a test is not about tuning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rooftune.config import Config, EnvironmentConfig, ProofConfig
from rooftune.device.client import Client
from rooftune.device.discovery import FoundDevice, list_devices
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.tunables import MatmulInputs
from rooftune.session import Session
from rooftune.tuning.tunable import TunableSet

DEVICES = [found for found in list_devices() if found.usable and not found.defective]
by_device = pytest.mark.parametrize("found", DEVICES, ids=lambda d: d.platform.split("(")[0].replace(" ", ""))


def session_in(folder: Path) -> Session:
    """A session of its own, in a store of its own, whose candidates are proven in this process."""
    config = Config()
    environment = EnvironmentConfig(path=str(folder))
    return Session(replace(config, environment=environment, proof=ProofConfig(mode="off")))


def only(session: Session, client: Client, name: str) -> None:
    """Gives the session one candidate on this device: then nothing is measured."""
    candidates = session.candidates(client)
    candidate = next(c for c in CANDIDATES if c.name == name)
    whole = candidates.tunables(session.level, lambda inputs: None)

    def build(_client: Client) -> TunableSet:
        tunable = next(t for t in whole.tunables if t.name == candidate.name)
        return TunableSet(key=whole.key, inputs=whole.inputs).with_tunable(tunable)

    session.tuner.init(client, build)


@pytest.fixture(scope="session")
def plain_sessions(
    tmp_path_factory: pytest.TempPathFactory, shared_home: Path
) -> Iterator[dict[str, Session]]:
    """Sessions by device label, each with the naive kernel alone."""
    yield {}


@pytest.fixture
def plain(
    plain_sessions: dict[str, Session], found: FoundDevice, tmp_path_factory: pytest.TempPathFactory
) -> Session:
    """A session on `found` with one kernel, so that nothing is measured; shared by all tests."""
    if found.label not in plain_sessions:
        session = plain_sessions[found.label] = session_in(tmp_path_factory.mktemp("plain"))
        client = session.client(found.index)
        session._clients[None] = client
        only(session, client, "matmul_naive")
    return plain_sessions[found.label]


__all__ = ["DEVICES", "MatmulInputs", "by_device", "only", "session_in"]
