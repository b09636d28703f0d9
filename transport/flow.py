"""The network sliding window (section 3.1, "Implementation Considerations").

The window is every unit, of every sender, that this machine's DAG holds and that is not known to be
acknowledged by all. Its size sets the pause between packets: none while it is small, growing as it fills, and
endless when it is full. Control frames and retransmissions are not its business: it is fullest exactly when
they are needed most.

The paper leaves open how machines that look at the window at the same moment avoid filling it together. Here
each may have only its share, a window divided by the members, unacknowledged at a time. Whatever is in flight
then fits the window, and the window is sized to fit every member's receive buffer, so a burst from all sides
at once is held, not spilled.
"""

from __future__ import annotations

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.effects import Reason
from transport.messages import Milliseconds


class FlowControl:
    """What the window, read off the local DAG, allows this machine to send."""

    def __init__(self, dag: CausalDag, config: TransportConfig) -> None:
        self._dag = dag
        self._config = config
        self._share_messages = max(1, config.window_messages_max // len(dag.streams))
        self._share_bytes = config.window_bytes_max // len(dag.streams)
        self.next_send_at: Milliseconds = 0.0

    def fullness(self) -> float:
        """0 when nothing is unacknowledged, 1 when no more may be."""
        return max(
            self._dag.buffered_messages / self._config.window_messages_max,
            self._dag.buffered_bytes / self._config.window_bytes_max,
        )

    def blocked(self) -> Reason | None:
        """Why nothing may be sent, however long one waits, until something becomes stable."""
        if self.fullness() >= 1.0:
            return Reason.WINDOW_FULL
        own = self._dag.own
        if own.buffered_messages >= self._share_messages or own.buffered_bytes >= self._share_bytes:
            return Reason.SHARE_USED
        return None

    def units_allowed(self) -> int:
        """How many units the next packet may carry without exceeding the share in messages."""
        return self._share_messages - self._dag.own.buffered_messages

    def sent(self, now: Milliseconds) -> None:
        """A packet has left: how long the next one must wait."""
        free = self._config.send_free_fraction
        excess = (self.fullness() - free) / (1.0 - free)
        if excess > 0.0:
            self.next_send_at = now + min(excess, 1.0) * self._config.send_delay_ms_max
