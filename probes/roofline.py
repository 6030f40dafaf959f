"""A device's roofline with decisions on it, as data: what is drawn, not how.

A roof is an element type's compute peak; a level is a cache, or the memory, with its bandwidth: there a
product of `intensity` operations a byte computes at most intensity · bandwidth. A point is a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any

from rooftune.errors import BuildError, MeasurementError, UnsupportedError
from rooftune.matmul.key import short_name
from rooftune.spec.brief import brief_names
from rooftune.store.browse import named_key
from rooftune.tuning.decision import Decision

from .bandwidth import bounding_set
from .peaks import compute_sources
from .prober import DTYPES, Prober
from .result import ProbeResult

DROP = 0.75
"""A bandwidth below this share of its neighbour's belongs to the next level."""
ALIKE = 1.03
"""Roofs this close are drawn as one."""


@dataclass(frozen=True)
class Roof:
    """A compute peak of one arithmetic, or of several that are alike."""

    names: tuple[str, ...]
    ops_per_s: float

    @property
    def label(self) -> str:
        return ", ".join(self.names)


@dataclass(frozen=True)
class Level:
    """A cache or the memory: bytes a second for working sets of at most `up_to_bytes`."""

    bytes_per_s: float
    up_to_bytes: int
    is_memory: bool = False


@dataclass(frozen=True)
class Point:
    """A decision: its winner's operations a second, and operations per byte of its operands and result.

    `share` is the share of the roofline as it is drawn: of the compute peak known now, which may have
    been probed again since the decision, and of the decision's own memory peak. `decided_share` is the
    share of the peaks that were known then, which is what other commands show.
    """

    label: str
    dtype: str
    winner: str
    intensity: float
    ops_per_s: float
    share: float | None
    at: str = ""
    decided_share: float | None = None
    brief_winner: str = ""

    @property
    def shown_winner(self) -> str:
        """The winner without the parameters that have one value: for people, not for programs."""
        return self.brief_winner or self.winner

    @property
    def name(self) -> str:
        """The label and the element type, which a key's label has in it."""
        return self.label if self.dtype in ("", *self.label.split()) else f"{self.label} {self.dtype}"

    @property
    def moved(self) -> bool:
        """Whether the share now and the share then differ as they are shown, in whole percent."""
        if self.share is None or self.decided_share is None:
            return False
        return f"{self.share:.0%}" != f"{self.decided_share:.0%}"


@dataclass
class Roofline:
    """Roofs and levels from highest to lowest, points from left to right.

    `problems`: what became of matrix units that could not be probed.
    """

    device: str
    roofs: list[Roof]
    levels: list[Level]
    points: list[Point] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "roofs": [asdict(roof) | {"names": list(roof.names)} for roof in self.roofs],
            "levels": [asdict(level) for level in self.levels],
            "points": [_point_json(point) for point in self.points],
            "problems": self.problems,
        }

    @property
    def top_ops_per_s(self) -> float:
        return max(roof.ops_per_s for roof in self.roofs)

    def span(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Intensities and rates to show: all points, every ridge, and some air around them."""
        slow, fast = self.levels[-1].bytes_per_s, self.levels[0].bytes_per_s
        lowest = min(roof.ops_per_s for roof in self.roofs)
        intensities = [p.intensity for p in self.points]
        left = min([lowest / fast / 4, *intensities]) / 1.6
        right = max([self.top_ops_per_s / slow * 4, *intensities]) * 4  # room for the roofs' numbers
        bottom = min([left * slow, *(p.ops_per_s for p in self.points)]) / 1.6
        return (left, right), (bottom, max([self.top_ops_per_s, *(p.ops_per_s for p in self.points)]) * 2)


def build_roofline(
    prober: Prober, decisions: Iterable[tuple[Decision, str]], *, sweep_access: str = "read"
) -> Roofline:
    """The roofline of the prober's device with (decision, label) pairs as points.

    An empty label stands for the extents in the decision's key. What is not stored is probed; a first
    sweep takes a while. Decisions without bounds or measurement have no place on a roofline and are
    left out, as are peaks of integers: no product has such a roof. Decisions' own memory peaks count as
    part of the sweep, so that no point lies above a level just because writing or copying was faster
    than reading.
    """
    decided = distinct([(decision, label or label_of(decision)) for decision, label in decisions])
    units = [(dtype, unit) for dtype, unit in prober.units() if dtype != "i8"]
    computes = [prober.compute_request(dtype, unit) for dtype, unit in units]
    prober.expect([*computes, *prober.sweep_requests(sweep_access)])
    peaks, problems = _computes(prober, units)
    samples = [
        (int(found.facts["working_set_bytes"]), found.value) for found in prober.sweep(sweep_access)
    ]
    for decision, _ in decided:
        samples += _memory_peak(decision)
    points = [
        point
        for decision, label in decided
        for point in _point(decision, label, _peak_of(prober, decision))
    ]
    points.sort(key=lambda point: (point.intensity, point.ops_per_s))
    return Roofline(prober.client.device_name, alike(peaks), levels_of(samples), points, problems)


def _computes(prober: Prober, units: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, float]], list[str]]:
    """Names and rates, and why a matrix unit that the driver promises has none."""
    peaks: list[tuple[str, float]] = []
    problems: list[str] = []
    for dtype, unit in units:
        try:
            found = prober.compute(dtype, unit)
        except (BuildError, MeasurementError, UnsupportedError) as error:
            if unit == "plain":
                raise
            problems.append(f"{dtype} {unit} could not be probed: {error}")
            continue
        peaks.append((name_of(found), found.value))
    return peaks, problems


def name_of(found: ProbeResult) -> str:
    """A compute peak's name: `f32`, or `f16 mma` on matrix units."""
    dtype, unit = found.facts["dtype"], found.facts["arithmetic"]
    return str(dtype) if unit == "plain" else f"{dtype} {unit}"


def alike(peaks: Sequence[tuple[str, float]]) -> list[Roof]:
    """Roofs from highest to lowest; those that differ by clock noise become one, at the highest of them."""
    roofs: list[Roof] = []
    for name, rate in sorted(peaks, key=lambda peak: -peak[1]):
        if roofs and roofs[-1].ops_per_s <= rate * ALIKE:
            roofs[-1] = Roof((*roofs[-1].names, name), roofs[-1].ops_per_s)
        else:
            roofs.append(Roof((name,), rate))
    return roofs


def levels_of(samples: Sequence[tuple[int, float]]) -> list[Level]:
    """The levels that bandwidths over working sets show, fastest first; the last one is the memory.

    A larger set is never faster than a smaller one, but for noise: each set counts with the best of
    itself and all larger ones. A single set between two levels is the step between them, not a level.
    """
    best: dict[int, float] = {}
    for size, rate in samples:
        best[size] = max(rate, best.get(size, 0.0))
    sizes = sorted(best)
    for smaller, larger in zip(reversed(sizes[:-1]), reversed(sizes[1:]), strict=True):
        best[smaller] = max(best[smaller], best[larger])
    groups: list[list[int]] = []
    for size in sizes:
        if groups and best[size] >= DROP * best[groups[-1][0]]:
            groups[-1].append(size)
        else:
            groups.append([size])
    kept = [
        group for i, group in enumerate(groups) if len(group) > 1 or i in (0, len(groups) - 1)
    ]
    levels = [Level(best[group[0]], group[-1]) for group in kept]
    return [*levels[:-1], Level(levels[-1].bytes_per_s, levels[-1].up_to_bytes, is_memory=True)]


def _amounts(decision: Decision) -> dict[str, tuple[int, float]]:
    bounds = decision.bounds.bounds if decision.bounds else ()
    return {bound.resource: (bound.amount, bound.peak_per_s) for bound in bounds}


def _memory_peak(decision: Decision) -> list[tuple[int, float]]:
    if "memory" not in _amounts(decision):
        return []
    amount, peak = _amounts(decision)["memory"]
    return [(bounding_set(amount), peak)] if isfinite(peak) else []


def _point_json(point: Point) -> dict[str, Any]:
    fields = asdict(point)
    del fields["brief_winner"]
    return fields


def _peak_of(prober: Prober, decision: Decision) -> float:
    """The compute peak that bounds this product, as probed now; infinite where its type has none."""
    dtype = dtype_of(decision)
    if dtype not in DTYPES:
        return inf
    precision = str(decision.key["definition"].get("precision", "full"))
    sources = compute_sources(prober, dtype, precision)
    known = set(prober.units())
    return max((prober.compute(d, u).value * part for d, u, part in sources if (d, u) in known), default=inf)


def _point(decision: Decision, label: str, peak_ops_per_s: float) -> list[Point]:
    amounts = _amounts(decision)
    if decision.median_s is None or not {"compute", "memory"} <= amounts.keys():
        return []
    ops, nbytes = amounts["compute"][0], amounts["memory"][0]
    if not ops or not nbytes:
        return []
    rate = ops / decision.median_s
    share = max(ops / peak_ops_per_s, nbytes / amounts["memory"][1]) / decision.median_s
    dtype, then = dtype_of(decision), decision.roofline
    brief = brief_names(decision)(decision.name)
    return [Point(label, dtype, decision.name, ops / nbytes, rate, share or None, decision.at, then, brief)]


def dtype_of(decision: Decision) -> str:
    """The element type of a product's decision; empty for others'."""
    return str(_definition(decision).get("elem_lhs", ""))


def label_of(decision: Decision) -> str:
    """A decision's key as `tune cache ls` has it, of another tuner after its name."""
    return named_key(decision.tuner or "decision", decision.key)


def distinct(decided: Sequence[tuple[Decision, str]]) -> list[tuple[Decision, str]]:
    """The same with labels that can be told apart: to those alike, what sets their keys apart is added."""
    alike: dict[tuple[str, str], list[Decision]] = {}
    for decision, label in decided:
        alike.setdefault((label, dtype_of(decision)), []).append(decision)
    return [
        (decision, " ".join([label, *_own_fields(decision, alike[label, dtype_of(decision)])]))
        for decision, label in decided
    ]


def _own_fields(decision: Decision, others: Sequence[Decision]) -> Iterator[str]:
    """`precision=tf32`: fields of a product's key that one of the others has otherwise."""
    for name, value in _definition(decision).items():
        if any(_definition(other).get(name, value) != value for other in others):
            yield f"{short_name(name)}={value if not isinstance(value, dict) else next(iter(value))}"


def _definition(decision: Decision) -> dict[str, Any]:
    definition = decision.key.get("definition", {}) if isinstance(decision.key, dict) else {}
    return definition if isinstance(definition, dict) else {}
