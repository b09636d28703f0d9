"""The faults of networks and machines that were added to the plans of the membership layer later. Each is drawn
from random numbers of its own, in a part of the seeds, so that the rest of a seed's plan is what it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from tests.simulator.event_loop import Cpu
from tests.simulator.network import Weather

SLOW_MACHINE = 5.0
"""How much slower a slow machine is."""


class Gust(NamedTuple):
    """A moment of a storm: some links are cut one way, and all links may be healed right after."""

    at_ms: float
    pairs: tuple[tuple[str, str], ...]
    heals: bool = False


class SlowLink(NamedTuple):
    """From a time on, what one node sends to another takes longer."""

    at_ms: float
    source: str
    target: str
    extra_ms: float


class Stop(NamedTuple):
    """From a time on, after so many more effects that are not the last of their list, a node is stopped."""

    at_ms: float
    node: str
    after_effects: int
    for_ms: float


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """What a seed draws of these."""

    cpus: tuple[tuple[str, Cpu], ...] = ()
    """What work costs nodes."""
    storm: tuple[Gust, ...] = ()
    slow_links: tuple[SlowLink, ...] = ()
    stops: tuple[Stop, ...] = ()


NO_NETWORK_FAULTS = NetworkFaults()


def draw_network_faults(seed: int, nodes: tuple[str, ...], duration_ms: float) -> NetworkFaults:
    return NetworkFaults(
        cpus=_draw_cpus(Random(f"cpu {seed}"), nodes),
        storm=_draw_storm(Random(f"storm {seed}"), nodes, duration_ms),
        slow_links=_draw_slow_links(Random(f"slow links {seed}"), nodes, duration_ms),
        stops=_draw_stops(Random(f"stops between effects {seed}"), nodes, duration_ms),
    )


def with_late_datagrams(weather: Weather, seed: int) -> Weather:
    random = Random(f"late datagrams {seed}")
    if random.random() >= 0.25:
        return weather
    late_ms_max = random.choice((400.0, 1_000.0, 3_000.0))
    return replace(weather, late=random.choice((0.003, 0.03)), late_ms_max=late_ms_max)


def _draw_cpus(random: Random, nodes: tuple[str, ...]) -> tuple[tuple[str, Cpu], ...]:
    if random.random() >= 0.3:
        return ()
    slow = random.choice(((), (), (random.choice(nodes),), nodes))
    datagram_us = random.uniform(50.0, 150.0)
    socket_datagrams_max = random.choice((100, 250, 2_000))
    return tuple(
        (name, Cpu.per_datagram(datagram_us * (SLOW_MACHINE if name in slow else 1.0), socket_datagrams_max))
        for name in nodes
    )


def _draw_storm(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[Gust, ...]:
    if random.random() >= 0.2 or len(nodes) < 2:
        return ()
    pairs = [(a, b) for a in nodes for b in nodes if a != b]
    at_ms = random.uniform(0.0, 0.4) * duration_ms
    end_ms = min(duration_ms, at_ms + random.uniform(1_000.0, 4_000.0))
    pause_ms = random.choice((50.0, 300.0, 1_500.0))
    gusts: list[Gust] = []
    while at_ms < end_ms:
        cut = tuple(random.sample(pairs, random.randint(1, len(nodes))))
        gusts.append(Gust(at_ms, cut, random.random() < 0.3))
        at_ms += random.uniform(0.1, 1.0) * pause_ms
    if random.random() < 0.5:
        gusts.append(Gust(end_ms, (), heals=True))
    return tuple(gusts)


def _draw_slow_links(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[SlowLink, ...]:
    if random.random() >= 0.2 or len(nodes) < 2:
        return ()
    pairs = [(a, b) for a in nodes for b in nodes if a != b]
    return tuple(
        SlowLink(random.uniform(0.0, 0.5) * duration_ms, *pair, random.choice((3.0, 20.0, 80.0, 300.0)))
        for pair in random.sample(pairs, random.randint(1, len(nodes)))
    )


def _draw_stops(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[Stop, ...]:
    if random.random() >= 0.3:
        return ()
    return tuple(
        Stop(
            random.uniform(0.0, duration_ms),
            random.choice(nodes),
            random.randint(0, 12),
            random.choice((5.0, 60.0, 400.0, 1_200.0)),
        )
        for _ in range(random.randint(1, 6))
    )
