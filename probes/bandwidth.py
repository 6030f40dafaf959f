"""The bandwidth probe: bytes a second read, written or copied, over a working set of a given size.

Hot: passes over the same set again and again, from whichever cache holds it. Cold: one pass after
the caches were filled with something else. A copy counts the bytes it reads and those it writes, and
its working set is both halves together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources

import numpy as np
from rooftune.device.client import Client
from rooftune.device.profile import DeviceProfile
from rooftune.errors import BuildError, MeasurementError

from .launch import empty_window_s
from .method import TRIAL, Measured, Method, measure

LABEL = "MemoryThroughput"
ACCESSES = ("read", "write", "copy")
LEAST_SET_BYTES = 16 * 1024
MOST_PASSES = 1 << 24
LAUNCH_A_PASS_BYTES = 1 << 26
"""From this set on a pass on a GPU lasts long enough for a launch of its own, and outgrows its caches."""
GPU_MEMORY_SET_BYTES = 1 << 30
ALIKE = 0.8
"""Short tries that lie this close may be in the wrong order on a machine that others use too."""
GPU_CHUNKS = {
    "read": ((256, 1, 4), (256, 4, 16)),
    "write": ((128, 1, 1), (256, 1, 1), (256, 1, 4)),
    "copy": ((128, 1, 1), (256, 1, 1), (256, 4, 16)),
}
"""Work-items of a group, vectors each has under way, rows of its chunk. For each access what was best of many
on an H200, where persistent groups, more under way, reading and writing by turns in tiles of 16 to 192 KiB
and the bulk copy engine all copy 1 to 10 % less; the last ones are for devices that start groups slowly."""
READ_AT_ONCE = 8
"""Vectors of a work-item that reads past the first-level cache: 0.2 to 4 % faster there than the others."""


@dataclass(frozen=True)
class Walk:
    """How the work-groups share a working set: vector width in bytes, launch size, who reads what next.

    `shared_launch`: all passes in one launch. Only for sets that the device's caches hold: over a larger
    set groups that get ahead, or fall behind, meet others at the same chunk and read it from the cache,
    faster than the set as a whole can be read (an H200 shows 9.9 TB/s for 128 MiB that way, where its
    memory gives 4.8 at most). Else every pass is a launch, and an empty kernel's window is taken off.

    `streams`: the vectors a work-item has under way lie in as many parts of its chunk, not side by side.
    `once`: a group's chunk is what its work-items have under way, so it needs no loop.
    `evict_first`: the cache is told to give up this data before any other, by NVIDIA instructions.
    `past_l1`: what is read takes no room in the first-level caches, likewise.
    """

    vector_bytes: int
    local: int
    unroll: int
    groups: int
    rotate: bool
    shared_launch: bool = True
    streams: bool = False
    once: bool = False
    evict_first: bool = False
    past_l1: bool = False

    @property
    def hinted(self) -> bool:
        """Whether it needs instructions that a compiler may refuse."""
        return self.evict_first or self.past_l1

    def chunk_vectors(self, set_vectors: int) -> int:
        """Vectors of each group's chunk."""
        return self.local * self.unroll if self.once else max(1, set_vectors // self.groups)


def power_of_two(nbytes: int) -> int:
    """The smallest power of two that is not below nbytes."""
    return 1 << max(0, nbytes - 1).bit_length()


def bounding_set(nbytes: int) -> int:
    """The set whose bandwidth bounds a problem of nbytes: the largest power of two that is not above.

    Not the next larger one: a cache that holds the problem, or half of the set, makes the problem faster
    than that (64 MiB move at 56 GB/s where 128 MiB move at 48: a roofline that kernels beat by a fifth).
    """
    return power_of_two(nbytes // 2 + 1)


def working_set(profile: DeviceProfile, nbytes: int, available_bytes: int | None = None) -> int:
    """The set that is probed for a problem of nbytes: a power of two, from the least to the largest."""
    return min(max(power_of_two(nbytes), LEAST_SET_BYTES), largest_set(profile, available_bytes))


def largest_set(profile: DeviceProfile, available_bytes: int | None = None) -> int:
    """The largest power of two in half the device's memory (of a CPU: in half of what is free of it)."""
    memory = profile.memory_bytes or 1 << 30
    if profile.is_cpu and available_bytes is not None:
        memory = min(memory, available_bytes)
    most = min(memory // 2, profile.max_alloc_bytes or memory)
    return 1 << (max(most, LEAST_SET_BYTES).bit_length() - 1)


def memory_set(profile: DeviceProfile, available_bytes: int | None = None) -> int:
    """A set that no cache holds, so that the device's memory itself is measured."""
    if profile.is_cpu:
        # some drivers report a core's own cache and not the large one that all cores share
        size = max(power_of_two(4 * profile.cache_bytes) // 2, 256 << 20)
        return working_set(profile, size, available_bytes)
    return working_set(profile, max(16 * profile.cache_bytes, GPU_MEMORY_SET_BYTES))


def sweep_sets(profile: DeviceProfile, available_bytes: int | None = None) -> list[int]:
    """Powers of two from the smallest set to the largest a GPU can hold, or to one that no CPU's cache holds.

    On a CPU the largest does not follow what memory is free just now, which would move the memory's level.
    """
    largest = memory_set(profile, available_bytes) if profile.is_cpu else working_set(profile, 1 << 60)
    sizes = []
    size = LEAST_SET_BYTES
    while size <= largest:
        sizes.append(size)
        size *= 2
    return sizes


def arrays_of(access: str) -> int:
    """How many arrays make up the working set."""
    return 2 if access == "copy" else 1


def walks(profile: DeviceProfile, access: str, set_bytes: int) -> list[Walk]:
    """The walks worth trying: the best of them is the bandwidth.

    On a CPU: a chunk for each core, walked as one stream or as several. On a GPU: as many groups as run at
    once, each with a long chunk; for sets so large that every pass is a launch, many short ones.
    """
    if profile.is_cpu:
        cores = profile.compute_units
        return [Walk(64, 1, 8, cores, rotate=False, streams=streams) for streams in (False, True)]
    local = min(256, profile.max_work_group)
    vectors = max(1, set_bytes // arrays_of(access) // 16)
    if set_bytes < LAUNCH_A_PASS_BYTES:
        groups = min(8 * profile.compute_units, max(1, vectors // local))
        return [Walk(16, local, 4, groups, rotate=True)]
    chunks = [(min(items, local), unroll, rows) for items, unroll, rows in GPU_CHUNKS[access]]
    found = [_pass_a_launch(access, vectors, *chunk) for chunk in dict.fromkeys(chunks)]
    if profile.has_cache_policies:
        if access == "copy":
            found.insert(0, replace(found[0], evict_first=True))
        if access == "read":
            whole = _pass_a_launch(access, vectors, local, READ_AT_ONCE, READ_AT_ONCE)
            found.insert(0, replace(whole, once=True, past_l1=True))
    return found


def _pass_a_launch(access: str, vectors: int, local: int, unroll: int, rows: int) -> Walk:
    once = access != "read" and rows == unroll
    groups = max(1, vectors // (local * rows))
    return Walk(16, local, unroll, groups, rotate=False, shared_launch=False, once=once)


class Mover:
    """One access over one working set by one walk, ready to run.

    `empty_s`, an empty kernel's window, is taken off each pass that is a launch of its own.
    """

    def __init__(self, client: Client, access: str, set_bytes: int, walk: Walk, empty_s: float = 0.0) -> None:
        self.client = client
        self.empty_s = empty_s
        self.access = access
        self.walk = walk
        arrays = arrays_of(access)
        vectors = set_bytes // arrays // walk.vector_bytes
        self.length = walk.chunk_vectors(vectors)
        self.bytes_a_pass = self.length * walk.groups * walk.vector_bytes * arrays
        array_bytes = self.bytes_a_pass // arrays
        self.kernel = _kernel(client, f"{access}_once" if walk.once else f"{access}_set", walk)
        self.data = [client.allocate(array_bytes) for _ in range(arrays)]
        self.out = client.empty(walk.groups * walk.local * walk.vector_bytes) if access == "read" else None
        fill = _kernel(client, "write_set", walk)
        for buffer in self.data:  # memory never written may not exist yet: reading it measures nothing
            fill.set_args(buffer, *self._walk_args(1))
            client.enqueue(fill, self._size, (walk.local,), label=LABEL)
        client.sync()

    @property
    def _size(self) -> tuple[int]:
        return (self.walk.groups * self.walk.local,)

    def _walk_args(self, passes: int) -> tuple[np.generic, ...]:
        groups = self.walk.groups
        step = groups // 2 + 1 if self.walk.rotate and groups > 1 else 0
        return (np.uint32(groups), np.uint64(self.length), np.uint32(step), np.uint32(passes))

    def sample(self, passes: int) -> float:
        """Device seconds of so many passes."""
        buffers = [self.data[0], self.out] if self.out is not None else self.data
        if not self.walk.shared_launch:
            self.kernel.set_args(*buffers, *(() if self.walk.once else self._walk_args(1)))
            return self._without_launch(self.client.sample(self._run, passes)) * passes
        self.kernel.set_args(*buffers, *self._walk_args(passes))
        return self.client.sample(self._run, 1)

    def _without_launch(self, window_s: float) -> float:
        if window_s <= self.empty_s:
            raise MeasurementError(
                f"a pass over {self.bytes_a_pass} bytes took {window_s:g} s, no longer than an empty kernel"
            )
        return window_s - self.empty_s

    def _run(self) -> None:
        self.client.enqueue(self.kernel, self._size, (self.walk.local,), label=LABEL)


def _kernel(client: Client, name: str, walk: Walk):  # type: ignore[no-untyped-def]
    text = resources.files(__package__).joinpath("kernels/bandwidth.cl").read_text()
    defines = {"VEC": f"uint{walk.vector_bytes // 4}", "LOCAL": walk.local, "UNROLL": walk.unroll}
    defines |= {
        "STREAMS": int(walk.streams),
        "EVICT_FIRST": int(walk.evict_first),
        "PAST_L1": int(walk.past_l1),
    }
    lines = "".join(f"#define {key} {value}\n" for key, value in defines.items())
    return client.kernel(lines + text, name)


@dataclass(frozen=True)
class Moved:
    """Bytes a second, how they were measured, by which access."""

    bytes_per_s: float
    measured: Measured
    access: str
    trials: dict[str, float]


def probe_hot(client: Client, accesses: tuple[str, ...], set_bytes: int, method: Method) -> Moved:
    """The fastest of the accesses over one hot working set; all are tried, the fastest are measured."""
    with client.exclusive():
        ways = [
            Way(access, walk)
            for access in accesses
            for walk in walks(client.profile, access, set_bytes)
            if not walk.hinted or _builds(client, access, walk)
        ]
        empty_s = _empty_s(client, [way.walk for way in ways])
        tried = _tried(client, ways, set_bytes, empty_s) if len(ways) > 1 else ways
        found = [_measured(client, way, set_bytes, empty_s, method) for way in finalists(tried)]
    best = max(found, key=lambda moved: moved.bytes_per_s)
    # a short try may have met a quieter machine than the long measurement: a roof is the best ever seen
    trials = {access: max(w.bytes_per_s for w in tried if w.access == access) for access in accesses}
    return replace(best, bytes_per_s=max(best.bytes_per_s, *trials.values()), trials=trials)


@dataclass(frozen=True)
class Way:
    """An access by a walk, and what a short try of it reached, with so many passes in a sample."""

    access: str
    walk: Walk
    bytes_per_s: float = 0.0
    passes: int = 1


def finalists(tried: list[Way]) -> list[Way]:
    """Those worth measuring: the fastest, and the next if a short try can't tell which is faster."""
    first, *others = sorted(tried, key=lambda way: -way.bytes_per_s)
    return [first, *(way for way in others[:1] if way.bytes_per_s >= ALIKE * first.bytes_per_s)]


def _builds(client: Client, access: str, walk: Walk) -> bool:
    """Whether this driver's compiler takes the walk's instructions."""
    try:
        _kernel(client, f"{access}_once", walk)
    except BuildError:
        return False
    return True


def _empty_s(client: Client, walks: list[Walk]) -> float:
    """An empty kernel's window, measured once for all the walks that need it."""
    return 0.0 if all(walk.shared_launch for walk in walks) else empty_window_s(client)


def _tried(client: Client, ways: list[Way], set_bytes: int, empty_s: float) -> list[Way]:
    """The ways with what short tries of them reached."""
    found = []
    for way in ways:
        mover = Mover(client, way.access, set_bytes, way.walk, empty_s)
        trial = measure(mover.sample, TRIAL, most=MOST_PASSES)
        found.append(replace(way, bytes_per_s=mover.bytes_a_pass / trial.unit_s, passes=trial.work))
        del mover  # one working set at a time
    return found


def _measured(client: Client, way: Way, set_bytes: int, empty_s: float, method: Method) -> Moved:
    mover = Mover(client, way.access, set_bytes, way.walk, empty_s)
    measured = measure(mover.sample, method, start=way.passes, most=MOST_PASSES)
    return Moved(mover.bytes_a_pass / measured.unit_s, measured, way.access, {})


def probe_cold(client: Client, access: str, set_bytes: int, method: Method) -> Moved:
    """One pass at a time, the caches filled with other data before each. What a launch takes is taken off."""
    profile = client.profile
    flush_bytes = memory_set(profile) // 2  # more than any cache, whatever the driver says of them
    with client.exclusive():
        empty_s = empty_window_s(client)
        flush = Mover(client, "write", flush_bytes, walks(profile, "write", flush_bytes)[0], empty_s)
        walk = replace(walks(profile, access, set_bytes)[-1], shared_launch=False)
        mover = Mover(client, access, set_bytes, walk, empty_s)

        def sample(_passes: int) -> float:
            flush.sample(1)
            return mover.sample(1)

        measured = measure(sample, method, most=1)
    rate = mover.bytes_a_pass / measured.unit_s
    return Moved(rate, measured, access, {access: rate})
