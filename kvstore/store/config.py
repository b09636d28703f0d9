"""Every bound of the store, with its trade-off."""

from __future__ import annotations

from dataclasses import dataclass

from kvstore.store.history import HISTORY_BYTES, HISTORY_REVISIONS


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """The bounds of one store. The defaults suit a node that shares its machine with others."""

    held_max: int = 8_192
    """Most writes that wait to be sent. Further ones are refused: an error now is better than an answer after the
    client's timeout."""

    held_bytes_max: int = 64 * 1_048_576
    """The same bound in bytes."""

    batch_bytes_max: int = 262_144
    """Most bytes of writes in one message; a larger write gets a message of its own."""

    batch_writes_max: int = 2_048
    """Most writes in one message."""

    messages_ahead_max: int = 1
    """Most messages that this node has sent and that are not yet on its own disk. More messages in flight are
    smaller; a single one makes batches as large as they can be."""

    gather_ms: float = 4.0
    """How long writes wait for the next writes of clients that were just answered, to share a message with them.
    Longer makes fewer messages, each of which costs every node the same; a single client never waits. 0 turns the
    wait off."""

    round_ms: float = 25.0
    """How long writes wait, in a primary component, for this node's last message to become green. Longer makes
    fewer messages where nodes are busy; shorter helps writes over a slow network. 0 turns the wait off."""

    apply_writes_max: int = 1_024
    """Most green writes applied in a row before the network gets its turn. More apply a large merge sooner; fewer
    keep the node responsive meanwhile."""

    red_writes_max: int = 16_384
    """Most writes that one read of the red state may have to apply. A read that needs more is refused, and the
    next one continues from there."""

    waiters_max: int = 16_384
    """Most requests that wait for a revision, a write or a linearizable read. Further ones are refused."""

    checkpoint_ms: float = 1_000.0
    """How long a change may wait before it is written to the tree on disk. Longer makes fewer, larger checkpoints;
    a start has to replay from the log what did not reach the tree."""

    checkpoints_max: int = 64
    """Most checkpoints that wait for the disk, of about a thousand writes or 4 MiB each. Once there are so many,
    nothing more is applied until the disk has caught up: otherwise a merge of millions of writes would take as
    much memory as it changes. Fewer save memory; more make a large merge visible sooner."""

    history_revisions: int = HISTORY_REVISIONS
    """For how many revisions the past is kept: what keys held then, and what changed (history, lists of an earlier
    revision, feeds that resume, conflicts). More take disk space, about the size of what was overwritten; older
    ones are forgotten a few at a time, with each checkpoint. 0 keeps none."""

    history_bytes: int = HISTORY_BYTES
    """The same bound in bytes, for large values: whichever is reached first."""

    def __post_init__(self) -> None:
        if self.checkpoints_max < 2:
            raise ValueError("checkpoints_max must be at least 2: one grows while another is written")
