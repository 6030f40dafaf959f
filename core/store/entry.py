"""One stored entry as plain data, and the JSON it is made of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any
from urllib.parse import quote, unquote

LOCAL, IMPORTED = "local", "imported"


def to_text(value: Any) -> str:
    """JSON text that is the same for equal values; NaN and infinity are refused with ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def now_text() -> str:
    """The time as text, in UTC; for people only, since clocks jump."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def namespace(*parts: str | int) -> str:
    """Parts joined by `/`; a `/` or `%` inside one is percent-encoded, so they can be told apart."""
    return "/".join(quote(str(part), safe=" |()[]{}<>@#:;,.+=_-~!*'&$") for part in parts)


def parts(namespace: str) -> list[str]:
    """The parts that `namespace` joined."""
    return [unquote(part) for part in namespace.split("/")]


def sha256(*texts: str) -> str:
    """Hex digest of several texts, each closed off from the next."""
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A value under (namespace, key, checksum). `key` and `value` are JSON text.

    `version` grows with every write of the file and is never used twice; 0 means not stored.
    """

    namespace: str
    key: str
    checksum: str
    value: str
    origin: str = LOCAL
    at: str = ""
    version: int = 0

    @cached_property
    def id(self) -> str:
        """Twelve hex digits that stay the same when the value changes or the entry moves to another file."""
        return sha256(self.namespace, self.key, self.checksum)[:12]

    @cached_property
    def digest(self) -> str:
        """What a damaged row no longer agrees with: SQLite itself does not check contents."""
        return sha256(self.namespace, self.key, self.checksum, self.value, self.origin, self.at)
