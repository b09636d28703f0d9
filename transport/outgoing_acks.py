"""The acknowledgements that this machine sends: what they say (`OwnAcks`), and when they are due (`OwedAcks`).

A packet acknowledges what is new since the previous one; a status, which is sent when there is no data to carry
the acknowledgements, repeats all of them. Only a status has marks and solicitations, so these are due as a status
whatever else is sent (decision 2).
"""

from __future__ import annotations

from collections.abc import Mapping

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.deadlines import AT_ONCE, NEVER, Milliseconds
from transport.delivery import Delivery
from transport.flow import FlowControl
from transport.messages import Acks, Machine, Message, Packet, Service


class OwnAcks:
    """What this machine acknowledges: everything of the other members that is in its DAG, unless it is backlogged.

    It is backlogged while messages of more than `undelivered_bytes_max` wait for delivery. It then sends nothing,
    and its statuses go on acknowledging what they acknowledged before: the others' windows fill, which stops them
    too. Only what it delivers, and the next message to be delivered, are acknowledged still, because otherwise no
    member could ever deliver them as safe.
    """

    def __init__(
        self,
        dag: CausalDag,
        delivery: Delivery,
        flow: FlowControl,
        config: TransportConfig,
        base: Mapping[Machine, int] | None = None,
    ) -> None:
        self._dag = dag
        self._delivery = delivery
        self._flow = flow
        self._undelivered_bytes_max = config.undelivered_bytes_max
        self._sent: dict[Machine, int] = dict(base or {})
        """What our packets have acknowledged: each acknowledgement travels in a packet once."""
        self._frozen: dict[Machine, int] | None = None
        """What our statuses acknowledge while this machine is backlogged."""

    def take_new(self) -> Acks:
        """Returns what the next packet acknowledges: what has entered the DAG since the packet before."""
        acks = tuple(
            (machine, stream.inserted_through)
            for machine, stream in self._dag.streams.items()
            if stream is not self._dag.own and stream.inserted_through > self._sent.get(machine, 0)
        )
        self._sent.update(acks)
        return acks

    def for_status(self) -> Acks:
        """Returns everything that a status acknowledges."""
        return self._all() if self._frozen is None else tuple(self._frozen.items())

    def watch_backlog(self, delivered: list[Message]) -> bool:
        """Begins or ends the backlog, after these messages have been delivered. Returns whether a status must be
        sent at once, because what it acknowledges has changed."""
        is_changed = False
        is_backlogged = self._delivery.undelivered_bytes >= self._undelivered_bytes_max
        if is_backlogged != self._flow.is_backlogged:
            self._flow.is_backlogged = is_backlogged
            self._frozen = dict(self._all()) if is_backlogged else None
            is_changed = True
        if self._frozen is None:
            return is_changed
        first = self._delivery.first_undelivered()
        for message in [*delivered, first] if first is not None else delivered:
            if message.sender != self._dag.me and self._frozen.get(message.sender, 0) < message.sequence:
                self._frozen[message.sender] = message.sequence
                is_changed = True
        return is_changed

    def _all(self) -> Acks:
        return tuple(
            (machine, stream.inserted_through)
            for machine, stream in self._dag.streams.items()
            if stream is not self._dag.own and stream.inserted_through
        )


class OwedAcks:
    """When the other members must hear what this machine has.

    Ordered messages wait for it to be heard; other messages only fill the window until it acknowledges them. So
    an acknowledgement is due at once for a safe message, and for an agreed one too, unless the layer above has
    announced a mark: then it waits for the mark, but not longer than `ack_with_mark_ms`. Whatever the service, it
    is due when `ack_after_fraction` of one member's share of the window is unacknowledged.

    A packet carries what is owed as an acknowledgement, and so settles it. It has neither marks nor solicitations:
    what is owed as a status is settled only by a status, which joins the packet's datagram if there is room.
    """

    def __init__(self, dag: CausalDag, flow: FlowControl, config: TransportConfig) -> None:
        self._dag = dag
        self._flow = flow
        self._fraction = config.ack_after_fraction
        self._with_mark_ms = config.ack_with_mark_ms
        self._is_status_owed = False
        """Whether a status must be sent at once, also if packets are."""
        self._is_ack_due = False
        """Whether an acknowledgement must be sent at once, in a packet or in a status."""
        self._is_ack_owed = False
        """Whether agreed messages wait for our acknowledgement, which may wait for an announced mark."""
        self._ack_at: Milliseconds | None = None
        """When that acknowledgement is sent at the latest; None until the first `is_due` after the message."""
        self._is_mark_expected = False
        self._unacked_messages = 0
        self._unacked_bytes = 0

    def owe_status(self) -> None:
        """Makes a status due at once: it has marks or a solicitation, or answers one, which no packet can."""
        self._is_status_owed = True

    def owe_ack(self) -> None:
        """Makes an acknowledgement due at once: a packet does as well as a status."""
        self._is_ack_due = True

    def expect_mark(self) -> None:
        """Lets the acknowledgements of agreed messages wait for a mark."""
        self._is_mark_expected = True

    def marked(self) -> None:
        """Ends the wait for a mark: it is here, and is to be sent at once."""
        self._is_mark_expected = False
        self._is_status_owed = True

    def inserted(self, packet: Packet) -> None:
        """Notes that a packet of another member has entered the DAG, and so has to be acknowledged."""
        self._unacked_messages += len(packet.payloads)
        self._unacked_bytes += self._dag.cost_bytes(packet)
        if packet.service is Service.AGREED:
            self._is_ack_owed = True
        if (
            packet.service is Service.SAFE
            or self._unacked_messages >= self._fraction * self._flow.share_messages
            or self._unacked_bytes >= self._fraction * self._flow.share_bytes
        ):
            self._is_ack_due = True

    def is_due(self, now: Milliseconds) -> bool:
        """Returns whether a status must be sent now, for itself or for the acknowledgements in it."""
        if self._is_status_owed or self._is_ack_due:
            return True
        if not self._is_ack_owed:
            return False
        if self._ack_at is None:
            self._ack_at = now + self._with_mark_ms if self._is_mark_expected else now
        return now >= self._ack_at

    def deadline(self) -> Milliseconds:
        """Returns when `is_due` has to be asked at the latest."""
        if self._is_status_owed or self._is_ack_due:
            return AT_ONCE
        if not self._is_ack_owed:
            return NEVER
        return AT_ONCE if self._ack_at is None else self._ack_at

    def packet_sent(self) -> None:
        """Notes that a packet has carried all acknowledgements. A status that is owed stays so."""
        self._is_ack_due = self._is_ack_owed = False
        self._ack_at = None
        self._unacked_messages = 0
        self._unacked_bytes = 0

    def status_sent(self) -> None:
        """Notes that a status has said everything."""
        self._is_status_owed = False
        self.packet_sent()
