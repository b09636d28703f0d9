"""A bad network on purpose: a channel that wraps another one and drops, delays and duplicates datagrams.

Incoming datagrams are dropped by their sender's name. Outgoing ones to named peers cannot be dropped from a
broadcast, so while any peers are named, each of the others is sent a copy of its own, at the address from which it
has been heard. The protocol does not know of any of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from transport.codec import Codec, DecodeError
from transport.udp import Address, Arrivals, Channel, OnArrivals, OnPortUnreachable

PEERS_MAX = 256
"""Most names whose addresses are remembered: a datagram can claim any name."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """The faults of the network. Probabilities are per datagram received."""

    drop_from: frozenset[str] = frozenset()
    drop_to: frozenset[str] = frozenset()
    loss: float = 0.0
    duplication: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0

    def __post_init__(self) -> None:
        for name, share in (("loss", self.loss), ("duplication", self.duplication)):
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"{name} is a probability between 0 and 1, not {share}")
        if self.delay_ms < 0.0 or self.jitter_ms < 0.0:
            raise ValueError("delays are not negative")


class ChaosChannel:
    """Wraps a channel and injects the faults of `chaos`, which may be replaced at any time."""

    def __init__(self, channel: Channel, codec: Codec, random: Random, chaos: Chaos | None = None) -> None:
        self.chaos = chaos or Chaos()
        self.receive_buffer_bytes = channel.receive_buffer_bytes
        self.counters = channel.counters
        self._channel = channel
        self._is_closed = False
        self._codec = codec
        self._random = random
        self._deliver: OnArrivals = lambda arrivals: None
        self._report: OnPortUnreachable = lambda addresses: None
        self._addresses: dict[str, Address] = {}
        self._names: dict[Address, str] = {}
        """The names by address: only the first datagram from an address is decoded for its sender's name."""

    def listen(self, on_arrivals: OnArrivals, on_port_unreachable: OnPortUnreachable = lambda _: None) -> None:
        self._deliver = on_arrivals
        self._report = on_port_unreachable
        self._channel.listen(self._on_arrivals, self._on_port_unreachable)

    def drain(self) -> None:
        self._channel.drain()

    def send(self, data: bytes) -> None:
        if self._is_closed:
            return
        if not self.chaos.drop_to:
            self._channel.send(data)
            return
        for name, address in self._addresses.items():
            if name not in self.chaos.drop_to:
                self._channel.send_to(data, address)

    def send_to(self, data: bytes, address: Address) -> None:
        dropped = [self._addresses.get(name) for name in self.chaos.drop_to]
        if not self._is_closed and address not in dropped:
            self._channel.send_to(data, address)

    def close(self) -> None:
        self._is_closed = True
        self._channel.close()

    def _on_arrivals(self, arrivals: Arrivals) -> None:
        chaos = self.chaos
        immediate: list[tuple[bytes, Address]] = []
        for data, address in arrivals:
            name = self._names.get(address) or self._learn_name(data, address)
            if name in chaos.drop_from:
                continue
            copies = 2 if self._random.random() < chaos.duplication else 1
            for _ in range(copies):
                if self._random.random() < chaos.loss:
                    continue
                delay_ms = chaos.delay_ms + chaos.jitter_ms * self._random.random()
                if delay_ms:
                    loop = asyncio.get_running_loop()
                    loop.call_later(delay_ms / 1_000.0, self._deliver_late, (data, address))
                else:
                    immediate.append((data, address))
        if immediate:
            self._deliver(immediate)

    def _on_port_unreachable(self, addresses: Collection[Address]) -> None:
        """Passes on which hosts refused datagrams, but for those that are dropped: no refusal would arrive from a
        host that is cut off. Others are lost and delayed like datagrams."""
        chaos = self.chaos
        for address in sorted(addresses):
            is_dropped = self._names.get(address, "") in chaos.drop_from | chaos.drop_to
            if is_dropped or self._random.random() < chaos.loss:
                continue
            delay_ms = chaos.delay_ms + chaos.jitter_ms * self._random.random()
            if delay_ms:
                loop = asyncio.get_running_loop()
                loop.call_later(delay_ms / 1_000.0, self._report_late, address)
            else:
                self._report([address])

    def _report_late(self, address: Address) -> None:
        if not self._is_closed:
            self._report([address])

    def _deliver_late(self, arrival: tuple[bytes, Address]) -> None:
        if not self._is_closed:
            self._deliver([arrival])

    def _learn_name(self, data: bytes, address: Address) -> str | None:
        """Returns the name of the node that sends from a new address, and remembers the two."""
        try:
            name = self._codec.sender(data).name
        except DecodeError:
            return None
        if name in self._addresses:  # the node has a new address
            self._names.pop(self._addresses[name], None)
        elif len(self._addresses) >= PEERS_MAX:
            return name
        self._addresses[name] = address
        self._names[address] = name
        return name
