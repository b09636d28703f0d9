"""Which keys are asked for how often: the distributions of YCSB (Cooper et al., "Benchmarking Cloud Serving
Systems with YCSB"), drawn as Gray et al. describe in "Quickly Generating Billion-Record Synthetic Databases"."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

THETA = 0.99
"""How skewed: of 1,000 keys the most frequent one gets about an eighth of all requests."""

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


class Distribution(Protocol):
    def draw(self, items: int) -> int:
        """Returns one of the first so many numbers from 0 on."""


class Uniform:
    """Every key equally often."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def draw(self, items: int) -> int:
        return self._rng.randrange(items)


class Zipfian:
    """Rank 0 most often, rank r about 1 / (r + 1)**theta times as often. The number of items may grow between
    draws: the sum that the formula needs is continued, not computed anew."""

    def __init__(self, rng: Random, theta: float = THETA) -> None:
        self._rng = rng
        self._theta = theta
        self._alpha = 1.0 / (1.0 - theta)
        self._items = 0
        self._zeta = 0.0
        self._zeta_two = 1.0 + 0.5**theta
        self._eta = 0.0

    def draw(self, items: int) -> int:
        if items != self._items:
            self._resize(items)
        uniform = self._rng.random()
        scaled = uniform * self._zeta
        if scaled < 1.0 or items == 1:
            return 0
        if scaled < self._zeta_two or items == 2:
            return 1
        return min(items - 1, int(items * (self._eta * uniform - self._eta + 1.0) ** self._alpha))

    def _resize(self, items: int) -> None:
        if items < 1:
            raise ValueError("there must be at least one item to draw")
        if items < self._items:
            self._items, self._zeta = 0, 0.0
        self._zeta += sum(1.0 / rank**self._theta for rank in range(self._items + 1, items + 1))
        self._items = items
        if items > 2:  # the formula is for the ranks after the first two
            self._eta = (1.0 - (2.0 / items) ** (1.0 - self._theta)) / (1.0 - self._zeta_two / self._zeta)


class ScrambledZipfian:
    """As `Zipfian`, with the frequent keys spread over all of them, so that they are not neighbours."""

    def __init__(self, rng: Random, theta: float = THETA) -> None:
        self._ranks = Zipfian(rng, theta)

    def draw(self, items: int) -> int:
        return _fnv(self._ranks.draw(items)) % items


class Latest:
    """The newest keys most often: the last one has rank 0."""

    def __init__(self, rng: Random, theta: float = THETA) -> None:
        self._ranks = Zipfian(rng, theta)

    def draw(self, items: int) -> int:
        return items - 1 - self._ranks.draw(items)


DISTRIBUTIONS: dict[str, Callable[[Random], Distribution]] = {
    "uniform": Uniform,
    "zipfian": ScrambledZipfian,
    "latest": Latest,
}


def _fnv(number: int) -> int:
    """The 64-bit FNV-1a hash of a number's eight bytes, as YCSB scrambles ranks."""
    found = _FNV_OFFSET
    for byte in number.to_bytes(8, "little"):
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return found
