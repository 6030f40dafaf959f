"""Several probes of one device in one go: the work of `tune probe`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from rooftune.device.client import Client
from rooftune.errors import BuildError, MeasurementError, UnsupportedError, UsageError, WorkError

from .bandwidth import ACCESSES, LEAST_SET_BYTES, largest_set
from .plot_text import size
from .prober import DTYPES, UNIT_DTYPES, Prober, Progress, Request, available_bytes, known_name
from .result import ProbeResult, ProbeStore

BUSY_SPREAD = 0.25
"""A spread above this means that something else was using the device."""

PROBES = ("launch-overhead", "compute", "bandwidth", "all")


@dataclass
class ProbeReport:
    """What was found, in the order it was asked for; `errors` name probes whose value could not be right."""

    device: str
    results: list[ProbeResult] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "probes": [*(result.to_json() for result in self.results), *self.errors],
        }


def probe_device(
    client: Client, store: ProbeStore | None, what: str = "all", *, dtype: str | None = None,
    access: str | None = None, working_set_bytes: int | None = None, cold_reads: bool = False,
    sweep: bool = False, fresh: bool = False, progress: Progress | None = None,
) -> ProbeReport:
    """The probes asked for: all element types and accesses, or the ones given.

    Raises UsageError for names there are none of and working sets that don't fit, and WorkError for an
    element type the device lacks.
    """
    check_request(what, dtype, access, working_set_bytes, cold_reads, sweep)
    check_fits(client, working_set_bytes)
    prober = Prober(client, store, fresh=fresh, progress=progress)
    report = ProbeReport(client.device_id)
    asked: list[Asked] = []
    if what in ("launch-overhead", "all"):
        asked.append((prober.launch_request(), prober.launch))
    if what in ("compute", "all"):
        asked += _computes(prober, dtype)
    if what in ("bandwidth", "all"):
        asked += _bandwidths(prober, access, working_set_bytes, cold_reads, sweep)
    prober.expect(request for request, _ in asked)
    for request, measure in asked:
        try:
            report.results.append(measure())
        except (MeasurementError, BuildError, UnsupportedError) as error:
            report.errors.append({"probe": request.probe, "error": str(error)})
    return report


def check_request(
    what: str, dtype: str | None, access: str | None, working_set_bytes: int | None, cold_reads: bool,
    sweep: bool,
) -> None:
    """Raises UsageError for what no device could be asked."""
    known_name(what, PROBES, "probe")
    of_bandwidth = {
        "access": access, "working set": working_set_bytes, "cold reads": cold_reads, "sweep": sweep,
    }
    for probe, options in (("compute", {"dtype": dtype}), ("bandwidth", of_bandwidth)):
        given = [name for name, value in options.items() if value]
        if given and what not in (probe, "all"):
            raise UsageError(f"{given[0]} is for {probe}, not for {what}", hint="Leave it out.")
    if dtype is not None:
        known_name(dtype, (*DTYPES, *UNIT_DTYPES), "element type")
    if access is not None:
        known_name(access, ACCESSES, "access")
    if working_set_bytes is not None and working_set_bytes < LEAST_SET_BYTES:
        raise UsageError(
            f"a working set of {working_set_bytes} bytes is too small to probe",
            hint=f"Give at least {size(LEAST_SET_BYTES)}.",
        )
    if sweep and (cold_reads or working_set_bytes is not None):
        raise UsageError("a sweep goes over all working sets, hot", hint="Leave out the other options.")


def check_fits(client: Client, working_set_bytes: int | None) -> None:
    """Raises UsageError for a working set that this device can't hold."""
    largest = largest_set(client.profile, available_bytes())
    if working_set_bytes is not None and working_set_bytes > largest:
        raise UsageError(
            f"a working set of {size(working_set_bytes)} is too large for {client.device_name}",
            hint=f"Give {size(LEAST_SET_BYTES)} to {size(largest)}: sets are powers of two, and at most half "
            f"of the {'memory that is free now' if client.profile.is_cpu else 'memory'}.",
        )


Asked = tuple[Request, Callable[[], ProbeResult]]


def _computes(prober: Prober, dtype: str | None) -> list[Asked]:
    units = [(name, unit) for name, unit in prober.units() if dtype in (None, name)]
    if not units:
        raise WorkError(f"{prober.client.device_name} has no {dtype} arithmetic", hint="See `tune devices`.")
    return [
        (prober.compute_request(name, unit), partial(prober.compute, name, unit)) for name, unit in units
    ]


def _bandwidths(
    prober: Prober, access: str | None, set_bytes: int | None, cold_reads: bool, sweep: bool
) -> Iterator[Asked]:
    for request in _bandwidth_requests(prober, access, set_bytes, cold_reads, sweep):
        yield request, partial(prober.get, request)


def _bandwidth_requests(
    prober: Prober, access: str | None, set_bytes: int | None, cold_reads: bool, sweep: bool
) -> Iterator[Request]:
    if sweep:
        yield from prober.sweep_requests(access or "read")
        return
    if cold_reads:
        yield prober.bandwidth_request(access or "read", set_bytes, "cold")
        return
    for name in ACCESSES if access is None else (access,):
        yield prober.bandwidth_request(name, set_bytes, "hot")
    if prober.fresh and access is None and set_bytes is None:  # what bounds decisions is measured again too
        for size in prober.bounding_sets():
            yield prober.bandwidth_request("fastest", size, "hot")


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size such as 65536, 64KiB, 16M, 1.5GiB; letters are powers of 1024. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[3].lower() == "i":
        raise UsageError(f"'{text}' is no size in bytes", hint="Write it as 65536, 64KiB, 16M or 1.5GiB.")
    return int(Decimal(match[1]) * 1024 ** ("kmgt".find(match[2].lower()) + 1 if match[2] else 0))
