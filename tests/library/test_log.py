"""The log for people that `[autotune.logger]` asks for."""

from __future__ import annotations

from types import SimpleNamespace

from rooftune.config import LoggerConfig
from rooftune.log import entry, log_sinks

RECORD = {
    "key": {"problem_size": [4096]},
    "fastest_index": 1,
    "results": [
        {"outcome": {"Ok": {"name": "b", "index": 1, "computation": {"median": {"secs": 0, "nanos": 3225}}}}},
        {"outcome": {"Ok": {"name": "a", "index": 0, "computation": {"median": {"secs": 1, "nanos": 0}}}}},
        {"outcome": {"Err": {"Unknown": {"name": "c", "err": "it does not compile:\nlog"}}}},
        {"outcome": {"Err": {"Skip": {"name": "d"}}}},
    ],
    "device": "d",
    "level": "balanced",
    "at": "2026-01-31T12:00:00Z",
}  # fmt: skip
FIRST = (
    "2026-01-31T12:00:00Z tuned kernel:scale 4096 on d at level balanced: b, 3.225µs; "
    "2 of 4 candidates measured"
)


def test_a_decision_is_a_sentence_or_all_that_was_tried():
    assert list(entry("kernel:scale", RECORD, full=False)) == [FIRST]
    assert list(entry("kernel:scale", RECORD, full=True)) == [
        FIRST,
        "       3.225µs  b",
        "            1s  a",
        "        failed  c: it does not compile:",
    ]


def test_it_goes_where_the_configuration_says(tmp_path, capsys):
    for config in (LoggerConfig(), LoggerConfig(level="disabled", stderr=True, file=tmp_path / "a.txt")):
        assert log_sinks(config) == []
    config = LoggerConfig(stdout=True, stderr=True, file=tmp_path / "a.txt")
    for json_stdout in (False, True):
        for sink in log_sinks(config, json_stdout):
            sink(SimpleNamespace(tuner="kernel:scale", record=lambda: RECORD))
        out, err = capsys.readouterr()
        assert (out.count(FIRST), err.count(FIRST)) == ((0, 2) if json_stdout else (1, 1))
    assert (tmp_path / "a.txt").read_text("utf-8") == f"{FIRST}\n" * 2
