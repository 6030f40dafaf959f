from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rooftune.device.binaries import BinaryCache, binary_key

text = st.text(max_size=20)
options = st.lists(text, max_size=3).map(tuple)
parts = st.tuples(text, options, st.sampled_from([None, "rewrite"]), text)


@given(parts, parts)
def test_keys_are_equal_only_for_equal_parts(one: tuple, other: tuple) -> None:
    assert (binary_key(*one) == binary_key(*other)) == (one == other)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    cache.save("ab12", b"\0binary\xff")
    assert BinaryCache(tmp_path).load("ab12") == b"\0binary\xff"
    assert cache.load("cd34") is None


@given(st.integers(0, 80), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_a_miss(at: int, change: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        cache = BinaryCache(Path(folder))
        cache.save("ab12", bytes(range(60)))
        (path,) = Path(folder).rglob("*.bin")
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= change
        path.write_bytes(data)
        assert cache.load("ab12") is None
        assert not path.exists()


def test_a_folder_that_cannot_be_used_is_only_a_miss(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = BinaryCache(tmp_path / "file")
    cache.save("ab12", b"x")
    assert cache.load("ab12") is None
    cache.forget("ab12")


def test_no_half_written_file_is_left_behind(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    for _ in range(3):
        cache.save("ab12", b"same")
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["ab12.bin"]
