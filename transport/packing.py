"""From messages to packets to datagrams: many small messages in one, one large message in many."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from transport import codec
from transport.config import TransportConfig
from transport.messages import Acks, Datagram, Fragment, Frame, Machine, Service, ViewId


class Run(NamedTuple):
    """What the next packet carries."""

    service: Service
    payloads: tuple[bytes, ...]
    fragment: Fragment | None


class SendQueue:
    """Messages accepted from above and not yet sent, cut into runs that fit a datagram."""

    def __init__(self, me: Machine, view: ViewId, config: TransportConfig) -> None:
        self._config = config
        self._overhead = codec.datagram_overhead_bytes(me)
        self._me = me
        self._view = view
        self._waiting: deque[tuple[Service, bytes, bool]] = deque()
        """Service, payload, and whether it may be sent in no view but the current one."""
        self._offset = 0
        """How much of the first message has been sent, when it is being sent in fragments."""
        self._parts_taken = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_full(self) -> bool:
        return len(self._waiting) >= self._config.queue_messages_max or self.bytes >= self._config.queue_bytes_max

    def has_room(self) -> bool:
        """Well below full, so that backpressure does not end only to begin again."""
        return (
            len(self._waiting) <= self._config.queue_messages_max // 2
            and self.bytes <= self._config.queue_bytes_max // 2
        )

    def append(self, service: Service, payload: bytes, is_bound: bool = False) -> None:
        self._waiting.append((service, payload, is_bound))
        self.bytes += len(payload)

    def enter_view(self, view: ViewId) -> list[tuple[Service, bytes]]:
        """What waits is sent in this view now; a message half sent in the old one begins anew. Returns what was
        bound to the old view: that is not sent any more."""
        self._view = view
        self._offset = self._parts_taken = 0
        refused = [(service, payload) for service, payload, is_bound in self._waiting if is_bound]
        self._waiting = deque(item for item in self._waiting if not item[2])
        self.bytes -= sum(len(payload) for _, payload in refused)
        return refused

    def take_run(self, acks: Acks, units_max: int) -> Run:
        """Removes the next packet's content: messages of one service, as many as fit, or one fragment."""
        overhead = self._overhead + codec.packet_overhead_bytes(self._me, self._view, acks)
        room = self._config.datagram_bytes_max - overhead
        service, payload, _ = self._waiting[0]
        if self._offset or codec.unit_bytes(payload) > room:
            return self._take_fragment(service, payload, room)
        payloads: list[bytes] = []
        units_max = min(units_max, self._config.packet_units_max)
        while self._waiting and len(payloads) < units_max:
            next_service, payload, _ = self._waiting[0]
            room -= codec.unit_bytes(payload)
            if next_service is not service or room < 0:
                break
            self._waiting.popleft()
            self.bytes -= len(payload)
            payloads.append(payload)
        return Run(service, tuple(payloads), None)

    def _take_fragment(self, service: Service, payload: bytes, room: int) -> Run:
        part = payload[self._offset : self._offset + room - codec.unit_bytes(b"")]
        self._offset += len(part)
        fragment = Fragment(self._parts_taken, self._offset == len(payload))
        self._parts_taken += 1
        if fragment.is_last:
            self._waiting.popleft()
            self.bytes -= len(payload)
            self._offset = self._parts_taken = 0
        return Run(service, (part,), fragment)


def into_datagrams(me: Machine, frames: Sequence[Frame], bytes_max: int) -> list[Datagram]:
    """Frames in their order, as many to a datagram as fit."""
    if len(frames) <= 1:
        return [Datagram(me, (frame,)) for frame in frames]
    datagrams: list[Datagram] = []
    overhead = codec.datagram_overhead_bytes(me)
    chosen: list[Frame] = []
    room = bytes_max - overhead
    for frame in frames:
        size = codec.frame_bytes(frame)
        if chosen and size > room:
            datagrams.append(Datagram(me, tuple(chosen)))
            chosen = []
            room = bytes_max - overhead
        chosen.append(frame)
        room -= size
    if chosen:
        datagrams.append(Datagram(me, tuple(chosen)))
    return datagrams
