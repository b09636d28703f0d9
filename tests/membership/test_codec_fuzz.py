"""Real group frames, damaged in every way we could think of: none may do more than be refused, or be taken as a
false claim.

What happens to one machine through cuts, merges and restarts is recorded, call by call, and played to another
machine in its place, with damaged frames in between. A failure prints the seed, the number of the mutation and
the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import msgpack
import pytest

from membership import codec
from membership.config import MembershipConfig
from membership.effects import MembershipEffect
from membership.group import Group
from membership.messages import AttemptJoin, Control, Fault, Join, Presence, Probe, ProbeReply
from tests import fuzz
from tests.fuzz import (
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
from tests.membership.builders import group_frame_in, machine
from tests.membership.harness import Cluster
from transport.codec import DATAGRAM_BYTES_MAX, DECODE_ARRAY_MAX, DECODE_BYTES_MAX
from transport.config import TransportConfig
from transport.messages import Datagram, Envelope, Frame, Machine, Service

MUTATIONS_PER_SEED = 10_000
SEEDS = (1, 2)

LISTENER = "d"


class Call(NamedTuple):
    """A datagram that arrived at the listener, or (None) a tick."""

    at: float
    datagram: Datagram | None


class _Listening(Cluster):
    """A cluster that records what happens to the listener."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        super().__init__("abcd", seed=99)

    def start(self, name: str) -> None:
        super().start(name)
        if name == LISTENER:
            self.groups[name] = new_listener()

    def inject(self, target: str, datagram: Datagram) -> list[MembershipEffect]:
        if target == LISTENER:
            self.calls.append(Call(self.now, datagram))
        return super().inject(target, datagram)

    def tick(self, name: str) -> list[MembershipEffect]:
        if name == LISTENER:
            self.calls.append(Call(self.now, None))
        return super().tick(name)


def new_listener() -> Group:
    return Group(machine(LISTENER), MembershipConfig(), TransportConfig(), Random(99), 0.0)


@cache
def recording() -> tuple[Call, ...]:
    """All machines join; then cuts, merges, restarts, loss, a link silent for a while; messages throughout."""
    random = Random(99)
    cluster = _Listening()
    weather = {"silence": 1.0, "loss": 0.2, "": 0.0}
    story = "abcd, ab|cd, abcd loss, abd|c, abcd, abcd silence, acd|b, abcd loss, abcd"
    for chapter in story.split(", "):
        parts, _, kind = chapter.partition(" ")
        cluster.partition(parts)
        cluster.drop(partial(is_lost, random, weather[kind]))
        for _ in range(8):
            cluster.multicast(random.choice("abc"), random.randbytes(20), random.choice(list(Service)))
            cluster.run(50.0 if kind == "silence" else 100.0)
        if parts != "abcd":
            cluster.restart("a")
    return tuple(cluster.calls)


def is_lost(random: Random, probability: float, source: str, target: str, frame: Frame) -> bool:
    """At a probability of 1, only probes get through from b to the listener, and from there to c."""
    if probability < 1.0:
        return random.random() < probability
    return source + target in ("bd", "dc") and not isinstance(group_frame_in(frame), Probe | ProbeReply)


@cache
def bodies() -> tuple[tuple[int, Machine, bytes], ...]:
    """Returns the group frames of the recording: the call that brought each, its sender, and its bytes."""
    return tuple(
        (place, call.datagram.sender, frame.body)
        for place, call in enumerate(recording())
        if call.datagram is not None
        for frame in call.datagram.frames
        if isinstance(frame, Envelope)
    )


# Mutations


def change_a_field(data: bytes, random: Random) -> bytes:
    """Well formed, but not what was sent: a number a little wrong, an element left out or repeated."""
    body = msgpack.unpackb(data)
    inside = body
    while random.random() < 0.7 and (deeper := [part for part in inside if isinstance(part, list)]):
        inside = random.choice(deeper)
    change_an_element(inside, random)
    packed: bytes = msgpack.packb(body)
    return packed


def splice_in_another(data: bytes, random: Random) -> bytes:
    _, _, other = random.choice(bodies())
    return splice(data, other, random)


def another_frame(data: bytes, random: Random) -> bytes:
    """Not damaged at all, but of another time."""
    return random.choice(bodies())[2]


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, change_a_field, change_a_field, change_a_field, truncate, extend, splice_in_another, another_frame,
)  # fmt: skip


def damaged(random: Random) -> Iterator[Damaged]:
    """Yields damaged group frames: more of each control message, which has most fields, than of the others."""
    for place, sender, data in cycle(bodies()):
        is_control = isinstance(decode_or_none(codec.decode, data), Control)
        for mutation in random.sample(MUTATIONS, 8 if is_control else 2):
            yield Damaged(place, mutation(data, random), sender)


class Victim:
    """A machine in the listener's place, to which the recording is played, and damaged frames are handed."""

    def __init__(self) -> None:
        self.group = new_listener()
        self._played = 0
        self._now = 0.0

    def play(self, until: int) -> None:
        for call in recording()[self._played : until]:
            self._now = call.at
            if call.datagram is None:
                self.group.tick(call.at)
            else:
                self.group.receive(call.datagram, call.at)
        self._played = max(self._played, until)

    def hear(self, damaged: Damaged) -> bool:
        assert damaged.sender is not None
        self.group.receive(Datagram(damaged.sender, (Envelope(damaged.data),)), self._now)
        if self.group.next_deadline() <= self._now:
            self.group.tick(self._now)
        return decode_or_none(codec.decode, damaged.data) is not None


# Tests


def test_the_recording_has_group_frames_of_every_kind() -> None:
    frames = [group_frame_in(Envelope(body)) for _, _, body in bodies()]
    kinds = Counter(type(frame.body if isinstance(frame, Control) else frame) for frame in frames)
    assert set(kinds) == {AttemptJoin, Join, Fault, Presence, Probe, ProbeReply}


def test_the_recording_happens_to_another_machine_as_it_did_to_the_first() -> None:
    victim = Victim()
    victim.play(until=len(recording()))
    assert [member.name for member in victim.group.view.members] == list("abcd")


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_frames_are_refused_or_taken_in_and_nothing_is_raised(seed: int) -> None:
    outcomes = feed_damaged(seed, islice(damaged(Random(seed)), MUTATIONS_PER_SEED), Victim)
    assert min(outcomes.values()) > MUTATIONS_PER_SEED // 20
    assert outcomes.total() * len(SEEDS) >= 20_000


def test_decoding_damaged_frames_allocates_little() -> None:
    for broken in islice(damaged(Random(5)), 1_000):
        assert allocated_bytes(codec.decode, broken.data) <= DECODE_BYTES_MAX


_MOST = DECODE_ARRAY_MAX
_TABLE = ["a", 1]
_CONTROL = [0, 1, 1, [1, 0], [], [0, 0]]

BOMBS = {
    **fuzz.BOMBS,
    "an extension": b"\x93\x00\x90\xc9\xff\xff\xff\xff\x01",
    "a crowd of machines": msgpack.packb([3, ["a", 0] * (_MOST // 2), [0, 0], *[[0] * _MOST] * 3]),
    "acknowledgements": msgpack.packb([3, _TABLE, [0, 0], [], [], [0] * _MOST]),
    "many small sets": msgpack.packb([1, _TABLE, *_CONTROL, [[[0, 0], []]] * _MOST, []]),
    "many large sets": msgpack.packb([1, _TABLE, *_CONTROL, [[[0, 0], [0] * _MOST]] * 60, []]),
    "long names": msgpack.packb([4, ["x" * 64, 0] * (_MOST // 2), 1]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_allocation_bomb_stays_below_the_bound(bomb: str) -> None:
    assert len(BOMBS[bomb]) <= DATAGRAM_BYTES_MAX or bomb.startswith("long")
    assert allocated_bytes(codec.decode, BOMBS[bomb]) <= DECODE_BYTES_MAX
