"""The walks by which a GPU might copy, each measured by itself: the fastest belong into the probe.

    python -m tests.benchmarks.copy_walks [--device TEXT] [--set-bytes 1GiB]

A row is a walk: work-items of a group, vectors of 16 bytes that each has under way, how many of those its
group's chunk holds, and what is particular. Groups end after their chunk, or stay and have 1 to 16 chunks a
compute unit ("persistent"). Rates count read and written bytes, an empty kernel's window taken off.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rooftune.device.client import Client
from rooftune.errors import BuildError
from rooftune.probes.bandwidth import Mover, Walk, memory_set
from rooftune.probes.launch import empty_window_s
from rooftune.probes.method import QUICK, measure
from rooftune.probes.report import parse_size

LOCALS, UNROLLS, ROWS, PERSISTENT = (64, 128, 256, 512, 1024), (1, 2, 4), (4, 16), (1, 2, 4, 8, 16)


def candidates(client: Client, vectors: int) -> Iterator[tuple[str, Walk]]:
    """Names and walks over so many vectors."""
    profile = client.profile
    for local in (items for items in LOCALS if items <= profile.max_work_group):
        for unroll in UNROLLS:
            groups = vectors // (local * unroll)
            once = Walk(16, local, unroll, groups, rotate=False, shared_launch=False, once=True)
            yield f"{local:5} {unroll:2}  once", once
            if profile.has_cache_policies:
                yield f"{local:5} {unroll:2}  once, evict first", replace(once, evict_first=True)
            for rows in ROWS:
                looped = replace(once, once=False, groups=vectors // (local * unroll * rows))
                yield f"{local:5} {unroll:2}  {rows} times", looped
            for each in PERSISTENT:
                stays = replace(once, once=False, groups=each * profile.compute_units)
                yield f"{local:5} {unroll:2}  persistent, {each} a unit", stays


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", help="a part of its name or platform, or its index")
    parser.add_argument("--set-bytes", type=parse_size, help="both halves; default: what the probe takes")
    given = parser.parse_args(arguments)
    client = Client(given.device)
    set_bytes = given.set_bytes or memory_set(client.profile)
    print(f"{client.device_id}, {set_bytes >> 20} MiB")
    found: list[tuple[float, str]] = []
    with client.exclusive():
        empty_s = empty_window_s(client)
        for name, walk in candidates(client, set_bytes // 2 // 16):
            try:
                mover = Mover(client, "copy", set_bytes, walk, empty_s)
            except BuildError:
                print(f"{name}: the compiler refuses it")
                continue
            found.append((mover.bytes_a_pass / measure(mover.sample, QUICK).unit_s, name))
            del mover
    for rate, name in sorted(found, reverse=True):
        print(f"{rate / 1e9:9.1f} GB/s  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
