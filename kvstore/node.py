"""The driver: executes the machines' effects against the real world, and is the only one who does.

It reads everything the sockets have before it lets the machine act, so a burst is acknowledged, ordered and
delivered as one; what the machine wants sent leaves in the order it says.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from kvstore.journal import JournalWriter
from transport.chaos import ChaosChannel
from transport.codec import Codec, DecodeError
from transport.config import TransportConfig
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Effect,
    Event,
    Journal,
    Reason,
    WindowStuck,
)
from transport.lansis import Lansis
from transport.messages import Machine, Message, Service, View
from transport.udp import Arrivals, Channel, Mode, UdpChannel, is_loopback

log = logging.getLogger("corelkv")

LOOPBACK_DATAGRAM_BYTES = 32_768
"""Datagrams on loopback are not fragmented by a network, so they may be large."""

PEER_ERROR_LOG_SECONDS = 10.0
"""At most one line of each kind of peer's error in this time; the line says how many there were."""

_TICKS_MAX = 4
"""Ticks in a row before the event loop gets its turn: deliveries may cause messages without end."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Where a node lives. The view is fixed until membership decides it."""

    machine: Machine
    view: View
    mode: Mode
    cluster: str = "corelkv"
    transport: TransportConfig = field(default_factory=TransportConfig)
    datagram_bytes_max: int | None = None
    """Overrides the transport's own; by default it is that, or `LOOPBACK_DATAGRAM_BYTES` on loopback."""
    with_chaos: bool = False


class Node:
    """One machine on real sockets and a real clock. Use it on the event loop that runs it."""

    def __init__(
        self,
        config: NodeConfig,
        on_delivered: Callable[[tuple[Message, ...]], None],
        journal: JournalWriter | None = None,
        on_stuck: Callable[[tuple[Machine, ...]], None] = lambda laggards: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._codec = Codec(config.cluster)
        self._on_delivered = on_delivered
        self._on_stuck = on_stuck
        self._journal = journal
        self._peer_errors = PeerErrorLog()
        self._timer: asyncio.Handle | None = None
        self._wakes_at = float("inf")
        self._is_settling = False
        self._room = asyncio.Event()
        self._room.set()
        self.chaos: ChaosChannel | None = None
        handler = self._on_arrivals
        if config.with_chaos:
            self.chaos = ChaosChannel(self._codec, self._loop, Random(), self._on_arrivals)
            handler = self.chaos.on_arrivals
        self.udp = UdpChannel(config.mode, self._loop, handler)
        self._channel: Channel = self.udp
        if self.chaos is not None:
            self.chaos.channel = self.udp
            self._channel = self.chaos
        transport = fit_to_network(config, self.udp.receive_buffer_bytes)
        self.machine = Lansis(config.machine, config.view, transport, Random(), self._now())
        self._settle()

    def multicast(self, service: Service, payload: bytes) -> None:
        """Accepts a message for sending; raises `QueueFull` when too many wait."""
        self._execute(self.machine.multicast(service, payload))
        if not self._is_settling:
            self._wake_at(0.0)

    async def room(self) -> None:
        """Waits until `multicast` takes more."""
        await self._room.wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()
        if self._journal is not None:
            self._journal.close()

    def _now(self) -> float:
        return time.monotonic() * 1_000.0

    def _on_arrivals(self, arrivals: Arrivals) -> None:
        now = self._now()
        for data, address in arrivals:
            try:
                datagram = self._codec.decode(data)
            except DecodeError as error:
                self._peer_errors.note(error.reason, f"from {address[0]}:{address[1]}: {error}")
                continue
            self._execute(self.machine.receive(datagram, now))
        self._settle()

    def _settle(self) -> None:
        """Lets the machine do what is due, then sleeps until something will be."""
        self._is_settling = True
        for _ in range(_TICKS_MAX):
            now = self._now()
            deadline = self.machine.next_deadline()
            if deadline > now:
                break
            self._execute(self.machine.tick(now))
        self._is_settling = False
        self._wake_at(self.machine.next_deadline())

    def _wake_at(self, deadline_ms: float) -> None:
        if deadline_ms >= self._wakes_at:
            return  # we wake before that: nothing will be due then, and we go back to sleep
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline_ms
        delay_ms = deadline_ms - self._now()
        if delay_ms > 0.0:
            self._timer = self._loop.call_later(delay_ms / 1_000.0, self._on_timer)
        else:
            self._timer = self._loop.call_soon(self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wakes_at = float("inf")
        self._settle()

    def _execute(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast):
                self._channel.send(self._codec.encode(effect.datagram))
            elif isinstance(effect, Delivered):
                self._on_delivered(effect.messages)
            elif isinstance(effect, Journal):
                self._write_journal(effect)
            elif isinstance(effect, Backpressure):
                if effect.full:
                    self._room.clear()
                else:
                    self._room.set()
            elif isinstance(effect, WindowStuck):
                log.warning("the window is stuck waiting for %s", ", ".join(map(str, effect.laggards)))
                self._on_stuck(effect.laggards)

    def _write_journal(self, entry: Journal) -> None:
        if entry.event is Event.DROPPED:
            self._peer_errors.note(entry.reason, f"{entry.details.get('sender')} {entry.id}".strip())
        if self._journal is not None:
            self._journal.write(entry, self._now())


class PeerErrorLog:
    """What peers do wrong: counted always, logged at a bounded rate."""

    def __init__(self) -> None:
        self.counts: Counter[Reason] = Counter()
        self._logged: dict[Reason, tuple[float, int]] = {}

    def note(self, reason: Reason, what: str) -> None:
        self.counts[reason] += 1
        now = time.monotonic()
        last_at, last_count = self._logged.get(reason, (float("-inf"), 0))
        if now - last_at >= PEER_ERROR_LOG_SECONDS:
            count = self.counts[reason]
            self._logged[reason] = (now, count)
            log.warning("dropped %d datagrams or frames (%s), the last %s", count - last_count, reason, what)


def fit_to_network(config: NodeConfig, receive_buffer_bytes: int) -> TransportConfig:
    """Large datagrams on loopback, and a window that fits the receive buffer the kernel granted.

    The kernel counts a datagram with its own overhead, up to about as much again, hence the half.
    """
    transport = config.transport
    datagram_bytes_max = config.datagram_bytes_max or transport.datagram_bytes_max
    if config.datagram_bytes_max is None and is_loopback(config.mode):
        datagram_bytes_max = LOOPBACK_DATAGRAM_BYTES
    smallest = datagram_bytes_max + transport.packet_overhead_bytes
    window_bytes_max = max(min(transport.window_bytes_max, receive_buffer_bytes // 2), smallest)
    return replace(transport, datagram_bytes_max=datagram_bytes_max, window_bytes_max=window_bytes_max)
