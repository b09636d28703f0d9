"""Real datagrams, damaged in every way we could think of: none may do more than be refused.

A recording of four machines on a lossy network is played to a machine of the same view, and each datagram of it
many times more with something broken. A failure prints the seed and the number of the mutation, and the bytes.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle, islice
from random import Random

import msgpack
import pytest

from tests.transport.harness import CLUSTER, Harness, machine
from transport import codec
from transport.codec import Codec, DecodeError
from transport.config import TransportConfig
from transport.lansis import Lansis
from transport.messages import Datagram, Envelope, Packet, Retransmission, Service, Status

MUTATIONS_PER_SEED = 26_000
SEEDS = (1, 2, 3, 4)
RESTART_AFTER = 500
"""How many damaged datagrams one machine is fed before another takes its place."""

CODEC = Codec(CLUSTER)
HEADER = bytes((codec.VERSION, 0)) + codec.short_digest(CLUSTER.encode()) + codec.short_digest(b"")
LISTENER = "d"
"""Sends no messages of its own, so that a fresh machine can take its place in the recording."""


@cache
def recording() -> tuple[bytes, ...]:
    """What three machines sent to each other and the listener, in order, a fifth of it being lost."""
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
            if len(heard) % 10 == 0:  # nobody here sends these: as if there were a membership above
                heard.append(Datagram(machine(sent.source), (Envelope(random.randbytes(random.randint(0, 300))),)))
    return tuple(map(CODEC.encode, heard))


# Mutations


def flip_bits(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    return bytes(broken)


def change_bytes(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(codec.HEADER_BYTES, len(broken))] = random.randrange(256)
    return bytes(broken)


def change_a_field(data: bytes, random: Random) -> bytes:
    """Well formed, but not what was said: a number a little off, something left out or said twice."""
    body = msgpack.unpackb(data[codec.HEADER_BYTES :])
    inside = random.choice([part for part in body if isinstance(part, list)])
    if random.random() < 0.5:
        inside = random.choice([inside, *[part for part in inside if isinstance(part, list)]])
    numbers = [at for at, part in enumerate(inside) if type(part) is int]
    if numbers and random.random() < 0.7:
        at = random.choice(numbers)
        inside[at] = max(0, inside[at] + random.choice((-100, -7, -3, -2, -1, 1, 2, 3, 7, 100, 2**30)))
    elif inside:
        at = random.randrange(len(inside))
        inside[at : at + 1] = [inside[at]] * random.choice((0, 2, 9))
    packed: bytes = msgpack.packb(body)
    return HEADER + packed


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def extend(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 40))


def splice(data: bytes, random: Random) -> bytes:
    other = random.choice(recording())
    return data[: random.randrange(len(data))] + other[random.randrange(len(other)) :]


_INFLATED = (
    b"\x9f", b"\xbf", b"\xdc\x07\xff", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdd\x00\x00\x08\x00",
    b"\xc4\xff", b"\xc5\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xd9\xff", b"\xda\xff\xff", b"\xdb\xff\xff\xff\xff",
    b"\x8f", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01",
)  # fmt: skip


def inflate_a_length(data: bytes, random: Random) -> bytes:
    """Where an array, text or binary begins, something far longer is announced."""
    lengths = [at for at in range(codec.HEADER_BYTES, len(data)) if 0x90 <= data[at] <= 0xC6 or data[at] == 0xDC]
    at = random.choice(lengths)
    return data[:at] + random.choice(_INFLATED) + data[at + 1 :]


Mutation = Callable[[bytes, Random], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, change_bytes, change_a_field, truncate, extend, splice, inflate_a_length,
)  # fmt: skip


def damaged(random: Random) -> Iterator[tuple[int, bytes]]:
    """Places in the recording, each several times, with what is heard there: broken datagrams."""
    for place, data in cycle(enumerate(recording())):
        for mutation in MUTATIONS:
            yield place, mutation(data, random)
        yield place, change_a_field(data, random)


def decoded(data: bytes) -> Datagram | None:
    try:
        return CODEC.decode(data)
    except DecodeError:
        return None


class Victim:
    """A machine in the listener's place that hears the recording, and before each datagram damaged ones."""

    def __init__(self, seed: int) -> None:
        view = Harness("abcd").view
        self._machine = Lansis(machine(LISTENER), view, TransportConfig(), Random(seed), 0.0)
        self._heard_of_recording = 0
        self._now = 0.0

    def hear(self, datagram: Datagram) -> None:
        self._now += 0.05
        self._machine.receive(datagram, self._now)
        self._machine.tick(self._now)

    def hear_the_recording(self, until: int) -> None:
        while self._heard_of_recording < until:
            self.hear(CODEC.decode(recording()[self._heard_of_recording]))
            self._heard_of_recording += 1


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
    outcomes: Counter[str] = Counter()
    victim = Victim(seed)
    for number, (place, data) in enumerate(islice(damaged(Random(seed)), MUTATIONS_PER_SEED)):
        if number % RESTART_AFTER == 0:
            victim = Victim(seed)
        try:
            victim.hear_the_recording(until=place)
            datagram = decoded(data)
            if datagram is not None:
                victim.hear(datagram)
        except Exception as error:
            pytest.fail(f"seed {seed}, mutation {number}: {error!r} from {data.hex()}")
        outcomes["refused" if datagram is None else "taken in"] += 1
    assert min(outcomes.values()) > MUTATIONS_PER_SEED // 20
    assert outcomes.total() * len(SEEDS) >= 100_000


def allocated_bytes(data: bytes) -> int:
    """The most that was allocated at any moment while this was decoded."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        decoded(data)
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        tracemalloc.stop()


def test_decoding_damaged_datagrams_allocates_little() -> None:
    for _, data in islice(damaged(Random(5)), 2_000):
        assert allocated_bytes(data) <= codec.DECODE_BYTES_MAX


_MOST = codec.DECODE_ARRAY_MAX
_LONGEST = b"\xdc" + _MOST.to_bytes(2, "big")
"""The header of an array as long as we accept."""
_DEPTH = 990
"""Almost as deep as the decoder goes."""


def filled(small: bytes) -> bytes:
    """Arrays in arrays, as many of them as fit with all their elements but the last made of these bytes."""
    full = _LONGEST + small * (_MOST - 1)
    count = (codec.DATAGRAM_BYTES_MAX - codec.HEADER_BYTES - len(_LONGEST) * _DEPTH) // len(full)
    return full * count + _LONGEST * (_DEPTH - count)


BOMBS = {
    "arrays in arrays": _LONGEST * 20_000,
    "just as deep as the decoder goes": _LONGEST * 1_023,
    "2,048 in 2,048": b"\xdc\x08\x00" * 20_000,
    "long headers": (b"\xdd" + _MOST.to_bytes(4, "big")) * 13_000,
    "longest arrays": b"\xdd\xff\xff\xff\xff" * 13_000,
    "longest binary": b"\xc6\xff\xff\xff\xff" * 13_000,
    "longest text": b"\x93\xdb\xff\xff\xff\xff",
    "maps": b"\xdf\xff\xff\xff\xff" * 13_000,
    "an extension": b"\x93\xa1a\x01\xc9\xff\xff\xff\xff\x01",
    "many arrays in each": filled(b"\x90"),
    "many maps in each": filled(b"\x80"),
    "many texts in each": filled(b"\xa2ab"),
    "many numbers in each": filled(b"\xcd\xff\xff"),
    "a flat crowd": _LONGEST + (_LONGEST + b"\x90" * _MOST) * 60,
    "acknowledgements": msgpack.packb(["a", 1, *[[1, 0, "a", 1, 0, 0, 0, ["a", 0, 0] * (_MOST // 3), []]] * 45]),
    "tiny packets": msgpack.packb(["a", 1, *[[0, "a", 1, 1, "a", 1, 1, 1, 0, [], [b""]]] * (_MOST - 2)]),
    "tiny payloads": msgpack.packb(["a", 1, *[[0, "a", 1, 1, "a", 1, 1, 1, 0, [], [b""] * _MOST]] * 30]),
    "tiny envelopes": msgpack.packb(["a", 1, *[[4, b""]] * (_MOST - 2)]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_allocation_bomb_stays_below_the_bound(bomb: str) -> None:
    data = HEADER + BOMBS[bomb]
    assert len(data) <= codec.DATAGRAM_BYTES_MAX
    assert allocated_bytes(data) <= codec.DECODE_BYTES_MAX
