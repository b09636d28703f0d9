"""The driver: executes the machines' effects against the real world, and is the only one who does.

It reads what the sockets have before it lets the machine act, so a burst is acknowledged, ordered and delivered
as one; what the machine wants sent leaves in the order it says. After a pause of its own (the process was
stopped, a callback took long) it reads everything that has arrived meanwhile before the machine may judge anyone
silent.

An exception in a machine or in a callback is a broken invariant: the rest of its effects cannot be executed, so
the node stops, loudly, instead of going on with half of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil
from random import Random

from corel.config import CorelConfig
from corel.corel import Corel
from corel.effects import Greened, Logged, Mark, Multicast, Persist, Proven, Reordered, Solicit
from corel.messages import MessageId
from corel.quorum import Roster
from corel.replica import Effect as ReplicaEffect
from corel.replica import Replica
from corel.store import StalledDisk, Store, StoreError
from kvstore.journal import JournalWriter
from kvstore.writer import Extra, Writer
from membership.config import MembershipConfig
from membership.effects import ChangeStarted, Effect, Refused, Unicast, ViewChanged
from membership.floor import ClockFloor
from membership.group import Group
from transport.chaos import ChaosChannel
from transport.codec import Codec, DecodeError
from transport.config import TransportConfig
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Event,
    Journal,
    Marked,
    Received,
    WindowStuck,
)
from transport.lansis import Lansis, QueueFull
from transport.messages import Machine, Message, Service, View, ViewId
from transport.udp import Address, Arrivals, Channel, Mode, UdpChannel, is_loopback

log = logging.getLogger("corelkv")

LOOPBACK_DATAGRAM_BYTES = 32_768
"""Datagrams on loopback are not fragmented by a network, so they may be large."""

PEER_ERROR_LOG_SECONDS = 10.0
"""At most one line of each kind of peer's error in this time; the line says how many there were."""

ADDRESSES_MAX = 1_024
"""Most machines whose addresses are remembered; all will soon be heard again."""

PAUSE_MS = 50.0
"""A tick later than this was due is a pause of our own: drain the sockets before it."""

_TICKS_MAX = 4
"""Ticks in a row before the event loop gets its turn: deliveries may cause messages without end."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Where a node lives, and as whom."""

    machine: Machine
    mode: Mode
    view: View | None = None
    """A fixed view, for the transport alone. Without one membership decides, beginning with this node by
    itself."""
    cluster: str = "corelkv"
    transport: TransportConfig = field(default_factory=TransportConfig)
    membership: MembershipConfig = field(default_factory=MembershipConfig)
    clock_floor: ClockFloor | None = None
    """Where it is kept how far the clock has come. Without it, views of the next start may not follow this
    one's."""
    datagram_bytes_max: int | None = None
    """Overrides the transport's own; by default it is that, or `LOOPBACK_DATAGRAM_BYTES` on loopback."""
    with_chaos: bool = False
    log: LogConfig | None = None
    """The log, on top of membership. Without it, what is multicast is delivered, and forgotten."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """A node's log, and who takes part in it."""

    store: Store
    roster: Roster
    corel: CorelConfig = field(default_factory=CorelConfig)


@dataclass(frozen=True, slots=True)
class Upward:
    """Who is told what. The callbacks run on the event loop, and may multicast."""

    delivered: Callable[[tuple[Message, ...]], None] = lambda messages: None
    received: Callable[[tuple[Message, ...]], None] = lambda messages: None
    changing: Callable[[View], None] = lambda view: None
    """The view is ending; nothing more is sent in it."""
    view_changed: Callable[[View], None] = lambda view: None
    refused: Callable[[tuple[tuple[Service, bytes], ...]], None] = lambda messages: None
    """These were for the old view only, and were not sent."""
    stuck: Callable[[tuple[Machine, ...]], None] = lambda laggards: None
    failed: Callable[[Exception], None] = lambda error: None
    """The node has stopped because of this."""
    logged: Callable[[Logged], None] = lambda logged: None
    greened: Callable[[Greened], None] = lambda greened: None
    reordered: Callable[[], None] = lambda: None
    proven: Callable[[int], None] = lambda number: None
    also_write: Callable[[int], Extra | None] = lambda green_line: None
    """What to write together with the log, whose green line on disk will be this."""
    journaled: Callable[[Journal], None] = lambda entry: None
    disk_failed: Callable[[StoreError], None] = lambda error: None
    """The node has left the others, because its disk is full, stalls or does not take writes."""


class Twin(Exception):
    """Somebody else goes by this node's name. The message says what to do."""


class Node:
    """One machine on real sockets and a real clock. Use it on the event loop that runs it."""

    def __init__(self, config: NodeConfig, upward: Upward, journal: JournalWriter | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._me = config.machine
        self._codec = Codec(config.cluster, config.log.roster.digest() if config.log is not None else b"")
        self._upward = upward
        self._journal = journal
        self.peer_errors = PeerErrors()
        self._timer: asyncio.Handle | None = None
        self._wakes_at = float("inf")
        self._is_settling = False
        self._is_closed = False
        self._room = asyncio.Event()
        self._room.set()
        self._addresses: dict[Machine, Address] = {}
        """Where each machine's own socket is: where its last datagram came from."""
        self._clock_floor = config.clock_floor
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
        self.writer: Writer | None = None
        self._stall_timer: asyncio.Handle | None = None
        try:
            transport = fit_to_network(config, self.udp.receive_buffer_bytes)
            self._make_machine(config, transport)
            if self.log is not None and config.log is not None:
                self.writer = Writer(config.log.store, self._loop, self._on_persisted, self._on_disk_failed)
                self._sync_stall_ms = config.log.corel.sync_stall_ms
                self._watch_disk()
                self._execute(self._replica().start())
        except BaseException:
            self.close()
            raise
        self._wake_at(self.machine.next_deadline())

    def _make_machine(self, config: NodeConfig, transport: TransportConfig) -> None:
        self.log: Corel | None = None
        self.machine: Replica | Group | Lansis
        self._layer: Group | Lansis
        if config.view is not None:
            self.machine = self._layer = Lansis(config.machine, config.view, transport, Random(), self._now())
            return
        clock = 1 if config.clock_floor is None else config.clock_floor.clock
        image = None if config.log is None else config.log.store.load()
        if image is not None:
            clock = max(clock, image.lines.clock)
        group = Group(config.machine, config.membership, transport, Random(), self._now(), clock)
        self.machine = self._layer = group
        if config.log is not None and image is not None:
            self.log = Corel(
                config.machine, group.view, config.log.roster, config.log.corel, image, config.log.store
            )
            self.machine = Replica(group, self.log)

    @property
    def view(self) -> View:
        return self._layer.view

    @property
    def transport(self) -> Lansis:
        """The transport of the current view."""
        return self._layer.lansis if isinstance(self._layer, Group) else self._layer

    def submit(self, body: bytes) -> MessageId:
        """Accepts a message for the log; raises `TooMuch` when too many wait."""
        if self._is_closed:
            raise RuntimeError("the node is closed")
        message_id, effects = self._replica().submit(body)
        self._execute(effects)
        if not self._is_settling:
            self._wake_at(0.0)
        return message_id

    def probe(self, number: int) -> None:
        """Asks whether this is still the primary component; `proven` is told if it is."""
        self._execute(self._replica().probe(number))
        if not self._is_settling:
            self._wake_at(0.0)

    def write(self, extra: Extra) -> None:
        """To the disk of the log, apart from it."""
        if self.writer is not None and not self._is_closed:
            self.writer.write(extra)

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> None:
        """Accepts a message for sending, in this view only if one is given (else `ViewOver`); raises `QueueFull`
        when too many wait."""
        if self._is_closed:
            raise RuntimeError("the node is closed")
        self._execute(self._layer.multicast(service, payload, view))
        if not self._is_settling:
            self._wake_at(0.0)

    async def flush(self, seconds: float) -> None:
        """Brings what is green to disk, if that takes it in time: the next start has less to agree on again."""
        end = time.monotonic() + seconds
        while self.log is not None and not self._is_closed and self.log.is_writing and time.monotonic() < end:
            self._execute(self._replica().flush())
            await asyncio.sleep(0.001)

    async def room(self) -> None:
        """Waits until `multicast` takes more (others who wait may be quicker)."""
        await self._room.wait()

    async def send(self, service: Service, payload: bytes) -> None:
        """Multicasts, waiting for its turn while too many messages wait."""
        while True:
            await self.room()
            try:
                return self.multicast(service, payload)
            except QueueFull:
                self._room.clear()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        if self.writer is not None:
            self.writer.stop()
        self._channel.close()
        if self._journal is not None:
            self._journal.close()

    def _replica(self) -> Replica:
        if not isinstance(self.machine, Replica):
            raise RuntimeError("the node has no log")
        return self.machine

    def _on_persisted(self, token: int) -> None:
        if self._is_closed:
            return
        try:
            self._execute(self._replica().persisted(token))
            if not self._is_settling:
                self._settle()
        except Exception as error:
            self.fail(error)

    def _on_disk_failed(self, error: StoreError) -> None:
        """Others wait for our disk with every message, so we leave them (trap 8). Reads go on."""
        if not self._is_closed:
            log.error("the node leaves the others: %s", error)
            self.close()
            self._upward.disk_failed(error)

    def _watch_disk(self) -> None:
        if self.writer is not None and self.writer.busy_ms() > self._sync_stall_ms:
            self._on_disk_failed(StalledDisk(f"a write has been under way for {self.writer.busy_ms():.0f} ms"))
        if not self._is_closed:
            self._stall_timer = self._loop.call_later(self._sync_stall_ms / 4_000.0, self._watch_disk)

    def _now(self) -> float:
        return time.monotonic() * 1_000.0

    def _on_arrivals(self, arrivals: Arrivals) -> None:
        if self._is_closed:
            return
        try:
            self._take_in(arrivals)
            if not self._is_settling:
                self._settle()
        except Exception as error:
            self.fail(error)

    def _take_in(self, arrivals: Arrivals) -> None:
        now = self._now()
        for data, address in arrivals:
            try:
                datagram = self._codec.decode(data)
            except DecodeError as error:
                self.peer_errors.note(error.reason, f"from {address[0]}:{address[1]}: {error}")
                continue
            if datagram.sender.name == self._me.name and datagram.sender.incarnation >= self._me.incarnation:
                self._meet_twin(datagram.sender, address)
            self._addresses[datagram.sender] = address
            self._execute(self.machine.receive(datagram, now))
        if len(self._addresses) > ADDRESSES_MAX:  # anybody can send us names
            self._addresses.clear()

    def _meet_twin(self, twin: Machine, address: Address) -> None:
        """Nobody can tell the two apart. The newer one goes on; of two of the same incarnation, one that has
        company does."""
        if twin.incarnation > self._me.incarnation or len(self.view.members) == 1:
            raise Twin(
                f"another process goes by the name of this node: {twin} at {address[0]}:{address[1]}, this is "
                f"{self._me}. Stop one of them, or give each its own name in the roster"
            )

    def _settle(self) -> None:
        """Lets the machine do what is due, then sleeps until something will be."""
        self._is_settling = True
        try:
            deadline = self.machine.next_deadline()
            for _ in range(_TICKS_MAX):
                now = self._now()
                if self._is_closed or deadline > now:
                    break
                if float("-inf") < deadline < now - PAUSE_MS:
                    self.udp.drain()
                self._execute(self.machine.tick(now))
                deadline = self.machine.next_deadline()
        finally:
            self._is_settling = False
        self._wake_at(deadline)

    def _wake_at(self, deadline_ms: float) -> None:
        if self._is_closed or deadline_ms >= self._wakes_at:
            return  # we wake before that: nothing will be due then, and we go back to sleep
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline_ms
        delay_ms = deadline_ms - self._now()
        if delay_ms > 0.0:  # the loop rounds to milliseconds: early, we would only be told to sleep on
            self._timer = self._loop.call_later(ceil(delay_ms) / 1_000.0, self._on_timer)
        else:
            self._timer = self._loop.call_soon(self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wakes_at = float("inf")
        try:
            self._settle()
        except Exception as error:
            self.fail(error)

    def _execute(self, effects: Sequence[Effect | ReplicaEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast):
                self._raise_clock_floor(self.transport.clock)
                self._channel.send(self._codec.encode(effect.datagram))
            elif isinstance(effect, Delivered):
                self._upward.delivered(effect.messages)
            elif isinstance(effect, Received):
                self._upward.received(effect.messages)
            elif isinstance(effect, Journal):
                self._write_journal(effect)
            elif isinstance(effect, Persist):
                assert self.writer is not None
                self.writer.submit(effect, self._upward.also_write(effect.write.lines.green))
            elif isinstance(effect, Logged):
                self._upward.logged(effect)
            elif isinstance(effect, Greened):
                self._upward.greened(effect)
            elif isinstance(effect, Reordered):
                self._upward.reordered()
            elif isinstance(effect, Proven):
                self._upward.proven(effect.number)
            elif isinstance(effect, Backpressure):
                if effect.full:
                    self._room.clear()
                else:
                    self._room.set()
            elif isinstance(effect, (Marked, Multicast, Mark, Solicit)):
                pass  # between the log and the group below it; there is none above a bare group
            elif isinstance(effect, WindowStuck):
                log.warning("nothing moves; waiting for %s", ", ".join(map(str, effect.laggards)))
                self._upward.stuck(effect.laggards)
            else:
                self._execute_change(effect)

    def _execute_change(self, effect: Unicast | ChangeStarted | ViewChanged | Refused) -> None:
        if isinstance(effect, Unicast):
            address = self._addresses.get(effect.target)
            if address is not None:
                self._channel.send_to(self._codec.encode(effect.datagram), address)
        elif isinstance(effect, ChangeStarted):
            self._upward.changing(effect.view)
        elif isinstance(effect, ViewChanged):
            self._raise_clock_floor(effect.view.id.clock)
            log.info("view %s: %s", effect.view.id, ", ".join(map(str, effect.view.members)))
            self._upward.view_changed(effect.view)
        else:
            self._upward.refused(effect.messages)

    def _raise_clock_floor(self, clock: int) -> None:
        """Before anybody, the layer above included, sees something of this clock: a next start begins above."""
        if self._clock_floor is not None:
            self._clock_floor.raise_above(clock)

    def _write_journal(self, entry: Journal) -> None:
        if entry.event is Event.DROPPED:
            what = f"{entry.details.get('sender')} {entry.id}".strip()
            if not self.peer_errors.note(entry.reason, what):
                return  # what peers do wrong must not push everything else out of the journal
        self._upward.journaled(entry)
        if self._journal is not None:
            self._journal.write(entry, self._now())

    def fail(self, error: Exception) -> None:
        """Stops, because nobody knows what is true any more."""
        if self._is_closed:
            return
        log.critical("the node stops: %s", error, exc_info=None if isinstance(error, Twin) else error)
        self.close()
        self._upward.failed(error)


class PeerErrors:
    """What peers do wrong: counted always, logged at a bounded rate."""

    def __init__(self) -> None:
        self.counts: Counter[StrEnum] = Counter()
        self._logged: dict[StrEnum, tuple[float, int]] = {}

    def note(self, reason: StrEnum, what: str) -> bool:
        """Returns whether it was logged, which is seldom when there are many."""
        self.counts[reason] += 1
        now = time.monotonic()
        last_at, last_count = self._logged.get(reason, (float("-inf"), 0))
        if now - last_at < PEER_ERROR_LOG_SECONDS:
            return False
        count = self.counts[reason]
        self._logged[reason] = (now, count)
        log.warning("dropped %d datagrams or frames (%s), the last %s", count - last_count, reason, what)
        return True


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
