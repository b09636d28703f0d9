"""A bad network on purpose: a channel around a channel that drops, delays and duplicates.

Incoming datagrams are dropped by their sender's name. Outgoing ones to named peers cannot be dropped from a
broadcast, so while any are named the others are sent their copies one by one, at the addresses they have been
heard from. The protocol knows nothing of all this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from transport.codec import Codec, DecodeError
from transport.udp import Address, Arrivals, Channel

PEERS_MAX = 256
"""Most names whose addresses are remembered: anybody can send us names."""


@dataclass(frozen=True, slots=True)
class Chaos:
    """What goes wrong. Probabilities are per datagram received."""

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
    """Wraps a channel. `on_arrivals` must be given to the wrapped channel as its handler."""

    def __init__(
        self,
        codec: Codec,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        deliver: Callable[[Arrivals], None],
    ) -> None:
        self.chaos = Chaos()
        self.channel: Channel | None = None
        self._codec = codec
        self._loop = loop
        self._random = random
        self._deliver = deliver
        self._addresses: dict[str, Address] = {}
        self._names: dict[Address, str] = {}
        """Of those addresses: who was heard from there once is not asked for the name again."""

    def send(self, data: bytes) -> None:
        if self.channel is None:
            return
        if not self.chaos.drop_to:
            self.channel.send(data)
            return
        for name, address in self._addresses.items():
            if name not in self.chaos.drop_to:
                self.channel.send_to(data, address)

    def send_to(self, data: bytes, address: Address) -> None:
        dropped = [self._addresses.get(name) for name in self.chaos.drop_to]
        if self.channel is not None and address not in dropped:
            self.channel.send_to(data, address)

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def on_arrivals(self, arrivals: Arrivals) -> None:
        chaos = self.chaos
        now: list[tuple[bytes, Address]] = []
        for data, address in arrivals:
            name = self._names.get(address) or self._meet(data, address)
            if name in chaos.drop_from:
                continue
            copies = 2 if self._random.random() < chaos.duplication else 1
            for _ in range(copies):
                if self._random.random() < chaos.loss:
                    continue
                delay_ms = chaos.delay_ms + chaos.jitter_ms * self._random.random()
                if delay_ms:
                    self._loop.call_later(delay_ms / 1_000.0, self._deliver_late, (data, address))
                else:
                    now.append((data, address))
        if now:
            self._deliver(now)

    def _deliver_late(self, arrival: tuple[bytes, Address]) -> None:
        if self.channel is not None:
            self._deliver([arrival])

    def _meet(self, data: bytes, address: Address) -> str | None:
        """Who sends from an address that is new."""
        try:
            name = self._codec.sender(data).name
        except DecodeError:
            return None
        if name in self._addresses:  # it has moved
            self._names.pop(self._addresses[name], None)
        elif len(self._addresses) >= PEERS_MAX:
            return name
        self._addresses[name] = address
        self._names[address] = name
        return name
