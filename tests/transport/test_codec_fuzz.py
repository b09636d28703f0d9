"""Real datagrams, damaged in every way we could think of: none may do more than be refused.

A recording of four machines on a lossy network is played to a machine of the same view, and each datagram of it
many times more with something broken. A failure prints the seed and the number of the mutation, and the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import cycle, islice
from random import Random

import msgpack
import pytest

from tests import fuzz
from tests.fuzz import (
    LONGEST_ARRAY,
    Damaged,
    Mutation,
    allocated_bytes,
    change_an_element,
    decode_or_none,
    extend,
    feed_damaged,
    flip_bits,
    splice,
    truncate,
)
from tests.transport.harness import CLUSTER, Harness, machine
from transport import codec
from transport.codec import Codec
from transport.config import TransportConfig
from transport.lansis import Lansis
from transport.messages import Datagram, Envelope, Packet, Retransmission, Service, Status

MUTATIONS_PER_SEED = 26_000
SEEDS = (1, 2, 3, 4)

CODEC = Codec(CLUSTER)
HEADER = bytes((codec.VERSION, 0)) + codec.short_digest(CLUSTER.encode()) + codec.short_digest(b"") + bytes(4)
LISTENER = "d"
"""Sends no messages of its own, so that a fresh machine can take its place in the recording."""


@cache
def recording() -> tuple[bytes, ...]:
    """Returns what three machines sent to each other and the listener, in order; a fifth of it was lost."""
    random = Random(99)
    cluster = Harness("abcd", TransportConfig(window_messages_max=300), seed=99)
    cluster.drop(lambda source, target, frame: random.random() < 0.2)
    for _ in range(60):
        for name in "abc":
            for _ in range(random.randint(0, 9)):
                cluster.multicast(name, random.choice(list(Service)), random.randbytes(random.randint(0, 60)))
        if random.random() < 0.2:
            cluster.multicast(random.choice("abc"), random.choice(list(Service)), random.randbytes(6_000))
        cluster.run(3.0)
    heard: list[Datagram] = []
    for sent in cluster.sent:
        if sent.source != LISTENER:
            heard.append(sent.datagram)
            if len(heard) % 10 == 0:  # no machine here sends these, a membership above would
                heard.append(Datagram(machine(sent.source), (Envelope(random.randbytes(random.randint(0, 300))),)))
    return tuple(map(CODEC.encode, heard))


# Mutations


def change_bytes(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(codec.HEADER_BYTES, len(broken))] = random.randrange(256)
    return bytes(broken)


def change_a_field(data: bytes, random: Random) -> bytes:
    """Well formed, but not what was sent: a number a little wrong, an element left out or repeated."""
    body = msgpack.unpackb(data[codec.HEADER_BYTES :])
    inside = random.choice([part for part in body if isinstance(part, list)])
    if random.random() < 0.5:
        inside = random.choice([inside, *[part for part in inside if isinstance(part, list)]])
    change_an_element(inside, random)
    packed: bytes = msgpack.packb(body)
    return HEADER + packed


def splice_in_another(data: bytes, random: Random) -> bytes:
    return splice(data, random.choice(recording()), random)


_INFLATED = (
    b"\x9f", b"\xbf", b"\xdc\x07\xff", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdd\x00\x00\x08\x00",
    b"\xc4\xff", b"\xc5\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xd9\xff", b"\xda\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\x8f", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01",
)  # fmt: skip


def inflate_a_length(data: bytes, random: Random) -> bytes:
    """Announces something far longer where an array, text or binary begins."""
    lengths = [at for at in range(codec.HEADER_BYTES, len(data)) if 0x90 <= data[at] <= 0xC6 or data[at] == 0xDC]
    at = random.choice(lengths)
    return data[:at] + random.choice(_INFLATED) + data[at + 1 :]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, change_bytes, change_a_field, truncate, extend, splice_in_another, inflate_a_length,
)  # fmt: skip


def damaged(random: Random) -> Iterator[Damaged]:
    """Yields, for each place in the recording, its datagram damaged in every way."""
    for place, data in cycle(enumerate(recording())):
        for mutation in MUTATIONS:
            yield Damaged(place, mutation(data, random))
        yield Damaged(place, change_a_field(data, random))


class Victim:
    """A machine in the listener's place that hears the recording, and before each datagram damaged ones."""

    def __init__(self, seed: int) -> None:
        view = Harness("abcd").view
        self._machine = Lansis(machine(LISTENER), view, TransportConfig(), Random(seed), 0.0)
        self._played = 0
        self._now = 0.0

    def play(self, until: int) -> None:
        while self._played < until:
            self._hear(CODEC.decode(recording()[self._played]))
            self._played += 1

    def hear(self, damaged: Damaged) -> bool:
        datagram = decode_or_none(CODEC.decode, damaged.data)
        if datagram is not None:
            self._hear(datagram)
        return datagram is not None

    def _hear(self, datagram: Datagram) -> None:
        self._now += 0.05
        self._machine.receive(datagram, self._now)
        self._machine.tick(self._now)


# Tests


def test_the_recording_has_frames_of_every_kind() -> None:
    kinds: Counter[str] = Counter()
    for data in recording():
        frames = CODEC.decode(data).frames
        kinds["datagrams of several frames"] += len(frames) > 1
        for frame in frames:
            if isinstance(frame, Retransmission):
                kinds["retransmissions"] += 1
            elif isinstance(frame, Packet):
                kinds["runs"] += len(frame.payloads) > 1
                kinds["fragments"] += frame.fragment is not None
                kinds[frame.service.name] += 1
            elif isinstance(frame, Status):
                kinds["heartbeats"] += not frame.solicit
                kinds["solicitations"] += bool(frame.solicit)
            elif isinstance(frame, Envelope):
                kinds["envelopes"] += 1
            else:
                kinds["repeated requests" if frame.is_repeated else "requests"] += 1
    assert min(kinds.values()) > 0
    assert len(kinds) == 13


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_datagrams_are_refused_or_taken_in_and_nothing_is_raised(seed: int) -> None:
    mutations = islice(damaged(Random(seed)), MUTATIONS_PER_SEED)
    outcomes = feed_damaged(seed, mutations, lambda: Victim(seed))
    assert min(outcomes.values()) > MUTATIONS_PER_SEED // 20
    assert outcomes.total() * len(SEEDS) >= 100_000


def test_decoding_damaged_datagrams_allocates_little() -> None:
    for broken in islice(damaged(Random(5)), 2_000):
        assert allocated_bytes(CODEC.decode, broken.data) <= codec.DECODE_BYTES_MAX


_MOST = codec.DECODE_ARRAY_MAX
_DEPTH = 990
"""Almost as deep as the decoder goes."""


def filled(small: bytes) -> bytes:
    """Arrays in arrays, as many of them as fit with all their elements but the last made of these bytes."""
    full = LONGEST_ARRAY + small * (_MOST - 1)
    count = (codec.DATAGRAM_BYTES_MAX - codec.HEADER_BYTES - len(LONGEST_ARRAY) * _DEPTH) // len(full)
    return full * count + LONGEST_ARRAY * (_DEPTH - count)


BOMBS = {
    **fuzz.BOMBS,
    "long headers": (b"\xdd" + _MOST.to_bytes(4, "big")) * 13_000,
    "an extension": b"\x93\xa1a\x01\xc9\xff\xff\xff\xff\x01",
    "many arrays in each": filled(b"\x90"),
    "many maps in each": filled(b"\x80"),
    "many texts in each": filled(b"\xa2ab"),
    "many numbers in each": filled(b"\xcd\xff\xff"),
    "acknowledgements": msgpack.packb(["a", 1, *[[1, 0, "a", 1, 0, 0, 0, ["a", 0, 0] * (_MOST // 3), []]] * 45]),
    "tiny packets": msgpack.packb(["a", 1, *[[0, "a", 1, 1, "a", 1, 1, 1, 0, [], [b""]]] * (_MOST - 2)]),
    "tiny payloads": msgpack.packb(["a", 1, *[[0, "a", 1, 1, "a", 1, 1, 1, 0, [], [b""] * _MOST]] * 30]),
    "tiny envelopes": msgpack.packb(["a", 1, *[[4, b""]] * (_MOST - 2)]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_allocation_bomb_stays_below_the_bound(bomb: str) -> None:
    data = HEADER + BOMBS[bomb]
    assert len(data) <= codec.DATAGRAM_BYTES_MAX
    assert allocated_bytes(CODEC.decode, data) <= codec.DECODE_BYTES_MAX
