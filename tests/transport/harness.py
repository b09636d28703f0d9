"""A few machines in memory: every datagram goes through the codec, time jumps from event to event.

cluster = Harness("abc")
cluster.drop(lambda source, target, frame: target == "c")
cluster.multicast("a", Service.AGREED, b"x")
cluster.run(5.0)
assert cluster.delivered["b"] == []
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from transport.codec import Codec
from transport.config import TransportConfig
from transport.effects import Broadcast, Delivered, TransportEffect
from transport.lansis import Lansis
from transport.messages import (
    Datagram,
    Fragment,
    Frame,
    Machine,
    Message,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)

Kind = TypeVar("Kind")
DropRule: TypeAlias = Callable[[str, str, Frame], bool]

CLUSTER = "harness"
VIEW = ViewId(1, "a", 1)
LATER = ViewId(2, "a", 1)
BASIC, CAUSAL, AGREED, SAFE = Service
SMALL_WINDOW = TransportConfig(window_messages_max=30, packet_units_max=1)


def machine(name: str) -> Machine:
    return Machine(name, 1)


A, B, C, D = map(machine, "abcd")
FOREIGN = Machine("x", 1)
"""A machine that is no member of any view of these tests."""


def packet(
    sender: str,
    sequence: int,
    acks: Mapping[str, int] | None = None,
    service: Service = Service.AGREED,
    clock: int | None = None,
    payloads: Iterable[bytes] = (b"x",),
    fragment: Fragment | None = None,
) -> Packet:
    """A packet of the harness's view; its clock is its sequence, unless given."""
    flat = tuple((machine(name), acked) for name, acked in (acks or {}).items())
    return Packet(machine(sender), VIEW, sequence, clock or sequence, service, flat, tuple(payloads), fragment)


def status(
    clock: int, sequence: int = 0, acks: Mapping[str, int] | None = None, window_bytes: int = 1_048_576
) -> Status:
    """A status of the harness's view that solicits no member."""
    flat = tuple((machine(name), acked) for name, acked in (acks or {}).items())
    return Status(VIEW, clock, sequence, window_bytes, flat)


def packet_in(frame: Frame) -> Packet | None:
    """Returns the packet that a frame carries, for the first time or again."""
    carried = frame.packet if isinstance(frame, Retransmission) else frame
    return carried if isinstance(carried, Packet) else None


def is_packet(frame: Frame, sender: Machine, sequence: int) -> bool:
    """Whether the frame carries this packet, for the first time or again."""
    carried = packet_in(frame)
    return carried is not None and (carried.sender, carried.sequence) == (sender, sequence)


def is_packet_of(frame: Frame, sender: Machine) -> bool:
    """Whether the frame carries a packet of this sender, for the first time or again."""
    carried = packet_in(frame)
    return carried is not None and carried.sender == sender


def machine_in(view: View, me: Machine = A, config: TransportConfig | None = None) -> Lansis:
    return Lansis(me, view, config or TransportConfig(), Random(1), 0.0)


class Sent(NamedTuple):
    """A datagram as it went out."""

    at: float
    source: str
    datagram: Datagram


class Harness:
    """Machines named by the letters given, a constant delay apart; only what `drop` says is lost."""

    def __init__(
        self, names: str, config: TransportConfig | None = None, seed: int = 1, delay_ms: float = 0.1
    ) -> None:
        self.now = 0.0
        self.sent: list[Sent] = []
        self.delivered: dict[str, list[bytes]] = {name: [] for name in names}
        self.messages: dict[str, list[Message]] = {name: [] for name in names}
        self.effects: dict[str, list[TransportEffect]] = {name: [] for name in names}
        self.view = View(VIEW, tuple(machine(name) for name in names))
        random = Random(seed)
        settings = config or TransportConfig()
        self.machines = {name: Lansis(machine(name), self.view, settings, random, self.now) for name in names}
        self._codec = Codec(CLUSTER)
        self.delay_ms = delay_ms
        self._in_flight: deque[tuple[float, str, Datagram]] = deque()
        self._is_dropped: DropRule = lambda source, target, frame: False

    def __getitem__(self, name: str) -> Lansis:
        return self.machines[name]

    def multicast(self, name: str, service: Service, payload: bytes) -> None:
        self.execute(name, self.machines[name].multicast(service, payload))

    def drop(self, rule: DropRule) -> None:
        """From now on, the frames for which the rule holds do not arrive; it replaces an earlier rule."""
        self._is_dropped = rule

    def heal(self) -> None:
        self.drop(lambda source, target, frame: False)

    def inject(self, target: str, datagram: Datagram) -> None:
        """Hands over a datagram that no machine here has sent."""
        self.execute(target, self.machines[target].receive(datagram, self.now))

    def execute(self, source: str, effects: list[TransportEffect]) -> None:
        """Executes what a call of one of the machines returned, for calls that the test makes itself."""
        for effect in effects:
            self.effects[source].append(effect)
            if isinstance(effect, Delivered):
                self.messages[source] += effect.messages
                self.delivered[source] += [message.payload for message in effect.messages]
            elif isinstance(effect, Broadcast):
                self._broadcast(source, self._codec.decode(self._codec.encode(effect.datagram)))

    def run(self, duration_ms: float) -> None:
        end = self.now + duration_ms
        while (upcoming := self._next_event()) <= end:
            self.now = max(self.now, upcoming)
            while self._in_flight and self._in_flight[0][0] <= self.now:
                _, target, datagram = self._in_flight.popleft()
                self.inject(target, datagram)
            for name, lansis in self.machines.items():
                while lansis.next_deadline() <= self.now:
                    self.execute(name, lansis.tick(self.now))
        self.now = end

    def frames(self, kind: type[Kind], source: str) -> list[Kind]:
        """Returns every frame of this kind that the source has transmitted so far."""
        frames = [frame for sent in self.sent if sent.source == source for frame in sent.datagram.frames]
        return [frame for frame in frames if isinstance(frame, kind)]

    def effects_of(self, kind: type[Kind], name: str) -> list[Kind]:
        return [effect for effect in self.effects[name] if isinstance(effect, kind)]

    def _next_event(self) -> float:
        deadline = min(lansis.next_deadline() for lansis in self.machines.values())
        return min(deadline, self._in_flight[0][0]) if self._in_flight else deadline

    def _broadcast(self, source: str, datagram: Datagram) -> None:
        self.sent.append(Sent(self.now, source, datagram))
        for target in self.machines:
            frames = tuple(frame for frame in datagram.frames if not self._is_dropped(source, target, frame))
            if frames and target != source:
                self._in_flight.append((self.now + self.delay_ms, target, Datagram(datagram.sender, frames)))
