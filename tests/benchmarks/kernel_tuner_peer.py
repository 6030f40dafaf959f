"""`tune kernel` against Kernel Tuner's brute force, on the same kernels, parameters and device.

    python tests/benchmarks/kernel_tuner_peer.py [--device TEXT] [--json] [SPEC.toml...]

Needs the package kernel_tuner in the same environment. Each tuner runs in a fresh process with empty
caches and an empty store. The time of each is the wall time of opening the device and tuning, Kernel Tuner's
without verifying outputs, rooftune's with it; probing the device's peaks, done once per device, is listed
apart.

Then the two winners meet: in `--duels` fresh processes, each with buffers of its own that both use, in
short turns whose order changes. A turn runs each of them three times in a row, after a run that is not
counted. A process's ratio is the median of its turns' ratios, and what is reported is the median of the
processes, with the least and the most. Kernel Tuner's winner takes part twice: what it misses 1 by, by
itself, is the comparison's own error. Where both chose the same configuration the ratio is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rooftune.config import Config, EnvironmentConfig
from rooftune.session import Session
from rooftune.spec.kernel import TunedKernel, name_of
from rooftune.spec.launch import filled
from rooftune.spec.spec import AXES, KernelSpec, load_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
TURNS = 40


def brute_force(spec: KernelSpec, size: tuple[int, ...], device: Any) -> dict[str, Any]:
    """Kernel Tuner's best configuration, and the seconds it took to find it."""
    import kernel_tuner
    import pyopencl as cl

    platform = [p.int_ptr for p in cl.get_platforms()].index(device.platform.int_ptr)
    number = [d.int_ptr for d in device.platform.get_devices()].index(device.int_ptr)
    values, rng = spec.values_for(size), np.random.default_rng(0)
    arguments = [
        a.dtype.type(a.value(values)) if a.value is not None else filled(a, int(a.size(values)), rng)
        for a in spec.arguments
    ]
    sizes = spec.values_for(size, {})
    restrictions = [
        re.sub(r"problem_size_[xyz]", lambda m: str(sizes[m.group()]), r.text) for r in spec.restrictions
    ]
    divisors = {
        f"grid_div_{axis}": [e.text for e in spec.grid_div[i] or ()]
        for i, axis in enumerate(AXES)
        if spec.grid_div[i] is not None
    }
    tune_params = {name: list(values) for name, values in spec.tune_params.items()}
    began = time.perf_counter()
    results, _ = kernel_tuner.tune_kernel(
        spec.kernel.name, spec.kernel.source, size, arguments, tune_params,
        restrictions=restrictions, compiler_options=list(spec.kernel.options), lang="OpenCL",
        platform=platform, device=number, quiet=True, **divisors,
    )  # fmt: skip
    took_s = time.perf_counter() - began
    timed = [r for r in results if isinstance(r["time"], float)]
    best = min(timed, key=lambda r: r["time"])
    return {
        "took_s": took_s,
        "measured": len(timed),
        "best": {name: best[name] for name in spec.tune_params},
        "times_ms": {name_of({n: r[n] for n in spec.tune_params}): r["time"] for r in timed},
    }


def session(folder: str) -> Session:
    return Session(Config(environment=EnvironmentConfig(path=folder)))


def searched(spec: KernelSpec, size: tuple[int, ...], device: str | None, folder: str) -> dict[str, Any]:
    """rooftune's best configuration, and the seconds it took, without the probes."""
    s = session(folder)
    began = time.perf_counter()
    s.foresee_kernel(spec, [size], device=device)  # as the command does
    kernel = TunedKernel(s, s.client(device), spec)
    decision = kernel.tune(size).decision
    took_s = time.perf_counter() - began
    return {
        "took_s": took_s - decision.timings.probe_s,
        "probe_s": decision.timings.probe_s,
        "measured": sum(e.timed for e in decision.evidence),
        "best": kernel.configurations[decision.index],
        "roofline": decision.roofline,
    }


def duel(
    spec: KernelSpec, size: tuple[int, ...], device: str | None, folder: str, pair: list[Any], first: int
) -> list[float]:
    """The time of rooftune's winner, and of Kernel Tuner's again, by that of Kernel Tuner's."""
    s = session(folder)
    client = s.client(device)
    kernel = TunedKernel(s, client, spec)
    inputs = kernel.inputs_for(size)
    theirs, ours = (kernel._set[kernel.configurations.index(c)].fn for c in pair)
    contenders = (theirs, ours, theirs)
    turns: list[tuple[float, ...]] = []
    for turn in range(TURNS + 2):
        times = [0.0] * 3
        for place in range(3):
            which = (place * (-1) ** turn + turn // 2 + first) % 3
            client.sample(lambda which=which: contenders[which](inputs), 1)  # type: ignore[misc]
            times[which] = client.sample(lambda which=which: contenders[which](inputs), 3)  # type: ignore[misc]
        turns.append(tuple(times))
    return [median(t[which] / t[0] for t in turns[2:]) for which in (1, 2)]


def child(job: dict[str, Any]) -> Any:
    spec, size = load_spec(job["spec"]), tuple(job["size"])
    if job["what"] == "brute":
        device = session(job["folder"]).client(job["device"]).device
        return brute_force(spec, size, device)
    if job["what"] == "search":
        return searched(spec, size, job["device"], job["folder"])
    return duel(spec, size, job["device"], job["folder"], job["pair"], job["first"])


def fresh(what: str, spec: Path, size: tuple[int, ...], device: str | None, **more: Any) -> Any:
    """The same in a process of its own, with empty caches."""
    with tempfile.TemporaryDirectory() as home:
        job = {"what": what, "spec": str(spec), "size": size, "device": device, "folder": home, **more}
        places = {
            "HOME": home,
            "XDG_CACHE_HOME": f"{home}/cache",
            "POCL_CACHE_DIR": f"{home}/pocl",
            "TMPDIR": f"{home}/tmp",
        }
        for place in places.values():
            Path(place).mkdir(exist_ok=True)
        command = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), "--job", json.dumps(job)]
        ran = subprocess.run(command, cwd=home, env={**os.environ, **places}, capture_output=True, text=True)
        if ran.returncode:
            raise SystemExit(f"{what} of {spec.name} failed:\n{ran.stderr[-2000:]}")
        return json.loads(ran.stdout.splitlines()[-1])


def compare(path: Path, device: str | None, duels: int) -> dict[str, Any]:
    spec = load_spec(path)
    size = spec.problem_sizes[0]
    ours = fresh("search", path, size, device)
    theirs = fresh("brute", path, size, device)
    best = [theirs["best"], ours["best"]]
    fought = [fresh("duel", path, size, device, pair=best, first=i) for i in range(duels)]
    winner, control = (spread([ratios[which] for ratios in fought]) for which in (0, 1))
    return {
        "spec": path.stem,
        "configurations": len(spec.configurations()),
        "kernel_tuner": {k: theirs[k] for k in ("took_s", "measured", "best")},
        "rooftune": ours,
        "time_ratio": ours["took_s"] / theirs["took_s"],
        "same": best[0] == best[1],
        "winner_ratio": 1.0 if best[0] == best[1] else winner["median"],
        "winner": winner,
        "control": control,
    }


def spread(ratios: list[float]) -> dict[str, float]:
    return {"median": median(ratios), "least": min(ratios), "most": max(ratios)}


def shown(ratios: dict[str, float]) -> str:
    return f"{ratios['median']:.3f} ({ratios['least']:.2f} to {ratios['most']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("specs", nargs="*", type=Path, default=sorted(EXAMPLES.glob("*.toml")))
    parser.add_argument("--device")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--duels", type=int, default=8, help="processes that compare the winners")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(json.dumps(child(json.loads(given.job))))
        return
    for path in given.specs:
        r = compare(path.resolve(), given.device, given.duels)
        if given.json:
            print(json.dumps(r), flush=True)
            continue
        ours, theirs = r["rooftune"], r["kernel_tuner"]
        print(
            f"{r['spec']:12} {r['configurations']:4} configurations  "
            f"brute force {theirs['took_s']:6.1f} s  rooftune {ours['took_s']:6.1f} s "
            f"(+ {ours['probe_s']:.1f} s probes), {ours['measured']} measured  "
            f"time {r['time_ratio']:.2f}  winner {'1, the same' if r['same'] else shown(r['winner'])}, "
            f"Kernel Tuner's by itself {shown(r['control'])}"
        )
        print(f"{'':12} brute force: {name_of(theirs['best'])}")
        print(f"{'':12} rooftune:    {name_of(ours['best'])}", flush=True)


if __name__ == "__main__":
    main()
