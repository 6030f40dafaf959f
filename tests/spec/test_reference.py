"""The comparison of outputs with a reference."""

from __future__ import annotations

import numpy as np
import pytest
from rooftune.spec.reference import WrongOutput, compare
from rooftune.spec.spec import Reference

inf, nan = float("inf"), float("nan")


@pytest.mark.parametrize(
    "got, wanted, right",
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.00005], [1.0], True),
        ([1.01], [1.0], False),
        ([1e-7], [0.0], True),
        ([nan, inf, -inf], [nan, inf, -inf], True),
        ([1.0], [inf], False),
        ([nan], [1.0], False),
        ([1.0], [nan], False),
        ([inf], [-inf], False),
    ],
)
def test_what_counts_as_equal(got, wanted, right):
    for dtype in (np.float32, np.float64):
        arrays = {"y": np.array(wanted, dtype)}, {"y": np.array(got, np.float32)}
        if right:
            compare(Reference(), *arrays)
        else:
            with pytest.raises(WrongOutput, match=r"y\[0\] is .* 1 of 1 differ"):
                compare(Reference(), *arrays)


def test_integers_and_lengths():
    compare(Reference(), {"y": np.arange(3)}, {"y": np.arange(5, dtype=np.int32)})
    with pytest.raises(WrongOutput, match="has 2 elements"):
        compare(Reference(), {"y": np.arange(3)}, {"y": np.arange(2)})
