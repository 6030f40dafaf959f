"""Composition: configuration, stores, probes and tuners of this process (core's one module that imports probes)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyopencl as cl

from .config import Config, load_config
from .device.client import Client
from .matmul.cost import bytes_of, compute_ops
from .matmul.tunables import MatmulCandidates, MatmulInputs
from .tuning.bounds import Bound, Bounds
from .tuning.context import TuningContext
from .tuning.level import Level
from .tuning.tunable import TunableSet
from .tuning.tuner import LocalTuner
