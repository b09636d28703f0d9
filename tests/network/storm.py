"""Storms of one-way cuts, drawn from a seed: like those of `tests.simulator.membership.settling`, except that
every storm ends with some links cut, so that there is something to heal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from random import Random
from typing import NamedTuple, TypeAlias

FIRST_MS_MAX = 500.0
PAUSE_MS = (100.0, 1_500.0)
"""The shortest and the longest time between two changes."""
HEALED_SHARE = 0.3
"""The chance that a change heals all links, instead of cutting more."""

Link: TypeAlias = tuple[str, str]
"""From whom, to whom."""


class Change(NamedTuple):
    """From this time on, these links are cut."""

    at_ms: float
    cut: frozenset[Link]


def draw_storm(names: str, seed: int, storm_ms: float) -> Iterator[Change]:
    """Yields the changes of a storm among these hosts, one letter each."""
    random = Random(f"storm {seed}")
    links = list(permutations(names, 2))
    cut = frozenset[Link]()
    at_ms = random.uniform(0.0, FIRST_MS_MAX)
    while at_ms < storm_ms:
        next_ms = at_ms + random.uniform(*PAUSE_MS)
        more = random.sample(links, random.randint(1, len(names)))
        is_healed = random.random() < HEALED_SHARE and next_ms < storm_ms
        cut = frozenset() if is_healed else cut.union(more)
        yield Change(at_ms, cut)
        at_ms = next_ms
