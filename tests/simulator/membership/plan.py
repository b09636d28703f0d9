"""What one seed of the membership layer does: how bad the network is, and which faults happen when.

Faults come in bursts with pauses between them that are drawn from the times the protocol itself takes, so that
they hit it in every stage: in the middle of an agreement, of a join, of the recovery of messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Literal, TypeAlias

from membership.config import MembershipConfig
from tests.simulator.membership.network_faults import (
    NO_NETWORK_FAULTS,
    NetworkFaults,
    draw_network_faults,
    with_late_datagrams,
)
from tests.simulator.network import Weather
from transport.config import TransportConfig
from transport.messages import Service

Kind: TypeAlias = Literal["partition", "one_way", "heal", "crash", "pause", "isolate"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, at a time. Nodes hear each other within `groups`; `pairs` are cut one way."""

    at_ms: float
    kind: Kind
    groups: tuple[tuple[str, ...], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    node: str = ""
    for_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class MembershipPlan:
    """Everything that a seed decides."""

    seed: int
    nodes: tuple[str, ...]
    starts_ms: tuple[float, ...]
    duration_ms: float
    weather: Weather
    faults: tuple[Fault, ...]
    messages_per_second: float
    services: tuple[Service, ...]
    large_share: float
    config: TransportConfig
    membership: MembershipConfig
    ends_partitioned: bool
    """Whether the network stays cut for a while at the end: then every component must become a view."""
    unicasts_refused: float = 0.0
    """Which share of the unicasts to a crashed process its host refuses."""
    broadcasts_refused: float = 0.0
    """Which share of the broadcasts, if they are copies to each peer."""
    network_faults: NetworkFaults = NO_NETWORK_FAULTS


def draw_membership_plan(seed: int, nodes_min: int, nodes_max: int) -> MembershipPlan:
    random, refusals = Random(f"membership {seed}"), Random(f"refusals {seed}")
    nodes = tuple(ascii_lowercase[: random.randint(nodes_min, nodes_max)])
    duration_ms = random.choice((1_500.0, 3_000.0, 5_000.0))
    is_cold_start_together = random.random() < 0.7
    datagram_bytes_max = random.choice((1_400, 1_400, 8_000))
    window_messages = random.choice((8_192, 8_192, 64))
    return MembershipPlan(
        seed=seed,
        nodes=nodes,
        starts_ms=tuple(0.0 if is_cold_start_together else random.uniform(0.0, 1_500.0) for _ in nodes),
        duration_ms=duration_ms,
        weather=with_late_datagrams(_draw_weather(random), seed),
        faults=_draw_faults(random, nodes, duration_ms),
        messages_per_second=random.choice((0.0, 20.0, 60.0, 150.0)),
        services=random.choice(
            ((Service.AGREED,), (Service.SAFE,), (Service.AGREED, Service.CAUSAL), tuple(Service))
        ),
        large_share=random.choice((0.0, 0.0, 0.05)),
        config=TransportConfig(
            datagram_bytes_max=datagram_bytes_max,
            window_messages_max=window_messages,
            stuck_after_ms=random.choice((1_000.0, 400.0)),
            buffer_windows_max=random.choice((4, 1)),
        ),
        membership=MembershipConfig(
            alpha_ms=random.choice((60.0, 20.0, 150.0)),
            foreign_stable_ms=random.choice((200.0, 0.0)),
            control_log_max=random.choice((64, 64, 16)),
        ),
        ends_partitioned=random.random() < 0.3,
        unicasts_refused=refusals.choice((0.0, 0.5, 1.0, 1.0)),
        broadcasts_refused=refusals.choice((0.0, 0.0, 0.05, 0.5)),
        network_faults=draw_network_faults(seed, nodes, duration_ms),
    )


def _draw_weather(random: Random) -> Weather:
    return Weather(
        loss=random.choice((0.0, 0.0, 0.01, 0.05, 0.2, 0.3)),
        duplication=random.choice((0.0, 0.0, 0.05, 0.3)),
        delay_ms=random.choice((0.1, 1.0, 5.0)),
        jitter_ms=random.choice((0.0, 0.1, 1.0, 10.0)),
    )


def _draw_faults(random: Random, nodes: tuple[str, ...], duration_ms: float) -> tuple[Fault, ...]:
    kinds = random.choice(
        (
            ("partition", "heal"),
            ("partition", "partition", "heal", "crash"),
            ("one_way", "heal", "one_way", "partition"),
            ("crash", "pause", "isolate", "heal"),
            ("partition", "one_way", "heal", "crash", "pause", "isolate"),
        )
    )
    faults: list[Fault] = []
    at_ms = random.uniform(0.0, 1_500.0)
    while at_ms < duration_ms and len(faults) < 12:
        faults.append(_draw_fault(random, at_ms, random.choice(kinds), nodes))
        at_ms += random.choice((1.0, 20.0, 70.0, 150.0, 600.0, 900.0, 1_500.0)) * (0.5 + random.random())
    return tuple(faults)


def _draw_fault(random: Random, at_ms: float, kind: str, nodes: tuple[str, ...]) -> Fault:
    if kind == "partition" and len(nodes) > 1:
        groups: list[list[str]] = [[] for _ in range(random.choice((2, 2, 2, 3, 4)))]
        for name in nodes:
            random.choice(groups).append(name)
        return Fault(at_ms, "partition", groups=tuple(tuple(group) for group in groups if group))
    if kind == "isolate":
        return Fault(at_ms, "isolate", node=random.choice(nodes))
    if kind == "one_way" and len(nodes) > 1:
        pairs = [(a, b) for a in nodes for b in nodes if a != b]
        return Fault(at_ms, "one_way", pairs=tuple(random.sample(pairs, random.randint(1, len(nodes)))))
    if kind == "crash":
        return Fault(at_ms, "crash", node=random.choice(nodes), for_ms=random.choice((1.0, 100.0, 700.0, 2_000.0)))
    if kind == "pause":
        return Fault(
            at_ms, "pause", node=random.choice(nodes), for_ms=random.choice((50.0, 400.0, 1_200.0, 3_000.0))
        )
    return Fault(at_ms, "heal")
