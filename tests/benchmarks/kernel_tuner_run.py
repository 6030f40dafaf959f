"""Kernel Tuner's brute force over one kernel's variants; run by peers.py in an interpreter that has it.

    python kernel_tuner_run.py JOB.json RESULT.json

The job: the device's place among its platforms, a program per variant, sizes, arguments, parameters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    # Makes runtimes installed from PyPI visible, as the job's writer saw them.
    from rooftune.device.discovery import list_devices

    list_devices()
    import kernel_tuner

    variants = job["variants"]
    rng = np.random.default_rng(0)
    operands = [rng.random(count, np.float32) * 2 - 1 for count in job["operands"]]
    results, _ = kernel_tuner.tune_kernel(
        job["kernel"],
        lambda params: variants[params["variant"]]["source"],
        lambda params: tuple(variants[params["variant"]]["groups"]),
        operands,
        {"variant": list(range(len(variants))), "block_size_x": [1]},
        grid_div_x=[],
        grid_div_y=[],
        grid_div_z=[],
        lang="OpenCL",
        platform=job["platform"],
        device=job["device"],
        iterations=job["iterations"],
        compiler_options=job["options"],
        quiet=True,
    )
    timed = [
        (result["time"] * 1e-3, variants[result["variant"]]["params"])
        for result in results
        if isinstance(result["time"], float)
    ]
    Path(sys.argv[2]).write_text(json.dumps({"results": sorted(timed, key=lambda pair: pair[0])}))


if __name__ == "__main__":
    main()
