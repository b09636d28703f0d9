"""The state on disk (`kvstore.node.lmdb_tree`), as a few dicts in memory."""

from __future__ import annotations

from corel.messages import MessageId
from kvstore.store.green_state import Checkpoint, Fate
from kvstore.store.state import Item, Remembered


class MemoryTree:
    """The result of all checkpoints applied so far, which are durable at once."""

    def __init__(self) -> None:
        self.line = self.revision = 0
        self.items: dict[str, Item] = {}
        self.fates: dict[MessageId, Fate] = {}
        self.memories: dict[str, Remembered] = {}

    def apply(self, checkpoint: Checkpoint) -> None:
        for key, item in checkpoint.items.items():
            if item is None:
                self.items.pop(key, None)
            else:
                self.items[key] = item
        self.fates.update(checkpoint.fates)
        self.memories.update(checkpoint.memories)
        self.line, self.revision = checkpoint.line, checkpoint.revision

    def item(self, key: str) -> Item | None:
        return self.items.get(key)

    def fate(self, message_id: MessageId) -> Fate | None:
        return self.fates.get(message_id)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        return self.memories.get(idempotency_key)
