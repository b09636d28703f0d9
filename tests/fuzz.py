"""What the fuzz tests of the codecs share: ways to damage real bytes, and what decoding them may cost.

All damage is drawn from the random generator that is passed in, so a seed and the number of a mutation name it.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import pytest

from transport.codec import DECODE_ARRAY_MAX, DecodeError
from transport.messages import Machine

RESTART_AFTER = 500
"""How much damaged input one machine is fed before a fresh one takes its place."""

LONGEST_ARRAY = b"\xdc" + DECODE_ARRAY_MAX.to_bytes(2, "big")
"""The header of the longest array that is accepted."""

BOMBS = {
    "arrays in arrays": LONGEST_ARRAY * 20_000,
    "just as deep as the decoder goes": LONGEST_ARRAY * 1_023,
    "2,048 in 2,048": b"\xdc\x08\x00" * 20_000,
    "longest arrays": b"\xdd\xff\xff\xff\xff" * 13_000,
    "longest binary": b"\xc6\xff\xff\xff\xff" * 13_000,
    "longest text": b"\x93\xdb\xff\xff\xff\xff",
    "maps": b"\xdf\xff\xff\xff\xff" * 13_000,
    "a flat crowd": LONGEST_ARRAY + (LONGEST_ARRAY + b"\x90" * DECODE_ARRAY_MAX) * 60,
}
"""Bytes of any codec that announce far more than they hold, or hold as many small objects as fit."""

Mutation: TypeAlias = Callable[[bytes, Random], bytes]
Decoded = TypeVar("Decoded")


class Damaged(NamedTuple):
    """Damaged bytes, to be heard at a place in a recording."""

    place: int
    data: bytes
    sender: Machine | None = None
    """The machine they come from, where the bytes do not say it themselves."""


class Victim(Protocol):
    """A machine to which a recording is played."""

    def play(self, until: int) -> None:
        """Plays the recording up to a place, from where it was left off."""

    def hear(self, damaged: Damaged) -> bool:
        """Hands over damaged bytes, and returns whether they could be decoded."""


def feed_damaged(seed: int, damaged: Iterable[Damaged], new_victim: Callable[[], Victim]) -> Counter[str]:
    """Counts what was refused and what was taken in; whatever a machine raises fails the test."""
    outcomes: Counter[str] = Counter()
    victim = new_victim()
    for number, broken in enumerate(damaged):
        if number % RESTART_AFTER == 0:
            victim = new_victim()
        try:
            victim.play(until=broken.place)
            is_decoded = victim.hear(broken)
        except Exception as error:
            source = "" if broken.sender is None else f" of {broken.sender}"
            pytest.fail(f"seed {seed}, mutation {number}: {error!r} from {broken.data.hex()}{source}")
        outcomes["taken in" if is_decoded else "refused"] += 1
    return outcomes


def decode_or_none(decode: Callable[[bytes], Decoded], data: bytes) -> Decoded | None:
    try:
        return decode(data)
    except DecodeError:
        return None


def allocated_bytes(decode: Callable[[bytes], object], data: bytes) -> int:
    """Returns the most that was allocated at any moment while this was decoded."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        decode_or_none(decode, data)
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        tracemalloc.stop()


def flip_bits(data: bytes, random: Random) -> bytes:
    broken = bytearray(data)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    return bytes(broken)


def truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def extend(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 40))


def splice(data: bytes, other: bytes, random: Random) -> bytes:
    """Returns the beginning of one followed by the end of the other."""
    return data[: random.randrange(len(data))] + other[random.randrange(len(other)) :]


def change_an_element(array: list[Any], random: Random) -> None:
    """Makes a number a little wrong, leaves an element out, or repeats one."""
    numbers = [at for at, part in enumerate(array) if type(part) is int]
    if numbers and random.random() < 0.7:
        at = random.choice(numbers)
        array[at] = max(0, array[at] + random.choice((-100, -7, -3, -2, -1, 1, 2, 3, 7, 100, 2**30)))
    elif array:
        at = random.randrange(len(array))
        array[at : at + 1] = [array[at]] * random.choice((0, 2, 9))
