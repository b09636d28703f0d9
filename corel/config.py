"""Every bound of the log, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CorelConfig:
    """Defaults suit a LAN and a disk that syncs in milliseconds."""

    submitted_max: int = 16_384
    """Messages accepted and not yet sent, because a recovery is under way or the window is full. More are
    refused."""

    submitted_bytes_max: int = 64 * 1_048_576
    """The same in bytes."""

    body_bytes_max: int = 1_113_088
    """Largest body of a message: it must fit a message of the transport together with what a retransmission
    adds."""

    outstanding_max: int = 4_096
    """Own messages handed to the transport that have not left. More wait here."""

    outstanding_bytes_max: int = 2 * 1_048_576
    """The same in bytes; one message is always allowed. With the retransmissions under way it must stay below what
    the transport's queue holds."""

    unlogged_max: int = 4_096
    """Own messages under way until every member has logged them. Members with slower disks hold so many of each
    sender's in memory, and say so many ids in a state message."""

    unlogged_bytes_max: int = 32 * 1_048_576
    """The same in bytes; one message is always allowed."""

    batch_bytes_max: int = 131_072
    """Largest part of a retransmission. Larger ones cost fewer messages; smaller ones let others' messages
    pass."""

    batches_ahead_max: int = 8
    """Parts of a retransmission sent and not yet logged by everybody. More use the network better; each takes
    memory at every member."""

    bodies_bytes_max: int = 64 * 1_048_576
    """Bodies of messages kept in memory. What is older is read from disk when somebody needs it."""

    open_scan_max: int = 1_024
    """With more messages than this that are not green, the log does not look for the oldest of them with every
    write; a restart then reads more of it than it has to."""

    solicit_after_ms: float = 20.0
    """How long a message may wait for members' acknowledgements before they are asked for them: they may have been
    lost. Doubles with every time, up to the transport's heartbeat."""

    green_flush_ms: float = 50.0
    """How long the green line on disk may lie behind, if there is nothing else to write. Shorter restarts with
    less to agree on again; longer spares the disk."""

    company_ms: float = 2.0
    """How long a write may wait for messages of members that had some in the last one. Longer makes fewer writes,
    of which everybody is told, where members send at different paces; shorter logs sooner. 0 does not wait."""

    sync_stall_ms: float = 2_000.0
    """A write to disk that takes longer is a stalled disk: this node leaves the others, who wait for it with every
    message, and comes back when its disk works."""

    debug_invariants: bool = False
    """Check the invariants of section 3.4 after every step. Costs a look at everything that is not green."""

    def __post_init__(self) -> None:
        if self.batches_ahead_max < 1:
            raise ValueError("batches_ahead_max must be at least 1, or nothing would ever be retransmitted")
        if min(self.outstanding_max, self.unlogged_max) < 1:
            raise ValueError("outstanding_max and unlogged_max must be at least 1, or nothing would ever be sent")
