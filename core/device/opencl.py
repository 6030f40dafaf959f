"""pyopencl, imported after the runtimes it should see are in place. Import `cl` from here."""

from __future__ import annotations

from .runtimes import prepare

RUNTIMES = prepare()

import pyopencl as cl  # noqa: E402  (its import already needs a writable cache folder)
import pyopencl.invoker  # noqa: E402, F401  (else the first kernel imports it, in the first call's time)

__all__ = ["RUNTIMES", "cl"]
