"""What proving costs: the same cold tuning with proofs, without them, and warm.

    python tests/benchmarks/proof_cost.py [--device TEXT] [--shapes 1024 …] [--rounds 3] [--probed]

Each run is a new process with empty caches: ours, pyopencl's, PoCL's. `cold` is the wall time of a first
call from the call to the result, probes left out (they are the same and stored apart); `process` that of the
whole command, probes included. Runs alternate (off, worker, worker, off …), medians are compared. `warm` is a
second process with everything stored. With `--probed` the peaks are stored before: no probing during which
workers could start. Exits with 1 if the cold ratio is above 1.3 or a warm start proves.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rooftune.tuning.ties import in_turn

ALLOWED = 1.3


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="")
    options.add_argument("--shapes", nargs="+", default=["1024"])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--probed", action="store_true")
    options.add_argument("--json", metavar="FILE")
    given = options.parse_args()

    print(f"at: {time.strftime('%Y-%m-%d %H:%M:%S')}, {os.cpu_count()} cores")
    print(f"command: {' '.join(sys.argv)}\n")
    runs: dict[str, list[dict[str, Any]]] = {"off": [], "worker": []}
    warm: list[dict[str, Any]] = []
    for number in range(given.rounds):
        for mode in in_turn(["off", "worker"], number):
            with tempfile.TemporaryDirectory() as home:
                if given.probed:
                    only_probe(given, Path(home))
                runs[mode].append(tune(given, Path(home), mode))
                if mode == "worker":
                    warm.append(tune(given, Path(home), mode))
    report = compared(runs, warm)
    if given.json:
        Path(given.json).write_text(json.dumps(report, indent=2) + "\n")
    return 0 if report["ratio"] <= ALLOWED and report["warm_workers"] == 0 else 1


CACHES = {"XDG_CACHE_HOME": ".cache", "POCL_CACHE_DIR": "pocl", "CUDA_CACHE_PATH": "nv"}


def command(home: Path, *words: str) -> str:
    """What `tune` prints in a process of its own whose home is this folder."""
    environment = {
        **os.environ,
        "HOME": str(home),
        **{name: str(home / path) for name, path in CACHES.items()},
    }
    run = [sys.executable, "-m", "rooftune.cli", *words]
    return subprocess.run(run, env=environment, cwd=home, capture_output=True, text=True, check=True).stdout


def shapes_of(given: argparse.Namespace) -> list[str]:
    device = ["--device", given.device] if given.device else []
    return ["shapes", *given.shapes, "--repeat", "5", "--json", *device]


def only_probe(given: argparse.Namespace, home: Path) -> None:
    """Leaves a store with the peaks these shapes need and nothing else, and empty caches."""
    configure(home, "off")
    command(home, *shapes_of(given))
    command(home, "cache", "rm", "--all", "--yes")
    for path in CACHES.values():
        shutil.rmtree(home / path, ignore_errors=True)


def configure(home: Path, mode: str) -> None:
    (home / "cubecl.toml").write_text(f'[proof]\nmode = "{mode}"\n[environment]\npath = "local"\n')


def tune(given: argparse.Namespace, home: Path, mode: str) -> dict[str, Any]:
    """One process; seconds of its first calls without their probing, of its proofs, and of all of it."""
    configure(home, mode)
    began_s = time.monotonic()
    done = command(home, *shapes_of(given))
    process_s = time.monotonic() - began_s
    shapes = json.loads(done)["shapes"]
    spent = [shape["spent"] or {} for shape in shapes]
    return {
        "process_s": process_s,
        "cold_s": sum(s["first_s"] - t.get("probe_s", 0.0) for s, t in zip(shapes, spent, strict=True)),
        **{name: sum(t.get(name, 0.0) for t in spent) for name in ("prove_s", "compile_s", "measure_s")},
        "workers": sum(shape["proof"]["workers"] for shape in shapes),
        "winners": [shape["decision"]["name"] for shape in shapes],
    }


def compared(runs: dict[str, list[dict[str, Any]]], warm: list[dict[str, Any]]) -> dict[str, Any]:
    fields = ("process_s", "cold_s", "prove_s", "compile_s", "measure_s")
    rows = {"off": runs["off"], "worker": runs["worker"], "warm": warm}
    medians = {name: {f: median(run[f] for run in found) for f in fields} for name, found in rows.items()}
    print(f"{'PROOFS':8}" + "".join(f"{name[:-2].upper():>11}" for name in fields) + "  WINNERS")
    for name, row in medians.items():
        winners = ", ".join(dict.fromkeys(w for run in rows[name] for w in run["winners"]))
        print(f"{name:8}" + "".join(f"{row[f]:10.3f}s" for f in fields) + f"  {winners}")
    ratio = medians["worker"]["cold_s"] / medians["off"]["cold_s"]
    whole = medians["worker"]["process_s"] / medians["off"]["process_s"]
    workers = max(run["workers"] for run in warm)
    print(f"\ncold, with proofs over without: {ratio:.2f} (allowed {ALLOWED}); whole process: {whole:.2f}")
    print(f"workers started by a warm process: {workers}")
    return {"ratio": ratio, "process_ratio": whole, "warm_workers": workers, "medians": medians, "runs": rows}


if __name__ == "__main__":
    sys.exit(main())
