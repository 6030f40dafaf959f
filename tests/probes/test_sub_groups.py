"""The probe of Intel's matrix engines, without any: functions of the same meaning stand in for them.

The program is the probe's own, and real sub-groups run it where an OpenCL device here has them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rooftune.device.client import Client
from rooftune.device.discovery import list_devices
from rooftune.device.profile import DeviceProfile
from rooftune.errors import BuildError, UnsupportedError
from rooftune.probes import sub_groups
from rooftune.probes.compute import best_of
from rooftune.probes.method import Method
from rooftune.probes.peaks import compute_sources
from rooftune.probes.prober import Prober
from rooftune.probes.report import probe_device
from rooftune.probes.units import probed_units

SHORT = Method(sample_s=1e-3, settle_s=0.0, settle_at_most_s=0.02, best_s=0.0, busy_s=0.0)
USABLE = [found for found in list_devices() if found.usable]
WITH_SUB_GROUPS = [f for f in USABLE if {"cl_intel_required_subgroup_size"} <= f.profile.extensions]
CASES = [(dtype, size) for dtype in sub_groups.TYPES for size in sub_groups.SIZES]

# A row of A lies spread over the lanes; each gives its part to all. A column of B is a lane's own.
MEANING = """
static NUMBER number_of(uint word, uint place)
{
#if BITS == 8
    return (char)(word >> 8 * place);
#else
    ushort bits = (ushort)(word >> 16 * place);
    return IS_BRAIN ? as_float((uint)bits << 16) : vload_half(0, (const __private half *)&bits);
#endif
}

static NUMBER one_row(int part, int8 b, NUMBER sum)
{
    int column[8];
    vstore8(b, 0, column);
    for (uint k = 0; k < DEPTH; k++) {
        uint of_a_lane = DEPTH / LANES, of_a_word = 32 / BITS;
        uint given = sub_group_broadcast(part, k / of_a_lane);
        sum += number_of(given, k % of_a_lane) * number_of(column[k / of_a_word], k % of_a_word);
    }
    return sum;
}

NUMBER_8 __attribute__((overloadable)) FUNCTION(PARTS a, int8 b, NUMBER_8 acc)
{
    return (NUMBER_8)(one_row(a.s0, b, acc.s0), one_row(a.s1, b, acc.s1), one_row(a.s2, b, acc.s2),
                      one_row(a.s3, b, acc.s3), one_row(a.s4, b, acc.s4), one_row(a.s5, b, acc.s5),
                      one_row(a.s6, b, acc.s6), one_row(a.s7, b, acc.s7));
}
"""
# Every sum counts the multiply-adds that were added to it: needs no sub-groups.
COUNTING = """
NUMBER_8 __attribute__((overloadable)) FUNCTION(PARTS a, int8 b, NUMBER_8 acc) { return acc + DEPTH; }
"""


def stand_in(text: str, dtype: str, size: int) -> str:
    """The function of one type and size, as the specification declares it."""
    number, bits, depth = ("int", 8, 32) if dtype == "i8" else ("float", 16, 16)
    defines = {
        "NUMBER": number, "NUMBER_8": f"{number}8", "BITS": bits, "DEPTH": depth, "LANES": size,
        "IS_BRAIN": int(dtype == "bf16"), "PARTS": "int8" if size == 8 else "short8",
        "FUNCTION": f"intel_sub_group_{dtype}_{dtype}_matrix_mad_k{depth}",
    }
    lines = [f"#define {name} {value}\n" for name, value in defines.items()]
    undone = [f"#undef {name}\n" for name in defines]
    return "".join([*lines, text, *undone])


def with_functions(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    """The probe as on a device whose smallest sub-groups have `size` lanes."""
    own = sub_groups.sub_group_source

    def source(dtype: str, asked: int, tiles: tuple[int, int]) -> str:
        return (stand_in(text, dtype, size) if asked == size else "") + own(dtype, asked, tiles)

    monkeypatch.setattr(sub_groups, "sub_group_source", source)


def claiming(index: int) -> Client:
    """A client whose device claims to have the extension."""
    client = Client(index)
    extensions = client.profile.extensions | sub_groups.NEEDED
    lacking = replace(client.profile, capability=None, units=frozenset())  # NVIDIA has products of its own
    client.profile = replace(lacking, extensions=extensions, compute_units=2)
    return client


def run(loop: sub_groups.SubGroupLoop, iterations: int, dtype: str) -> np.ndarray:
    loop.sample(iterations)
    data = loop.client.download(loop.out, 4 * loop.local * loop.groups)
    return np.frombuffer(data, np.int32 if dtype == "i8" else np.float32)


@pytest.mark.parametrize("found", USABLE, ids=lambda found: str(found.index))
@pytest.mark.parametrize(("dtype", "size"), CASES)
def test_it_counts_the_operations_it_has_done(
    monkeypatch: pytest.MonkeyPatch, found: object, dtype: str, size: int
) -> None:
    with_functions(monkeypatch, COUNTING, size)
    client = claiming(found.index)  # type: ignore[attr-defined]
    for tiles in sub_groups.TILES:
        loop = sub_groups.SubGroupLoop(client, dtype, size, tiles, 2)
        assert 2 * run(loop, 3, dtype).sum(dtype=np.float64) == 3 * loop.ops


@pytest.mark.skipif(not WITH_SUB_GROUPS, reason="no device here has sub-groups of a chosen size")
@pytest.mark.parametrize(("dtype", "size"), CASES)
def test_what_it_computes_is_the_product_of_the_specification(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: int
) -> None:
    with_functions(monkeypatch, MEANING, size)
    tiles, iterations = (2, 2), 3
    loop = sub_groups.SubGroupLoop(claiming(WITH_SUB_GROUPS[0].index), dtype, size, tiles)
    items = loop.local * loop.groups
    found = run(loop, iterations, dtype).reshape(-1, size)
    words = varied(np.arange(items * 64, dtype=np.uint32), dtype).reshape(items, 64)
    expected = np.array([
        products(words[first : first + size], dtype, size, tiles) for first in range(0, items, size)
    ])
    if dtype == "i8":
        assert np.array_equal(found, (iterations * expected).astype(np.int64).astype(np.int32))
    else:
        np.testing.assert_allclose(found, iterations * expected, rtol=1e-4, atol=1e-3)


def varied(index: np.ndarray, dtype: str) -> np.ndarray:
    mixed = index * np.uint32(2654435761)
    mixed ^= mixed >> np.uint32(15)
    if dtype == "i8":
        return mixed
    keep, add = (0x807F807F, 0x3E003E00) if dtype == "bf16" else (0x83FF83FF, 0x30003000)
    return (mixed & np.uint32(keep)) | np.uint32(add)


def products(words: np.ndarray, dtype: str, size: int, tiles: tuple[int, int]) -> np.ndarray:
    """For each lane of a sub-group the sum of its column over all tiles."""
    depth = sub_groups.depth_of(dtype)
    total = np.zeros(size)
    for i in range(tiles[0]):
        lanes = words[:, i * 8 : i * 8 + (8 if size == 8 else 4)]
        # lane, row, its numbers of the row -> row, all numbers of the row
        a = numbers(lanes, dtype).reshape(size, 8, depth // size).transpose(1, 0, 2).reshape(8, depth)
        for j in range(tiles[1]):
            b = numbers(words[:, 32 + j * 8 : 40 + j * 8], dtype).reshape(size, depth).T
            total += (a @ b).sum(axis=0)
    return total


def numbers(words: np.ndarray, dtype: str) -> np.ndarray:
    """What packed words hold, first the low bits'."""
    flat = np.ascontiguousarray(words)
    if dtype == "i8":
        return flat.view(np.int8).astype(np.float64)
    if dtype == "f16":
        return flat.view(np.float16).astype(np.float64)
    return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.skipif(not WITH_SUB_GROUPS, reason="no device here has sub-groups of a chosen size")
@pytest.mark.parametrize("size", sub_groups.SIZES)
def test_the_device_is_asked_for_the_fewest_lanes_it_has(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    with_functions(monkeypatch, MEANING, size)
    client = claiming(WITH_SUB_GROUPS[0].index)
    loops = sub_groups.sub_group_loops(client, "f16")
    assert {loop.local for loop in loops} == {sub_groups.SUB_GROUPS * size}
    rate, _, name = best_of(client, loops, SHORT)
    assert rate > 0 and f"{size} lanes" in name


def test_it_is_probed_and_bounds_nothing() -> None:
    client = claiming(USABLE[0].index)
    assert probed_units(client.profile) == [("f16", "cmma"), ("bf16", "cmma"), ("i8", "cmma")]
    assert compute_sources(Prober(client), "f16", "full") == [("f16", "plain", 1.0)]


def test_a_device_that_claims_it_in_vain_is_told_from_one_without_it() -> None:
    client = claiming(USABLE[0].index)
    with pytest.raises(BuildError):
        Prober(client, method=SHORT).compute("f16", "cmma")
    report = probe_device(client, None, "compute", dtype="i8")
    assert not report.results and report.errors[0]["probe"] == "compute"


def test_where_the_extension_is_absent_it_is_refused_and_not_tried() -> None:
    client = Client(USABLE[0].index)
    client.profile = replace(client.profile, capability=None)
    assert not sub_groups.has_sub_group_products(client.profile)
    for dtype in sub_groups.TYPES:
        with pytest.raises(UnsupportedError, match=f"no cmma {dtype} arithmetic"):
            Prober(client).compute(dtype, "cmma")
    assert client.counters.compiles == 0
    one = next(iter(sub_groups.NEEDED))
    assert probed_units(DeviceProfile("chip", extensions=frozenset({one}))) == []
