"""Starting cold_run.py in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("cold_run.py")


def start(file: Path, *keys: str, candidates: int = 5, sample_s: float = 0.0, announce: bool = False) -> Any:
    """A running cold run; its output is piped."""
    options = ["--candidates", str(candidates), "--sample-s", str(sample_s)]
    command = [sys.executable, str(SCRIPT), str(file), *keys, *options, *(["--announce"] if announce else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(run: Any) -> dict[str, Any]:
    """What a cold run printed last; it must have ended well."""
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0, err
    assert "Traceback" not in err, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return {**result, "stderr": err}


def cold_run(file: Path, *keys: str, **options: Any) -> dict[str, Any]:
    return finish(start(file, *keys, **options))
