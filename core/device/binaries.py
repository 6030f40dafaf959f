"""Built programs kept on disk, so that a second process does not compile again.

A file holds a magic word, the SHA-256 of the binary, and the binary. A file that is damaged is not
used; one the driver refuses is the caller's to forget.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from .places import HALF_MADE, cache_folder, drop_half_made

MAGIC = b"rooftune binary 1\n"


def binary_key(source: str, options: tuple[str, ...], rewrite: object, device_id: str) -> str:
    """SHA-256, in hex, of everything a binary depends on. `rewrite` is told apart by its repr."""
    digest = hashlib.sha256()
    for part in (device_id, repr(rewrite), *options, source):
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text)
    return digest.hexdigest()


class BinaryCache:
    """A folder of binaries, one file per key. Any failure to read or write is a miss, never an error."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else cache_folder("binaries")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"

    def load(self, key: str) -> bytes | None:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        header = len(MAGIC) + 32
        if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[header:]).digest() != data[len(MAGIC) : header]:
            self.forget(key)
            return None
        return data[header:]

    def save(self, key: str, binary: bytes) -> None:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            drop_half_made(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=HALF_MADE)
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(binary).digest() + binary)
            os.replace(name, path)
        except OSError:
            with suppress(OSError):
                os.unlink(name)

    def turn(self, key: str) -> AbstractContextManager[bool]:
        """Held while a program is compiled: whether another had it in the meantime, and may have saved it."""
        return nullcontext(False)

    def forget(self, key: str) -> None:
        with suppress(OSError):
            self._path(key).unlink()
