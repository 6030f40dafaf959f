"""The candidates that run on any device, by name: plan function, its parameters, the kernel files it builds.

The kernel files are what a candidate's digest covers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..launch import LaunchPlan
from . import cpu, gemv, naive, no_stage, split_k, unit


@dataclass(frozen=True)
class Recipe:
    """`plan(problem, profile, **params)` makes the launch plan from the texts named in `kernels`."""

    plan: Callable[..., LaunchPlan]
    kernels: tuple[str, ...]
    params: dict[str, object] = field(default_factory=dict)


PLAIN: dict[str, Recipe] = {
    "matmul_naive": Recipe(naive.plan, naive.KERNELS),
    "matmul_double_vec_mat": Recipe(gemv.plan, gemv.KERNELS, {"axis": "perpendicular", "stages": 2}),
    "matmul_simple_vec_mat": Recipe(gemv.plan, gemv.KERNELS, {"axis": "perpendicular", "stages": 1}),
    "matmul_gemv_plane_parallel": Recipe(gemv.plan, gemv.KERNELS, {"axis": "parallel"}),
    "matmul_gemv_unit_perpendicular": Recipe(gemv.plan, gemv.KERNELS, {"axis": "perpendicular"}),
    "matmul_simple_unit_max_tile_size": Recipe(unit.plan, unit.KERNELS, {"size": "max", "stages": 1}),
    "matmul_double_unit_max_tile_size": Recipe(unit.plan, unit.KERNELS, {"size": "max", "stages": 2}),
    "matmul_simple_unit_min_tile_size": Recipe(unit.plan, unit.KERNELS, {"size": "min", "stages": 1}),
    "matmul_double_unit_min_tile_size": Recipe(unit.plan, unit.KERNELS, {"size": "min", "stages": 2}),
    "matmul_gemm_no_stage": Recipe(no_stage.plan, no_stage.KERNELS),
    "matmul_cpu_gemm": Recipe(cpu.plan, cpu.KERNELS, {"packed": False}),
    "matmul_cpu_gemm_packed": Recipe(cpu.plan, cpu.KERNELS, {"packed": True}),
    "matmul_split_k": Recipe(split_k.plan, split_k.KERNELS),
}
