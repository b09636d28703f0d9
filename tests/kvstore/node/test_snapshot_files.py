"""A file with a snapshot is read to its end or not at all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from kvstore.node.snapshot_format import MAGIC, DamagedSnapshot, FrameWriter, Header, Kind, frames
from tests.kvstore.node.snapshots import filled


def made(*contents: bytes) -> bytes:
    writer = FrameWriter()
    return writer.begin() + b"".join(writer.frame(Kind.CHUNK, content) for content in contents) + writer.end()


def test_frames_come_back_as_they_were() -> None:
    assert list(frames(BytesIO(made(b"one", b"", b"three")))) == [
        (Kind.CHUNK, b"one"),
        (Kind.CHUNK, b""),
        (Kind.CHUNK, b"three"),
    ]


def test_a_file_that_is_cut_short_anywhere_is_refused() -> None:
    whole = made(b"one", b"two")
    for length in range(len(whole)):
        with pytest.raises(DamagedSnapshot):
            list(frames(BytesIO(whole[:length])))


def test_a_file_with_one_other_bit_anywhere_is_refused() -> None:
    whole = made(b"one", b"two")
    for place in range(len(whole)):
        other = bytearray(whole)
        other[place] ^= 1
        with pytest.raises(DamagedSnapshot):
            list(frames(BytesIO(bytes(other))))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda whole: whole + b"x", "something follows its end"),
        (lambda whole: b"PK" + whole, "not a backup of corelkv"),
        (lambda whole: MAGIC + b"C\xff\xff\xff\xff", "it says that it has"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(DamagedSnapshot, match=why):
        list(frames(BytesIO(change(made(b"one")))))


def test_a_header_says_all_that_it_was_told_and_no_more_than_it_knows(tmp_path: Path) -> None:
    disk = filled(tmp_path)
    with closing(disk.source()) as source:
        assert Header.of(source.header_bytes) == source.header
    disk.close()
