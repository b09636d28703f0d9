"""The state on disk (`kvstore.node.lmdb_tree`), as a few dicts in memory."""

from __future__ import annotations

from collections.abc import Iterator

from corel.messages import MessageId
from kvstore.store.green_state import Checkpoint, Fate, bounded
from kvstore.store.history import Change, Compacted, ConflictPlace, FoundConflict, Span
from kvstore.store.order_run import EMPTY_ORDER
from kvstore.store.state import Item, Remembered, Tombstone


class MemoryTree:
    """The result of all checkpoints applied so far, which are durable at once."""

    def __init__(self) -> None:
        self.line = self.revision = 0
        self.run = EMPTY_ORDER
        self.items: dict[str, Item] = {}
        self.fates: dict[MessageId, Fate] = {}
        self.memories: dict[str, Remembered] = {}
        self.tombstones: dict[str, Tombstone] = {}
        self.past = MemoryPast(self.items)

    def copy(self) -> MemoryTree:
        """Returns what a node hands to another that is too far behind: the state, and nothing of its past."""
        other = MemoryTree()
        other.line, other.revision, other.run = self.line, self.revision, self.run
        other.items.update(self.items)
        other.fates.update(self.fates)
        other.memories.update(self.memories)
        other.tombstones.update(self.tombstones)
        other.past.begin_at(self.revision)
        return other

    def apply(self, checkpoint: Checkpoint) -> None:
        self.past.add(checkpoint)
        for key, item in checkpoint.items.items():
            if item is None:
                self.items.pop(key, None)
            else:
                self.items[key] = item
        self.fates.update(checkpoint.fates)
        self.memories.update(checkpoint.memories)
        self.tombstones.update(checkpoint.tombstones)
        self.line, self.revision, self.run = checkpoint.line, checkpoint.revision, checkpoint.run

    def item(self, key: str) -> Item | None:
        return self.items.get(key)

    def fate(self, message_id: MessageId) -> Fate | None:
        return self.fates.get(message_id)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        return self.memories.get(idempotency_key)

    def tombstone(self, key: str) -> Tombstone | None:
        return self.tombstones.get(key)


class MemoryPast:
    """The past of a tree (`kvstore.node.lmdb_history`)."""

    def __init__(self, items: dict[str, Item]) -> None:
        self._items = items
        """What the tree holds now."""
        self._kept: list[tuple[Change, dict[str, Item | None]]] = []
        """The changes that are kept, each with what its keys held before."""
        self._forgotten = 0
        self._conflicts: list[FoundConflict] = []

    def begin_at(self, revision: int) -> None:
        """Has the past of an empty tree begin at this revision."""
        self._forgotten = revision

    def add(self, checkpoint: Checkpoint) -> None:
        """Adds the changes of a checkpoint, before they are made."""
        before = dict[str, Item | None](self._items)
        for change in checkpoint.changes:
            self._kept.append((change, {key: before.get(key) for key, _ in change.items}))
            before.update(change.items)
        while self._kept and self._kept[0][0].revision <= checkpoint.forget_through:
            self._forgotten = self._kept.pop(0)[0].revision
        self._conflicts += checkpoint.conflicts

    def oldest(self) -> int:
        return self._forgotten

    def item_at(self, key: str, revision: int) -> Item | None:
        self._check(revision)
        for change, before in self._kept:
            if change.revision > revision and key in before:
                return before[key]
        return self._items.get(key)

    def changes(self, first: int, count: int, bytes_max: int) -> list[Change]:
        self._check(first - 1)
        return bounded([change for change, _ in self._kept if change.revision >= first][:count], bytes_max)

    def walk(self, span: Span, revision: int, is_reverse: bool) -> Iterator[tuple[str, Item | None]]:
        self._check(revision)
        keys = {*self._items, *(key for _, before in self._kept for key in before)}
        for key in sorted(filter(lambda one: span.has(one.encode()), keys), reverse=is_reverse):
            yield key, self.item_at(key, revision)

    def versions(self, key: str, before: int, count: int) -> list[tuple[int, str, Item | None]]:
        found = [
            (change.revision, change.write_id, dict(change.items)[key])
            for change, _ in reversed(self._kept)
            if change.revision < before and key in dict(change.items)
        ]
        return found[:count]

    def conflicts(self, after: ConflictPlace, count: int) -> list[FoundConflict]:
        start = max(after, ConflictPlace(self._forgotten + 1, -1, 0, 0))
        return [found for found in self._conflicts if found.place > start][:count]

    def _check(self, revision: int) -> None:
        if revision < self.oldest():
            raise Compacted(self.oldest())
