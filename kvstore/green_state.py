"""The green state: what the agreed prefix of the log comes to.

Writes apply to memory at once. A few times a second what they changed goes to the tree on disk, in `Checkpoint`s:
each is what the messages up to a line changed, in one transaction with that line, so the tree is always the state
at its line, and a start goes on from there with the log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from corel.messages import MessageId
from kvstore.operations import Write
from kvstore.state import Applied, Item, Outcome, Remembered, apply
from kvstore.write_codec import decode_batch, decode_write

CHECKPOINT_ITEMS_MAX = 2_048
CHECKPOINT_BYTES_MAX = 4 * 1_048_576
"""One checkpoint takes so much at the most, and a message: while it is written, no message is logged."""


class Fate(NamedTuple):
    """What became of the writes of one green message."""

    position: int
    outcomes: tuple[Outcome, ...]


@dataclass(slots=True)
class Checkpoint:
    """What the messages before `line` changed since the checkpoint before."""

    line: int
    revision: int
    items: dict[str, Item | None] = field(default_factory=dict)
    fates: dict[MessageId, Fate] = field(default_factory=dict)
    memories: dict[str, Remembered] = field(default_factory=dict)
    outcomes: int = 0
    """In all fates together."""
    bytes_about: int = 0

    @property
    def is_full(self) -> bool:
        size = len(self.items) + self.outcomes + len(self.memories)
        return size >= CHECKPOINT_ITEMS_MAX or self.bytes_about >= CHECKPOINT_BYTES_MAX


class Tree(Protocol):
    """The state on disk."""

    line: int
    revision: int

    def item(self, key: str) -> Item | None: ...

    def fate(self, message_id: MessageId) -> Fate | None: ...

    def remembered(self, idempotency_key: str) -> Remembered | None: ...


class GreenState:
    """`line` is how many messages of the log it has seen, `revision` how many writes changed it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.line = tree.line
        self.revision = tree.revision
        self._checkpoints: deque[Checkpoint] = deque()
        """What is not in the tree, oldest first. The last is still growing, or full."""
        self._items: dict[str, tuple[Item | None, Checkpoint]] = {}
        """All that they hold, and which one holds the last of each."""
        self._taken: Checkpoint | None = None
        """On its way to the tree."""

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
        """The next message of the log: what each of its writes did."""
        batch = [(data, decode_write(data)) for data in decode_batch(body)]
        checkpoint = self._growing()
        applied: list[Applied] = []
        name = str(message_id)
        for index, (data, write) in enumerate(batch):
            done = apply(self, write, data, write_id(name, index), self.line, self.revision + 1)
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
            checkpoint.bytes_about += 0 if item is None else len(item.value)
        if done.remembered is not None and write.idempotency_key is not None:
            checkpoint.memories[write.idempotency_key] = done.remembered

    def _growing(self) -> Checkpoint:
        if not self._checkpoints or self._checkpoints[-1].is_full or self._checkpoints[-1] is self._taken:
            self._checkpoints.append(Checkpoint(self.line, self.revision))
        return self._checkpoints[-1]

    # Checkpoints

    @property
    def unwritten(self) -> int:
        """Checkpoints that are not in the tree."""
        return len(self._checkpoints)

    def take_checkpoint(self, line_max: int, only_full: bool) -> Checkpoint | None:
        """The next for the tree, if none is on its way: one that no message beyond this line had a part in. The
        order of those before is on disk with it, so that the log can go on from its line."""
        if self._taken is not None or not self._checkpoints:
            return None
        checkpoint = self._checkpoints[0]
        if checkpoint.line > line_max or (only_full and not checkpoint.is_full):
            return None
        self._taken = checkpoint
        return checkpoint

    def written(self, checkpoint: Checkpoint) -> None:
        """It is in the tree."""
        if self._checkpoints and self._checkpoints[0] is checkpoint:
            self._checkpoints.popleft()
            for key in checkpoint.items:
                if self._items[key][1] is checkpoint:
                    del self._items[key]
        self._taken = None


def write_id(message: MessageId | str, index: int) -> str:
    """Of a write in this message, or in the one of this name: who needs many makes that once."""
    return f"{message}.{index}"
