"""Under what a decision is stored."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Names a decision: whose, how hard it was looked for, on what device, among which candidates, for what.

    `checksum` is that of the candidates' names, `key` the key as canonical JSON text.
    """

    tuner: str
    level: str
    device_id: str
    checksum: str
    key: str
