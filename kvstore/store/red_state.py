"""The red state: the green state and everything after it in the queue, as if its order were final.

It is an overlay that is brought up to date when it is read: messages that were appended are applied, and after any
other change of the order it is computed anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import maxsize
from typing import NamedTuple

from corel import Color, Entry
from kvstore.store.green_state import GreenState, write_id
from kvstore.store.state import Item, Outcome, Remembered, apply
from kvstore.store.write_codec import decode_batch, decode_write


class Tentative(NamedTuple):
    """What a key holds for now. `place` is that of the message that decided it, counted from the first message
    that the green state has not applied."""

    item: Item | None
    place: int


class RedState:
    """One node's red state. Call `refresh` before reading it."""

    def __init__(self, green: GreenState, body_of: Callable[[Entry], bytes]) -> None:
        self._green = green
        self._body_of = body_of
        self._clear()

    def _clear(self) -> None:
        self._line = self._green.line
        self._entries: list[Entry] = []
        self._yellows = 0
        self._items: dict[str, Tentative] = {}
        self._memories: dict[str, Remembered] = {}
        self._outcomes: dict[str, Outcome] = {}

    def refresh(self, entries: Sequence[Entry], yellows: int, writes_max: int = maxsize) -> bool:
        """Brings the state up to date. `entries` are all messages that the green state has not applied, in order;
        the first `yellows` of them are yellow, or green by now. Returns False if there are more than `writes_max`
        writes to apply; the next call continues."""
        known = len(self._entries)
        if self._line != self._green.line or self._entries != list(entries[:known]):
            self._clear()
            known = 0
        self._yellows = yellows
        for entry in entries[known:]:
            if writes_max <= 0:
                return False
            writes_max -= self._apply(entry)
        return True

    def _apply(self, entry: Entry) -> int:
        """Applies a message, and returns how many writes it has."""
        place = len(self._entries)
        encoded, expires = decode_batch(self._body_of(entry))
        batch = [(data, decode_write(data)) for data in encoded]
        for index, (data, write) in enumerate(batch):
            name = write_id(entry.id, index)
            done = apply(self, write, data, name, self._line + place, None, expires)
            self._outcomes[name] = done.outcome
            for key, item in done.changes.items():
                self._items[key] = Tentative(item, place)
            if done.remembered is not None and write.idempotency_key is not None:
                self._memories[write.idempotency_key] = done.remembered
        self._entries.append(entry)
        return len(batch)

    def item(self, key: str) -> Item | None:
        known = self._items.get(key)
        return known.item if known is not None else self._green.item(key)

    def color(self, key: str) -> Color:
        """Returns the colour of the write that decides what the key holds."""
        known = self._items.get(key)
        if known is None:
            return Color.GREEN
        return Color.YELLOW if known.place < self._yellows else Color.RED

    def remembered(self, idempotency_key: str) -> Remembered | None:
        known = self._memories.get(idempotency_key)
        return known if known is not None else self._green.remembered(idempotency_key)

    def outcome(self, name: str) -> Outcome | None:
        """Returns what the write of this id would do if the order stayed as it is; None if it is unknown."""
        return self._outcomes.get(name)
