"""`tune plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PLANS = json.loads((Path(__file__).parents[1] / "golden" / "plans.json").read_text())


def assumed(device: dict) -> str:
    units = [unit for unit in ("cmma", "mma", "tma") if device[unit]]
    return ",".join(["cpu" if device["cpu"] else "gpu", *units])


@pytest.mark.parametrize("case", PLANS, ids=lambda case: f"{case['shape']} {assumed(case['device'])}")
def test_golden_plans_need_no_device(case, tune):
    ran = tune("plan", case["shape"], "--assume", assumed(case["device"]), "--json")
    assert ran.code == 0 and ran.err == ""
    assert [[c["index"] for c in round_] for round_ in ran.json["rounds"]] == case["rounds"]


def test_each_candidate_says_why_it_is_there_and_whether_it_can_run(tune):
    found = tune("plan", "4096", "--assume", "gpu,cmma", "--json").json
    assert found["schema"] == "rooftune/plan/1"
    first, second = found["rounds"][0][0], found["rounds"][1][0]
    assert first == {
        "index": 12,
        "name": "matmul_simple_cyclic_cmma",
        "group": "accelerated",
        "group_priority": 3,
        "priority": 3,
        "supported": True,
        "why": "General and Large",
    }
    assert second["supported"] is False and second["priority"] == 0
    assert "the device has no mma for f32" in second["why"]


def test_for_people_every_candidate_has_a_line(tune):
    out = tune("plan", "1024", "--assume", "cpu").out
    lines = out.splitlines()
    assert lines[0] == "1024 on assumed cpu, level balanced"
    assert sum(line.startswith("round ") for line in lines) == 5
    assert "    10 matmul_cpu_gemm" in lines
    assert "  unit 1, inside it 1: General, Medium; k is not deep" in lines


def test_the_plan_of_the_device_that_is_here(tune):
    from rooftune.device.discovery import list_devices

    if not list_devices():
        pytest.skip("no OpenCL device")
    found = tune("plan", "1024", "--json").json
    assert found["device"]
    assert sorted(c["index"] for round_ in found["rounds"] for c in round_) == sorted(
        {c["index"] for round_ in found["rounds"] for c in round_}
    )


@pytest.mark.parametrize("text", ["", "tpu", "gpu,foo", "cmma", "cpu gpu"])
def test_a_device_that_cannot_be_assumed(text, tune):
    ran = tune("plan", "64", "--assume", text)
    assert ran.code == 2
    assert "is not known there" in ran.err and "--assume gpu,cmma,tma" in ran.err


def test_a_device_that_is_not_there(tune):
    ran = tune("plan", "64", "--device", "no such device", "--json")
    assert ran.code == 3
    assert ran.json["error"]["code"] == "device"
