"""Every bound of the transport, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass, replace

from transport.codec import DECODE_ARRAY_MAX


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """The bounds of one machine's transport. The defaults suit a LAN; a node lowers the window to what its receive
    buffers can hold (`with_window_for`)."""

    datagram_bytes_max: int = 1_400
    """Largest datagram sent. Above the path's MTU the kernel fragments it, and one lost fragment loses all of it;
    on loopback, where nothing is fragmented, larger datagrams save system calls."""

    packet_units_max: int = 512
    """Most messages in one packet. Bounds what a decoder allocates for the headers of a tiny datagram."""

    message_bytes_max: int = 1_114_112
    """Largest message: 1 MiB of value plus 64 KiB for what the layers above add. Bounds reassembly."""

    members_max: int = 64
    """Most machines whose acknowledgements one frame may carry. All-to-all acknowledgement is quadratic:
    beyond a few dozen members the protocol is the wrong one."""

    heartbeat_ms: float = 100.0
    """How often a machine repeats its complete status. Shorter finds the loss of a last message and a dead
    machine sooner and costs each of the n members n datagrams per period."""

    ack_after_fraction: float = 0.25
    """An acknowledgement that no member waits for is sent when this part of one member's share of the window is
    unacknowledged by this machine. Smaller keeps the window emptier; larger lets more of them travel with data."""

    ack_with_mark_ms: float = 5.0
    """How long the acknowledgement of an agreed message may wait for a mark that the layer above has announced:
    one datagram then carries both. Longer than a sync takes saves a datagram per message and member; shorter lets
    messages be ordered before they are on every member's disk."""

    nack_delay_ms: float = 1.0
    """How long a gap is taken for mere reordering before it is requested. Shorter repairs sooner; longer sends
    fewer needless requests. This is the minimum: where requests turn out to be needless it doubles, up to
    `nack_delay_ms_max`. It is spread by a random factor of 1 to 2, so that one request serves many machines."""

    nack_delay_ms_max: float = 20.0
    """The most that `nack_delay_ms` may grow to."""

    nack_retry_ms: float = 6.0
    """The least time before an unanswered request is repeated; it is not repeated before an answer could have
    come, by the measured round trip. Doubles with every repetition, up to `nack_retry_ms_max`."""

    nack_retry_ms_max: float = 100.0
    """Longest time between repetitions, to which a random part of up to half of it is added. Longer sends fewer
    requests to a dead sender; shorter repairs what is lost again and again sooner."""

    nack_ranges_max: int = 64
    """Most ranges of units requested at a time, in as many frames as needed. The rest waits until these arrive."""

    answer_delay_ms: float = 2.0
    """Machines other than the sender that hold a packet answer a repeated request after 1 to 3 times this (or half
    a round trip, if that is longer), unless they hear an answer. Longer means fewer double answers; shorter
    repairs sooner when the sender is gone."""

    answer_hold_ms: float = 3.0
    """A packet that any machine has retransmitted is not retransmitted again within this time. Must be below
    `nack_retry_ms`, or a repeated request would be ignored."""

    answers_max: int = 4_096
    """Most retransmissions waiting to be sent. Further requests are dropped; they will be repeated."""

    retransmit_bytes_per_ms: int = 65_536
    """Rate of retransmission. Higher repairs a burst sooner and is likelier to cause the next loss."""

    solicit_after_ms: float = 4.0
    """A machine whose ordered messages or window wait this long (and longer than the measured round trip) for
    a member's acknowledgement asks for it; doubles up to the heartbeat. Shorter repairs a lost acknowledgement
    sooner."""

    window_messages_max: int = 8_192
    """The network sliding window: most units, of all members together, that not every member has acknowledged."""

    window_bytes_max: int = 1_048_576
    """The same in bytes, each packet counted with `packet_overhead_bytes`. What may be in flight must fit the
    smallest receive buffer, so the driver lowers this to what the kernel granted. It also bounds what is kept of
    one sender while something before it is missing: no sender may have more in flight."""

    buffer_windows_max: int = 4
    """When packets that would fill this many windows are in the DAG and not known to be stable, no more enter it
    (and so no more are acknowledged) until some are. It bounds memory when a machine hears data from one member
    but no acknowledgements from another; less than 2 would throttle healthy members that merely learn late."""

    packet_overhead_bytes: int = 1_024
    """What a datagram costs in a kernel's receive buffer besides its bytes."""

    send_free_fraction: float = 0.5
    """Up to this fullness of the window nothing delays sending; above it the delay grows to
    `send_delay_ms_max`, then sending is blocked."""

    send_delay_ms_max: float = 2.0
    """Pause between packets of one sender when the window is all but full."""

    stuck_after_ms: float = 1_000.0
    """A blocked window that has not moved for this long is reported to membership, with the members at fault."""

    undelivered_bytes_max: int = 64 * 1_048_576
    """Most bytes of ordered messages that wait here until some member is heard, each with `packet_overhead_bytes`.
    With more, this machine sends nothing and acknowledges only what it delivers and the next message to be
    delivered, which stops the other members too. Larger bridges longer silences."""

    queue_messages_max: int = 16_384
    """Most messages accepted from the layer above and not yet sent. When full: backpressure, never a drop."""

    queue_bytes_max: int = 8 * 1_048_576
    """The same in bytes."""

    clock_jump_max: int = 2**40
    """A Lamport clock further ahead of ours than this is a peer's error. Two components that worked apart for
    years differ by less."""

    sequence_jump_max: int = 65_536
    """A sequence further ahead of what we have than this is a peer's error: no member's window is that large."""

    journal_packets: bool = False
    """Whether every packet that is sent, received or stable and every delivery is journaled, not only messages of
    the log and what is unusual. Costs a record each."""

    def __post_init__(self) -> None:
        if not 256 <= self.datagram_bytes_max <= 65_000:
            raise ValueError("datagram_bytes_max must be between 256 and 65,000")
        for name, count in (
            ("packet_units_max", self.packet_units_max),
            ("nack_ranges_max", 2 * self.nack_ranges_max),
            ("members_max", 3 * self.members_max),
        ):
            if not 1 <= count <= DECODE_ARRAY_MAX:
                raise ValueError(f"{name} needs arrays of {count}, but a peer decodes at most {DECODE_ARRAY_MAX}")
        if not 0.0 <= self.send_free_fraction < 1.0:
            raise ValueError("send_free_fraction is at least 0 and below 1")
        if self.answer_hold_ms >= self.nack_retry_ms:
            raise ValueError("answer_hold_ms must be below nack_retry_ms, or repeated requests go unheard")
        if self.window_bytes_max < self.datagram_bytes_max + self.packet_overhead_bytes:
            raise ValueError("window_bytes_max must hold at least one datagram")
        if self.message_bytes_max > self.queue_bytes_max:
            raise ValueError("queue_bytes_max must hold at least one message of message_bytes_max")

    def with_window_for(self, receive_buffer_bytes: int) -> TransportConfig:
        """Returns this configuration with a window that fits the receive buffer that the kernel granted.

        The kernel counts a datagram with its own overhead, up to about as much again, hence the half.
        """
        smallest = self.datagram_bytes_max + self.packet_overhead_bytes
        window_bytes_max = max(min(self.window_bytes_max, receive_buffer_bytes // 2), smallest)
        return replace(self, window_bytes_max=window_bytes_max)
