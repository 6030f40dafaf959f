"""Tensor maps: field by field on the host, and against the driver's own encoder where there is one."""

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rooftune.errors import UnsupportedError
from rooftune.matmul.nvidia.tensormap import MAX_STRIDE_BYTES, MapType, Swizzle, TensorMap

F16_TILE = TensorMap(MapType.F16, (4096, 2048), (8192,), (64, 128))


def words(blob: bytes) -> tuple[int, ...]:
    return struct.unpack("<32I", blob)


def test_a_f16_map_word_by_word():
    got = words(F16_TILE.encode(0x7F12_3456_7890))
    want = [0] * 32
    want[0], want[1] = 0x34567890, 0x7F12
    want[2] = 1 << 4 | 6 << 7 | 3 << 13 | 2 << 17
    want[3] = 8192 // 16
    want[8], want[9] = 4095, 2047
    want[13], want[14] = 63 << 24, 127
    want[16] = 64 * 128 * 2
    want[18] = 0x400
    assert got == tuple(want)


def test_tf32_differs_from_f32_by_one_bit():
    f32 = words(TensorMap(MapType.F32, (64, 64), (256,), (32, 64)).encode(0))
    tf32 = words(TensorMap(MapType.TF32, (64, 64), (256,), (32, 64)).encode(0))
    assert [i for i in range(32) if f32[i] != tf32[i]] == [2]
    assert f32[2] ^ tf32[2] == 1 << 16


@given(
    elem=st.sampled_from(MapType),
    extents=st.lists(st.integers(1, 1 << 32), min_size=2, max_size=5),
    steps=st.lists(st.integers(1, (1 << 32) - 1), min_size=4, max_size=4),
    address=st.integers(0, (1 << 56) - 1),
)
def test_what_is_encoded_can_be_read_back(elem, extents, steps, address):
    rank = len(extents)
    made = TensorMap(elem, tuple(extents), tuple(16 * s for s in steps[: rank - 1]), (32, 8))
    got = words(made.encode(address * 16))
    assert got[0] | got[1] << 32 == address * 16
    assert [got[8 + i] + 1 for i in range(rank)] == extents
    assert [got[3 + i] for i in range(rank - 1)] == steps[: rank - 1]
    assert (got[2] >> 4 & 7) + 1 == rank
    assert got[16] == made.box_bytes == 32 * 8 * elem.size_bytes


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"strides_bytes": (8190,)}, "multiple of 16"),
        ({"strides_bytes": (0,)}, "outside"),
        ({"strides_bytes": (MAX_STRIDE_BYTES,)}, "outside"),
        ({"extents": (4096, 0)}, "extents"),
        ({"extents": (4096,), "strides_bytes": ()}, "axes"),
        ({"box": (64, 257)}, "box"),
        ({"box": (128, 8)}, "rows of 256 bytes"),
        ({"box": (4, 8)}, "rows of 8 bytes"),
    ],
)
def test_what_a_map_cannot_say_is_unsupported(changes, reason):
    fields = {"extents": (4096, 2048), "strides_bytes": (8192,), "box": (64, 128), **changes}
    with pytest.raises(UnsupportedError, match=reason):
        TensorMap(MapType.F16, **fields)


def test_a_misaligned_address_is_unsupported():
    with pytest.raises(UnsupportedError, match="multiple of 16"):
        F16_TILE.encode(0x1008)


def driver_encoding(made: TensorMap, address: int) -> bytes:
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    rank = len(made.extents)
    raw = (ctypes.c_uint8 * 256)()
    aligned = (ctypes.addressof(raw) + 63) & ~63
    status = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(aligned),
        made.elem.driver_code,
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*made.extents),
        (ctypes.c_uint64 * (rank - 1))(*made.strides_bytes),
        (ctypes.c_uint32 * rank)(*made.box, *(1,) * (rank - 2)),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        0,
        made.swizzle.value[0],
        2,
        0,
    )
    assert status == 0
    return ctypes.string_at(aligned, 128)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "made",
    [
        F16_TILE,
        TensorMap(MapType.BF16, (1000, 77), (2000,), (64, 256)),
        TensorMap(MapType.TF32, (4096, 4096), (16384,), (32, 256)),
        TensorMap(MapType.F32, (256, 4096), (1024,), (256, 32), Swizzle.NONE),
        TensorMap(MapType.F16, (64, 64), (128,), (32, 64), Swizzle.B64),
        TensorMap(MapType.F16, (512, 300, 7), (1024, 307200), (64, 128)),
        TensorMap(MapType.F16, (512, 300, 7, 5), (1024, 307200, 1 << 33), (64, 128)),
    ],
)
def test_the_driver_makes_the_same_map(made):
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("no NVIDIA driver here")
    assert made.encode(0x7F00_0000_0000).hex() == driver_encoding(made, 0x7F00_0000_0000).hex()
