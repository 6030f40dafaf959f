"""The page one reads when something looks wrong: what it must say, from decisions made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rooftune.device.profile import DeviceProfile
from rooftune.explained import Explanation, explained_product
from rooftune.matmul.candidates import CANDIDATES
from rooftune.matmul.planned import view_plan
from rooftune.matmul.problem import Elem, Shape
from rooftune.tuning.bounds import Bound, Bounds
from rooftune.tuning.decision import Check, Decision, Evidence
from rooftune.tuning.events import Event
from rooftune.tuning.ties import TieBreak

MS = 1e-3
TEN, ELEVEN = CANDIDATES[10], CANDIDATES[11]


def explanation(ten=(10 * MS,) * 5, eleven=(20 * MS,) * 5, **changes) -> Explanation:
    timed = {10: ten, 11: eleven}
    evidence = tuple(
        Evidence(index, candidate.name, candidate.digest, "measured", samples=timed[index])
        if index in timed
        else Evidence(
            index, candidate.name, candidate.digest, "skipped", reason="an earlier round had a winner"
        )
        for index, candidate in enumerate(CANDIDATES)
    )
    bounds = Bounds((Bound("compute", 1000, 1000 / (8 * MS), 0.8),), 1e-6)
    decision = Decision({}, 10, evidence, level="balanced", bounds=bounds, limit_s=bounds.limit_s)
    shape = Shape.parse("1000")
    problem = shape.problem(Elem.F32)
    plan = view_plan("1000", problem, DeviceProfile("by hand", kind="cpu"))
    return explained_product(shape, problem, plan, replace(decision, **changes))


def signs(*args, **changes) -> str:
    return "\n".join(explanation(*args, **changes).signs())


def test_a_good_decision_has_no_signs():
    assert signs() == ""


def test_a_winner_far_from_the_roofline_is_a_sign():
    assert "40% of the roofline" in signs((20 * MS,) * 5, (30 * MS,) * 5)


def test_a_wide_spread_is_a_sign():
    assert "spread over" in signs((10 * MS, 9 * MS, 9 * MS, 11 * MS, 12 * MS))


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Event("RooflineExceeded", TEN.name, 1.2), "probed too low"),
        (Event("SlowedDown", TEN.name, {"ratio": 1.3, "agree": 2, "of": 2}), "slowed down"),
        (Event("SpedUp", TEN.name, {"ratio": 0.7, "agree": 2, "of": 2}), "clock ramped up"),
    ],
)
def test_events_that_a_person_should_know_of_are_signs(event, words):
    assert words in signs(events=(event, Event("TuningStep", TEN.name, 0.1)))


def test_what_is_wrong_stale_or_from_elsewhere_is_a_sign():
    assert "row 3" in signs(checks=(Check(ELEVEN.name, False, "row 3 is wrong", "worker"),))
    assert "imported" in signs(origin="imported")
    assert "not used any more" in signs(bad="it faulted")
    stale = explanation().decision.evidence
    changed = tuple(replace(e, digest="old") if e.index == 10 else e for e in stale)
    assert "has changed since" in signs(evidence=changed)


def test_a_limit_that_is_not_that_of_the_bounds_is_a_sign():
    """As an older version stored it when peaks were probed again."""
    assert "its limit of 20" in signs(limit_s=20 * MS, short_circuit=True)
    assert signs(limit_s=None) == ""


def test_a_close_call_is_a_sign():
    assert "too close" in signs(tie_break=TieBreak(TEN.name, ELEVEN.name, 10, 1e-6, 0.5))


def test_proofs_and_spreads_are_told_of_each_candidate():
    found = explanation(checks=(Check(TEN.name, True, "", "worker"), Check(ELEVEN.name, True)))
    ten, eleven = found.evidence
    assert (found.proof_of(ten), found.proof_of(eleven)) == ("worker", "checked")
    assert found.proof_of(found.skipped[0]) == "" and found.spread_of(ten) == 0
    assert [len(names) for names in found.reasons(found.skipped).values()] == [len(CANDIDATES) - 2]


def test_a_decision_of_another_list_of_candidates_is_a_sign():
    found = explanation()
    fewer = {name: digest for name, digest in found.current.items() if name != ELEVEN.name}
    assert any("another list" in sign for sign in replace(found, current=fewer).signs())
