"""`tune roofline` on a real device, with a sweep of a few sets."""

from __future__ import annotations

import sys

import pytest
from rooftune.probes import bandwidth
from rooftune.probes import prober as probers

from .test_schema import fits


@pytest.fixture(autouse=True)
def short_sweep_in_a_store_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("CUBECL_ENVIRONMENT", f"roofline-{tmp_path.name}")
    sets = [1 << 14, 1 << 18, 1 << 22]
    monkeypatch.setattr(bandwidth, "sweep_sets", lambda *_: sets)
    monkeypatch.setattr(probers, "Method", lambda: probers.QUICK)


def test_the_roofline_of_a_device_without_decisions(tune):
    ran = tune("roofline")
    assert ran.code == 0
    for words in ("Roofline of", "operations per byte", "memory:", "f32", "FLOP/s", "B/s"):
        assert words in ran.out


def test_the_json_fits_its_schema_and_says_what_is_missing(tune):
    ran = tune("roofline", "64", "--json")
    assert ran.code == 4
    fits("roofline", ran.json)
    assert ran.json["missing"] == ["64"]
    assert ran.json["points"] == []
    assert "tune shapes 64" in ran.err


def test_decisions_are_points(tune):
    assert tune("shapes", "48", "--repeat", "0").code == 0
    for args in ((), ("48",)):
        (point,) = tune("roofline", *args, "--json").json["points"]
        assert point["dtype"] == "f32"
        assert point["ops_per_s"] > 0
        assert point["label"] == ("48" if args else "64 f32 @64")
    drawn = tune("roofline")
    assert point["winner"].removeprefix("matmul_") in drawn.out


def test_files_are_written_and_named(tune, tmp_path):
    pytest.importorskip("matplotlib")
    ran = tune("roofline", "--png", "r.png", "--html", "r.html", "--json")
    assert ran.code == 0
    assert ran.json["files"] == ["r.png", "r.html"]
    assert (tmp_path / "r.png").stat().st_size > 10_000
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_a_file_that_cannot_be_written_is_bad_usage(tune):
    pytest.importorskip("matplotlib")
    ran = tune("roofline", "--png", "missing/r.png")
    assert ran.code == 2
    assert "missing/r.png" in ran.err


def test_without_matplotlib_it_says_what_to_install(tune, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = tune("roofline", "--png", "r.png")
    assert ran.code == 4
    assert "pip install '.[plot]'" in ran.err


@pytest.mark.parametrize("args", [("x",), ("64", "--dtype", "f8")])
def test_bad_usage(tune, args):
    assert tune("roofline", *args).code == 2
