"""Events that many watchers get are encoded once, and only a bounded number of them is kept."""

from __future__ import annotations

import json

from api.watch import SHARED_EVENT_BYTES_MAX, SHARED_EVENTS_MAX, SharedEvents
from kvstore.store import Change, Item


def change(revision: int, value: bytes = b"v") -> Change:
    return Change(revision, f"a.1.{revision}.0", (("k", Item(value, "text/plain", revision, "a.1.1.0")),))


def test_an_event_is_encoded_once_for_all_watchers() -> None:
    events = SharedEvents()
    first = events.event(change(7))
    assert events.event(change(7)) is first
    head, data, *rest = first.decode().split("\n")
    assert (head, rest) == ("id: 7", ["", ""])
    content = json.loads(data.removeprefix("data: "))
    assert content["changes"] == [{"key": "k", "value": "v", "content_type": "text/plain"}]


def test_what_is_kept_is_bounded_in_number_and_size() -> None:
    events = SharedEvents()
    first = events.event(change(1))
    for revision in range(2, SHARED_EVENTS_MAX + 1):
        events.event(change(revision))
    assert events.event(change(1)) is first
    events.event(change(SHARED_EVENTS_MAX + 1))
    assert events.event(change(1)) is not first
    large = change(9_999, bytes(SHARED_EVENT_BYTES_MAX))
    assert events.event(large) is not events.event(large)
