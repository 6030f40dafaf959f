"""The peaks that bound a product: what the device computes, moves, and needs for an empty kernel."""

from __future__ import annotations

from collections.abc import Iterator
from math import nan
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from rooftune.device.client import Client
from rooftune.errors import BuildError, MeasurementError, UnsupportedError

from .bandwidth import bounding_set
from .prober import Prober, Progress, Request
from .result import ProbeResult, ProbeStore


class Peaks(NamedTuple):
    """Operations a second, bytes a second, the event window of an empty kernel in seconds, and evidence.

    A peak that could not be measured is NaN and bounds nothing. The evidence is JSON data: which probe
    gave each peak, and what the others gave. `plain_ops_per_s` is the peak without matrix instructions, where
    it was probed for this.
    """

    ops_per_s: float
    bytes_per_s: float
    launch_window_s: float
    evidence: dict[str, Any]
    plain_ops_per_s: float | None = None


_probers: WeakKeyDictionary[Client, Prober] = WeakKeyDictionary()
_guard = Lock()


def prober_for(client: Client, store: ProbeStore | None) -> Prober:
    """One prober per client and store, so that threads that need the same peak measure it once."""
    with _guard:
        prober = _probers.get(client)
        if prober is None or (store is not None and prober.store is not store):
            prober = _probers[client] = Prober(client, store)
        return prober


def peaks_for(
    client: Client,
    store: ProbeStore | None,
    elem: str,
    precision: str,
    working_set_bytes: int,
    *,
    prober: Prober | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> Peaks:
    """The peaks for a product of this element type and precision whose operands take so many bytes.

    f64: plain. f32 in full precision: the larger of plain f32 and a third of the TF32 units, since three
    TF32 products reach f32's accuracy. f32 as tf32: the TF32 units, else plain. f16 and bf16: their
    matrix units, else plain f32, in which they are added up. The bandwidth is that of the largest power
    of two of bytes that is not above the problem's. A unit that is probed but that no candidate
    computes with, as f64's, does not count: nothing would come near it.
    What `store` does not know is measured now and kept there (None: in this process). `again`: all but
    the launch is measured now once more, and the better counts.
    """
    prober = prober or prober_for(client, store)
    prober.progress = progress or prober.progress
    elem = str(getattr(elem, "value", elem))
    problems: list[str] = []
    sources = compute_sources(prober, elem, precision)
    set_bytes = bounding_set(working_set_bytes)
    requests = list(_requests(prober, sources, set_bytes))
    prober.expect(requests)
    for request in requests[:-1] if again else ():
        _try(lambda request=request: prober.improve(request), problems)
    computes = [
        (found.value * share, found)
        for dtype, unit, share in sources
        if (found := _try(lambda dtype=dtype, unit=unit: prober.compute(dtype, unit), problems)) is not None
    ]
    ops_per_s, computed = max(computes, key=lambda pair: pair[0], default=(nan, None))
    moved = _try(lambda: prober.bounding_bandwidth(set_bytes), problems)
    launched = _try(prober.launch, problems)
    window = launched.extra.get("window_s", nan) if launched else nan
    evidence = {
        "compute": _shown(computed),
        "compute_tried": [_shown(found) for _, found in computes],
        "bandwidth": _shown(moved),
        "launch": _shown(launched),
        "problems": problems,
    }
    plain = next((value for value, found in computes if found.facts.get("arithmetic") == "plain"), None)
    return Peaks(ops_per_s, moved.value if moved else nan, float(window), evidence, plain)


def compute_sources(prober: Prober, elem: str, precision: str) -> list[tuple[str, str, float]]:
    """(element type, unit, share of its rate that counts) for each probe that may give the peak."""
    name = "tf32" if elem == "f32" else elem
    precision = precision if elem == "f32" else "full"
    share = 1 / 3 if elem == "f32" and precision == "full" else 1.0
    units = [
        (dtype, unit, share)
        for dtype, unit in prober.units()
        if dtype == name and prober.client.profile.has_unit(unit, elem, precision)
    ]
    units = [source for source in units if source[1] == "mma"] or units  # never slower than the same by warps
    plain = [(elem, "plain", 1.0)]
    return plain + units if (elem == "f32" and precision == "full") or not units else units


def _requests(
    prober: Prober, sources: list[tuple[str, str, float]], set_bytes: int
) -> Iterator[Request]:
    known = set(prober.units())
    yield from (prober.compute_request(dtype, unit) for dtype, unit, _ in sources if (dtype, unit) in known)
    yield prober.bandwidth_request("fastest", set_bytes)
    yield prober.launch_request()


def _try(probe: Any, problems: list[str]) -> ProbeResult | None:
    try:
        result: ProbeResult = probe()
        return result
    except (MeasurementError, BuildError, UnsupportedError) as error:
        problems.append(str(error))
        return None


def _shown(result: ProbeResult | None) -> dict[str, Any] | None:
    return None if result is None else result.to_json()
