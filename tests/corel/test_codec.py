"""Payloads as bytes: what we encode comes back, everything else is an error, and few bytes do not make large
payloads."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corel import codec
from corel.codec import PayloadError
from corel.messages import DIGEST_BYTES, EMPTY_DIGEST, NO_IDENTITY, Copy, MessageId, Payload, Priority, State
from tests.corel.builders import VIEW, machine, message_ids, payloads, state, tails
from tests.transport.strategies import almost_frames, structures, thorough
from transport.messages import NAME_BYTES_MAX, SEQUENCE_MAX

REGULAR, STATE, ATTEMPT, COMMIT, PRIORITY, REDS = range(6)
D, DISK = EMPTY_DIGEST, NO_IDENTITY
NAMES = [["a", 1], [7, "a", 1]]
"""Stream a.1 at place 0 and view 7.a.1 at place 1."""


def decode(*items: object) -> Payload:
    return codec.decode(msgpack.packb(items))


def state_of(tail: list[object], have: list[object] | None = None) -> Payload:
    return decode(STATE, 0, 0, 0, D, 0, D, tail, have or [], True, D)


# Round trips


@thorough
@given(payloads)
def test_every_payload_comes_back_as_it_was_sent(payload: Payload) -> None:
    assert codec.decode(codec.encode(payload)) == payload


@thorough
@given(tails)
def test_runs_stand_for_the_same_ids_in_the_same_order(ids: tuple[MessageId, ...]) -> None:
    assert codec.unpack_ids(codec.pack_ids(ids)) == ids


def test_messages_of_one_sender_that_follow_each_other_take_one_run() -> None:
    assert codec.pack_ids(message_ids("a1 a2 a3 b7 b8 a4 a6")) == [
        *("a", 1, 1, 3),
        *("b", 1, 7, 2),
        *("a", 1, 4, 1),
        *("a", 1, 6, 1),
    ]


def test_a_state_of_many_messages_is_small() -> None:
    long = tuple(MessageId(machine("a"), number) for number in range(1, 50_001))
    told = State(1, 1, 0, D, 0, D, long, (), True, DISK, DISK, VIEW, DISK)
    data = codec.encode(told)
    assert len(data) < 250
    assert codec.decode(data) == told


def test_streams_and_views_are_named_once_for_all_copies_of_a_batch() -> None:
    batch = tuple(Copy(MessageId(machine("a-long-name"), n), n, VIEW, b"") for n in range(1, 101))
    data = codec.encode(Priority(0, batch))
    assert data.count(b"a-long-name") == 1
    assert len(data) < 100 * 8


def test_no_copy_takes_more_than_is_reckoned_with() -> None:
    name = "n" * NAME_BYTES_MAX
    view = VIEW._replace(clock=SEQUENCE_MAX, name=name, incarnation=SEQUENCE_MAX)
    copy = Copy(MessageId(machine(name, SEQUENCE_MAX), SEQUENCE_MAX), SEQUENCE_MAX, view, b"body")
    one, none = (len(codec.encode(Priority(0, batch))) for batch in ((copy,), ()))
    assert one - none <= codec.COPY_OVERHEAD_BYTES + len(b"body")


# What is refused


def refused(name: str, make: Callable[[], Any]) -> Any:
    return pytest.param(make, id=name)


@pytest.mark.parametrize(
    "make",
    [
        refused("an unknown kind", lambda: decode(7, 1)),
        refused("no kind", lambda: decode()),
        refused("a kind that is no number", lambda: decode("state")),
        refused("a field too few", lambda: decode(REGULAR, 1)),
        refused("a field too many", lambda: decode(COMMIT, 1, 2)),
        refused("a message numbered 0", lambda: decode(REGULAR, 0, b"")),
        refused("a body of text", lambda: decode(REGULAR, 1, "x")),
        refused("a number that is a truth", lambda: decode(COMMIT, True)),
        refused("a number that is a fraction", lambda: decode(COMMIT, 1.0)),
        refused("a number too large", lambda: decode(COMMIT, SEQUENCE_MAX + 1)),
        refused("a digest too short", lambda: decode(ATTEMPT, 1, bytes(DIGEST_BYTES - 1))),
        refused("a digest of text", lambda: decode(ATTEMPT, 1, "x" * DIGEST_BYTES)),
        refused("a truth that is a number", lambda: decode(REDS, 1, [], [])),
        refused("ids in threes", lambda: state_of(["a", 1, 1])),
        refused("an id numbered 0", lambda: state_of(["a", 1, 0, 1])),
        refused("a negative run", lambda: state_of(["a", 1, 1, -1])),
        refused("a run of 2**40 messages", lambda: state_of(["a", 1, 1, 2**40])),
        refused("an empty name", lambda: state_of(["", 1, 1, 1])),
        refused("a name too long", lambda: state_of(["é" * (NAME_BYTES_MAX // 2 + 1), 1, 1, 1])),
        refused("a name of bytes", lambda: state_of([b"a", 1, 1, 1])),
        refused("a vector in twos", lambda: state_of([], ["a", 1])),
        refused("a vector that ends at 0", lambda: state_of([], ["a", 1, 0])),
        refused("copies in fours", lambda: decode(PRIORITY, 0, NAMES, [0, 1, 1, 1])),
        refused("a copy whose stream is a view", lambda: decode(PRIORITY, 0, NAMES, [1, 1, 1, 1, b""])),
        refused("a copy whose view is a stream", lambda: decode(PRIORITY, 0, NAMES, [0, 1, 1, 0, b""])),
        refused("a copy of nobody", lambda: decode(PRIORITY, 0, NAMES, [2, 1, 1, 1, b""])),
        refused("a copy before the names", lambda: decode(PRIORITY, 0, NAMES, [-1, 1, 1, 1, b""])),
        refused("a name of four parts", lambda: decode(PRIORITY, 0, [[1, "a", 1, 1]], [])),
        refused("a map", lambda: codec.decode(msgpack.packb({0: 1}))),
        refused("a map inside", lambda: decode(COMMIT, {})),
        refused("an extension", lambda: decode(COMMIT, msgpack.ExtType(1, b"x"))),
        refused("something behind it", lambda: codec.decode(msgpack.packb([COMMIT, 1]) + b"\x00")),
        refused("half of it", lambda: codec.decode(codec.encode(state())[:-2])),
        refused("nothing", lambda: codec.decode(b"")),
        refused("text that is not UTF-8", lambda: codec.decode(b"\x92\x03\xa1\xff")),
        refused("arrays in arrays in arrays", lambda: codec.decode(b"\x91" * 100_000 + b"\x01")),
        refused("an array longer than the payload", lambda: codec.decode(b"\xdd\xff\xff\xff\xff")),
    ],
)
def test_what_is_not_a_payload_is_refused(make: Callable[[], Payload]) -> None:
    with pytest.raises(PayloadError):
        make()


@thorough
@given(structures)
def test_whatever_msgpack_can_say_is_refused_or_understood(structure: object) -> None:
    with suppress(PayloadError):
        codec.decode(msgpack.packb(structure))


@thorough
@given(almost_frames)
def test_whatever_looks_almost_like_a_payload_is_refused_or_understood(items: list[object]) -> None:
    for kind in range(7):
        with suppress(PayloadError):
            decode(kind, *items)


@thorough
@given(payloads, st.data())
def test_a_payload_with_a_byte_changed_missing_or_added_is_refused_or_understood(
    payload: Payload, data: st.DataObject
) -> None:
    original = codec.encode(payload)
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.binary(max_size=2))
    for changed in (original[:place] + byte + original[place + 1 :], original[:place] + byte + original[place:]):
        with suppress(PayloadError):
            codec.decode(changed)


@pytest.mark.parametrize("count", [2**40, SEQUENCE_MAX])
def test_a_run_too_long_to_be_true_is_refused_before_it_is_unrolled(count: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError):
            state_of(["a", 1, 1, count])
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_ids_are_bounded_in_their_sum_before_any_is_made() -> None:
    runs = ["a", 1, 1, 65_536] * 64
    digest, identity = D, DISK
    lines, rest = [0, 0, 0, digest, 0, digest], [True, identity, identity, [0, "", 0], identity, []]
    payload = msgpack.packb([1, *lines, runs, [], *rest, 0, False, 0, 0, 0, []])
    with pytest.raises(codec.PayloadError, match="more than"):
        codec.decode(payload)
