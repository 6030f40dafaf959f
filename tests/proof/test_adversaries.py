"""Candidates that misbehave: the right one wins, each misdeed is told, and nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rooftune.device.discovery import list_devices
from rooftune.proof.adversaries import CANDIDATES, ELEVEN

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need a POSIX system")
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 5.0
DEVICES = [d for d in list_devices() if d.usable]
first, rest = DEVICES[:1], DEVICES[1:]
on_each_device = pytest.mark.parametrize(
    "device", [*first, *(pytest.param(d, marks=pytest.mark.long) for d in rest)],
    ids=[f"{d.index}-{d.platform}-{d.platform_version}".replace(" ", "_")[:40] for d in DEVICES],
)

each_device = pytest.mark.parametrize(
    "device", DEVICES, ids=[f"{d.index}-{d.platform_version}"[:30] for d in DEVICES]
)


def play(device, names, *, mode="worker"):
    """Tunes in a process of its own; its result, and its wall time."""
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversaries.play", str(device.index), str(TIMEOUT_S), mode, *names],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), time.monotonic() - began_s


def expect(adversary, result):
    """It did not win, and the reason is its own."""
    told = result["reasons"][adversary.name]
    assert adversary.caught_by in told, (adversary.name, told)


@on_each_device
def test_all_eleven_with_a_good_one(device, strays):
    """The good one is slow, so that each of the others would win if it were let."""
    result, wall_s = play(device, ["good_but_slow", *(a.name for a in ELEVEN)])
    assert result["winner"] == "good_but_slow"
    for adversary in ELEVEN:
        expect(adversary, result)
    assert wall_s < 120
    assert strays() == []


@pytest.mark.long
@each_device
def test_all_eleven_with_two_good_ones(device, strays):
    result, wall_s = play(device, [c.name for c in CANDIDATES])
    assert result["winner"] == "good"
    for adversary in ELEVEN:
        if adversary.name != "right_at_first":  # as fast as the good one, and may lose to it like anybody
            expect(adversary, result)
    assert wall_s < 120
    assert strays() == []


each_adversary = pytest.mark.parametrize("adversary", ELEVEN, ids=[a.name for a in ELEVEN])


@pytest.mark.long
@each_adversary
@each_device
def test_each_with_a_good_one(device, adversary, strays):
    result, wall_s = play(device, ["good_but_slow", adversary.name])
    assert result["winner"] == "good_but_slow"
    expect(adversary, result)
    assert wall_s < 60
    assert strays() == []


@pytest.mark.long
@each_adversary
@each_device
def test_each_alone(device, adversary, strays):
    """With itself under a second name for its only rival: nothing can win, and both are told of."""
    names = [adversary.name, f"{adversary.name}_again"]
    result, wall_s = play(device, names)
    assert result["winner"] is None
    error = result["error"]
    each = error.count(adversary.caught_by) >= 2 and all(f"{name}: " in error for name in names)
    assert each or (adversary.caught_by in error and "all 2 candidates tried" in error), error
    assert wall_s < 60
    assert strays() == []


def test_alone_with_nothing_right_the_failure_tells_the_reason(strays):
    result, _ = play(DEVICES[0], ["writes_nan", "does_not_build", "takes_no_time"])
    assert result["winner"] is None
    assert "not finite" in result["error"] and "refused" in result["error"]


def test_unproven_the_measurement_still_finds_what_it_can():
    names = ["good", "does_not_build", "allocates_too_much", "takes_no_time", "writes_nan"]
    result, _ = play(DEVICES[0], names, mode="off")
    assert result["winner"] == "good"
    assert "nothing was enqueued" in result["reasons"]["takes_no_time"]
    assert "memory" in result["reasons"]["allocates_too_much"]
