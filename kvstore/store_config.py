"""Every bound of the store, with what it trades off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Defaults suit a node that shares a machine with others."""

    held_max: int = 8_192
    """Writes waiting to leave. More are refused: an answer now is better than one after everybody's patience."""

    held_bytes_max: int = 64 * 1_048_576
    """The same in bytes."""

    batch_bytes_max: int = 262_144
    """Most bytes of writes in one message; a larger write travels alone."""

    batch_writes_max: int = 2_048
    """Most writes in one message."""

    messages_ahead_max: int = 1
    """Own messages under way to this node's disk. More of them are smaller; one makes batches as large as they
    get."""

    gather_ms: float = 4.0
    """How long writes wait for those of clients that were just answered, to travel in one message with them.
    Longer makes fewer messages, each of which costs every node the same; a client by itself never waits. 0 does
    without."""

    round_ms: float = 25.0
    """How long writes wait for this node's last message to be green, in a primary component. Longer makes fewer
    messages where nodes are busy; shorter helps writes over a slow network. 0 does not wait."""

    apply_writes_max: int = 1_024
    """Writes applied before the network gets its turn."""

    red_writes_max: int = 16_384
    """Writes that one look at the red state may have to apply. A look that needs more is told to try again."""

    waiters_max: int = 16_384
    """Readers and others who wait for a revision, a write or a linearizable read. More are refused."""

    checkpoint_ms: float = 1_000.0
    """How long a change may wait to reach the tree on disk. A start replays what has not."""

    checkpoints_max: int = 64
    """Checkpoints that wait for the disk, of some thousand writes or 4 MiB each. With so many, no more is applied
    before the disk has caught up: a merge of millions would else take as much memory as it changes. Fewer spare
    memory; more let a large merge be seen sooner."""

    def __post_init__(self) -> None:
        if self.checkpoints_max < 2:
            raise ValueError("checkpoints_max must be at least 2: one grows while another is written")
