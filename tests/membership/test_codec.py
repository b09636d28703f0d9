"""The codec of membership frames: what is encoded is decoded again, machines are named once, and anything else is
an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given

from membership import codec
from membership.messages import Control, Fault, GroupFrame, Presence, Probe, Progress
from tests.membership.builders import attempt, control, fault, join
from tests.membership.strategies import group_frames
from tests.transport.strategies import almost_frames, structures, thorough
from transport.codec import DECODE_ARRAY_MAX, DecodeError
from transport.config import TransportConfig
from transport.effects import Reason
from transport.messages import NAME_BYTES_MAX, SEQUENCE_MAX, Machine, ViewId

ATTEMPT, JOIN, FAULT, PRESENCE, PROBE, PROBE_REPLY = range(6)
TABLE = ["a", 1, "b", 2]
"""Machines a.1 and b.2, at places 0 and 1."""
CONTROL = [0, 3, 9, [7, 1], [1, 4], [0, 5]]
"""The fields that all control messages have: this is a.1's third, with clock 9, of view 7.b.2; it follows b.2's
fourth and covers a.1's fifth message."""
PRESENCE_FIELDS = [[7, 1], [0, 1], [0], [1, 4], [3, 2, 40, 45, 30]]
"""A heartbeat in view 7.b.2 of a.1 and b.2, whose sender hears a.1 and has b.2's fourth control message. The layer
above it is in epoch 3 and has 40 messages that were final in epoch 2, 45 with those that may be; who has fewer
than 30 is out of its reach."""


def decode(*items: object) -> GroupFrame:
    return codec.decode(msgpack.packb(items))


# Round trips


@thorough
@given(group_frames)
def test_every_group_frame_comes_back_as_it_was_sent(group_frame: GroupFrame) -> None:
    assert codec.decode(codec.encode(group_frame)) == group_frame


def test_the_group_frames_of_a_story_come_back() -> None:
    for body in (attempt("ab", b=3), join("ab", "c", faults="b"), fault("b")):
        group_frame = control("a", 2, body, acks={"b": 3, "c": 0}, cover={"b": 7})
        assert codec.decode(codec.encode(group_frame)) == group_frame


def test_places_in_the_table_stand_for_machines() -> None:
    a, b = Machine("a", 1), Machine("b", 2)
    group_frame = Control(a, 3, 9, ViewId(7, *b), ((b, 4),), ((a, 5),), Fault((b,)))
    assert decode(FAULT, TABLE, *CONTROL, [1]) == group_frame


def test_a_heartbeat_says_how_far_the_layer_above_has_got() -> None:
    a, b = Machine("a", 1), Machine("b", 2)
    presence = Presence(ViewId(7, *b), (a, b), (a,), ((b, 4),), Progress(3, 2, 40, 45, 30))
    assert decode(PRESENCE, TABLE, *PRESENCE_FIELDS) == presence
    largest = replace(presence, progress=Progress(*[SEQUENCE_MAX] * 5))
    assert codec.decode(codec.encode(largest)) == largest


def test_a_machine_is_named_once_however_often_it_is_meant() -> None:
    everybody = tuple(Machine(f"machine-{number:02}", 2**40) for number in range(30))
    view = ViewId(2**40, *everybody[0])
    presence = Presence(view, everybody, everybody, tuple((member, 2**20) for member in everybody))
    data = codec.encode(presence)
    assert all(data.count(member.name.encode()) == 1 for member in everybody)
    assert len(data) < TransportConfig().datagram_bytes_max


def test_as_many_machines_as_there_may_be_fit_the_decoders_arrays() -> None:
    everybody = tuple(Machine(f"m{number:03}", 1) for number in range(DECODE_ARRAY_MAX // 2))
    presence = Presence(ViewId(1, "m000", 1), everybody, everybody, tuple((member, 1) for member in everybody))
    assert codec.decode(codec.encode(presence)) == presence


# What is refused


def refused(name: str, make: Callable[[], Any]) -> Any:
    return pytest.param(make, id=name)


@pytest.mark.parametrize(
    "make",
    [
        refused("an unknown kind", lambda: decode(6, TABLE, 1)),
        refused("no kind", lambda: decode()),
        refused("no table", lambda: decode(PROBE)),
        refused("a kind that is no number", lambda: decode("probe", TABLE, 1)),
        refused("a field too few", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4])),
        refused("a field too many", lambda: decode(PROBE, [], 1, 2)),
        refused("a fault of nobody", lambda: decode(FAULT, TABLE, *CONTROL)),
        refused("a fault of two sets", lambda: decode(FAULT, TABLE, *CONTROL, [1], [])),
        refused("an attempt with faults", lambda: decode(ATTEMPT, TABLE, *CONTROL, [[7, 0], []], [1])),
        refused("a place that is not in the table", lambda: decode(PRESENCE, TABLE, [7, 2], *PRESENCE_FIELDS[1:])),
        refused("a place before the table", lambda: decode(PRESENCE, TABLE, [7, -1], *PRESENCE_FIELDS[1:])),
        refused("a table without an incarnation", lambda: decode(PROBE, ["a"], 1)),
        refused("an empty name", lambda: decode(PROBE, ["", 1], 1)),
        refused("a name too long", lambda: decode(PROBE, ["é" * (NAME_BYTES_MAX // 2 + 1), 1], 1)),
        refused("a name of bytes", lambda: decode(PROBE, [b"a", 1], 1)),
        refused("an incarnation too large", lambda: decode(PROBE, ["a", SEQUENCE_MAX + 1], 1)),
        refused("a negative number", lambda: decode(PROBE, [], -1)),
        refused("a number that is a truth", lambda: decode(PROBE, [], True)),
        refused("a number that is a fraction", lambda: decode(PROBE, [], 1.0)),
        refused(
            "acknowledgements of odd length", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:3], [0], [3, 4, 3])
        ),
        refused("a view of three parts", lambda: decode(PRESENCE, TABLE, [7, 0, 1], *PRESENCE_FIELDS[1:])),
        refused("progress without a floor", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], [3, 3, 40, 40])),
        refused(
            "progress of six parts", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], [3, 3, 4, 4, 3, 0])
        ),
        refused("progress that is a number", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], 3)),
        refused("a negative epoch", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], [-1, 0, 4, 4, 3])),
        refused(
            "a line that is a fraction", lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], [3, 3, 4.0, 4, 3])
        ),
        refused(
            "a floor too large",
            lambda: decode(PRESENCE, TABLE, *PRESENCE_FIELDS[:4], [3, 3, 4, 4, SEQUENCE_MAX + 1]),
        ),
        refused("a set without a cut-vector", lambda: decode(ATTEMPT, TABLE, *CONTROL, [[7, 0]])),
        refused("a sequence of 0", lambda: decode(FAULT, TABLE, 0, 0, *CONTROL[2:], [1])),
        refused("a clock of 0", lambda: decode(FAULT, TABLE, 0, 3, 0, *CONTROL[3:], [1])),
        refused("a fault that covers nothing", lambda: decode(FAULT, TABLE, *CONTROL[:5], [], [1])),
        refused("a join that covers nothing", lambda: decode(JOIN, TABLE, *CONTROL[:5], [], [], [])),
        refused("a map", lambda: codec.decode(msgpack.packb({0: 1}))),
        refused("a map inside", lambda: decode(PROBE, [], {})),
        refused("an extension", lambda: codec.decode(msgpack.packb([PROBE, [], msgpack.ExtType(1, b"x")]))),
        refused("a time", lambda: codec.decode(b"\x93\x04\x90\xd6\xff\x00\x00\x00\x00")),
        refused("something behind it", lambda: codec.decode(codec.encode(Probe(1)) + b"\x00")),
        refused("half of it", lambda: codec.decode(codec.encode(Probe(2**40))[:-2])),
        refused("nothing", lambda: codec.decode(b"")),
        refused("text that is not UTF-8", lambda: codec.decode(b"\x93\x04\x92\xa1\xff\x01\x01")),
    ],
)
def test_what_is_not_a_group_frame_is_refused(make: Callable[[], GroupFrame]) -> None:
    with pytest.raises(DecodeError) as refusal:
        make()
    assert refusal.value.reason is Reason.UNDECODABLE


@thorough
@given(structures)
def test_whatever_msgpack_can_say_is_refused_or_understood(structure: object) -> None:
    with suppress(DecodeError):
        codec.decode(msgpack.packb(structure))


@thorough
@given(almost_frames)
def test_whatever_looks_almost_like_a_group_frame_is_refused_or_understood(items: list[object]) -> None:
    for kind in range(7):
        with suppress(DecodeError):
            decode(kind, TABLE, *items)
