"""What happened in a session, for people: decisions made, programs compiled, what it all came to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from .. import __version__
from ..tuning.decision import Decision
from .stores import Records


class History:
    """Writes a session's records. None of it is ever looked up, and losing it costs nothing."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._began_s = time.monotonic()
        self._decisions = 0

    def decided(self, decision: Decision) -> None:
        """A decision was made."""
        self._decisions += 1
        self._records.append("autotune", {"tuner": decision.tuner, **summary(decision.record())})

    def ended(self, what: str, device: str, launches: int, compilations: Iterable[tuple[str, float]]) -> None:
        """The session is over: `what` it did, and the (kernel names, seconds) of each compilation."""
        compiled = [{"kernels": kernels, "seconds": round(spent_s, 6)} for kernels, spent_s in compilations]
        session = {
            "command": what,
            "device": device,
            "version": __version__,
            "decisions": self._decisions,
            "launches": launches,
            "compilations": len(compiled),
            "wall_s": round(time.monotonic() - self._began_s, 6),
        }
        self._records.extend([*(("compilation", each) for each in compiled), ("sessions", session)])


def summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """A decision's record in a few fields: the whole of it is stored with the decision."""
    outcomes = [result["outcome"] for result in record["results"]]
    measured = [outcome["Ok"] for outcome in outcomes if "Ok" in outcome]
    wrong = [outcome["Err"]["Unknown"]["name"] for outcome in outcomes if "Unknown" in outcome.get("Err", {})]
    winners = [each["name"] for each in measured if each["index"] == record["fastest_index"]]
    return {
        "key": record["key"],
        "winner": winners[0] if winners else None,
        "median_s": _seconds(record["fastest_time"]),
        "limit_s": _seconds(record["log_context"]["limit"]),
        "measured": len(measured),
        "disqualified": wrong,
        "device": record["device"],
        "level": record["level"],
    }


def _seconds(duration: Mapping[str, int] | None) -> float | None:
    return None if duration is None else duration["secs"] + duration["nanos"] / 1e9
