"""The network sliding window (section 3.1, "Implementation Considerations").

The window is every unit, of every sender, that this machine's DAG holds and that is not known to be
acknowledged by all. Its size sets the pause between packets: none while it is small, growing as it fills, and
endless when it is full. Control frames and retransmissions are exempt: the window is fullest exactly when they
are needed most.

The paper leaves open how machines that look at the window at the same moment avoid filling it together. Here
each may have only its share, a window divided by the members, unacknowledged at a time (or one packet, if that
is more). Members tell each other what window their receive buffers can hold, and use the smallest; so what is in
flight fits every receive buffer, and a burst from all members at once is buffered, not lost.

Ordered messages that every member has acknowledged may still wait for a member to be heard. They are not in the
window, but they take memory: a machine with too many of them is *backlogged*. It sends nothing and acknowledges
hardly anything more (`outgoing_acks.OwnAcks`), so that the others' windows fill too.
"""

from __future__ import annotations

from typing import NamedTuple

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.deadlines import Milliseconds
from transport.effects import Reason
from transport.messages import Machine


class FlowFigures(NamedTuple):
    """How full a machine's window is, and the queue of messages that wait for it."""

    window_messages: int
    window_messages_max: int
    window_bytes: int
    window_bytes_max: int
    """What the smallest receive buffer of the members can hold."""
    queue_messages: int
    queue_messages_max: int
    queue_bytes: int
    queue_bytes_max: int
    blocked: Reason | None
    """Why nothing is sent although something waits."""
    round_trip_ms: Milliseconds
    """How long the network takes to answer; 0 if that is not known yet."""


class FlowControl:
    """What the window, read off the local DAG, allows this machine to send."""

    def __init__(self, dag: CausalDag, config: TransportConfig) -> None:
        self._dag = dag
        self._config = config
        self._member_count = len(dag.streams)
        self._largest_packet_bytes = config.datagram_bytes_max + config.packet_overhead_bytes
        self._windows_bytes = {dag.me: config.window_bytes_max}
        self.share_messages = max(1, config.window_messages_max // self._member_count)
        self._fit_window()
        self.next_send_at: Milliseconds = 0.0
        self.is_backlogged = False
        """Whether too many messages wait for delivery here; `OwnAcks` sets it."""

    def advertised(self, machine: Machine, window_bytes: int) -> None:
        """Notes what window a member's receive buffer can hold."""
        if self._windows_bytes.get(machine) != window_bytes:
            self._windows_bytes[machine] = window_bytes
            self._fit_window()

    def fullness(self) -> float:
        """Returns 0 when nothing is unacknowledged, 1 when no more may be."""
        return max(
            self._dag.buffered_messages / self._config.window_messages_max,
            self._dag.buffered_bytes / self.window_bytes,
        )

    def blocked(self) -> Reason | None:
        """Returns why nothing may be sent until something becomes stable or is delivered; None if sending is
        allowed, perhaps after a pause."""
        own = self._dag.own
        if self.is_backlogged:
            return Reason.BACKLOG
        if not own.buffer:
            return None if self.fullness() < 1.0 else Reason.WINDOW_FULL
        if (
            own.buffered_messages >= self.share_messages
            or own.buffered_bytes + self._largest_packet_bytes > self.share_bytes
        ):
            return Reason.SHARE_USED
        return None if self.fullness() < 1.0 else Reason.WINDOW_FULL

    def units_allowed(self) -> int:
        """Returns how many units the next packet may carry without exceeding the share in messages."""
        return self.share_messages - self._dag.own.buffered_messages

    def sent(self, now: Milliseconds) -> None:
        """Notes that a packet has been sent, and when the next one may be."""
        free = self._config.send_free_fraction
        excess = (self.fullness() - free) / (1.0 - free)
        if excess > 0.0:
            self.next_send_at = now + min(excess, 1.0) * self._config.send_delay_ms_max

    def _fit_window(self) -> None:
        self.window_bytes = max(min(self._windows_bytes.values()), self._largest_packet_bytes)
        self.share_bytes = self.window_bytes // self._member_count
