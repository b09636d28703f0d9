"""Real letters, damaged in every way we could think of: none may do more than be refused, or be taken for a lie.

A machine's part in a story of cuts, merges and restarts is recorded, call by call, and played to another machine
in its place, with damaged letters in between. A failure prints the seed and the number of the mutation, and the
bytes.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import msgpack
import pytest

from membership import codec
from membership.config import MembershipConfig
from membership.effects import Effect
from membership.group import Group
from membership.messages import Attempt, Control, Fault, Join, Letter, Presence, Probe, ProbeReply
from tests.membership.harness import Cluster, letter_in, machine
from transport.codec import DATAGRAM_BYTES_MAX, DECODE_ARRAY_MAX, DECODE_BYTES_MAX, DecodeError
from transport.config import TransportConfig
from transport.messages import Datagram, Envelope, Frame, Machine, Service

MUTATIONS_PER_SEED = 10_000
SEEDS = (1, 2)
RESTART_AFTER = 500
"""How many damaged letters one machine is fed before another takes its place."""

LISTENER = "d"


class Call(NamedTuple):
    """Something arrived at the listener, or it was time to look."""

    at: float
    datagram: Datagram | None


class _Listening(Cluster):
    """Remembers what happens to the listener."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        super().__init__("abcd", seed=99)

    def start(self, name: str) -> None:
        super().start(name)
        if name == LISTENER:
            self.groups[name] = new_listener()

    def inject(self, target: str, datagram: Datagram) -> list[Effect]:
        if target == LISTENER:
            self.calls.append(Call(self.now, datagram))
        return super().inject(target, datagram)

    def tick(self, name: str) -> list[Effect]:
        if name == LISTENER:
            self.calls.append(Call(self.now, None))
        return super().tick(name)


def new_listener() -> Group:
    return Group(machine(LISTENER), MembershipConfig(), TransportConfig(), Random(99), 0.0)


@cache
def recording() -> tuple[Call, ...]:
    """Everybody joins; cuts, merges, restarts, loss, a link that is silent for a while; messages all the time."""
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
    """When it is worst, only probes get through from b to the listener, and from there to c."""
    if probability < 1.0:
        return random.random() < probability
    return source + target in ("bd", "dc") and not isinstance(letter_in(frame), Probe | ProbeReply)


@cache
def bodies() -> tuple[tuple[int, Machine, bytes], ...]:
    """The letters of the recording: which call brought them, who sent them, and their bytes."""
    return tuple(
        (place, call.datagram.sender, frame.body)
        for place, call in enumerate(recording())
        if call.datagram is not None
        for frame in call.datagram.frames
        if isinstance(frame, Envelope)
    )


# Mutations


def flip_bits(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    return bytes(broken)


def change_a_field(data: bytes, random: Random) -> bytes:
    """Well formed, but not what was said: a number a little off, something left out or said twice."""
    body = msgpack.unpackb(data)
    inside = body
    while random.random() < 0.7 and (deeper := [part for part in inside if isinstance(part, list)]):
        inside = random.choice(deeper)
    numbers = [at for at, part in enumerate(inside) if type(part) is int]
    if numbers and random.random() < 0.7:
        at = random.choice(numbers)
        inside[at] = max(0, inside[at] + random.choice((-100, -7, -3, -2, -1, 1, 2, 3, 7, 100, 2**30)))
    elif inside:
        at = random.randrange(len(inside))
        inside[at : at + 1] = [inside[at]] * random.choice((0, 2, 9))
    packed: bytes = msgpack.packb(body)
    return packed


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def extend(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 40))


def splice(data: bytes, random: Random) -> bytes:
    _, _, other = random.choice(bodies())
    return data[: random.randrange(len(data))] + other[random.randrange(len(other)) :]


def say_another_time(data: bytes, random: Random) -> bytes:
    """Not damaged at all, but not now."""
    return random.choice(bodies())[2]


Mutation = Callable[[bytes, Random], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    flip_bits, change_a_field, change_a_field, change_a_field, truncate, extend, splice, say_another_time,
)  # fmt: skip


def damaged(random: Random) -> Iterator[tuple[int, Machine, bytes]]:
    """Control messages, which have most to say, more often than others."""
    for place, sender, data in cycle(bodies()):
        for mutation in random.sample(MUTATIONS, 8 if isinstance(decoded(data), Control) else 2):
            yield place, sender, mutation(data, random)


def decoded(data: bytes) -> Letter | None:
    try:
        return codec.decode(data)
    except DecodeError:
        return None


class Victim:
    """A machine in the listener's place, to which the recording happens, and damaged letters besides."""

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

    def hear(self, sender: Machine, data: bytes) -> None:
        self.group.receive(Datagram(sender, (Envelope(data),)), self._now)
        if self.group.next_deadline() <= self._now:
            self.group.tick(self._now)


# Tests


def test_the_recording_has_letters_of_every_kind() -> None:
    letters = [letter_in(Envelope(body)) for _, _, body in bodies()]
    kinds = Counter(type(letter.body if isinstance(letter, Control) else letter) for letter in letters)
    assert set(kinds) == {Attempt, Join, Fault, Presence, Probe, ProbeReply}


def test_the_recording_happens_to_another_machine_as_it_did_to_the_first() -> None:
    victim = Victim()
    victim.play(until=len(recording()))
    assert [member.name for member in victim.group.view.members] == list("abcd")


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_letters_are_refused_or_taken_in_and_nothing_is_raised(seed: int) -> None:
    outcomes: Counter[str] = Counter()
    victim = Victim()
    for number, (place, sender, data) in enumerate(islice(damaged(Random(seed)), MUTATIONS_PER_SEED)):
        if number % RESTART_AFTER == 0:
            victim = Victim()
        try:
            victim.play(until=place)
            letter = decoded(data)
            victim.hear(sender, data)
        except Exception as error:
            pytest.fail(f"seed {seed}, mutation {number}: {error!r} from {data.hex()} of {sender}")
        outcomes["refused" if letter is None else "taken in"] += 1
    assert min(outcomes.values()) > MUTATIONS_PER_SEED // 20
    assert outcomes.total() * len(SEEDS) >= 20_000


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


def test_decoding_damaged_letters_allocates_little() -> None:
    for _, _, data in islice(damaged(Random(5)), 1_000):
        assert allocated_bytes(data) <= DECODE_BYTES_MAX


_MOST = DECODE_ARRAY_MAX
_LONGEST = b"\xdc" + _MOST.to_bytes(2, "big")
"""The header of an array as long as we accept."""
_TABLE = ["a", 1]
_CONTROL = [0, 1, 1, [1, 0], [], [0, 0]]

BOMBS = {
    "arrays in arrays": _LONGEST * 20_000,
    "just as deep as the decoder goes": _LONGEST * 1_023,
    "2,048 in 2,048": b"\xdc\x08\x00" * 20_000,
    "longest arrays": b"\xdd\xff\xff\xff\xff" * 13_000,
    "longest binary": b"\xc6\xff\xff\xff\xff" * 13_000,
    "longest text": b"\x93\xdb\xff\xff\xff\xff",
    "maps": b"\xdf\xff\xff\xff\xff" * 13_000,
    "an extension": b"\x93\x00\x90\xc9\xff\xff\xff\xff\x01",
    "a flat crowd": _LONGEST + (_LONGEST + b"\x90" * _MOST) * 60,
    "a crowd of machines": msgpack.packb([3, ["a", 0] * (_MOST // 2), [0, 0], *[[0] * _MOST] * 3]),
    "acknowledgements": msgpack.packb([3, _TABLE, [0, 0], [], [], [0] * _MOST]),
    "many small sets": msgpack.packb([1, _TABLE, *_CONTROL, [[[0, 0], []]] * _MOST, []]),
    "many large sets": msgpack.packb([1, _TABLE, *_CONTROL, [[[0, 0], [0] * _MOST]] * 60, []]),
    "long names": msgpack.packb([4, ["x" * 64, 0] * (_MOST // 2), 1]),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_allocation_bomb_stays_below_the_bound(bomb: str) -> None:
    assert len(BOMBS[bomb]) <= DATAGRAM_BYTES_MAX or bomb.startswith("long")
    assert allocated_bytes(BOMBS[bomb]) <= DECODE_BYTES_MAX
