from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.cli.explain import _foot, _head, _rows
from rooftune.explained import Explanation
from rooftune.spec.brief import brief_names
from rooftune.tuning.bounds import Bound, Bounds
from rooftune.tuning.decision import Check, Decision, Evidence, Timings, duration
from rooftune.tuning.events import Event
from rooftune.tuning.ties import TieBreak

TEXT = st.text(max_size=8)
SECONDS = st.floats(1e-9, 1e4)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
KEYS = st.recursive(PLAIN, lambda part: st.lists(part, max_size=3) | st.dictionaries(TEXT, part, max_size=3))
OUTCOMES = st.sampled_from(["measured", "dropped", "skipped", "unsupported", "error", "fault"])
PEAKS = st.floats() | st.floats(1.0, 1e15)
TIES = st.builds(TieBreak, TEXT, TEXT, st.integers(1, 10), SECONDS, st.floats(0, 1))
BOUNDS = st.builds(
    Bounds,
    st.lists(
        st.builds(Bound, TEXT, st.integers(0, 2**70), PEAKS, st.none() | st.floats(0.1, 1)), max_size=3
    ).map(tuple),
    st.floats(),
)
EVENTS = st.builds(Event, st.sampled_from(["TuningStep", "RooflineExceeded"]), TEXT, SECONDS) | st.builds(
    Event, st.sampled_from(["Dropped", "ShortCircuit"]), TEXT, st.none() | TEXT
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    count = draw(st.integers(1, 6))
    evidence = tuple(
        Evidence(
            index,
            f"t{index}",
            draw(TEXT),
            draw(OUTCOMES),
            tuple(draw(st.lists(SECONDS, max_size=6))),
            draw(st.integers(1, 64)),
            draw(TEXT),
            draw(st.booleans()),
        )
        for index in range(count)
    )
    return Decision(
        key=draw(KEYS),
        index=draw(st.integers(0, count - 1)),
        evidence=evidence,
        tuner=draw(TEXT),
        checksum=draw(TEXT),
        level=draw(TEXT),
        device_id=draw(TEXT),
        device=draw(TEXT),
        environment=draw(TEXT),
        at=draw(TEXT),
        origin=draw(st.sampled_from(["local", "imported"])),
        bounds=draw(st.none() | BOUNDS),
        limit_s=draw(st.none() | SECONDS),
        short_circuit=draw(st.booleans()),
        tie_break=draw(st.none() | TIES),
        events=tuple(draw(st.lists(EVENTS, max_size=5))),
        checks=tuple(draw(st.lists(st.builds(Check, TEXT, st.booleans(), TEXT, TEXT), max_size=3))),
        timings=draw(st.builds(Timings, SECONDS, SECONDS, SECONDS, SECONDS)),
        bad=draw(TEXT),
        measured_on=draw(st.none() | KEYS),
    )


@given(decisions())
def test_a_decision_comes_back_from_json_unchanged(decision: Decision) -> None:
    text = json.dumps(decision.to_json(), allow_nan=False)
    assert Decision.from_json(json.loads(text)) == decision


@given(decisions())
def test_a_record_is_one_line_of_strict_json_with_every_candidate(decision: Decision) -> None:
    record = decision.record()
    assert "\n" not in json.dumps(record, allow_nan=False)
    assert len(record["results"]) == len(decision.evidence)
    assert {name_of(result) for result in record["results"]} == {e.name for e in decision.evidence}


@given(decisions())
def test_results_come_fastest_first_then_the_errors(decision: Decision) -> None:
    kinds = [next(iter(result["outcome"])) for result in decision.record()["results"]]
    assert kinds == sorted(kinds, key=lambda kind: kind != "Ok")
    medians = [e.median_s for e in decision.evidence if e.timed]
    fast = [r["outcome"]["Ok"] for r in decision.record()["results"] if "Ok" in r["outcome"]]
    assert len(fast) == len(medians)
    if decision.winner.timed:
        assert fast[0]["index"] == decision.index
    rest = [nanos(result["computation"]["median"]) for result in fast if result["index"] != decision.index]
    assert rest == sorted(rest)


def name_of(result: dict[str, Any]) -> str:
    outcome = result["outcome"]
    if "Ok" in outcome:
        return str(outcome["Ok"]["name"])
    (error,) = outcome["Err"].values()
    return str(error["name"])


def nanos(value: dict[str, int]) -> int:
    return value["secs"] * 1_000_000_000 + value["nanos"]


def example() -> Decision:
    """Three candidates measured or not, one wrong, one never tried."""
    return Decision(
        key={"n": 1},
        index=2,
        evidence=(
            Evidence(0, "slow", "d0", "dropped", (3.0, 2.5, 2.0)),
            Evidence(1, "wrong", "d1", "error", (0.5, 0.5), reason="its proof failed"),
            Evidence(2, "fast", "d2", "measured", (9.0, 1.25, 1.5, 1.0)),
            Evidence(3, "idle", "d3", "skipped", reason="never tried"),
            Evidence(4, "tensor", "d4", "unsupported", reason="no tensor cores"),
        ),
        level="balanced",
        device="Fake",
        environment="default",
        at="2026-01-31T12:00:00Z",
        bounds=Bounds((Bound("compute", 8, 10.0, 0.8),), 1e-6),
        limit_s=1.000001,
        events=(
            Event("TuningStep", "fast", 1.25),
            Event("ShortCircuit", "fast"),
            Event("Dropped", "slow", "slow"),
        ),
        checks=(Check("wrong", False, "off by one", "worker"), Check("fast", True)),
    )


def test_the_record_has_exactly_the_documented_form() -> None:
    assert example().record() == {
        "key": {"n": 1},
        "fastest_index": 2,
        "fastest_time": {"secs": 1, "nanos": 250_000_000},
        "results": [
            {
                "outcome": {
                    "Ok": {
                        "name": "fast",
                        "index": 2,
                        "computation": {
                            "mean": {"secs": 1, "nanos": 250_000_000},
                            "median": {"secs": 1, "nanos": 250_000_000},
                            "variance": {"secs": 0, "nanos": 41_666_667},
                            "min": {"secs": 1, "nanos": 0},
                            "max": {"secs": 1, "nanos": 500_000_000},
                        },
                    }
                }
            },
            {
                "outcome": {
                    "Ok": {
                        "name": "slow",
                        "index": 0,
                        "computation": {
                            "mean": {"secs": 2, "nanos": 250_000_000},
                            "median": {"secs": 2, "nanos": 250_000_000},
                            "variance": {"secs": 0, "nanos": 62_500_000},
                            "min": {"secs": 2, "nanos": 0},
                            "max": {"secs": 2, "nanos": 500_000_000},
                        },
                    }
                }
            },
            {"outcome": {"Err": {"Unknown": {"name": "wrong", "err": "its proof failed"}}}},
            {"outcome": {"Err": {"Skip": {"name": "idle"}}}},
            {"outcome": {"Err": {"Skip": {"name": "tensor"}}}},
        ],
        "log_context": {
            "bounds": {
                "bounds": [{"resource": {"amount": 8, "peak_per_s": 10.0}, "threshold": 0.8}],
                "launch_overhead": {"secs": 0, "nanos": 1000},
            },
            "limit": {"secs": 1, "nanos": 1000},
            "events": [
                {"TuningStep": ["fast", {"secs": 1, "nanos": 250_000_000}]},
                {"ShortCircuit": "fast"},
                {"Dropped": ["slow", "slow"]},
            ],
        },
        "checks": [
            {"name": "wrong", "passed": False, "reason": "off by one", "where": "worker"},
            {"name": "fast", "passed": True},
        ],
        "device": "Fake",
        "environment": "default",
        "level": "balanced",
        "at": "2026-01-31T12:00:00Z",
    }


def test_a_decision_tells_the_winners_median_and_share_of_the_roofline() -> None:
    decision = example()
    assert (decision.name, decision.digest, decision.median_s) == ("fast", "d2", 1.25)
    assert decision.roofline == pytest.approx(0.8 / 1.25)
    assert decision.measured == 2
    assert [evidence.name for evidence in decision.ranking] == ["fast", "slow"]


def test_survivors_rank_before_dropped_ones_whatever_their_medians() -> None:
    decision = Decision(
        key=0,
        index=1,
        evidence=(
            Evidence(0, "dropped", "", "dropped", (0.1,)),
            Evidence(1, "winner", "", "measured", (2.0,)),
            Evidence(2, "second", "", "measured", (1.0,)),
        ),
    )
    assert [evidence.name for evidence in decision.ranking] == ["winner", "second", "dropped"]


def test_a_condemned_decision_is_bad_and_names_the_candidate() -> None:
    bad = example().condemned(2, "fast lost the device")
    assert bad.bad == "fast lost the device"
    assert bad.evidence[2].outcome == "fault"
    assert Decision.from_json(bad.to_json()) == bad


@pytest.mark.parametrize("seconds", [None, nan, inf, -inf])
def test_no_duration_is_null(seconds: float | None) -> None:
    assert duration(seconds) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0, (0, 0)), (1.327e-3, (0, 1_327_000)), (0.9999999999, (1, 0)), (61.5, (61, 500_000_000))],
)
def test_durations_are_whole_seconds_and_nanoseconds(seconds: float, expected: tuple[int, int]) -> None:
    assert duration(seconds) == dict(zip(("secs", "nanos"), expected, strict=True))


@pytest.mark.parametrize(
    "damage",
    [
        {"evidence": None},
        {"evidence": []},
        {"index": 7},
        {"index": -1},
        {"index": "0"},
        {"bounds": 3},
        {"events": [{}]},
        {"timings": {"other_s": 1}},
        {"unknown": 1},
        {"tie_break": {"winner": "a"}},
    ],
)
def test_what_is_not_a_decision_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a decision"):
        Decision.from_json({**example().to_json(), **damage})


@pytest.mark.parametrize("sample", [0.0, -1.0, nan, inf, "1", None])
def test_samples_that_are_no_times_are_refused(sample: Any) -> None:
    data = example().to_json()
    data["evidence"][0]["samples"] = [sample]
    with pytest.raises(ValueError, match="not a decision"):
        Decision.from_json(data)


STRANGE = (None, "x", "", -1, 2.5, 10**400, [], {}, True, [[1]], {"a": 1})


@given(st.data())
def test_what_is_accepted_with_strange_values_in_it_can_be_told(data: st.DataObject) -> None:
    changed = json.loads(json.dumps(example().to_json()))
    place = changed
    for name in data.draw(st.sampled_from(list(places(changed)))):
        parent, last, place = place, name, place[name]
    parent[last] = data.draw(st.sampled_from(STRANGE))
    try:
        decision = Decision.from_json(changed)
    except ValueError:
        return
    json.dumps(decision.record(), allow_nan=False)
    found = Explanation("40", "40", "key", (), decision, None, {e.name: e.digest for e in decision.evidence})
    json.dumps(found.to_json(), allow_nan=False)
    brief = brief_names(decision)
    assert [*_head(found, brief), *_rows(found, brief), *_foot(found, brief)]


def places(data: Any) -> Iterator[tuple[Any, ...]]:
    """Where something may stand in JSON data."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, part in inside:
        yield (name,)
        yield from ((name, *rest) for rest in places(part))


@pytest.mark.parametrize("kind", ["TuningStep", "RooflineExceeded", "SlowedDown", "SpedUp"])
@pytest.mark.parametrize("value", tuple(v for v in STRANGE if v not in (-1, 2.5)))
def test_events_whose_value_cannot_be_told_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match="the event"):
        Event.from_json({"kind": kind, "name": "a", "value": value})


def test_a_decision_stored_before_it_was_kept_what_was_measured_is_valid_still() -> None:
    data = example().to_json()
    del data["measured_on"]
    assert Decision.from_json(data) == example() and example().measured_on is None
