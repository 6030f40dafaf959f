"""Tunes keys against a store in a process of its own: python tests/store/cold_run.py FILE KEY...

The device and the candidates are numbers; the tuner, the store and the file are the real ones. Prints one
JSON object: where each key's decision came from and how many candidates were measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rooftune.store.database import Database
from rooftune.store.stores import Store
from rooftune.tuning.context import TuningContext
from rooftune.tuning.tunable import Tunable, TunableSet
from rooftune.tuning.tuner import LocalTuner


class NumbersClient:
    """A device on which candidate i takes i + 1 milliseconds, and measuring takes `sample_s` of real time."""

    device_id = "numbers|device/0|1.0|1cu"
    device_name = "numbers"

    def __init__(self, sample_s: float) -> None:
        self.sample_s = sample_s
        self.samples = 0

    def sample(self, fn: Callable[[], Any], repeats: int) -> float:
        self.samples += 1
        time.sleep(self.sample_s)
        return float(fn())

    def sync(self) -> None:
        pass

    def exclusive(self) -> AbstractContextManager[object]:
        return nullcontext()


def candidates(count: int, added: int = 0) -> TunableSet:
    """`count` candidates, the first the fastest, then `added` more that are slower still."""
    tunables = TunableSet(key=lambda key: key)
    for index in range(count + added):
        name = f"candidate_{index}"
        tunables.with_tunable(Tunable(name, lambda _, seconds=(index + 1) * 1e-3: seconds))
    return tunables


def tune(store: Store, keys: list[str], client: NumbersClient, tunables: TunableSet) -> dict[str, Any]:
    """Decide every key; {key: [source, winner]}."""
    tuner = LocalTuner("numbers", TuningContext(store=store.decisions))
    outcomes = {key: tuner.decide(client, tunables, key) for key in keys}
    return {key: [outcome.source, outcome.decision.name] for key, outcome in outcomes.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("keys", nargs="+")
    parser.add_argument("--candidates", type=int, default=5)
    parser.add_argument("--sample-s", type=float, default=0.0)
    parser.add_argument("--announce", action="store_true", help="print each key once its decision stands")
    arguments = parser.parse_args()
    client, tunables = NumbersClient(arguments.sample_s), candidates(arguments.candidates)
    store = Store(Database(arguments.file, warn=lambda text: print(text, file=sys.stderr)))
    tuned: dict[str, Any] = {}
    for key in arguments.keys:
        tuned |= tune(store, [key], client, tunables)
        if arguments.announce:
            print(key, flush=True)
    store.close()
    print(json.dumps({"keys": tuned, "samples": client.samples, "path": str(store.path)}))


if __name__ == "__main__":
    main()
