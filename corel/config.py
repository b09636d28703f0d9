"""Every bound of the log, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass

MAP_BYTES = 64 * 1024**3


@dataclass(frozen=True, slots=True)
class CorelConfig:
    """The bounds of one node's log. The defaults suit a LAN and a disk that syncs in milliseconds."""

    submitted_max: int = 16_384
    """Messages accepted and not yet sent, because a recovery is under way or the window is full. More are
    refused."""

    submitted_bytes_max: int = 64 * 1_048_576
    """The same in bytes."""

    body_bytes_max: int = 1_113_088
    """The largest body of a message: it must fit into a message of the transport together with what a
    retransmission adds."""

    outstanding_max: int = 4_096
    """Own messages handed to the transport that have not left. More wait in the outbox."""

    outstanding_bytes_max: int = 2 * 1_048_576
    """The same in bytes; one message is always allowed. With the retransmissions under way it must stay below what
    the transport's queue holds."""

    unlogged_max: int = 4_096
    """Own messages in flight until every member has logged them. Members with slower disks hold up to this many of
    each sender in memory, and list up to this many ids of each sender in a state message."""

    unlogged_bytes_max: int = 32 * 1_048_576
    """The same in bytes; one message is always allowed."""

    batch_bytes_max: int = 131_072
    """The largest batch of a retransmission. Larger batches take fewer messages; smaller ones let other messages
    pass in between."""

    batches_ahead_max: int = 8
    """Batches of a retransmission that were sent and that not every member has logged. More use the network
    better; each takes memory at every member."""

    recovery_messages_max: int = 10_000
    """Green messages that a node may lack and still join the others' view, all of whose members wait until it has
    them. One that lacks more takes them over outside the view first. More make a node that was away for a moment
    come back sooner; fewer make a shorter gap in everybody's green writes. It has to be more than becomes green
    while a node starts and joins, about a second, or one that has taken them over is behind again at once."""

    recovery_bytes_max: int = 32 * 1_048_576
    """The same in bytes, by the average size of the messages in the log."""

    messages_kept: int = 1_000_000
    """Green messages that the log keeps after they are applied, and for how many messages the fate of a write can
    be asked for. A node that lacks more than that comes back by a copy of the state; `/v1/log`, `corelkv export`
    and the audit see no further back. More take more disk."""

    bytes_kept: int = 4 * 1024**3
    """The same in bytes, by the average size of a message. At least twice `recovery_messages_max` messages are
    kept all the same."""

    bodies_bytes_max: int = 64 * 1_048_576
    """Bodies of messages kept in memory. Older ones are read from disk when they are needed."""

    open_scan_max: int = 1_024
    """With more messages than this that are not green, the log does not look for the oldest of them with every
    write; a restart then reads more of it than it has to."""

    solicit_after_ms: float = 20.0
    """How long a message may wait for acknowledgements before the members are asked for them: they may have been
    lost. Each further wait is twice as long, up to the transport's heartbeat."""

    green_flush_ms: float = 50.0
    """How long the green line on disk may lag behind if there is nothing else to write. A shorter time leaves less
    to agree on again after a restart; a longer one spares the disk."""

    write_gather_ms: float = 2.0
    """How long a write may wait for messages of the members that had some in the last write. Where members send at
    different paces, a longer wait makes fewer writes, each of which is reported to every member; a shorter one
    logs sooner. 0 does not wait."""

    sync_stall_ms: float = 2_000.0
    """A disk on which a write takes longer is stalled: this node leaves the view, whose members wait for it with
    every message, and comes back when its disk works."""

    map_bytes: int = MAP_BYTES
    """The most that a node's log and state can grow to on disk. It is address space, not disk space: the file
    takes only as much as is in it. A larger value costs nothing but address space, which `ulimit -v` may bound;
    with a smaller one the log ends before it fills a file system that others use too. When it is reached, the node
    takes no more writes until it is restarted with a larger one. All nodes hold the same log, so give all of them
    the same value."""

    debug_invariants: bool = False
    """Whether to check the invariants of section 3.4 after every step, which costs a pass over everything that is
    not green whenever that has changed."""

    def __post_init__(self) -> None:
        if self.batches_ahead_max < 1:
            raise ValueError("batches_ahead_max must be at least 1, or nothing would ever be retransmitted")
        if min(self.outstanding_max, self.unlogged_max) < 1:
            raise ValueError("outstanding_max and unlogged_max must be at least 1, or nothing would ever be sent")
        if self.messages_kept < 2 * self.recovery_messages_max:
            raise ValueError(
                f"messages_kept is {self.messages_kept:,}, and must be at least twice recovery_messages_max, "
                f"{2 * self.recovery_messages_max:,}, or a node in reach could not be served"
            )
        if self.map_bytes < 2 * self.body_bytes_max:
            raise ValueError(
                f"map_bytes is {self.map_bytes:,}, and must be at least twice body_bytes_max, "
                f"{2 * self.body_bytes_max:,}, or a log with one message would be full"
            )
