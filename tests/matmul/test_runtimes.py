"""The plans on every OpenCL runtime of this machine but the one the other tests use.

Each runtime and type in a process of its own: a compiler or a kernel of theirs may end it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rooftune.device.discovery import FoundDevice, choose_device, list_devices
from rooftune.matmul.problem import Elem

AWKWARD = ((7, 65, 130), (33, 45, 7), (65, 1, 130), (1, 65, 130))
"""Rows of the results begin at odd addresses, and no extent is a multiple of a vector."""

RUN = """
import sys
from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import gemv_streams
from rooftune.matmul.problem import Elem
from tests.matmul.test_families import PLANS, VECTOR, check
from tests.matmul.test_runtimes import AWKWARD

client, elem = Client(sys.argv[1]), Elem(sys.argv[2])
done = 0
for name, plan in PLANS.items():
    for shape in AWKWARD:
        if (name in VECTOR) == (1 in shape[:2]):
            print(name, shape, flush=True)
            check(client, plan, shape, elem)
            done += 1
gemv_streams.LEAST_BYTES = 1
for name in ("gemv_plane_parallel", "gemv_unit_perpendicular"):
    for shape in ((65, 1, 1030), (1, 1030, 650)):
        print("in streams", name, shape, flush=True)
        check(client, PLANS[name], shape, elem)
        done += 1
print("all right:", done)
"""


def others() -> list[FoundDevice]:
    usable = [found for found in list_devices() if found.usable]
    if not usable:
        return []
    first = choose_device(None).index
    # the compiler of a defective one ends the process on several of these kernels, as workers find out
    return [found for found in usable if found.index != first and not found.defective]


@pytest.mark.parametrize(
    "elem",
    [Elem.F16, Elem.F32, *(pytest.param(e, marks=pytest.mark.long) for e in (Elem.BF16, Elem.F64))],
    ids=str,
)
@pytest.mark.parametrize("found", others(), ids=lambda found: f"{found.index}-{found.name[:24]}")
def test_awkward_shapes_on_another_runtime(
    found: FoundDevice, elem: Elem, request: pytest.FixtureRequest
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(found.index), elem.value],
        cwd=Path(str(request.config.rootpath)), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0 and "all right:" in ran.stdout, ran.stdout[-300:] + ran.stderr[-2000:]
