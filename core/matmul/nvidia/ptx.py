"""Instructions that the OpenCL front end refuses, brought in through the program's binary.

NVIDIA's OpenCL compiler targets plain sm_90 and rejects the instructions of sm_90a (wgmma,
setmaxnreg). Its "binary", however, is PTX text. Kernels therefore carry such instructions as PTX
comments, `//@wgmma.fence.sync.aligned;`; the built program's text is rewritten and built again.

Everything unexpected in the text is an UnsupportedError: the candidate is then not available, and
nothing half-rewritten ever runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import UnsupportedError

MARK = "//@"
"""Starts a hidden instruction in inline assembly."""

_TARGET = re.compile(r"^\.target[ \t]+(sm_\w+)", re.MULTILINE)
_REQNTID = re.compile(r"^[ \t]*\.reqntid[ \t][^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class PtxRewrite:
    """Raises the target, uncovers hidden instructions, adds entry directives.

    `entry_directives` (such as `.minnctapersm 1`) go to every entry, after its `.reqntid`, which
    a kernel gets from `reqd_work_group_size`.
    """

    base: str = "sm_90"
    target: str = "sm_90a"
    entry_directives: tuple[str, ...] = ()

    def apply(self, binary: bytes) -> bytes:
        """The rewritten program. Raises UnsupportedError if the binary is not the expected PTX text."""
        text = _decode(binary)
        targets = _TARGET.findall(text)
        if targets != [self.base]:
            raise UnsupportedError(f"PTX for {self.base} expected, found target {targets or 'none'}")
        if MARK not in text:
            raise UnsupportedError("the compiler dropped the hidden instructions from the PTX text")
        text = _TARGET.sub(f".target {self.target}", text).replace(MARK, "")
        return self._with_directives(text).encode()

    def _with_directives(self, text: str) -> str:
        if not self.entry_directives:
            return text
        if len(_REQNTID.findall(text)) != text.count(".entry "):
            raise UnsupportedError("every PTX entry needs a .reqntid to place directives after")
        added = "".join(f"{directive}\n" for directive in self.entry_directives)
        return _REQNTID.sub(lambda match: match.group(0) + added, text)


def _decode(binary: bytes) -> str:
    try:
        text = binary.rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise UnsupportedError("the program's binary is machine code, not PTX text") from None
    if ".version" not in text:
        raise UnsupportedError("the program's binary is not PTX text")
    return text
