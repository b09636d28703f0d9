"""What one seed decides: the size of the cluster, the quality of the network, the faults, the bounds, the load.

Each kind of fault is present in only some seeds, so that a seed does not always have every fault at once: bugs
that need one part to work well and another to fail are found too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from string import ascii_lowercase

from tests.simulator.network import Weather
from transport.config import TransportConfig
from transport.messages import Service


@dataclass(frozen=True, slots=True)
class Cut:
    """From `at_ms` until the next cut or the end, hosts hear each other as `groups` and `one_way` pairs say."""

    at_ms: float
    groups: tuple[tuple[str, ...], ...] = ()
    one_way: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What the applications send."""

    messages_per_second: float
    """The rate of each node, at random moments."""
    burst_max: int
    """The most messages that are sent at one moment."""
    services: tuple[Service, ...]
    large_share: float
    """The share of messages whose size is between one datagram and `large_bytes_max`."""
    large_bytes_max: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run depends on, besides the random numbers drawn while it runs."""

    seed: int
    nodes: tuple[str, ...]
    duration_ms: float
    weather: Weather
    cuts: tuple[Cut, ...]
    crashes: tuple[tuple[float, str], ...]
    pauses: tuple[tuple[float, str, float], ...]
    """When a process is stopped, which one, and for how long; what arrives meanwhile waits for it."""
    load: Load
    config: TransportConfig
    through_codec: bool
    """Whether datagrams are really encoded and decoded, which changes nothing but the speed."""


def draw_plan(seed: int, nodes_min: int = 3, nodes_max: int = 9) -> Plan:
    random = Random(f"plan {seed}")
    nodes = tuple(ascii_lowercase[: random.randint(nodes_min, nodes_max)])
    duration_ms = random.uniform(800.0, 3_000.0)
    datagram_bytes_max = random.choice((1_400, 1_400, 600, 9_000))
    weather = _draw_weather(random)
    plan = Plan(
        seed=seed,
        nodes=nodes,
        duration_ms=duration_ms,
        weather=weather,
        cuts=_draw_cuts(random, nodes, duration_ms) if random.random() < 0.5 else (),
        crashes=_draw_crashes(random, nodes, duration_ms) if random.random() < 0.15 else (),
        pauses=(),
        load=_draw_load(random, len(nodes), datagram_bytes_max),
        config=_draw_config(random, datagram_bytes_max, weather),
        through_codec=random.random() < 0.2,
    )
    if random.random() < 0.2:
        plan = replace(plan, pauses=_draw_pauses(random, nodes, duration_ms))
    if random.random() < 0.05 and len(nodes) <= 5:
        heavy = replace(plan.load, messages_per_second=10.0 * plan.load.messages_per_second)
        plan = replace(plan, load=heavy)
    if random.random() < 0.1:
        largest = 1_000 + (plan.load.large_bytes_max if plan.load.large_share else 0)
        small = replace(plan.config, undelivered_bytes_max=30_000, message_bytes_max=largest)
        plan = replace(plan, config=small)
    if random.random() < 0.3:
        plan = replace(plan, config=replace(plan.config, buffer_windows_max=1))
    return plan


def _draw_weather(random: Random) -> Weather:
    bytes_per_ms = random.choice((0.0, 0.0, 20_000.0, 100_000.0))
    return Weather(
        loss=random.choice((0.0, 0.0, 0.01, 0.05, 0.2, 0.4)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.3)),
        delay_ms=random.choice((0.05, 0.2, 1.0, 5.0)),
        jitter_ms=random.choice((0.0, 0.0, 0.1, 1.0, 10.0)),
        bytes_per_ms=bytes_per_ms,
        buffer_bytes=random.choice((20_000, 200_000)) if bytes_per_ms else 0,
    )


def _draw_cuts(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[Cut, ...]:
    cuts: list[Cut] = []
    if len(nodes) == 1:
        return ()
    for at_ms in sorted(random.uniform(0.0, duration_ms) for _ in range(random.randint(1, 6))):
        kind = random.choice(("groups", "one_way", "heal"))
        if kind == "groups":
            shuffled = random.sample(nodes, len(nodes))
            edge = random.randint(1, len(nodes) - 1)
            cuts.append(Cut(at_ms, groups=(tuple(shuffled[:edge]), tuple(shuffled[edge:]))))
        elif kind == "one_way":
            pairs = [(a, b) for a in nodes for b in nodes if a != b]
            cuts.append(Cut(at_ms, one_way=tuple(random.sample(pairs, random.randint(1, len(nodes))))))
        else:
            cuts.append(Cut(at_ms))
    return tuple(cuts)


def _draw_crashes(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[tuple[float, str], ...]:
    victims = random.sample(nodes, random.randint(1, max(1, len(nodes) // 3)))
    return tuple((random.uniform(0.0, duration_ms), victim) for victim in victims)


def _draw_pauses(
    random: Random, nodes: tuple[str, ...], duration_ms: float
) -> tuple[tuple[float, str, float], ...]:
    return tuple(
        (random.uniform(0.0, duration_ms), random.choice(nodes), random.choice((20.0, 200.0, 1_500.0)))
        for _ in range(random.randint(1, 4))
    )


def _draw_load(random: Random, node_count: int, datagram_bytes_max: int) -> Load:
    services = random.choice(
        (
            (Service.AGREED,),
            (Service.SAFE,),
            (Service.CAUSAL,),
            (Service.AGREED, Service.SAFE),
            tuple(Service),
            tuple(Service),
        )
    )
    rate, burst_max = random.choice(((20.0, 1), (100.0, 1), (300.0, 1), (40.0, 5), (10.0, 60)))
    return Load(
        messages_per_second=rate / node_count,
        burst_max=burst_max,
        services=services,
        large_share=random.choice((0.0, 0.0, 0.02, 0.2)),
        large_bytes_max=random.choice((3, 20)) * datagram_bytes_max,
    )


def _draw_config(random: Random, datagram_bytes_max: int, weather: Weather) -> TransportConfig:
    """Draws small bounds in many seeds: a bound that is never reached is never tested."""
    packet_cost = datagram_bytes_max + 1_024
    window_messages = random.choice((8_192, 256, 24))
    window_bytes = random.choice((1_048_576, 30 * packet_cost))
    if weather.buffer_bytes and random.random() < 0.8:  # as the driver does; else bursts spill
        window_bytes = max(min(window_bytes, weather.buffer_bytes // 2), packet_cost)
    return TransportConfig(
        datagram_bytes_max=datagram_bytes_max,
        packet_units_max=random.choice((512, 512, 3)),
        nack_ranges_max=random.choice((64, 2)),
        answers_max=random.choice((4_096, 8)),
        retransmit_bytes_per_ms=random.choice((65_536, 4_000)),
        window_messages_max=window_messages,
        window_bytes_max=window_bytes,
        queue_messages_max=random.choice((16_384, 64)),
        stuck_after_ms=random.choice((1_000.0, 200.0)),
    )
