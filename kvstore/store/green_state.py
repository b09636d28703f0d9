"""The green state: the result of the agreed prefix of the log.

Writes are applied to memory at once. What they changed is written to the tree on disk later, in `Checkpoint`s:
each holds what the messages up to a line changed, and is written in one transaction with that line. So the tree is
always the state at its line, and a start continues from there with the log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from corel import MessageId
from kvstore.store.history import (
    HISTORY_BYTES,
    HISTORY_PINNED_FACTOR,
    HISTORY_REVISIONS,
    Change,
    ConflictPlace,
    FoundConflict,
    Past,
    Snapshot,
)
from kvstore.store.operations import Write
from kvstore.store.order_run import EMPTY_ORDER, Run
from kvstore.store.state import (
    Applied,
    ConflictKind,
    Item,
    LastChange,
    Outcome,
    Remembered,
    Tombstone,
    apply,
)
from kvstore.store.write_codec import Batch, decode_batch, decode_write
from transport import ViewId

CHECKPOINT_ITEMS_MAX = 2_048
CHECKPOINT_BYTES_MAX = 4 * 1_048_576
"""The size at which a checkpoint is full; the message that fills it may exceed the bound. It is bounded because no
message is logged while a checkpoint is being written."""


class Fate(NamedTuple):
    """What became of the writes of one green message."""

    position: int
    outcomes: tuple[Outcome, ...]


class FateForgotten(Exception):
    """The message is green, and what became of its writes is no longer kept."""


@dataclass(slots=True)
class Checkpoint:
    """What the messages before `line` changed since the previous checkpoint."""

    line: int
    revision: int
    items: dict[str, Item | None] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    """Every change of `items`, in order."""
    fates: dict[MessageId, Fate] = field(default_factory=dict)
    memories: dict[str, Remembered] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    """The deletions among `changes`."""
    conflicts: list[FoundConflict] = field(default_factory=list)
    outcomes: int = 0
    """How many outcomes all `fates` together have."""
    bytes_estimate: int = 0
    """The approximate size of the changes."""
    forget_through: int = 0
    """The revision up to which the past may be forgotten."""
    history_bytes_max: int = HISTORY_BYTES
    """How large the past on disk may be; the oldest revisions beyond that are forgotten too."""
    run: Run = EMPTY_ORDER
    """The last messages before `line`, as far as they were sent in one view."""

    @property
    def is_full(self) -> bool:
        size = len(self.items) + self.outcomes + len(self.memories)
        return size >= CHECKPOINT_ITEMS_MAX or self.bytes_estimate >= CHECKPOINT_BYTES_MAX


class Tree(Protocol):
    """The green state on disk, after the first `line` messages of the log, and its past."""

    @property
    def past(self) -> Past: ...

    line: int
    revision: int
    run: Run
    """The last of those messages, as far as they were sent in one view."""

    def item(self, key: str) -> Item | None: ...

    def fate(self, message_id: MessageId) -> Fate | None: ...

    def remembered(self, idempotency_key: str) -> Remembered | None: ...

    def tombstone(self, key: str) -> Tombstone | None:
        """The last deletion of the key, unless it is long past."""


class GreenState:
    """The state after the first `line` messages of the log; `revision` counts the writes that changed it."""

    def __init__(
        self, tree: Tree, history_revisions: int = HISTORY_REVISIONS, history_bytes: int = HISTORY_BYTES
    ) -> None:
        self._tree = tree
        self._history_revisions = history_revisions
        self._history_bytes = history_bytes
        self._pins: Counter[int] = Counter()
        """The revisions whose snapshots are being read, and how often."""
        self.line = tree.line
        self.revision = tree.revision
        self.run = tree.run
        """The last messages before `line`, as far as they were sent in one view."""
        self._checkpoints: deque[Checkpoint] = deque()
        """The changes that are not in the tree yet, oldest first. Only the last checkpoint may still grow."""
        self._items: dict[str, tuple[Item | None, Checkpoint]] = {}
        """The last change of each key in `_checkpoints`, with the checkpoint that it is in."""
        self._taken: Checkpoint | None = None
        """The checkpoint that is being written to the tree."""
        self.conflict_counts: Counter[ConflictKind] = Counter()

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

    def last_change(self, key: str, position: int) -> LastChange | None:
        item = self.item(key)
        if item is not None:
            return LastChange(item.write_id, item.revision)
        known = self._items.get(key)
        deleted = self._tree.tombstone(key) if known is None else known[1].tombstones[key]
        return None if deleted is None else deleted.seen_from(position)

    # The past

    def snapshot(self, revision: int | None = None) -> Snapshot:
        """Returns the state at this revision, or as it is now. A revision that is not reached yet is as now."""
        if revision is None or revision >= self.revision:
            return Snapshot(self._tree.past, self.revision, {key: known[0] for key, known in self._items.items()})
        overlay: dict[str, Item | None] = {}
        for checkpoint in self._checkpoints:
            for change in checkpoint.changes:
                if change.revision <= revision:
                    overlay.update(change.items)
        return Snapshot(self._tree.past, revision, overlay)

    def item_at(self, key: str, revision: int) -> Item | None:
        """Returns what the key held at this revision, or holds now if that is not reached. Raises `Compacted`."""
        if key not in self._items:
            return self._tree.past.item_at(key, revision)
        for checkpoint in reversed(self._checkpoints):
            if key in checkpoint.items:
                reached = max(0, revision + 1 - checkpoint.changes[0].revision)
                for change in reversed(checkpoint.changes[:reached]):
                    for changed, item in change.items:
                        if changed == key:
                            return item
        return self._tree.past.item_at(key, revision)

    @contextmanager
    def pinned(self, revision: int) -> Iterator[None]:
        """Keeps the past from this revision on while its snapshot is being read, up to a bound."""
        self._pins[revision] += 1
        try:
            yield
        finally:
            self._pins[revision] -= 1
            if not self._pins[revision]:
                del self._pins[revision]

    def changes(self, first: int, count: int, bytes_max: int) -> list[Change]:
        """Returns the changes from this revision on: at least one if it is reached, at most `count`, and no more
        once they have `bytes_max`. Raises `Compacted`."""
        for checkpoint in self._checkpoints:
            if not checkpoint.changes or checkpoint.changes[-1].revision < first:
                continue
            skipped = first - checkpoint.changes[0].revision
            if skipped < 0:
                break  # it is in the tree
            return bounded(checkpoint.changes[skipped : skipped + count], bytes_max)
        return self._tree.past.changes(first, count, bytes_max) if first <= self.revision else []

    def versions(self, key: str, before: int, count: int) -> list[tuple[int, str, Item | None]]:
        """Returns the changes of a key before this revision, newest first, as far as they are kept."""
        forgotten = self.oldest()
        found: list[tuple[int, str, Item | None]] = []
        for checkpoint in reversed(self._checkpoints):
            if key in checkpoint.items:
                found += [
                    (change.revision, change.write_id, dict(change.items)[key])
                    for change in reversed(checkpoint.changes)
                    if forgotten < change.revision < before and key in dict(change.items)
                ]
        in_memory_from = found[-1][0] if found else before
        return [*found, *self._tree.past.versions(key, in_memory_from, count)][:count]

    def oldest(self) -> int:
        """Returns the oldest revision of which the whole state can be read."""
        return self._tree.past.oldest()

    def conflicts(self, after: ConflictPlace, count: int) -> list[FoundConflict]:
        """Returns the conflicts after this place, at most `count` of them, as far as they are kept."""
        found = self._tree.past.conflicts(after, count)
        last = found[-1].place if found else after
        for checkpoint in self._checkpoints:
            found += [conflict for conflict in checkpoint.conflicts if conflict.place > last]
        return found[:count]

    def _forget_through(self) -> int:
        least = self.revision - self._history_revisions * HISTORY_PINNED_FACTOR
        kept_from = min([self.revision - self._history_revisions, *self._pins])
        return max(0, least, kept_from)

    # Writing

    def apply(self, message_id: MessageId, body: bytes, view: ViewId) -> list[Applied]:
        """Applies the next message of the log, which was sent in this view, and returns what each of its writes
        did."""
        batch = decode_batch(body)
        self.run = self.run.followed_by(view, self.line)
        basis = self.run.judged_by(batch.basis)
        writes = [(data, decode_write(data)) for data in batch.writes]
        checkpoint = self._growing()
        applied: list[Applied] = []
        message = str(message_id)
        for index, (data, write) in enumerate(writes):
            name = write_id(message, index)
            done = apply(self, write, data, name, self.line, self.revision + 1, batch.expires, basis)
            applied.append(done)
            self._absorb(write, name, done, checkpoint)
            if done.conflicts:
                checkpoint.conflicts += self._found(done, name, index, batch)
                self.conflict_counts.update([conflict.kind for conflict in done.conflicts])
        checkpoint.fates[message_id] = Fate(self.line, tuple([one.outcome for one in applied]))
        checkpoint.outcomes += len(applied)
        self.line += 1
        checkpoint.line, checkpoint.revision, checkpoint.run = self.line, self.revision, self.run
        return applied

    def _absorb(self, write: Write, name: str, done: Applied, checkpoint: Checkpoint) -> None:
        if done.changes:
            self.revision += 1
            checkpoint.changes.append(Change(self.revision, name, tuple(done.changes.items())))
        for key, item in done.changes.items():
            self._items[key] = (item, checkpoint)
            checkpoint.items[key] = item
            if item is None:
                checkpoint.tombstones[key] = Tombstone(name, self.revision, self.line)
            else:
                checkpoint.bytes_estimate += len(item.value)
        if done.remembered is not None and write.idempotency_key is not None:
            checkpoint.memories[write.idempotency_key] = done.remembered

    def _found(self, done: Applied, name: str, index: int, batch: Batch) -> list[FoundConflict]:
        revision = done.outcome.revision if done.changes else None
        return [
            FoundConflict(
                ConflictPlace(self.revision, self.line, index, number), name, batch.accepted_ms, revision, conflict
            )
            for number, conflict in enumerate(done.conflicts)
        ]

    def _growing(self) -> Checkpoint:
        if not self._checkpoints or self._checkpoints[-1].is_full or self._checkpoints[-1] is self._taken:
            self._checkpoints.append(Checkpoint(self.line, self.revision, run=self.run))
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
        checkpoint.forget_through = self._forget_through()
        checkpoint.history_bytes_max = self._history_bytes
        return checkpoint

    def written(self, checkpoint: Checkpoint) -> None:
        """Drops a checkpoint from memory, because it is in the tree."""
        if self._checkpoints and self._checkpoints[0] is checkpoint:
            self._checkpoints.popleft()
            for key in checkpoint.items:
                if self._items[key][1] is checkpoint:
                    del self._items[key]
        self._taken = None


def bounded(changes: list[Change], bytes_max: int) -> list[Change]:
    """Returns the first of the changes, up to the one whose values exceed this many bytes together."""
    size = 0
    for place, change in enumerate(changes, start=1):
        size += sum(len(item.value) for _, item in change.items if item is not None)
        if size >= bytes_max:
            return changes[:place]
    return changes


def write_id(message: MessageId | str, index: int) -> str:
    """Returns the id of the write at this place in a message. The message may be given as a string, so that a
    caller that needs many ids formats it once."""
    return f"{message}.{index}"
