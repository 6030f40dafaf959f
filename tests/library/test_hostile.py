"""What a careless program does to the library: errors of the documented kinds, and right results."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
import rooftune as rt
from rooftune.matmul.operation import matmul

from .conftest import by_device

A = np.ones((8, 8), np.float32)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"client": "cpu"}, "client is a str"),
        ({"queue": 3}, "queue is an int"),
        ({"wait_for": 5}, "wait_for holds an int"),
        ({"wait_for": [None]}, "wait_for holds a NoneType"),
        ({"dtype": "f9"}, "dtype='f9'"),
        ({"precision": "exact"}, "precision 'exact'"),
        ({"precision": ["full"]}, r"precision '\['full'\]'"),
        ({"precision": []}, r"precision '\[\]'"),
        ({"dtype": {"bf16": 1}}, "dtype={'bf16': 1}"),
        ({"client": [1]}, "client is a list"),
        ({"queue": [1]}, "queue is a list"),
    ],
)
def test_an_argument_of_another_kind_is_named(given, words):
    for out in (None, np.empty_like(A)):
        with pytest.raises((ValueError, TypeError), match=words) as raised:
            rt.matmul(A, A, out=out, **given)
        assert isinstance(raised.value, rt.RooftuneError)


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


@pytest.fixture
def queues(plain):
    context = plain.client().context
    return cl.CommandQueue(context), cl.CommandQueue(context)


@by_device
@pytest.mark.parametrize("cut", [slice(None), slice(None, None, 2), slice(None, None, -1)])
def test_arrays_of_other_types_queues_and_with_gaps_are_brought_together(plain, queues, cut):
    rng = np.random.default_rng(3)
    a, b = rng.random((6, 6)), rng.random((6, 6), np.float32)
    first, second = (cl_array.to_device(queue, x) for queue, x in zip(queues, (a, b), strict=True))
    result = matmul(plain, first[:, cut], second[cut])
    assert result.dtype == np.float64
    assert np.allclose(result.get(), a[:, cut] @ b[cut])


@by_device
def test_events_that_are_none_or_of_another_context_are_refused_the_long_and_the_short_way(plain, queues):
    a, b, out = (cl_array.zeros(queues[0], (6, 6), np.float32) for _ in range(3))
    device = plain.client().device
    foreign = cl.enqueue_marker(cl.CommandQueue(cl.Context([device])))
    for waits in ([foreign], [3]):
        with pytest.raises(ValueError, match="wait_for holds"):
            matmul(plain, a, b, out=out, wait_for=waits)
    matmul(plain, a, b, out=out)
    matmul(plain, a, b, out=out)
    ours = cl.enqueue_marker(queues[0])
    assert plain.hot.launch(a, b, out, None, None, None, None, [ours]) is not None
    for waits in ([3], [foreign], [ours, foreign]):
        assert plain.hot.launch(a, b, out, None, None, None, None, waits) is None
    numbers = np.ones((6, 6), np.float32)
    with pytest.raises(ValueError, match="another OpenCL context"):
        matmul(plain, numbers, numbers, queue=queues[0], wait_for=[foreign])
