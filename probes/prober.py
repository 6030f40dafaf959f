"""All probes of one device, each measured once and then remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rooftune.device.client import Client
from rooftune.errors import MeasurementError, UnsupportedError, UsageError
from rooftune.waiting import Stopwatch

from . import bandwidth as moving
from . import compute
from .launch import LaunchMethod, probe_launch
from .method import QUICK, Method, sensible
from .result import VERSION, MemoryStore, ProbeResult, ProbeStore, now, probe_key
from .units import probed_units, unit_loops

DTYPES = ("f32", "f64", "f16", "bf16")
UNIT_DTYPES = ("tf32", "i8")
"""Types that only matrix units know."""
# What no device of these years passes, and what none that works falls below.
OPS_PER_S = (1e6, 1e17)
BYTES_PER_S = (1e6, 1e15)
SECONDS = (1e-9, 1.0)
LIMITS = {"compute": OPS_PER_S, "bandwidth": BYTES_PER_S, "launch-overhead": SECONDS}
LAUNCH_TYPICAL_S = 0.3


Progress = Callable[[str, float], object]
"""Told which probe is about to be measured, and about how many seconds until all that are due are done."""


@dataclass(frozen=True)
class Request:
    """One probe: what it is, what measures it, about how many seconds that takes on an idle machine."""

    probe: str
    facts: dict[str, Any]
    measured: Callable[[], ProbeResult]
    takes_s: float

    @property
    def key(self) -> str:
        return probe_key(self.probe, self.facts)


class Prober:
    """Probes of a client's device, kept in `store` (default: in this process only).

    `fresh` measures even what is stored, once.
    Probes raise MeasurementError when a value cannot be right, and UnsupportedError for element types
    and units the device lacks.
    """

    def __init__(
        self,
        client: Client,
        store: ProbeStore | None = None,
        *,
        method: Method | None = None,
        launch_method: LaunchMethod | None = None,
        fresh: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.client = client
        self.method = method or Method()
        self.launch_method = launch_method or LaunchMethod()
        self.fresh = fresh
        self.progress = progress or (lambda what, left_s: None)
        self.wall_s = 0.0
        self.store: ProbeStore = store if store is not None else MemoryStore()
        self._known: dict[str, ProbeResult] = {}
        self._due: dict[str, float] = {}
        self._idle_s = 0.0
        self._lock = threading.RLock()

    def forget(self) -> None:
        """Measure everything again the next time it is asked for."""
        with self._lock:
            self._known.clear()
            self.fresh = True

    def expect(self, requests: Iterable[Request]) -> None:
        """These will be asked for next: what of them is to be measured counts as time left."""
        with self._lock:
            due = {request.key: request.takes_s for request in requests if request.key not in self._known}
            self._due = {key: s for key, s in due.items() if self.fresh or self._stored(key) is None}

    def compute(self, dtype: str, unit: str = "plain") -> ProbeResult:
        """Operations a second; a multiply-add is two.

        Plain f16 and bf16 are added up in f32, so their figures are f32's.
        """
        request = self.compute_request(dtype, unit)
        if request.facts["dtype"] == dtype:
            return self.get(request)
        extra = {"same_as": request.facts["dtype"]}
        facts = {"dtype": dtype, "arithmetic": unit}
        return replace(self.get(request), facts=facts, extra=extra, launches=0, samples=0, wall_s=0.0)

    def compute_request(self, dtype: str, unit: str = "plain") -> Request:
        """What `compute` measures: of f32, where the element type is added up in that."""
        dtype = known_name(dtype, (*DTYPES, *UNIT_DTYPES), "element type")
        self._require(dtype, unit)
        if unit == "plain":
            dtype = _adds_in(dtype)

        def measured() -> ProbeResult:
            client = self.client
            loops: Sequence[compute.Loop] = (
                compute.plain_loops(client, dtype) if unit == "plain" else unit_loops(client, dtype, unit)
            )
            rate, found, name = compute.best_of(client, loops, self.method)
            sensible(rate, *OPS_PER_S, f"the compute peak of {dtype} ({unit})")
            return _result("compute", rate, "ops/s", found.spread, found.samples, {"variant": name})

        return Request("compute", {"dtype": dtype, "arithmetic": unit}, measured, self.method.typical_s)

    def bandwidth(
        self, access: str = "copy", working_set_bytes: int | None = None, state: str = "hot"
    ) -> ProbeResult:
        """Bytes a second of `access`: read, write, copy, or fastest (of the three, as bounds use it)."""
        return self.get(self.bandwidth_request(access, working_set_bytes, state))

    def bandwidth_request(
        self, access: str = "copy", working_set_bytes: int | None = None, state: str = "hot"
    ) -> Request:
        """What `bandwidth` measures."""
        access = known_name(access, (*moving.ACCESSES, "fastest"), "access")
        profile = self.client.profile
        free = available_bytes()
        size = (
            moving.memory_set(profile, free)
            if working_set_bytes is None
            else moving.working_set(profile, working_set_bytes, free)
        )

        def measured() -> ProbeResult:
            moved = self._moved(access, size, state)
            sensible(moved.bytes_per_s, *BYTES_PER_S, f"the bandwidth ({access}, {size} bytes, {state})")
            extra: dict[str, Any] = {}
            if access == "fastest":
                extra = {"fastest": moved.access, "trials": moved.trials}
            found = moved.measured
            return _result("bandwidth", moved.bytes_per_s, "bytes/s", found.spread, found.samples, extra)

        facts = {"access": access, "working_set_bytes": size, "state": state}
        method = QUICK if state in ("cold", "sweep") else self.method
        return Request("bandwidth", facts, measured, method.typical_s)

    def _moved(self, access: str, size: int, state: str) -> moving.Moved:
        if state == "cold":
            if access == "fastest":
                raise UsageError("a cold bandwidth needs an access", hint="Give read, write or copy.")
            return moving.probe_cold(self.client, access, size, replace(QUICK, settle_at_most_s=0.5))
        accesses = moving.ACCESSES if access == "fastest" else (access,)
        return moving.probe_hot(self.client, accesses, size, QUICK if state == "sweep" else self.method)

    def bounding_bandwidth(self, set_bytes: int) -> ProbeResult:
        """The fastest access over this set, or over a larger one that is known to be faster still.

        What moves a larger set as fast could move this one: its own probe met a busier moment.
        """
        own = self.bandwidth("fastest", set_bytes)
        keys = [
            probe_key("bandwidth", _bound_facts(size))
            for size in moving.sweep_sets(self.client.profile)
            if size > own.facts["working_set_bytes"]
        ]
        larger = filter(None, (self._known.get(key) or self._stored(key) for key in keys))
        return max([own, *larger], key=lambda found: found.value)

    def bounding_sets(self) -> list[int]:
        """Working sets whose bandwidth is stored as a bound of decisions."""
        sizes = moving.sweep_sets(self.client.profile)
        return [s for s in sizes if self._stored(probe_key("bandwidth", _bound_facts(s))) is not None]

    def sweep(self, access: str = "read") -> list[ProbeResult]:
        """The hot bandwidth from the smallest working set to one that only the memory holds."""
        return [self.get(request) for request in self.sweep_requests(access)]

    def sweep_requests(self, access: str = "read") -> list[Request]:
        """What `sweep` measures."""
        access = known_name(access, moving.ACCESSES, "access")
        sizes = moving.sweep_sets(self.client.profile, available_bytes())
        return [self.bandwidth_request(access, size, "sweep") for size in sizes]

    def launch(self) -> ProbeResult:
        """Wall seconds per launch on a plain queue; `window_s` and `profiled_s` beside it."""
        return self.get(self.launch_request())

    def launch_request(self) -> Request:
        """What `launch` measures."""

        def measured() -> ProbeResult:
            found = probe_launch(self.client, self.launch_method)
            sensible(found.wall_s, *SECONDS, "the launch overhead")
            sensible(found.window_s, *SECONDS, "the window of an empty kernel")
            extra = {
                "window_s": found.window_s,
                "window_spread": found.window_spread,
                "profiled_s": found.profiled_s,
            }
            return _result("launch-overhead", found.wall_s, "s", found.spread, found.samples, extra)

        return Request("launch-overhead", {}, measured, LAUNCH_TYPICAL_S)

    def units(self) -> list[tuple[str, str]]:
        """Every (element type, unit) the device can be asked for, plain ones first; tf32 is a type here."""
        profile = self.client.profile
        plain = [(dtype, "plain") for dtype in DTYPES if dtype != "f64" or profile.has_f64]
        return plain + probed_units(profile)

    def _require(self, dtype: str, unit: str) -> None:
        if (dtype, unit) not in self.units():
            raise UnsupportedError(f"{self.client.device_name} has no {unit} {dtype} arithmetic")

    def get(self, request: Request) -> ProbeResult:
        """The result of a request: known, stored, or measured now."""
        key = request.key
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                return known
            stored = self._stored(key)
            if stored is None or self.fresh:
                self.progress(_describe(request), self._left_s(request))
                result = self._measured(request)
                self.store.save(self.client.device_id, VERSION, key, result.to_stored())
                previous = None if stored is None else stored.value
                stored = replace(result, previous=previous)
            self._known[key] = stored
            return stored

    def improve(self, request: Request) -> ProbeResult:
        """Measures once more, and keeps the better one: that was the quieter moment. For rates, not times."""
        with self._lock:
            known = self.get(request)
            self.progress(_describe(request), request.takes_s)
            result = self._measured(request)
            if result.value > known.value:
                self.store.save(self.client.device_id, VERSION, request.key, result.to_stored())
                self._known[request.key] = replace(result, previous=known.value)
            return self._known[request.key]

    def _left_s(self, request: Request) -> float:
        """By how long the probes so far took, against how long they take on an idle machine."""
        slowness = self.wall_s / self._idle_s if self._idle_s else 1.0
        return slowness * sum({request.key: request.takes_s, **self._due}.values())

    def _stored(self, key: str) -> ProbeResult | None:
        data = self.store.load(self.client.device_id, VERSION, key)
        try:
            if data is None:
                return None
            stored = ProbeResult.from_stored(data)
            sensible(stored.value, *LIMITS[stored.probe], f"the stored {key}")
            if stored.probe == "launch-overhead":
                sensible(stored.extra["window_s"], *SECONDS, f"the window of the stored {key}")
            return stored
        except (KeyError, TypeError, ValueError, MeasurementError):
            return None  # not a result of ours: measured anew

    def _measured(self, request: Request) -> ProbeResult:
        watch, before = Stopwatch(), self.client.counters.snapshot()
        try:
            result = request.measured()
        finally:
            self._due.pop(request.key, None)
        wall_s = watch.worked_s
        self.wall_s += wall_s
        self._idle_s += request.takes_s
        launches = self.client.counters.since(before).total
        return replace(result, facts=request.facts, launches=launches, wall_s=wall_s, at=now())


def _bound_facts(size: int) -> dict[str, Any]:
    return {"access": "fastest", "working_set_bytes": size, "state": "hot"}


def _result(
    probe: str, value: float, unit: str, spread: float, samples: int, extra: dict[str, Any]
) -> ProbeResult:
    return ProbeResult(probe, {}, value, unit, spread, 0, samples, 0.0, extra)


def _adds_in(dtype: str) -> str:
    return "f32" if dtype in ("f16", "bf16") else dtype


def _describe(request: Request) -> str:
    """What is probed, in a few words; "fastest", of all accesses, says nothing to who waits."""
    from .plot_text import size

    words = (
        size(value) if name == "working_set_bytes" else str(value)
        for name, value in request.facts.items()
        if value != "fastest"
    )
    return " ".join([request.probe, *words])


def known_name(name: str, allowed: tuple[str, ...], what: str) -> str:
    text = str(getattr(name, "value", name))
    if text not in allowed:
        raise UsageError(f"there is no {what} '{text}'", hint=f"Allowed: {', '.join(allowed)}.")
    return text


def available_bytes() -> int | None:
    """Memory of this machine that is free for use, where the system says it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
