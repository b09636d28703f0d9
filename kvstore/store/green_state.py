"""The green state: the result of the agreed prefix of the log.

Writes are applied to memory at once. What they changed is written to the tree on disk later, in `Checkpoint`s:
each holds what the messages up to a line changed, and is written in one transaction with that line. So the tree is
always the state at its line, and a start continues from there with the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from corel import MessageId
from kvstore.store.operations import Write
from kvstore.store.state import Applied, Item, Outcome, Remembered, apply
from kvstore.store.write_codec import decode_batch, decode_write

CHECKPOINT_ITEMS_MAX = 2_048
CHECKPOINT_BYTES_MAX = 4 * 1_048_576
"""The size at which a checkpoint is full; the message that fills it may exceed the bound. It is bounded because no
message is logged while a checkpoint is being written."""


class Fate(NamedTuple):
    """What became of the writes of one green message."""

    position: int
    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class Checkpoint:
    """What the messages before `line` changed since the previous checkpoint."""

    line: int
    revision: int
    items: dict[str, Item | None] = field(default_factory=dict)
    fates: dict[MessageId, Fate] = field(default_factory=dict)
    memories: dict[str, Remembered] = field(default_factory=dict)
    outcomes: int = 0
    """How many outcomes all `fates` together have."""
    bytes_estimate: int = 0
    """The approximate size of the items."""

    @property
    def is_full(self) -> bool:
        size = len(self.items) + self.outcomes + len(self.memories)
        return size >= CHECKPOINT_ITEMS_MAX or self.bytes_estimate >= CHECKPOINT_BYTES_MAX


class Tree(Protocol):
    """The green state on disk, after the first `line` messages of the log."""

    line: int
    revision: int

    def item(self, key: str) -> Item | None: ...

    def fate(self, message_id: MessageId) -> Fate | None: ...

    def remembered(self, idempotency_key: str) -> Remembered | None: ...


class GreenState:
    """The state after the first `line` messages of the log; `revision` counts the writes that changed it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.line = tree.line
        self.revision = tree.revision
        self._checkpoints: deque[Checkpoint] = deque()
        """The changes that are not in the tree yet, oldest first. Only the last checkpoint may still grow."""
        self._items: dict[str, tuple[Item | None, Checkpoint]] = {}
        """The last change of each key in `_checkpoints`, with the checkpoint that it is in."""
        self._taken: Checkpoint | None = None
        """The checkpoint that is being written to the tree."""

    # Reading

    def item(self, key: str) -> Item | None:
        known = self._items.get(key)
        return known[0] if known is not None else self._tree.item(key)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        for checkpoint in reversed(self._checkpoints):
            if idempotency_key in checkpoint.memories:
                return checkpoint.memories[idempotency_key]
        return self._tree.remembered(idempotency_key)

    def fate(self, message_id: MessageId) -> Fate | None:
        for checkpoint in reversed(self._checkpoints):
            if message_id in checkpoint.fates:
                return checkpoint.fates[message_id]
        return self._tree.fate(message_id)

    # Writing

    def apply(self, message_id: MessageId, body: bytes) -> list[Applied]:
        """Applies the next message of the log, and returns what each of its writes did."""
        encoded, expires = decode_batch(body)
        batch = [(data, decode_write(data)) for data in encoded]
        checkpoint = self._growing()
        applied: list[Applied] = []
        name = str(message_id)
        for index, (data, write) in enumerate(batch):
            done = apply(self, write, data, write_id(name, index), self.line, self.revision + 1, expires)
            applied.append(done)
            self._absorb(write, done, checkpoint)
        checkpoint.fates[message_id] = Fate(self.line, tuple([one.outcome for one in applied]))
        checkpoint.outcomes += len(applied)
        self.line += 1
        checkpoint.line, checkpoint.revision = self.line, self.revision
        return applied

    def _absorb(self, write: Write, done: Applied, checkpoint: Checkpoint) -> None:
        if done.changes:
            self.revision += 1
        for key, item in done.changes.items():
            self._items[key] = (item, checkpoint)
            checkpoint.items[key] = item
            checkpoint.bytes_estimate += 0 if item is None else len(item.value)
        if done.remembered is not None and write.idempotency_key is not None:
            checkpoint.memories[write.idempotency_key] = done.remembered

    def _growing(self) -> Checkpoint:
        if not self._checkpoints or self._checkpoints[-1].is_full or self._checkpoints[-1] is self._taken:
            self._checkpoints.append(Checkpoint(self.line, self.revision))
        return self._checkpoints[-1]

    # Checkpoints

    @property
    def unwritten(self) -> int:
        """How many checkpoints are not in the tree yet."""
        return len(self._checkpoints)

    def take_checkpoint(self, line_max: int, only_full: bool) -> Checkpoint | None:
        """Returns the next checkpoint for the tree, unless one is being written already. It has no changes of
        messages beyond `line_max`: the order up to there is on disk, or is written with the checkpoint, so that
        the log can continue from the checkpoint's line. With `only_full`, it is returned only if it is full."""
        if self._taken is not None or not self._checkpoints:
            return None
        checkpoint = self._checkpoints[0]
        if checkpoint.line > line_max or (only_full and not checkpoint.is_full):
            return None
        self._taken = checkpoint
        return checkpoint

    def written(self, checkpoint: Checkpoint) -> None:
        """Drops a checkpoint from memory, because it is in the tree."""
        if self._checkpoints and self._checkpoints[0] is checkpoint:
            self._checkpoints.popleft()
            for key in checkpoint.items:
                if self._items[key][1] is checkpoint:
                    del self._items[key]
        self._taken = None


def write_id(message: MessageId | str, index: int) -> str:
    """Returns the id of the write at this place in a message. The message may be given as a string, so that a
    caller that needs many ids formats it once."""
    return f"{message}.{index}"
