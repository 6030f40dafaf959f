"""Matrix times vector on GPUs, reading the matrix 16 bytes at a time; where alignment allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...device.profile import DeviceProfile
from ..launch import Arg, Blob, KernelCall, LaunchPlan, Scratch, Slot
from ..nvidia.operands import Lines
from ..nvidia.tensormap import MapType, Swizzle
from ..nvidia.tiles import HOPPER
from ..problem import BatchWalk, Elem, Problem
from .common import ceil_div, defines, kernel_text

if TYPE_CHECKING:
    from .gemv import GemvView

WIDE_TEXTS = ("gemv_piece.cl", "gemv_wide.cl")
BULK_TEXTS = ("nvidia_common.cl", "gemv_piece.cl", "gemv_bulk.cl")
KERNELS = tuple(dict.fromkeys((*WIDE_TEXTS, *BULK_TEXTS)))
PIECE_BYTES = 16
CHUNK, LEAST_CHUNKS, LARGE_BYTES = 512, 4, 16 << 20
BULK_WIDTH, BULK_DEPTH, BULK_STAGES, BULK_WORKERS = 64, 128, 6, 256
BULK_ELEMS = {Elem.F32: MapType.F32, Elem.F16: MapType.F16, Elem.BF16: MapType.BF16}


@dataclass(frozen=True)
class WideTile:
    """Lanes side by side, planes of them in a work-group, loads in flight, results a plane shares.

    `chunk`: how much of the summed axis a work-group takes; 0 for all of it.
    """

    lanes: int
    planes: int
    unroll: int
    each: int = 1
    chunk: int = 0


def tile_for(v: GemvView, piece: int, profile: DeviceProfile, products: int) -> WideTile:
    """Enough work-groups for the device first, then lines as long as they can be."""
    if v.mat_p == 1:
        return WideTile(32, 8, 8, 2)
    lanes = 8
    while lanes > 2 and _groups(v, lanes * piece, products) < _enough(profile):
        lanes //= 2
    # One group to a multiprocessor needs all its work-items; several share it better with fewer each.
    planes = 128 if piece == 8 or _groups(v, lanes * piece, products) < 1.5 * profile.compute_units else 64
    return WideTile(lanes, min(planes, profile.max_work_group // lanes), 16)


def _groups(v: GemvView, share: int, products: int) -> int:
    return ceil_div(v.results, share) * products


def _enough(profile: DeviceProfile) -> float:
    return 0.9 * profile.compute_units


def usable(v: GemvView, problem: Problem, profile: DeviceProfile) -> bool:
    """Whether every line of the matrix (and the vector, where lines run along it) starts at 16 bytes."""
    if profile.is_cpu or problem.elem is Elem.F64 or problem.out.elem is not problem.elem:
        return False
    piece = PIECE_BYTES // problem.elem.size_bytes
    along_results = v.mat_i == 1 and v.mat_p != 1
    if not along_results and (v.mat_p != 1 or v.vec_p != 1):
        return False
    length = v.results if along_results else problem.k
    pitch = v.mat_p if along_results else v.mat_i
    mat_at, _, _, *mat_batch = (int(x) for x in v.numbers[:5])
    steps = [mat_at, *mat_batch, length, pitch]
    if not along_results:
        vec_at, _, *vec_batch = (int(x) for x in v.numbers[5:9])
        steps += [vec_at, *vec_batch]
    return all(step % piece == 0 for step in steps)


def chunk_tile(stages: int) -> WideTile:
    """Work-groups of 256 work-items to a stage, each with that many stages of the vector in local memory."""
    return WideTile(64, 4 * stages, 16, chunk=CHUNK * stages)


def has_chunks(v: GemvView, problem: Problem, profile: DeviceProfile, stages: int) -> bool:
    """Whether a matrix contiguous along the results is so large that chunks of it keep the device busy."""
    if profile.capability is None or v.mat_p == 1 or not usable(v, problem, profile):
        return False
    matrix_bytes = v.results * problem.k * problem.elem.size_bytes
    return problem.k >= LEAST_CHUNKS * CHUNK * stages and matrix_bytes >= LARGE_BYTES


def plan(
    v: GemvView, problem: Problem, walk: BatchWalk, profile: DeviceProfile, tile: WideTile | None = None
) -> LaunchPlan:
    """One launch; `usable` must hold."""
    fills_device = _groups(v, BULK_WIDTH, walk.count) >= _enough(profile)
    if tile is None and v.mat_p != 1 and profile.capability == HOPPER and fills_device:
        return _bulk_plan(v, problem, walk)
    piece = PIECE_BYTES // problem.elem.size_bytes
    along_results = v.mat_p != 1
    t = tile or tile_for(v, piece, profile, walk.count)
    share = t.lanes * piece if along_results else t.planes * t.each
    options = (
        f"-DIN_{problem.elem.name}",
        *defines(
            ALONG_RESULTS=int(along_results),
            LANES=t.lanes,
            PLANES=t.planes,
            UNROLL=t.unroll,
            EACH=t.each,
            CHUNK=t.chunk,
        ),
    )
    threads, groups = t.lanes * t.planes, ceil_div(v.results, share)
    args: tuple[Arg, ...] = (v.mat, v.vec, Slot.OUT, *v.numbers)
    chunks = 1
    scratch: tuple[int, ...] = ()
    if t.chunk:
        chunks = ceil_div(problem.k, t.chunk)
        scratch = (groups * walk.count * chunks * share * 4,)
        args += (Scratch(0), zeros(groups * walk.count * 4), np.uint32(chunks))
    size = (groups * threads, walk.count, chunks)
    call = KernelCall(kernel_text(*WIDE_TEXTS), "gemv", options, size, (threads, 1, 1), args)
    return LaunchPlan((call,), scratch)


def zeros(nbytes: int) -> Blob:
    """A buffer of zeros that belongs to the bound operands."""
    return Blob((), lambda _: bytes(nbytes))


def _bulk_plan(v: GemvView, problem: Problem, walk: BatchWalk) -> LaunchPlan:
    """One launch of the copy engine's kernel, for a matrix contiguous along the results."""
    mat_at, _, pitch, outer, inner = (int(x) for x in v.numbers[:5])
    extents = walk.extents
    mat = Lines(
        v.mat,
        problem.elem,
        False,
        v.results,
        problem.k,
        mat_at,
        pitch,
        outer if extents[0] > 1 else 0,
        inner if extents[1] > 1 else 0,
        extents,
    )
    options = (
        f"-DIN_{problem.elem.name}",
        *defines(STAGES=BULK_STAGES, DEPTH=BULK_DEPTH),
    )
    threads = BULK_WORKERS + 32
    boxes = mat.tensor_map(BULK_ELEMS[problem.elem], (BULK_WIDTH, BULK_DEPTH), Swizzle.NONE)
    call = KernelCall(
        kernel_text(*BULK_TEXTS),
        "gemv",
        options,
        (ceil_div(v.results, BULK_WIDTH) * threads, walk.count, 1),
        (threads, 1, 1),
        (boxes, *mat.batch_factors, v.vec, *v.numbers[5:9], Slot.OUT, *v.numbers[9:]),
    )
    return LaunchPlan((call,))
