"""Every bound of the transport, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass

from transport.codec import DECODE_ARRAY_MAX


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """Defaults suit a LAN; the driver adapts the size of datagrams and of the window to where it runs."""

    datagram_bytes_max: int = 1_400
    """Largest datagram sent. Above the path's MTU the kernel fragments, and one lost fragment loses all; on
    loopback, where nothing is fragmented, larger datagrams save system calls."""

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
    """An acknowledgement nobody waits for is sent when this part of one member's share of the window is
    unacknowledged by me. Smaller keeps the window emptier; larger leaves more to ride on data."""

    ack_with_mark_ms: float = 5.0
    """How long the acknowledgement of an agreed message may wait for a mark that the layer above has announced:
    one datagram then says both. Longer than a sync takes saves a datagram per message and member; shorter lets
    messages be ordered before they are on everybody's disk."""

    nack_delay_ms: float = 1.0
    """How long a gap may be mere reordering before it is asked for. Shorter repairs sooner; longer sends
    fewer needless requests. It is the least: where requests turn out needless it doubles, up to
    `nack_delay_ms_max`. Spread by a random factor of 1 to 2, so that one request serves many."""

    nack_delay_ms_max: float = 20.0
    """Most that reordering may delay a request."""

    nack_retry_ms: float = 6.0
    """First repetition of an unanswered request, at the least; it is not repeated before an answer could have
    come, by the measured round trip. Doubles up to `nack_retry_ms_max`."""

    nack_retry_ms_max: float = 100.0
    """Longest time between repetitions, but for a random half of it: bounds both the storm at a dead sender and
    the repair of bad luck."""

    nack_ranges_max: int = 64
    """Most runs asked for at a time, in as many frames as that takes. The rest waits until these arrive."""

    answer_delay_ms: float = 2.0
    """Holders other than the sender answer a repeated request after 1 to 3 times this (or half a round trip,
    if that is longer), unless they hear an answer. Longer means fewer double answers; shorter repairs sooner
    when the sender is gone."""

    answer_hold_ms: float = 3.0
    """A packet retransmitted (by anyone) is not retransmitted again within this time. Must be below
    `nack_retry_ms`, or a repeated request would be ignored."""

    answers_max: int = 4_096
    """Most retransmissions waiting to be sent. Further requests are dropped; they will be repeated."""

    retransmit_bytes_per_ms: int = 65_536
    """Rate of retransmission. Higher repairs a burst sooner and is likelier to cause the next loss."""

    solicit_after_ms: float = 4.0
    """A machine whose ordered messages or window wait this long (and longer than the measured round trip) for
    somebody's acknowledgement asks for it; doubles up to the heartbeat. Shorter repairs a lost acknowledgement
    sooner."""

    window_messages_max: int = 8_192
    """The network sliding window: most units not yet acknowledged by everyone, from everyone."""

    window_bytes_max: int = 1_048_576
    """The same in bytes, each packet counted with `packet_overhead_bytes`. What may be in flight must fit the
    smallest receive buffer, so the driver lowers this to what the kernel granted. It also bounds what is kept of
    one sender while something before it is missing: no sender may have more in flight."""

    buffer_windows_max: int = 4
    """When this many windows are here and not known to be stable, no more is taken into the DAG (and so
    nothing more acknowledged) until some are. It bounds memory when a machine hears data from one member but
    no acknowledgements from another; less than 2 would throttle healthy members that merely learn late."""

    packet_overhead_bytes: int = 1_024
    """What a datagram costs in a kernel's receive buffer besides its bytes."""

    send_free_fraction: float = 0.5
    """Up to this fullness of the window nothing delays sending; above it the delay grows to
    `send_delay_ms_max`, then sending is blocked."""

    send_delay_ms_max: float = 2.0
    """Pause between packets of one sender when the window is all but full."""

    stuck_after_ms: float = 1_000.0
    """A blocked window that has not moved for this long is reported to membership, naming who holds it."""

    undelivered_bytes_max: int = 64 * 1_048_576
    """Ordered messages here that wait for some member to be heard, each with `packet_overhead_bytes`. When
    there are more, nobody sends, and we take in only what they wait for. Larger rides out longer silences."""

    queue_messages_max: int = 16_384
    """Messages accepted from above and not yet sent. Full means backpressure, never a drop."""

    queue_bytes_max: int = 8 * 1_048_576
    """The same in bytes."""

    clock_jump_max: int = 2**40
    """A Lamport clock further ahead of ours than this is a peer's error. Two components that worked apart for
    years differ by less."""

    sequence_jump_max: int = 65_536
    """A sequence further ahead of what we have than this is a peer's error: no member's window is that large."""

    journal_messages: bool = False
    """Journal every packet sent, received, stable and every delivery, not only what is out of the ordinary.
    Costs a line of JSON each."""

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
