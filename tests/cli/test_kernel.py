"""What `tune kernel --verbose` says of the configurations that didn't win."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rooftune.cli.tuning import smaller_medians
from rooftune.tuning.ties import TieBreak


@pytest.mark.parametrize(
    ("second_s", "loser", "said"),
    [(2.0, "b", ""), (0.9, "b", "b has the smaller median, but not pair"), (0.9, "c", "fewer samples")],
)
def test_a_smaller_median_than_the_winners_has_a_word(second_s, loser, said):
    ranking = [SimpleNamespace(name="a", median_s=1.0), SimpleNamespace(name="b", median_s=second_s)]
    tie = TieBreak("a", loser, 7, 0.01, 0.9)
    decision = SimpleNamespace(name="a", median_s=1.0, ranking=ranking, tie_break=tie)
    lines = list(smaller_medians(decision))
    assert len(lines) == bool(said) and said in "".join(lines)
