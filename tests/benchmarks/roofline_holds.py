"""Does any candidate beat the roofline? None may: a peak that a real kernel beats is no peak.

    python -m tests.benchmarks.roofline_holds [--device TEXT] [--shapes 64,1000,…] [--types f32,f64]
                                              [--level extensive] [--json FILE]

Every shape of every type is tuned afresh, peaks probed once; for each the candidate with the largest share
of the roofline is shown. A share up to 1.05 may be noise of the clock; the exit code is 1 above that.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rooftune.device.client import Client
from rooftune.matmul.problem import Elem, Shape
from rooftune.session import Session
from rooftune.shapes_run import random_inputs

from .regret import session_without_memory

NOISE = 1.05
SHAPES = (
    "8 64 96 128 160 200 256 333 384 500 512 640 768 777 1000 1024 1111 1500 1536 2000 2048 "
    "16x2048x2048 2048x16x2048 64x4096x1024 4096x64x1024 128x128x8192 4096x4096x64 1x4096x4096 "
    "4096x1x4096 1x8192x8192 8192x1x8192 1x1x1000000 1024T 1024t 1024tT"
)


@dataclass(frozen=True)
class Highest:
    """The candidate of one shape that came closest to the roofline, or beat it."""

    shape: str
    type: str
    candidate: str
    share: float
    measured: int


def highest(session: Session, client: Client, shape: str, elem: Elem) -> Highest:
    inputs = random_inputs(client, Shape.parse(shape).problem(elem))
    decision = session.decide(client, inputs).decision
    shares = {e.name: share for e in decision.evidence if (share := decision.share_of(e)) is not None}
    if not shares:
        raise SystemExit(f"{shape} {elem.value}: no share of the roofline is known")
    name = max(shares, key=lambda name: shares[name])
    return Highest(shape, elem.value, name, shares[name], len(shares))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--shapes", default=SHAPES.replace(" ", ","), help="comma-separated")
    parser.add_argument("--types", default="f32", help="comma-separated")
    parser.add_argument("--level", default="extensive")
    parser.add_argument("--json", type=Path, help="where to write all results")
    given = parser.parse_args(arguments)
    client = Client(given.device)
    session = session_without_memory(given.level)
    print(f"{client.device_id}, {time.strftime('%Y-%m-%d %H:%M')}")
    found = []
    for elem in given.types.split(","):
        for shape in given.shapes.split(","):
            found.append(highest(session, client, shape, Elem(elem)))
            last = found[-1]
            print(f"{last.type:5} {last.shape:16} {last.share:6.2f}  {last.candidate}", flush=True)
    top = max(found, key=lambda one: one.share)
    print(
        f"highest of {len(found)}: {top.share:.2f} of the roofline, {top.candidate} at {top.shape} {top.type}"
    )
    if given.json:
        rows = [asdict(one) for one in found]
        given.json.write_text(json.dumps({"device": client.device_id, "results": rows}, indent=1))
    return 1 if top.share > NOISE else 0


if __name__ == "__main__":
    sys.exit(main())
