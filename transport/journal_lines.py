"""The lines that the transport writes to the journal, and what each of them says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transport.effects import Journal, Reason, TransportEvent
from transport.messages import Machine, Message, Nack, Packet


def sent(packet: Packet) -> Journal:
    details: dict[str, object] = {
        "clock": packet.clock,
        "service": packet.service.name.lower(),
        "acks": [f"{machine}.{sequence}" for machine, sequence in packet.acks],
        "bytes": packet.payload_bytes,
    }
    return Journal(TransportEvent.PACKET_SENT, packet.id, details=details)


def received(packet: Packet) -> Journal:
    return Journal(TransportEvent.PACKET_RECEIVED, packet.id, details={"clock": packet.clock})


def stable(packet: Packet) -> Journal:
    return Journal(TransportEvent.PACKET_STABLE, packet.id)


def delivered(message: Message) -> Journal:
    details: dict[str, object] = {
        "service": message.service.name.lower(),
        "clock": message.timestamp.clock,
    }
    return Journal(TransportEvent.PACKET_DELIVERED, message.id, details=details)


def nacked(nack: Nack) -> Journal:
    details: dict[str, object] = {"ranges": [list(run) for run in nack.ranges]}
    reason = Reason.RETRY if nack.is_repeated else Reason.NEW
    return Journal(TransportEvent.NACKED, str(nack.machine), reason, details)


def retransmitted(packet: Packet) -> Journal:
    return Journal(TransportEvent.RETRANSMITTED, packet.id, Reason.REQUESTED, {"bytes": packet.payload_bytes})


def blocked(reason: Reason | None, window_messages: int) -> Journal:
    """Sending has been blocked for a reason, or, if there is none, unblocked."""
    event = TransportEvent.BLOCKED if reason else TransportEvent.UNBLOCKED
    return Journal(event, reason=reason or Reason.WINDOW_OPEN, details={"window_messages": window_messages})


def stuck(laggards: Iterable[Machine], reason: Reason) -> Journal:
    return Journal(
        TransportEvent.STUCK, reason=reason, details={"machines": [str(machine) for machine in laggards]}
    )


def dropped(reason: Reason, sender: Machine, subject: str) -> Journal:
    return Journal(TransportEvent.DROPPED, subject, reason, {"machine": str(sender)})


def link(machine: Machine, counts: Mapping[str, int]) -> Journal:
    return Journal(TransportEvent.LINKS, str(machine), details=dict(counts))
