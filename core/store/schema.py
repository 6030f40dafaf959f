"""The tables, and the steps that make today's out of any earlier ones.

A new file is schema 0 and takes every step; adding a schema is adding a step, which moves over all that is
still true (the schema's number is also part of the namespaces of decisions, probe results and proofs).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

Step = Callable[[sqlite3.Connection], None]


def _first_tables(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE IF NOT EXISTS entries (
            version INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL,
            namespace TEXT NOT NULL,
            key TEXT NOT NULL,
            checksum TEXT NOT NULL,
            value TEXT NOT NULL,
            origin TEXT NOT NULL,
            at TEXT NOT NULL,
            digest TEXT NOT NULL,
            UNIQUE (namespace, key, checksum)
        )"""
    )
    connection.execute(
        """CREATE TABLE IF NOT EXISTS records (
            sequence INTEGER PRIMARY KEY AUTOINCREMENT,
            namespace TEXT NOT NULL,
            at TEXT NOT NULL,
            value TEXT NOT NULL
        )"""
    )


STEPS: Sequence[Step] = (_first_tables,)
SCHEMA = len(STEPS)
