"""`tune probe` on a real device."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import MeasurementError, UsageError
from rooftune.probes import prober as probers
from rooftune.probes.prober import DTYPES, UNIT_DTYPES, Prober
from rooftune.probes.report import parse_size

from .test_schema import fits


@pytest.fixture(autouse=True)
def quick_probes_in_a_store_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setenv("CUBECL_ENVIRONMENT", f"probe-{tmp_path.name}")
    monkeypatch.setattr(probers, "Method", lambda: probers.QUICK)


def test_a_probe_is_measured_once_and_then_comes_from_the_store(tune):
    first = tune("probe", "launch-overhead", "--json")
    assert first.code == 0
    fits("probe", first.json)
    (result,) = first.json["probes"]
    assert not result["cached"]
    assert result["launches"] <= 5000
    (again,) = tune("probe", "launch-overhead", "--json").json["probes"]
    assert again["cached"]
    assert again["value"] == result["value"]


def test_fresh_says_by_how_much_it_moved(tune):
    before = tune("probe", "compute", "--dtype", "f32", "--json").json["probes"][0]
    ran = tune("probe", "compute", "--dtype", "f32", "--fresh", "--json")
    fits("probe", ran.json)
    (result,) = ran.json["probes"]
    assert not result["cached"]
    assert result["previous"] == before["value"]
    assert result["moved"] == pytest.approx(result["value"] / before["value"] - 1)
    assert "than what was stored" in tune("probe", "compute", "--dtype", "f32", "--fresh").out


def test_fresh_measures_what_bounds_decisions_again(tune):
    assert tune("shapes", "40", "--repeat", "0").code == 0
    probes = tune("probe", "bandwidth", "--fresh", "--json").json["probes"]
    bounding = [p for p in probes if p["access"] == "fastest"]
    assert bounding
    assert all(p["previous"] > 0 and not p["cached"] for p in bounding)


def test_all_probes_fit_the_schema_and_the_table_names_each(tune):
    ran = tune("probe", "all", "--json")
    assert ran.code == 0
    fits("probe", ran.json)
    table = tune("probe", "all")
    assert table.code == 0
    accesses = ("read hot", "write hot", "copy hot")
    for word in ("launch-overhead", "f32 plain", *accesses, "event window", "stored 2"):
        assert word in table.out


@pytest.mark.parametrize(
    "options",
    [("--access", "write", "--working-set", "100KiB"), ("--cold-reads", "--working-set", "1M")],
    ids=" ".join,
)
def test_bandwidth_options(tune, options):
    ran = tune("probe", "bandwidth", *options, "--json")
    assert ran.code == 0
    fits("probe", ran.json)
    (result,) = ran.json["probes"]
    assert result["working_set_bytes"] in (128 << 10, 1 << 20)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nothing",), "launch-overhead"),
        (("compute", "--dtype", "f8"), "f32"),
        (("bandwidth", "--access", "sideways"), "copy"),
        (("bandwidth", "--working-set", "much"), "64KiB"),
        (("bandwidth", "--working-set", "0"), "at least 16 KiB"),
        (("bandwidth", "--working-set", "100"), "at least 16 KiB"),
        (("bandwidth", "--working-set", "99TiB"), "99 TiB is too large for"),
        (("bandwidth", "--working-set", "99TiB", "--cold-reads"), "Give 16 KiB to "),
        (("nope",), "there is no probe 'nope'\n"),
        (("bandwidth", "--sweep", "--cold-reads"), "sweep"),
        ((), "WHAT"),
    ],
)
def test_bad_usage_says_what_is_allowed(tune, args, said):
    ran = tune("probe", *args)
    assert ran.code == 2
    assert said in ran.err
    assert ran.out == ""


def test_an_element_type_the_device_lacks_is_work_that_cannot_be_done(tune, monkeypatch):
    monkeypatch.setattr(Prober, "units", lambda self: [("f32", "plain")])
    ran = tune("probe", "compute", "--dtype", "f64")
    assert ran.code == 4
    assert "f64" in ran.err


def test_a_value_that_cannot_be_right_is_reported_and_the_rest_stays(tune, monkeypatch):
    def broken(self):
        raise MeasurementError("the launch overhead was measured as 0, which cannot be right; it is not used")

    monkeypatch.setattr(Prober, "launch", broken)
    ran = tune("probe", "all", "--json")
    assert ran.code == 4
    fits("probe", ran.json)
    assert "cannot be right" in next(p["error"] for p in ran.json["probes"] if "error" in p)
    assert any(p["probe"] == "compute" and p.get("value") for p in ran.json["probes"])


def test_the_schema_knows_every_type_that_can_be_probed():
    text = (resources.files("rooftune") / "schemas" / "probe.json").read_text()
    (listed,) = re.findall(r'"dtype": \{\s*"enum": \[([^]]*)\]', text)
    assert set(re.findall(r"\w+", listed)) == {*DTYPES, *UNIT_DTYPES}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64k", 65536),
        ("16M", 16 << 20),
        ("1.5GiB", 3 << 29),
        (" 2 GB ", 2 << 30),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


def test_a_size_beyond_all_memory_is_a_size():
    assert parse_size("9" * 400 + "T") > 1 << 60


@given(st.text(max_size=8))
def test_any_other_text_is_a_usage_error_and_never_a_crash(text):
    try:
        assert parse_size(text) >= 0
    except UsageError as error:
        assert "64KiB" in error.hint
