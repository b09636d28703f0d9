"""The red state: the green state and everything after it in the queue, as if its order were final.

It is an overlay that is brought up to date when it is read: messages that were appended are applied, and after any
other change of the order it is computed anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import NamedTuple

from corel import Color, Entry
from kvstore.store.green_state import GreenState, write_id
from kvstore.store.history import Snapshot
from kvstore.store.replies import Overloaded
from kvstore.store.state import Applied, Item, LastChange, Outcome, Remembered, Tombstone, apply
from kvstore.store.write_codec import decode_batch, decode_write


class Tentative(NamedTuple):
    """What a key holds for now. `place` is that of the message that decided it, counted from the first message
    that the green state has not applied."""

    item: Item | None
    place: int
    write_id: str


class Preview(NamedTuple):
    """What a write that is not green would do if the order stayed as it is."""

    write_id: str
    accepted_ms: int
    color: Color
    outcome: Outcome
    changes: tuple[tuple[str, Item | None, Item | None], ...]
    """The keys that it would change: what each holds before and after it."""


class RedState:
    """One node's red state. Call `refresh` before reading it."""

    def __init__(self, green: GreenState, body_of: Callable[[Entry], bytes]) -> None:
        self._green = green
        self._body_of = body_of
        self._clear()

    def _clear(self) -> None:
        self._line, self._run = self._green.line, self._green.run
        self._entries: list[Entry] = []
        self._yellows = 0
        self._items: dict[str, Tentative] = {}
        self._memories: dict[str, Remembered] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._preview_state: RedState | None = None
        """The same state as far as it has been previewed, and the previews."""
        self._previews: list[Preview] = []

    def refresh(self, entries: Sequence[Entry], yellows: int, writes_max: int = maxsize) -> bool:
        """Brings the state up to date. `entries` are all messages that the green state has not applied, in order;
        the first `yellows` of them are yellow, or green by now. Returns False if there are more than `writes_max`
        writes to apply; the next call continues."""
        known = len(self._entries)
        if self._line != self._green.line or self._entries != list(entries[:known]):
            self._clear()
            known = 0
        if yellows != self._yellows:
            self._yellows, self._preview_state = yellows, None  # previews have colours
        for entry in entries[known:]:
            if writes_max <= 0:
                return False
            writes_max -= self._apply(entry)
        return True

    def _apply(self, entry: Entry, note: Callable[[str, int, Applied], None] | None = None) -> int:
        """Applies a message, and returns how many writes it has. `note` is told of each write before its changes
        are made."""
        place = len(self._entries)
        batch = decode_batch(self._body_of(entry))
        self._run = self._run.followed_by(entry.view, self._line + place)
        basis = self._run.judged_by(batch.basis)
        for index, data in enumerate(batch.writes):
            write, name = decode_write(data), write_id(entry.id, index)
            done = apply(self, write, data, name, self._line + place, None, batch.expires, basis)
            if note is not None:
                note(name, batch.accepted_ms, done)
            self._outcomes[name] = done.outcome
            for key, item in done.changes.items():
                self._items[key] = Tentative(item, place, name)
            if done.remembered is not None and write.idempotency_key is not None:
                self._memories[write.idempotency_key] = done.remembered
        self._entries.append(entry)
        return len(batch.writes)

    def snapshot(self) -> tuple[Snapshot, Callable[[str], Color]]:
        """Returns the state as it is now, and the colours of what its keys hold. Items that are not green have no
        revision."""
        items, yellows = self._items.copy(), self._yellows
        snapshot = self._green.snapshot().over({key: tentative.item for key, tentative in items.items()})
        return snapshot, lambda key: _color(items.get(key), yellows)

    def preview(self, writes_max: int) -> list[Preview]:
        """Returns what each write would do, in order. Raises `Overloaded` if there are more than `writes_max` to
        apply; the next call continues."""
        if self._preview_state is None:
            self._preview_state = RedState(self._green, self._body_of)
            self._previews = []
        again, found = self._preview_state, self._previews

        def note(name: str, accepted_ms: int, done: Applied) -> None:
            color = Color.YELLOW if len(again._entries) < self._yellows else Color.RED
            changes = tuple([(key, again.item(key), item) for key, item in done.changes.items()])
            found.append(Preview(name, accepted_ms, color, done.outcome, changes))

        for entry in self._entries[len(again._entries) :]:
            if writes_max <= 0:
                raise Overloaded("what would merge is being worked out")
            writes_max -= again._apply(entry, note)
        return found

    def item(self, key: str) -> Item | None:
        known = self._items.get(key)
        return known.item if known is not None else self._green.item(key)

    def color(self, key: str) -> Color:
        """Returns the colour of the write that decides what the key holds."""
        return _color(self._items.get(key), self._yellows)

    def remembered(self, idempotency_key: str) -> Remembered | None:
        known = self._memories.get(idempotency_key)
        return known if known is not None else self._green.remembered(idempotency_key)

    def last_change(self, key: str, position: int) -> LastChange | None:
        known = self._items.get(key)
        if known is None:
            return self._green.last_change(key, position)
        if known.item is None:
            return Tombstone(known.write_id, None, self._line + known.place).seen_from(position)
        return LastChange(known.write_id, None)

    def outcome(self, name: str) -> Outcome | None:
        """Returns what the write of this id would do if the order stayed as it is; None if it is unknown."""
        return self._outcomes.get(name)


def _color(known: Tentative | None, yellows: int) -> Color:
    if known is None:
        return Color.GREEN
    return Color.YELLOW if known.place < yellows else Color.RED
