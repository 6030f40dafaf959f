"""Times of the tiles and slices that a candidate chooses among on an NVIDIA GPU, beside its estimates.

    python -m tests.benchmarks.gpu_tiles [--types f16 tf32 ...] [--shapes 1000 2048 ...]
                                         [--variant specialized_tma] [--shown 8]

For each shape, fastest first: µs of one product by its window of profiling events and in a row without
events; the estimate, relative to the chosen one's; `rows in sets` where lhs's rows are taken every so many at
once. A star marks what is chosen. Slices are those within 1.5 of the best estimate for their tile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from rooftune.device.client import Client
from rooftune.errors import UnsupportedError
from rooftune.matmul.families import accelerated, tf32
from rooftune.matmul.launch import LaunchPlan
from rooftune.matmul.nvidia.operands import Steps, operand_lines
from rooftune.matmul.nvidia.tiles import Costs, Extents, Tile, estimate, slice_counts
from rooftune.matmul.problem import Elem, Problem, Shape

from .gpu_times import TYPES, Case, empty_times, our_row, our_window

SHAPES = "1000 1024 2048 4096 512x512x8192"


@dataclass(frozen=True)
class Choice:
    """A tile, slices of k, and whether rows of lhs are taken in sets."""

    tile: Tile
    slices: int
    row_sets: bool = False

    def __str__(self) -> str:
        sets = ", rows in sets" if self.row_sets else ""
        return f"{self.tile.bm}x{self.tile.bn}, {self.slices} slices{sets}"


def tables(problem: Problem, variant: str) -> tuple[tuple[Tile, ...], Costs, int]:
    """The tiles, their costs and the elements of k in a step."""
    if problem.elem is not Elem.F32:
        return accelerated.WARP_GROUP_TILES[accelerated.VARIANTS[variant].rows], *_COSTS_16
    split = problem.precision == "full"
    table = (tf32.SPLIT_TILES if split else tf32.TF32_TILES)[variant]
    unroll = 1 if split else tf32.UNROLL[variant]
    return table, tf32.SPLIT_COSTS if split else tf32.TF32_COSTS, unroll * tf32.DEPTH


_COSTS_16 = (accelerated.WARP_GROUP_COSTS, accelerated.DEPTH)


def plan_of(client: Client, problem: Problem, variant: str, choice: Choice | None) -> LaunchPlan:
    if choice is None:
        return accelerated.plan(problem, client.profile, unit="mma", variant=variant)
    sets = None if problem.elem is Elem.F32 else choice.row_sets
    return accelerated.plan(
        problem,
        client.profile,
        unit="mma",
        variant=variant,
        tile=choice.tile,
        slices=choice.slices,
        row_sets=sets,
    )


def choices(client: Client, problem: Problem, variant: str) -> Iterator[tuple[Choice, float, LaunchPlan]]:
    """What can be chosen, its estimate, its plan."""
    table, costs, depth = tables(problem, variant)
    units = client.profile.compute_units
    for row_sets, extents in extents_of(problem).items():
        for tile in table:
            guesses = {
                slices: estimate(tile, extents, units, depth, costs, slices)
                for slices in ([1] if row_sets else slice_counts(tile, extents, units, depth))
            }
            for slices, guess in guesses.items():
                choice = Choice(tile, slices, row_sets)
                with suppress(UnsupportedError):
                    if guess <= 1.5 * min(guesses.values()):
                        yield choice, guess, plan_of(client, problem, variant, choice)


def extents_of(problem: Problem) -> dict[bool, Extents]:
    """What estimates depend on: with lhs's rows as they are, and in sets where that can be."""
    plain = Extents(problem.m, problem.n, problem.k, problem.batch)
    if problem.elem is Elem.F32:
        return {False: plain}
    lhs, rhs = operand_lines(problem, problem.batch_walk(), Steps())
    found = {False: replace(plain, lhs_odd=lhs.odd, rhs_odd=rhs.odd)}
    sets = accelerated.sets_of(lhs)
    if lhs.odd and lhs.k_contiguous and problem.batch == 1 and problem.m % sets == 0:
        found[True] = Extents(problem.m // sets, problem.n, problem.k, sets, False, rhs.odd)
    return found


def launches(plan: LaunchPlan) -> list[tuple[object, ...]]:
    """What tells plans apart: options, sizes, numbers."""
    return [
        (call.name, call.options, call.global_size, tuple(a for a in call.args if hasattr(a, "dtype")))
        for call in plan.calls
    ]


def show(client: Client, kind: str, text: str, variant: str, shown: int) -> None:
    case = Case(client, Shape.parse(text), *TYPES[kind])
    chosen = launches(plan_of(client, case.problem, variant, None))
    rows = []
    for choice, guess, plan in choices(client, case.problem, variant):
        prepared = case.bound(plan)
        window = our_window(client, prepared.enqueue, 9)
        quiet = our_row(client, prepared.steady(client.queue, quiet=True), 5) if window < 200e-6 else window
        rows.append((quiet, window, guess, choice, launches(plan) == chosen))
    guessed = next((row[2] for row in rows if row[4]), rows[0][2])
    print(f"\n{kind} {text}: window µs, row µs, estimate; {len(rows)} choices")
    rows.sort(key=lambda row: row[0])
    for place, (quiet, window, guess, choice, is_chosen) in enumerate(rows):
        if place < shown or is_chosen:
            mark = "*" if is_chosen else " "
            print(
                f" {mark} {window * 1e6:8.1f} {quiet * 1e6:8.1f} {guess / guessed:6.2f}  {choice}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=["f16", "tf32", "f32"])
    parser.add_argument("--shapes", nargs="+", default=SHAPES.split())
    parser.add_argument("--variant", default="specialized_tma", choices=list(tf32.UNROLL))
    parser.add_argument("--shown", type=int, default=8, help="rows of each table (default: 8)")
    options = parser.parse_args()
    client = Client()
    window, _, quiet = empty_times(client)
    print(f"{client.device_name}, driver {client.profile.driver}")
    print(f"empty kernel: window {window * 1e6:.2f} µs, in a row {quiet * 1e6:.2f} µs")
    for kind in options.types:
        for text in options.shapes:
            show(client, kind, text, options.variant, options.shown)


if __name__ == "__main__":
    main()
