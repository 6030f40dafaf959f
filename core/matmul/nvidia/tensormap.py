"""Tensor maps of the bulk copy engine (TMA), made on the host without a driver call.

A tensor map is 128 opaque bytes that describe a strided array, the box one copy brings in, and how
the box lies in shared memory. The layout below was read off the driver's own encoder for tiled maps
without interleave and with unit element strides; the GPU tests compare it with that encoder again.
Whatever these fields cannot say is an UnsupportedError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from ...errors import UnsupportedError


class MapType(Enum):
    """Element types: (code in the map, bytes, code in the driver's interface, rounded to TF32)."""

    F16 = (6, 2, 6, False)
    F32 = (7, 4, 7, False)
    BF16 = (10, 2, 9, False)
    TF32 = (7, 4, 11, True)
    """f32 in memory, rounded to the nearest even TF32 on the way into shared memory."""

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def size_bytes(self) -> int:
        return self.value[1]

    @property
    def driver_code(self) -> int:
        return self.value[2]

    @property
    def rounds(self) -> bool:
        return self.value[3]


class Swizzle(Enum):
    """How 16-byte pieces of a row are permuted in shared memory: (code, bytes of a row, layout word)."""

    NONE = (0, 1024, 0x10)
    B32 = (1, 32, 0x100)
    B64 = (2, 64, 0x200)
    B128 = (3, 128, 0x400)


MAX_RANK = 5
MAX_EXTENT = 1 << 32
MAX_STRIDE_BYTES = 1 << 36
MAX_BOX = 256
L2_PROMOTION_128B = 2


@dataclass(frozen=True)
class TensorMap:
    """A strided array and the box of one copy; everything innermost axis first.

    `strides_bytes` are those of axes 1 and up (axis 0 is contiguous). Boxes reach over the first
    two axes only, `box` gives these two extents. Elements outside the array arrive as zeros.
    """

    elem: MapType
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, int]
    swizzle: Swizzle = Swizzle.B128

    def __post_init__(self) -> None:
        rank = len(self.extents)
        _require(2 <= rank <= MAX_RANK, f"tensor maps have 2 to {MAX_RANK} axes, not {rank}")
        _require(len(self.strides_bytes) == rank - 1, "one stride for every axis but the innermost")
        _require(all(1 <= e <= MAX_EXTENT for e in self.extents), f"extents {self.extents} outside 1..2^32")
        for stride in self.strides_bytes:
            _require(stride % 16 == 0, f"a stride of {stride} bytes is no multiple of 16")
            _require(0 < stride < MAX_STRIDE_BYTES, f"a stride of {stride} bytes is outside 16..2^36")
        _require(all(1 <= e <= MAX_BOX for e in self.box), f"box {self.box} outside 1..{MAX_BOX}")
        row_bytes = self.box[0] * self.elem.size_bytes
        limit = self.swizzle.value[1]
        _require(row_bytes % 16 == 0 and row_bytes <= limit, f"box rows of {row_bytes} bytes, limit {limit}")

    @property
    def box_bytes(self) -> int:
        """What one copy adds to its barrier's transaction count, edges included."""
        return self.box[0] * self.box[1] * self.elem.size_bytes

    def encode(self, address: int) -> bytes:
        """The 128 bytes for an array at this device address (a multiple of 16)."""
        _require(address % 16 == 0, f"device address {address:#x} is no multiple of 16")
        swizzle_code, _, layout_word = self.swizzle.value
        words = [0] * 32
        words[0] = address & 0xFFFFFFFF
        words[1] = address >> 32
        words[2] = (
            (len(self.extents) - 1) << 4
            | self.elem.code << 7
            | swizzle_code << 13
            | int(self.elem.rounds) << 16
            | L2_PROMOTION_128B << 17
        )
        for axis, stride in enumerate(self.strides_bytes):
            words[3 + axis] = stride >> 4
        for axis, extent in enumerate(self.extents):
            words[8 + axis] = extent - 1
        words[13] = (self.box[0] - 1) << 24
        words[14] = self.box[1] - 1
        words[16] = self.box_bytes
        words[18] = layout_word
        return struct.pack("<32I", *words)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise UnsupportedError(reason)
