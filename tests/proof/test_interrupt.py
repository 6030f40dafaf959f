"""Ctrl-C in a program that uses the library: one KeyboardInterrupt, the program's own, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rooftune.config import Config, EnvironmentConfig
from rooftune.errors import WorkError
from rooftune.matmul.operation import matmul
from rooftune.session import Session

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers need a POSIX system")

PROGRAM = """
import sys
import numpy as np
import rooftune as rt

def product(n):
    a = np.ones((n, n), np.float32)
    return rt.matmul(a, a)

product(24)
print("one is tuned", flush=True)
product(1600)
"""


@pytest.mark.parametrize("after_s", [0.2, 1.0])
def test_an_interrupted_program_keeps_what_was_decided_and_leaves_nothing(tmp_path, strays, after_s):
    store = tmp_path / "store"
    (tmp_path / "cubecl.toml").write_text(f'[environment]\npath = "{store}"\n')
    # In a process group of its own, as a shell starts it: Ctrl-C goes to all of the group.
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in sys.path)},
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "one is tuned\n"
    time.sleep(after_s)
    os.killpg(program.pid, signal.SIGINT)
    _, printed = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT
    chained = printed.count("During handling of the above exception")
    assert printed.count("Traceback") == 1 + chained and "proof/worker" not in printed, printed
    assert printed.rstrip().endswith("KeyboardInterrupt"), printed
    for _ in range(20):
        if not strays():
            break
        time.sleep(0.1)
    assert strays() == []

    session = Session(Config(environment=EnvironmentConfig(path=str(store))), measure=False)
    decided = np.ones((24, 24), np.float32)
    assert (matmul(session, decided, decided) == 24).all()
    with pytest.raises(WorkError, match="forbids measuring"):
        matmul(session, np.ones((1600, 1600), np.float32), np.ones((1600, 1600), np.float32))
