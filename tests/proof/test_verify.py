"""`tune verify`: finds a winner that is wrong, slow or changed, and is content with a good one."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys

import jsonschema
import pytest
from rooftune.cli.verify import EXAMPLES, _lines, _outdated, _summary
from rooftune.config import load_config
from rooftune.decided import stored_decisions
from rooftune.formats import load_schema
from rooftune.matmul.key import MatmulAutotuneKey
from rooftune.matmul.problem import Elem, Problem, Shape
from rooftune.proof.adversaries import CANDIDATES, TABLE
from rooftune.proof.subject import MatmulProof
from rooftune.session import TUNER, Session
from rooftune.shapes_run import tune_shapes
from rooftune.tuning.context import Verdict
from rooftune.tuning.decision import Decision, Evidence
from rooftune.tuning.place import Place
from rooftune.tuning.ties import TieBreak
from rooftune.tuning.tunable import key_text
from rooftune.verified import Verified, VerifyReport, _judged, _title, verify

SHAPE = Shape.parse("160")


CONFIG = '[environment]\npath = "local"\n'


@pytest.fixture(scope="module")
def tuned(shared_home, tmp_path_factory):
    """A folder with a store in which the shape is tuned."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "cubecl.toml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(shared_home))
        patch.setenv("XDG_CACHE_HOME", str(shared_home / ".cache"))
        patch.setenv("POCL_CACHE_DIR", str(shared_home / "pocl"))
        patch.chdir(folder)
        session = Session(load_config())
        tune_shapes(session, session.client(), [SHAPE], repeat=0)
        session.prover.close()
        session.close("test")
    return folder


@pytest.fixture
def session(tuned, isolated, tmp_path):
    """With a copy of that store, which the command finds too: both run in the test's folder."""
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    session = Session(load_config())
    store(session, without_rivals(stored(session)))
    yield session
    session.prover.close()


def stored(session):
    return next(stored_decisions(session, [session.problem(SHAPE)], session.client()))


def store(session, decision):
    key = key_text(MatmulAutotuneKey.build(session.problem(SHAPE)))
    place = Place(TUNER, str(session.level), session.client().device_id, decision.checksum, key)
    version = session.store.decisions.row_version(place)
    session.store.decisions.save(place, decision.to_json(), began_at_row_version=version)


def without_rivals(decision):
    """The decision with its winner alone measured: how fast others are is no matter here."""
    alone = [
        e if e.index == decision.index else dataclasses.replace(e, outcome="skipped", samples=())
        for e in decision.evidence
    ]
    return dataclasses.replace(decision, evidence=tuple(alone))


def look(session, *shapes):
    return verify(session, session.client(), shapes)


def test_a_good_decision_is_good_with_and_without_its_shape(session):
    for report in (look(session, SHAPE), look(session)):
        assert report.good
        (found,) = report.decisions
        assert found.proof.passed and found.median_s > 0 and found.drift is not None


def test_the_shape_that_was_tuned_is_measured_and_another_is_not_compared_with_it(session):
    other = Shape.parse("152x160x160")
    key = MatmulAutotuneKey.build(session.problem(other))
    assert key == MatmulAutotuneKey.build(session.problem(SHAPE))
    tuned = {"shape": "160x160", "batch": 1}
    assert stored(session).measured_on == tuned
    (found,) = look(session).decisions
    assert found.title == "160x160 f32" and found.tuned_on == found.measured_on == tuned
    assert found.drift is not None
    report = look(session, other)
    (found,) = report.decisions
    assert found.shape == "152x160x160" and found.proof.passed and found.median_s > 0 and found.drift is None
    assert "(tuned on 160x160)" in next(_lines(found))
    assert "1 not compared with when tuned" in next(_summary(report))
    data = {"schema": "rooftune/verify/1", **report.to_json()}
    assert data["decisions"][0]["drift_percent"] is None
    jsonschema.validate(data, load_schema("verify"))


def test_where_it_is_not_known_what_was_tuned_no_drift_is_given(session):
    old = stored(session).to_json()
    del old["measured_on"]
    store(session, Decision.from_json(old))
    for report in (look(session), look(session, SHAPE)):
        (found,) = report.decisions
        assert report.good and found.median_s > 0 and found.drift is None and found.tuned_on is None
        assert "slower" not in next(_lines(found)) and "faster than" not in next(_lines(found))
        said = next(_summary(report))
        assert "1 not compared with when tuned" in said and "slower" not in said and "faster" not in said
        jsonschema.validate({"schema": "rooftune/verify/1", **report.to_json()}, load_schema("verify"))


def test_shapes_of_a_key_that_the_winner_or_its_runner_up_refuses_are_no_defect(tmp_path):
    """At level minimal 90 and 50 share a key, and only the larger one's rhs is worth a copy."""
    (tmp_path / "cubecl.toml").write_text(CONFIG)
    session = Session(load_config().override(level="minimal"))
    tune_shapes(session, session.client(), [Shape.parse("90")], repeat=0)
    problem = session.problem(Shape.parse("90"))
    decision = next(stored_decisions(session, [problem], session.client()))
    names = ("matmul_cpu_gemm", "matmul_cpu_gemm_packed")
    timed = [
        dataclasses.replace(e, outcome="measured" if e.name in names else "skipped", samples=samples)
        for e in decision.evidence
        for samples in [(1e-5,) * 3 if e.name in names else ()]
    ]
    place = Place(TUNER, "minimal", session.client().device_id, decision.checksum, key_text(decision.key))
    for name in names:
        index = next(e.index for e in timed if e.name == name)
        changed = dataclasses.replace(decision, index=index, evidence=tuple(timed))
        version = session.store.decisions.row_version(place)
        session.store.decisions.save(place, changed.to_json(), began_at_row_version=version)
        report = look(session, Shape.parse("50"))
        (found,) = report.decisions
        assert report.good and not found.problem and found.decision.name == name
        if name == names[0]:
            assert found.median_s > 0 and found.note.startswith("no other candidate")
        else:
            assert found.median_s is None and found.note.startswith(f"{name} is for other shapes")
    session.prover.close()


def test_decisions_of_one_shape_are_told_apart_by_batch_type_and_precision(session):
    assert _title("64x31x63", Problem.of(64, 31, 63)) == "64x31x63 f32"
    assert _title("64x31x63", Problem.of(64, 31, 63, precision="tf32")) == "64x31x63 f32 tf32"
    assert _title("64x31x63T", Problem.of(64, 31, 63, Elem.BF16, batch=3)) == "64x31x63T b3 bf16"


def test_a_shape_without_a_decision_is_something_wrong(session):
    report = look(session, Shape.parse("31x33x35"))
    assert not report.good
    assert report.decisions[0].problem == "no decision is stored for it"


def test_a_slow_winner_is_found(session):
    decision = stored(session)
    slow = next(i for i, e in enumerate(decision.evidence) if e.name == "matmul_naive")
    evidence = list(decision.evidence)
    evidence[slow] = dataclasses.replace(evidence[slow], outcome="measured", samples=(1e-6,) * 5)
    digest = session.tunables(session.client())[slow].digest
    evidence[slow] = dataclasses.replace(evidence[slow], digest=digest)
    store(session, dataclasses.replace(decision, index=slow, evidence=tuple(evidence)))
    report = look(session, SHAPE)
    assert not report.good
    assert "is faster by" in report.decisions[0].problem
    assert report.decisions[0].drift > 0


def test_a_close_rival_is_no_problem_and_both_outputs_say_the_same(session, monkeypatch):
    """The rival runs the winner's own code, and would have to be twice as fast to count."""
    monkeypatch.setattr("rooftune.verified.MARGIN", 1.0)
    decision, tunables = stored(session), session.tunables(session.client())
    winner = decision.evidence[decision.index]
    rival = next(e for e in decision.evidence if e.name == "matmul_naive")
    close = dataclasses.replace(
        winner, index=rival.index, name=rival.name, digest=rival.digest,
        samples=tuple(1.001 * s for s in winner.samples),
    )
    store(session, dataclasses.replace(
        decision, evidence=tuple(close if e.index == rival.index else e for e in decision.evidence)
    ))
    same = tunables[decision.index]
    monkeypatch.setattr(tunables[rival.index], "fn", same.fn)
    monkeypatch.setattr(tunables[rival.index], "prepare", same.prepare)
    report = look(session, SHAPE)
    (found,) = report.decisions
    assert report.good and not found.problem
    assert found.runner_up == rival.name and found.comparison is not None
    data, text = found.to_json(), "\n".join(_lines(found))
    assert data["runner_up"]["name"] == rival.name and data["problem"] is None
    assert data["fastest"] is (found.comparison.winner == winner.name)
    assert f"runner-up {rival.name}" in text and f"{winner.name}: right" in text
    note = data["note"] or ""
    assert note in text and ("is faster by" in text) == ("is faster by" in note)
    if not data["fastest"]:  # then it says why that is no problem
        assert "within noise" in note or "less than" in note


def test_a_wrong_winner_is_found(session):
    decision = stored(session)
    wrong = next(c for c in CANDIDATES if c.name == "wrong_at_a_tile_edge")
    session.tunables(session.client())[decision.index].proof = MatmulProof(wrong, TABLE)
    report = look(session, SHAPE)
    assert not report.good
    assert "is not right" in report.decisions[0].problem


def test_a_winner_whose_code_changed_is_said_to_have(session):
    session.tunables(session.client())[stored(session).index].digest = "another"
    assert "changed" in look(session, SHAPE).decisions[0].problem


def test_the_command_says_it_in_words_and_in_json(session):
    session.close("test")
    run = [sys.executable, "-m", "rooftune.cli", "verify"]
    words = subprocess.run([*run, "160"], capture_output=True, text=True)
    assert words.returncode == 0, words.stderr
    assert "160x160" in words.stdout and "right" in words.stdout
    data = subprocess.run([*run, "160", "161", "--json"], capture_output=True, text=True)
    assert data.returncode == 4, data.stderr
    report = json.loads(data.stdout)
    assert [bool(d["problem"]) for d in report["decisions"]] == [False, True]
    jsonschema = pytest.importorskip("jsonschema")
    schema = load_schema("verify")
    del schema["properties"]["decisions"]["items"]["properties"]["key"]["$ref"]
    jsonschema.validate(report, schema)


def test_the_command_without_shapes_sums_up_and_says_what_it_leaves_out(session):
    decision = stored(session)
    for tuner in ("kernel:scale", "total"):
        place = Place(tuner, str(session.level), session.client().device_id, decision.checksum, "[1]")
        other = dataclasses.replace(decision, tuner=tuner)
        session.store.decisions.save(place, other.to_json(), began_at_row_version=None)
    session.close("test")
    run = [sys.executable, "-m", "rooftune.cli", "verify"]
    words = subprocess.run(run, capture_output=True, text=True)
    assert words.returncode == 0, words.stderr
    first, *_, last = words.stdout.splitlines()
    assert first == EXAMPLES and last.startswith("1 decision: still right")
    assert "2 decisions of other tuners (kernel:scale, total) are not verified" in words.stderr
    data = json.loads(subprocess.run([*run, "--json"], capture_output=True, text=True).stdout)
    assert data["not_verified"] == [{"tuner": "kernel:scale", "count": 1}, {"tuner": "total", "count": 1}]


def test_decisions_of_another_list_of_candidates_are_counted(session):
    decision = stored(session)
    place = Place(TUNER, str(session.level), session.client().device_id, "older", key_text(decision.key))
    older = dataclasses.replace(decision, checksum="older")
    session.store.decisions.save(place, older.to_json(), began_at_row_version=None)
    report = look(session)
    assert report.good and report.outdated == 1 and len(report.decisions) == 1
    assert look(session, SHAPE).outdated == 0
    jsonschema.validate({"schema": "rooftune/verify/1", **report.to_json()}, load_schema("verify"))
    assert "1 decision for matrix products was made for another list of candidates" in _outdated(1)


def test_the_summary_counts_what_was_found():
    decision = Decision({}, 0, (Evidence(0, "mine", "", "measured", samples=(1.0,) * 3),))
    yes, no = Verdict(True, "", "worker"), Verdict(False, "far off", "worker")
    tuned = {"shape": "8x8", "batch": 1}
    good = Verified("8", None, decision, yes, 1.0, measured_on=tuned, tuned_on=tuned)
    unknown = dataclasses.replace(good, median_s=2.0, tuned_on=None)
    beaten = dataclasses.replace(good, comparison=TieBreak("b", "mine", 10, 1.0, 1.0), problem="b is faster")
    slower, faster = dataclasses.replace(good, median_s=1.1), dataclasses.replace(good, median_s=0.9)
    wrong = Verified("8", None, decision, no, problem="wrong")
    none = Verified("8", None, None, problem="none")

    def summary(*found):
        return list(_summary(VerifyReport("device", "default", "balanced", found)))

    assert summary() == summary(none) == []
    drifted = "than when tuned, by more than 3%"
    assert summary(good, slower, faster) == [f"3 decisions: all still right; 1 slower, 1 faster {drifted}"]
    (said,) = summary(good, slower, unknown)
    assert said.startswith(f"3 decisions: all still right; 1 slower {drifted}; 1 not compared with when")
    said = "2 decisions: 1 still right, 1 WRONG; 1 no longer the fastest; 1 shape without a decision"
    assert summary(beaten, wrong, none) == [said]


@pytest.mark.parametrize(
    ("winner", "difference_s", "confidence", "problem", "note"),
    [
        ("mine", 1.0, 1.0, "", ""),
        ("rival", 0.2, 0.75, "", "rival looks faster by 20.0%: within noise (confidence 75%)"),
        ("rival", 0.02, 0.97, "", "rival is faster by 2.0% (confidence 97%): less than the 3% that count"),
        ("rival", 0.2, 0.99, "rival is faster by 20% (confidence over 99%)", ""),
    ],
)
def test_a_runner_up_that_is_or_looks_faster_is_remarked_on(winner, difference_s, confidence, problem, note):
    comparison = TieBreak(winner, "the other", 10, difference_s, confidence)
    assert _judged(comparison, "rival", 1.0, 1.5) == (problem, note)


def test_a_smaller_median_alone_is_noise():
    problem, note = _judged(TieBreak("mine", "rival", 10, 0.1, 0.5), "rival", 1.0, 0.9)
    assert not problem and "within noise" in note
