"""Lansis: reliable, causally and totally ordered multicast in one broadcast domain.

`Lansis` is the machine; it has no sockets and no clock. What other packages may use of this one is exported here,
and in the two modules that do I/O: `transport.udp` has the sockets, `transport.chaos` disturbs them on purpose.
"""

from transport.codec import DECODE_ARRAY_MAX, Codec, DecodeError
from transport.config import TransportConfig
from transport.deadlines import AT_ONCE, NEVER, Milliseconds
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Journal,
    Marked,
    Reason,
    Received,
    TransportEffect,
    TransportEvent,
    WindowStuck,
)
from transport.errors import BrokenInvariant
from transport.flow import FlowFigures
from transport.lansis import Lansis, QueueFull, ViewOver
from transport.messages import (
    NAME_BYTES_MAX,
    SEQUENCE_MAX,
    Acks,
    Datagram,
    Envelope,
    Frame,
    Machine,
    Message,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    Timestamp,
    View,
    ViewId,
)
from transport.packing import check_members

__all__ = [
    # The machine, its configuration and its errors
    "Lansis",
    "FlowFigures",
    "TransportConfig",
    "BrokenInvariant",
    "QueueFull",
    "ViewOver",
    "check_members",
    # Its effects
    "TransportEffect",
    "Backpressure",
    "Broadcast",
    "Delivered",
    "Journal",
    "Marked",
    "Received",
    "WindowStuck",
    "TransportEvent",
    "Reason",
    # Identities, messages and times
    "Machine",
    "Message",
    "Service",
    "Timestamp",
    "View",
    "ViewId",
    "Milliseconds",
    "NEVER",
    "AT_ONCE",
    "NAME_BYTES_MAX",
    "SEQUENCE_MAX",
    # Frames and their encoding, for the membership, which shares the datagrams
    "Acks",
    "Datagram",
    "Envelope",
    "Frame",
    "Nack",
    "Packet",
    "Retransmission",
    "Status",
    "Codec",
    "DecodeError",
    "DECODE_ARRAY_MAX",
]
