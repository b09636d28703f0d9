"""Writes as bytes: what is encoded can be decoded, and anything else is a `WriteError`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.store.operations import (
    NUMBER_MAX,
    VALUE_BYTES_MAX,
    Append,
    Delete,
    Exists,
    Get,
    Increment,
    Merge,
    Put,
    RevisionIs,
    ValueIs,
    Write,
    WrittenBy,
)
from kvstore.store.state import Basis
from kvstore.store.write_codec import (
    BASIS_BYTES_MAX,
    BASIS_STREAMS_MAX,
    BATCH_OVERHEAD_BYTES,
    FORMAT,
    WRITE_OVERHEAD_BYTES,
    Batch,
    WriteError,
    decode_batch,
    decode_write,
    encode_batch,
    encode_write,
)
from tests.kvstore.store.strategies import any_writes, writes
from tests.transport.strategies import almost_frames, structures, thorough
from transport.messages import NAME_BYTES_MAX, SEQUENCE_MAX

EVERYTHING = Write(
    (
        Put("a/ä", b"\xff", "text/plain"),
        Delete("b"),
        Increment("c", -NUMBER_MAX),
        Append("d", b""),
        Get("e"),
    ),
    (RevisionIs("a", NUMBER_MAX), WrittenBy("b", "a.1.7.0"), Exists("c", False), ValueIs("d", b"x")),
    (Get("f"),),
    "once",
    Merge.KEEP_GREEN,
)
numbers = st.integers(0, NUMBER_MAX)
bases = st.none() | st.builds(
    Basis,
    numbers,
    st.dictionaries(st.builds("{}.{}".format, st.sampled_from("abé"), numbers), numbers, max_size=4),
    st.none() | numbers,
)


def said(*items: object) -> Write:
    return decode_write(msgpack.packb(items))


# Round trips


@thorough
@given(any_writes | writes)
def test_every_write_comes_back_as_it_was(write: Write) -> None:
    assert decode_write(encode_write(write)) == write


def test_the_bytes_of_a_write_stay_what_they_are() -> None:
    """Logs contain these bytes, and they decide whether two requests are the same."""
    assert msgpack.unpackb(encode_write(EVERYTHING)) == [
        [[0, "a/ä", b"\xff", "text/plain"], [1, "b"], [2, "c", -NUMBER_MAX], [3, "d", b""], [4, "e"]],
        [[0, "a", NUMBER_MAX], [1, "b", "a.1.7.0"], [2, "c", False], [3, "d", b"x"]],
        [[4, "f"]],
        "once",
        1,
    ]
    assert decode_write(encode_write(EVERYTHING)) == EVERYTHING


def test_no_other_branch_is_not_an_empty_one() -> None:
    rejects, does_nothing = Write((Get("k"),)), Write((Get("k"),), otherwise=())
    assert decode_write(encode_write(rejects)).otherwise is None
    assert decode_write(encode_write(does_nothing)).otherwise == ()


@thorough
@given(any_writes, any_writes)
def test_bytes_are_the_same_exactly_if_the_writes_are(one: Write, other: Write) -> None:
    assert encode_write(one) == encode_write(decode_write(encode_write(one)))
    assert (encode_write(one) == encode_write(other)) == (one == other)


# Garbage


@thorough
@given(st.binary(max_size=60))
def test_no_bytes_are_more_than_an_error(data: bytes) -> None:
    for decode in (decode_write, decode_batch):
        with suppress(WriteError):
            decode(data)


almost_parts = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(("k", "", b"k", 7))).map(list) | almost_frames, max_size=3
)
almost_writes = st.tuples(
    almost_parts,
    almost_parts,
    st.none() | almost_parts,
    st.none() | st.sampled_from(("i", "", 7)),
    st.sampled_from((0, 1, 2, -1, None, True)),
)


@thorough
@given(structures | almost_frames | almost_writes)
def test_no_structure_is_more_than_an_error(item: object) -> None:
    data = msgpack.packb(item)
    for decode in (decode_write, decode_batch):
        with suppress(WriteError):
            decode(data)
    with suppress(WriteError):
        for write in decode_batch(msgpack.packb([FORMAT, 7, 7, item, data])).writes:
            decode_write(write)


@thorough
@given(any_writes, st.data())
def test_a_write_with_a_byte_changed_or_cut_off_is_an_error_or_another_write(write: Write, data: Any) -> None:
    whole = encode_write(write)
    place = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(WriteError):
        decode_write(whole[:place])
    with pytest.raises(WriteError):
        decode_write(whole + b"\0")
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    with suppress(WriteError):
        assert decode_write(bytes(changed)) != write


@pytest.mark.parametrize(
    "items",
    [
        (),
        ([], [], None),
        ([], [], None, None, None),
        (None, [], None, None),
        ([], None, None, None),
        ([], [], 7, None),
        ([], [], None, 7),
        ([], [], None, b"k"),
        ([[5, "k"]], [], None, None),
        ([[-1, "k"]], [], None, None),
        ([[[], "k"]], [], None, None),
        ([[1]], [], None, None),
        ([[1, "k", 7]], [], None, None),
        ([[1, b"k"]], [], None, None),
        ([[0, "k", 7, ""]], [], None, None),
        ([[2, "k", 1.5]], [], None, None),
        ([[2, "k", True]], [], None, None),
        ([[0, "k", "text", "text/plain"]], [], None, None),
        ([[2, "k", "1"]], [], None, None),
        ([[]], [], None, None),
        ([{}], [], None, None),
        ([7], [], None, None),
        ([], [[4, "k", 7]], None, None),
        ([], [[0, "k", 1.5]], None, None),
        ([], [[1, "k", None]], None, None),
        ([], [[2, "k", 1]], None, None),
    ],
)
def test_what_is_nearly_a_write_is_an_error(items: tuple[object, ...]) -> None:
    with pytest.raises(WriteError, match="not a write"):
        said(*items)


# Batches


@thorough
@given(st.lists(any_writes, max_size=5), numbers, numbers, bases)
def test_a_batch_gives_back_its_writes_and_what_it_says_of_them(
    some: list[Write], expires: int, accepted_ms: int, basis: Basis | None
) -> None:
    batch = Batch([encode_write(write) for write in some], expires, accepted_ms, basis)
    assert decode_batch(encode_batch(*batch)) == batch


def test_the_bytes_of_a_batch_stay_what_they_are() -> None:
    assert msgpack.unpackb(encode_batch([b"one", b"two"], 17, 5)) == [4, 17, 5, None, b"one", b"two"]
    basis = Basis(7, {"b.2": 4, "a.1": 9})
    assert msgpack.unpackb(encode_batch([], 17, 5, basis)) == [4, 17, 5, [None, 7, "a.1", 9, "b.2", 4]]
    assert msgpack.unpackb(encode_batch([], 17, 5, Basis(7, {}, line=3))) == [4, 17, 5, [3, 7]]


@pytest.mark.parametrize("sizes", [[], [0], [300] * 20, [70_000] * 3, [1] * 70_000, [VALUE_BYTES_MAX]])
def test_a_batch_takes_no_more_room_than_it_is_said_to(sizes: list[int]) -> None:
    body = encode_batch([bytes(size) for size in sizes], NUMBER_MAX, NUMBER_MAX)
    assert len(body) <= sum(sizes) + WRITE_OVERHEAD_BYTES * len(sizes) + BATCH_OVERHEAD_BYTES
    assert [len(write) for write in decode_batch(body).writes] == sizes


def test_a_basis_takes_no_more_room_than_it_is_said_to() -> None:
    streams = {f"{'x' * NAME_BYTES_MAX}.{2**63 + number}": SEQUENCE_MAX for number in range(BASIS_STREAMS_MAX + 9)}
    body = encode_batch([], NUMBER_MAX, NUMBER_MAX, Basis(NUMBER_MAX, streams, NUMBER_MAX))
    assert len(body) <= BATCH_OVERHEAD_BYTES + BASIS_BYTES_MAX
    basis = decode_batch(body).basis
    assert basis is not None
    assert len(basis.known) == BASIS_STREAMS_MAX


@pytest.mark.parametrize("body", [b"", msgpack.packb([]), msgpack.packb(7), msgpack.packb(None), b"\xc1"])
def test_what_is_not_a_batch_is_an_error(body: bytes) -> None:
    with pytest.raises(WriteError, match="not a batch"):
        decode_batch(body)


@pytest.mark.parametrize("form", [0, FORMAT - 1, FORMAT + 1, "1", None])
def test_a_batch_of_another_format_is_an_error_that_says_so(form: object) -> None:
    with pytest.raises(WriteError, match="format"):
        decode_batch(msgpack.packb([form, 7, 7, None, encode_write(EVERYTHING)]))


@pytest.mark.parametrize("number", [None, -1, True, "7", NUMBER_MAX + 1, b""])
def test_a_batch_that_does_not_say_when_it_was_accepted_and_expires_is_an_error(number: object) -> None:
    for rest in ([number, 1, None], [1, number, None]):
        with pytest.raises(WriteError, match="a batch that was accepted at"):
            decode_batch(msgpack.packb([FORMAT, *rest]))
    with pytest.raises(WriteError, match="of 2 parts"):
        decode_batch(msgpack.packb([FORMAT, 1, 1]))


@pytest.mark.parametrize(
    "basis", [7, [], [1], [1, None], ["1", 1], [1, 1, "a.1"], [1, 1, 2, 3], [1, 1, "a.1", None], [True, 1]]
)
def test_what_is_not_a_basis_is_an_error(basis: object) -> None:
    with pytest.raises(WriteError, match="a basis of"):
        decode_batch(msgpack.packb([FORMAT, 1, 1, basis]))
