"""The candidates: one row each. Adding one is a row at the end of the table and its kernel file."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.resources import files
from types import ModuleType
from typing import Any

from ..device.profile import DeviceProfile
from ..errors import UnsupportedError
from ..tuning.plan import Round, make_plan
from ..tuning.tunable import Tunable, TuneGroup, separated_hash
from .groups import (
    Rule,
    always,
    demoted,
    double_buffered,
    lacking,
    naive,
    split_k_on_cpu,
    split_k_on_units,
    tune_groups,
)
from .key import MatmulAutotuneKey
from .launch import LaunchPlan
from .problem import Problem

_FAMILIES = f"{__package__}.families"
_PLANNING = (f"{_FAMILIES}.", f"{__package__}.nvidia.")


@dataclass(frozen=True)
class Candidate:
    """One named way to compute a product.

    `family` is the module of `rooftune.matmul.families` whose `plan(problem, profile, **params)` says
    what to launch, and whose `KERNELS` are the files of `kernels/` that it is made of. `needs` are the
    units (cmma, mma, tma) without which it can't run. Raise `version` when it computes differently and
    no text shows it.
    """

    name: str
    memberships: tuple[tuple[str, Rule], ...]
    family: str
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)
    needs: tuple[str, ...] = ()
    version: str = "1"

    def plan(self, problem: Problem, profile: DeviceProfile) -> LaunchPlan:
        """What to launch. Raises UnsupportedError, before anything is compiled, for what it can't do."""
        lack = lacking(self.needs, problem.elem.value, problem.precision, profile)
        if lack:
            raise UnsupportedError(lack)
        plan: LaunchPlan = _family(self.family).plan(problem, profile, **self.params)
        return plan

    @cached_property
    def digest(self) -> str:
        """Changes whenever the code may: hash of name, version, params, and the family's texts."""
        params = json.dumps(dict(self.params), sort_keys=True, default=str)
        return separated_hash(self.name, self.version, params, _family_hash(self.family))

    def tunable(
        self, fn: Callable[[Any], Any], profile: DeviceProfile, groups: Mapping[str, TuneGroup], **more: Any
    ) -> Tunable:
        """The candidate for the tuner; `fn` runs it, `groups` are the device's `tune_groups`."""
        tunable = Tunable(self.name, fn, version=self.version, digest=self.digest, **more)
        for group, rule in self.memberships:
            tunable.group(groups[group], demoted(rule, self.needs, profile))
        return tunable


def plan_for(key: MatmulAutotuneKey, profile: DeviceProfile) -> tuple[Round, ...]:
    """The rounds in which this device would try the candidates. Nothing is compiled or run."""
    groups = tune_groups(profile)
    return make_plan([candidate.tunable(_not_run, profile, groups) for candidate in CANDIDATES], key)


def _not_run(inputs: Any) -> Any:
    raise UnsupportedError("a plan is only looked at")


def _family(name: str) -> ModuleType:
    try:
        return import_module(f"{_FAMILIES}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{_FAMILIES}.{name}":
            raise
        raise UnsupportedError(f"the {name} kernels are not available on this device") from None


@lru_cache
def _family_hash(name: str) -> str:
    return separated_hash(*_family_texts(name))


def _family_texts(name: str) -> tuple[str, ...]:
    """What the family's code is made of: the modules that plan its launches, and its kernels' text."""
    try:
        family = _family(name)
    except UnsupportedError:
        return ()
    planning: dict[str, ModuleType] = {}
    _gather_planning(family, planning)
    kernels: tuple[str, ...] = family.KERNELS
    folder = files(__package__) / "kernels"
    texts = [inspect.getsource(planning[module]) for module in sorted(planning)]
    return (*texts, *((folder / kernel).read_text(encoding="utf-8") for kernel in kernels))


def _gather_planning(module: ModuleType, found: dict[str, ModuleType]) -> None:
    """The module and, from there on, those of the rooms of kernels whose things it uses."""
    if module.__name__ in found:
        return
    found[module.__name__] = module
    for thing in vars(module).values():
        name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
        if isinstance(name, str) and name.startswith(_PLANNING):
            _gather_planning(sys.modules[name], found)


def _plain_rows() -> Iterator[Candidate]:
    """Rows that run on every device."""
    gemv, unit, cpu = "gemv", "unit", "cpu"
    rows: list[tuple[str, list[tuple[str, Rule]], str, dict[str, Any]]] = [
        ("matmul_naive", [(unit, naive)], "naive", {}),
        ("matmul_double_vec_mat", [(gemv, double_buffered)], gemv, {"axis": "perpendicular", "stages": 2}),
        ("matmul_simple_vec_mat", [(gemv, always)], gemv, {"axis": "perpendicular", "stages": 1}),
        ("matmul_gemv_plane_parallel", [(gemv, always)], gemv, {"axis": "parallel"}),
        ("matmul_gemv_unit_perpendicular", [(gemv, always)], gemv, {"axis": "perpendicular"}),
        ("matmul_simple_unit_max_tile_size", [(unit, always)], unit, {"size": "max", "stages": 1}),
        ("matmul_double_unit_max_tile_size", [(unit, double_buffered)], unit, {"size": "max", "stages": 2}),
        ("matmul_simple_unit_min_tile_size", [(unit, always)], unit, {"size": "min", "stages": 1}),
        ("matmul_double_unit_min_tile_size", [(unit, double_buffered)], unit, {"size": "min", "stages": 2}),
        ("matmul_gemm_no_stage", [(unit, always)], "no_stage", {}),
        ("matmul_cpu_gemm", [(cpu, always)], cpu, {"packed": False}),
        ("matmul_cpu_gemm_packed", [(cpu, always)], cpu, {"packed": True}),
    ]
    for name, memberships, family, params in rows:
        yield Candidate(name, tuple(memberships), family, params)


def _accelerated_rows() -> Iterator[Candidate]:
    """Rows on matrix instructions, each once with cmma and once with mma."""
    ordered = "matmul_ordered_double_{}_partition_k2_row_count"
    rows = [
        ("matmul_simple_cyclic_{}", "simple_cyclic", always),
        ("matmul_simple_cyclic_{}_multi_rows", "simple_cyclic_multi_rows", always),
        (ordered + "4_rows_per_plane2", "ordered_double_4", double_buffered),
        (ordered + "8_rows_per_plane2", "ordered_double_8", double_buffered),
        ("matmul_double_cyclic_{}", "double_cyclic", double_buffered),
        ("matmul_double_cyclic_{}_specialized", "double_cyclic_specialized", double_buffered),
        ("matmul_specialized_cyclic_{}", "specialized_cyclic", double_buffered),
        ("matmul_simple_tma_{}", "simple_tma", always),
        ("matmul_simple_tma_{}_multi_rows", "simple_tma_multi_rows", always),
        ("matmul_specialized_tma_{}", "specialized_tma", double_buffered),
    ]
    for name, variant, rule in rows:
        engines = ("tma",) if "_tma_" in name else ()
        memberships = tuple((group, rule) for group in ("accelerated", *engines))
        for instruction in ("cmma", "mma"):
            yield Candidate(
                name.format(instruction),
                memberships,
                instruction,
                {"variant": variant},
                (instruction, *engines),
            )


def _table() -> Iterator[Candidate]:
    yield from _plain_rows()
    yield from _accelerated_rows()
    yield Candidate("matmul_split_k", (("unit", split_k_on_units), ("cpu", split_k_on_cpu)), "split_k")


CANDIDATES = tuple(_table())
"""All candidates. A candidate's index is its place here; decisions and the checksum use its name."""
