"""What a careless program does to the library: errors of the documented kinds, and right results."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import rooftune as rt

A = np.ones((8, 8), np.float32)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"client": "cpu"}, "client is a str"),
        ({"queue": 3}, "queue is a int"),
        ({"wait_for": 5}, "wait_for holds a int"),
        ({"wait_for": [None]}, "wait_for holds a NoneType"),
        ({"dtype": "f9"}, "dtype='f9'"),
        ({"precision": "exact"}, "precision 'exact'"),
    ],
)
def test_an_argument_of_another_kind_is_named(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        rt.matmul(A, A, **given)


@pytest.mark.parametrize("operand", [[[1.0, 2.0], [3.0]], np.ma.masked_array(A, A > 0), None, "abc", {1}])
def test_what_is_no_plain_array_of_numbers_is_refused(operand):
    with pytest.raises((ValueError, TypeError)) as raised:
        rt.matmul(operand, A)
    assert isinstance(raised.value, rt.RooftuneError)


def test_an_out_in_foreign_byte_order_is_said_to_be_that():
    with pytest.raises(ValueError, match="foreign byte order"):
        rt.matmul(A, A, out=np.zeros((8, 8), A.dtype.newbyteorder("S")))


def test_a_deleted_current_folder_stops_nothing(tmp_path):
    script = (
        "import os, sys, numpy as np, rooftune as rt; os.rmdir(os.getcwd()); "
        "a = np.ones((8, 8), 'f4'); assert (rt.matmul(a, a) == 8).all(); print('right')"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, cwd=gone, capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "right\n"), ran.stderr
