"""Where the command `tune` starts: Ctrl-C while it is still being imported ends it quietly too."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Runs the command line; exits."""
    try:
        from .app import main as run
        from .run import leave_for_good
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        run()
    except SystemExit as ended:
        leave_for_good(ended.code if isinstance(ended.code, int) else 1)
        raise
