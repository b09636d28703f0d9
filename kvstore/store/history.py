"""The past of the green state, as far as it is kept: what each revision changed, and what keys held at a revision.

A revision is one write that changed something, so revisions have no gaps. The newest are in memory, in the
checkpoints that are not in the tree yet; older ones are in the tree, back to the first that is kept (decision 23).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping
from typing import NamedTuple, Protocol

from kvstore.store.state import Conflict, Item

HISTORY_REVISIONS = 100_000
HISTORY_BYTES = 1_073_741_824
HISTORY_PINNED_FACTOR = 10


class Compacted(Exception):
    """The past that was asked for is no longer kept. `oldest` is the oldest revision that can be read."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"revisions before {oldest} are no longer kept")
        self.oldest = oldest


class Change(NamedTuple):
    """What one write changed."""

    revision: int
    write_id: str
    items: tuple[tuple[str, Item | None], ...]
    """The keys that it changed, with what each holds from this revision on; None if it is deleted."""


class ConflictPlace(NamedTuple):
    """Where a conflict is among all conflicts."""

    revision: int
    """That of the state after the write."""
    position: int
    write_index: int
    """The write's place in its message."""
    number: int
    """The conflict's place among those of the write."""


class FoundConflict(NamedTuple):
    """A conflict that the merge of a write met."""

    place: ConflictPlace
    write_id: str
    accepted_ms: int
    revision: int | None
    """The revision of the write; None if it changed nothing."""
    conflict: Conflict


class Span(NamedTuple):
    """The keys from `start` on and before `end`, in the order of their UTF-8 bytes; without `end`, all from
    `start` on."""

    start: bytes = b""
    end: bytes | None = None

    def has(self, key: bytes) -> bool:
        return self.start <= key and (self.end is None or key < self.end)

    def after(self, key: bytes) -> Span:
        """The part of the span after this key."""
        return Span(max(self.start, key + b"\0"), self.end)

    def before(self, key: bytes) -> Span:
        """The part of the span before this key."""
        return Span(self.start, key if self.end is None else min(self.end, key))


def span_of(prefix: bytes, start: bytes = b"", end: bytes | None = None) -> Span:
    """Returns the keys with this prefix that are also from `start` on and before `end`."""
    last = prefix.rstrip(b"\xff")
    prefix_end = last[:-1] + bytes((last[-1] + 1,)) if last else None
    ends = [one for one in (end, prefix_end) if one is not None]
    return Span(max(prefix, start), min(ends, default=None))


class Past(Protocol):
    """The past that is on disk. Revisions that the disk does not have yet are those of its newest state."""

    def item_at(self, key: str, revision: int) -> Item | None:
        """What the key held at this revision. Raises `Compacted`."""

    def changes(self, first: int, count: int, bytes_max: int) -> list[Change]:
        """The changes from this revision on, at most `count` of them, and no more once they have `bytes_max`.
        Raises `Compacted`."""

    def walk(self, span: Span, revision: int, is_reverse: bool) -> Iterator[tuple[str, Item | None]]:
        """The keys of the span in order, with what they held at this revision. Keys that did not exist then may be
        among them, with None: a caller can stop there, however many there are in a row. Raises `Compacted`. The
        state must not be written to, and the event loop must not turn, before the iterator is closed."""

    def versions(self, key: str, before: int, count: int) -> list[tuple[int, str, Item | None]]:
        """The changes of a key before this revision, newest first, as far as they are kept: the revision of each,
        the write that made it, and what the key held from then on."""

    def oldest(self) -> int:
        """The oldest revision of which the whole state can be read."""

    def conflicts(self, after: ConflictPlace, count: int) -> list[FoundConflict]:
        """The conflicts after this place, at most `count` of them."""


class Snapshot:
    """The green state at one revision. It can be read for as long as that revision is kept; `Compacted` is raised
    after that."""

    def __init__(self, past: Past, revision: int, overlay: Mapping[str, Item | None]) -> None:
        self._past = past
        self.revision = revision
        self._overlay = overlay
        """What the revisions up to this one changed that were not in the tree when the snapshot was taken."""
        self._overlay_names: list[bytes] | None = None
        """The keys of the overlay in order, once they are needed."""

    def over(self, newer: Mapping[str, Item | None]) -> Snapshot:
        """Returns the same with these items in front."""
        return Snapshot(self._past, self.revision, {**self._overlay, **newer})

    def item(self, key: str) -> Item | None:
        if key in self._overlay:
            return self._overlay[key]
        return self._past.item_at(key, self.revision)

    def scan(self, span: Span, is_reverse: bool = False) -> Iterator[tuple[str, Item]]:
        """Yields the keys of the span in order, with what they hold. To be used up, or closed, in one turn of the
        event loop."""
        for key, item in self.walk(span, is_reverse):
            if item is not None:
                yield key, item

    def walk(self, span: Span, is_reverse: bool = False) -> Generator[tuple[str, Item | None], None, None]:
        """Like `scan`, with some keys that do not exist too, so that a caller can stop in time where there are
        many of them in a row."""
        newer = self._names_in(span, is_reverse)
        name = next(newer, None)
        for key, item in self._past.walk(span, self.revision, is_reverse):
            while name is not None and (name > key if is_reverse else name < key):
                yield name, self._overlay[name]
                name = next(newer, None)
            if name == key:
                continue  # the newer item is yielded next
            yield key, item
        while name is not None:
            yield name, self._overlay[name]
            name = next(newer, None)

    def _names_in(self, span: Span, is_reverse: bool) -> Iterator[str]:
        """Yields the keys of the overlay that are in the span, in order."""
        if self._overlay_names is None:
            self._overlay_names = sorted([key.encode() for key in self._overlay])
        names = self._overlay_names
        first = bisect_left(names, span.start)
        end = len(names) if span.end is None else max(first, bisect_left(names, span.end))
        for place in range(end - 1, first - 1, -1) if is_reverse else range(first, end):
            yield names[place].decode()
