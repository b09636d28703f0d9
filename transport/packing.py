"""From messages to packets to datagrams: many small messages in one, one large message in many."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from transport import codec
from transport.config import TransportConfig
from transport.messages import Acks, Datagram, Fragment, Frame, Machine, Service, Status, View, ViewId

_UNIT_BYTES_MIN = 128
"""What a packet must be able to carry besides the acknowledgements of all members."""


class Run(NamedTuple):
    """The content of the next packet."""

    service: Service
    payloads: tuple[bytes, ...]
    fragment: Fragment | None


class SendQueue:
    """Messages accepted from the layer above and not yet sent, cut into runs that fit a datagram."""

    def __init__(self, me: Machine, view: ViewId, config: TransportConfig) -> None:
        self._config = config
        self._overhead = codec.datagram_overhead_bytes(me)
        self._me = me
        self._view = view
        self._waiting: deque[tuple[Service, bytes, bool]] = deque()
        """The service and the payload of each message, and whether it is bound to the current view."""
        self._offset = 0
        """How many bytes of the first message have been sent, while it is sent in fragments."""
        self._parts_taken = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_full(self) -> bool:
        return len(self._waiting) >= self._config.queue_messages_max or self.bytes >= self._config.queue_bytes_max

    def has_room(self) -> bool:
        """Returns whether the queue is well below full, so that backpressure does not end only to begin again."""
        return (
            len(self._waiting) <= self._config.queue_messages_max // 2
            and self.bytes <= self._config.queue_bytes_max // 2
        )

    def append(self, service: Service, payload: bytes, is_bound: bool = False) -> None:
        """Adds a message, which if it `is_bound` may be sent in no view but the current one."""
        self._waiting.append((service, payload, is_bound))
        self.bytes += len(payload)

    def enter_view(self, view: ViewId) -> list[tuple[Service, bytes]]:
        """Prepares what waits for this view; a message half sent in the old one begins anew. Returns the messages
        that were bound to the old view: they are removed, and not sent any more."""
        self._view = view
        self._offset = self._parts_taken = 0
        refused = [(service, payload) for service, payload, is_bound in self._waiting if is_bound]
        self._waiting = deque(item for item in self._waiting if not item[2])
        self.bytes -= sum(len(payload) for _, payload in refused)
        return refused

    def take_run(self, acks: Acks, units_max: int) -> Run:
        """Takes the next packet's content from the queue: messages of one service that fit, or one fragment."""
        overhead = self._overhead + codec.packet_overhead_bytes(self._me, self._view, acks)
        free_bytes = self._config.datagram_bytes_max - overhead
        service, payload, _ = self._waiting[0]
        if self._offset or codec.unit_bytes(payload) > free_bytes:
            return self._take_fragment(service, payload, free_bytes)
        payloads: list[bytes] = []
        units_max = min(units_max, self._config.packet_units_max)
        while self._waiting and len(payloads) < units_max:
            next_service, payload, _ = self._waiting[0]
            free_bytes -= codec.unit_bytes(payload)
            if next_service is not service or free_bytes < 0:
                break
            self._waiting.popleft()
            self.bytes -= len(payload)
            payloads.append(payload)
        return Run(service, tuple(payloads), None)

    def _take_fragment(self, service: Service, payload: bytes, free_bytes: int) -> Run:
        part = payload[self._offset : self._offset + free_bytes - codec.unit_bytes(b"")]
        self._offset += len(part)
        fragment = Fragment(self._parts_taken, self._offset == len(payload))
        self._parts_taken += 1
        if fragment.is_last:
            self._waiting.popleft()
            self.bytes -= len(payload)
            self._offset = self._parts_taken = 0
        return Run(service, (part,), fragment)


def into_datagrams(me: Machine, frames: Sequence[Frame], bytes_max: int) -> list[Datagram]:
    """Returns datagrams with these frames in their order, as many to a datagram as fit."""
    if len(frames) <= 1:
        return [Datagram(me, (frame,)) for frame in frames]
    datagrams: list[Datagram] = []
    overhead = codec.datagram_overhead_bytes(me)
    chosen: list[Frame] = []
    free_bytes = bytes_max - overhead
    for frame in frames:
        size = codec.frame_bytes(frame)
        if chosen and size > free_bytes:
            datagrams.append(Datagram(me, tuple(chosen)))
            chosen = []
            free_bytes = bytes_max - overhead
        chosen.append(frame)
        free_bytes -= size
    if chosen:
        datagrams.append(Datagram(me, tuple(chosen)))
    return datagrams


def check_members(me: Machine, view: View, config: TransportConfig) -> None:
    """Raises `ValueError` if the view has too many members: frames that cannot be fragmented must fit a datagram,
    however much there is to acknowledge."""
    if len(view.members) > config.members_max:
        raise ValueError(f"{len(view.members)} members are more than members_max, {config.members_max}")
    acks = tuple((machine, 0) for machine in view.members)
    unit = codec.packet_overhead_bytes(me, view.id, acks) + _UNIT_BYTES_MIN
    status = codec.frame_bytes(Status(view.id, 0, 0, 0, acks, view.members, (0,) * len(view.members)))
    needed = codec.datagram_overhead_bytes(me) + max(unit, status)
    if needed > config.datagram_bytes_max:
        raise ValueError(
            f"acknowledgements of {len(view.members)} members can take datagrams of {needed} bytes, but "
            f"datagram_bytes_max is {config.datagram_bytes_max}: raise it or shorten the names"
        )
