"""Lists, history, changes and conflicts on real nodes, which are killed and cut off from each other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing
from itertools import islice
from queue import SimpleQueue

import httpx
import pytest

from kvstore.client import (
    AsyncClient,
    Changed,
    Client,
    ConditionFailed,
    CorelError,
    Decided,
    Event,
    Operation,
    Recolored,
    RetryPolicy,
    RevisionNotReached,
    Tentative,
    Unchanged,
    WatchEvent,
    Yielded,
)
from tests.api.cluster import Cluster

PATIENT = RetryPolicy(total_seconds=60.0, attempts_max=600)


@pytest.fixture
def client(three: Cluster) -> Iterator[Client]:
    with Client(three["a"].url, retry=PATIENT) as made:
        yield made


def revision_of(client: Client, key: str, value: str) -> int:
    revision = client.put(key, value, ack="green").revision
    assert revision is not None
    return revision


# Lists


def test_a_list_is_of_one_revision_over_all_its_pages_and_nodes(client: Client, three: Cluster, key: str) -> None:
    written = {f"{key}/{number:02}": str(number) for number in range(10)}
    for one, value in written.items():
        revision_of(client, one, value)
    items = client.list(prefix=f"{key}/", page_size=3)
    found = [next(items)]
    client.delete(f"{key}/05", ack="green")
    revision_of(client, f"{key}/99", "late")
    three["a"].kill()  # the cursor goes on at another node
    found += items
    assert {item.key: item.text for item in found} == written
    assert [item.key for item in found] == sorted(written)
    assert {item.content_type for item in found} == {"text/plain; charset=utf-8"}


def test_keys_counts_ranges_and_the_past(client: Client, key: str) -> None:
    revisions = [revision_of(client, f"{key}/{letter}", letter) for letter in "abcde"]
    client.delete(f"{key}/b", ack="green")
    last = revision_of(client, f"{key}/a", "again")
    backwards = client.keys(start=f"{key}/b", end=f"{key}/e", reverse=True, page_size=1)
    assert [(found.key[-1], found.revision) for found in backwards] == [("d", revisions[3]), ("c", revisions[2])]
    assert client.count(prefix=f"{key}/", page_size=2).count == 4
    assert client.count(prefix=f"{key}/", revision=revisions[2]).count == 3
    then = list(client.list(prefix=f"{key}/", revision=revisions[4], page_size=2))
    assert [(item.text, item.revision) for item in then] == list(zip("abcde", revisions, strict=True))
    now = list(client.list(prefix=f"{key}/", read="linearizable", min_revision=last))
    assert [item.text for item in now] == ["again", "c", "d", "e"]


def test_a_list_waits_for_a_revision_or_says_that_no_node_has_it(client: Client, key: str) -> None:
    last = revision_of(client, key, "v")
    with pytest.raises(RevisionNotReached) as raised:
        list(client.list(prefix=key, min_revision=last + 1_000_000, timeout=0.05))
    assert (raised.value.revision or 0) >= last


def test_a_list_of_what_is_not_green(client: Client, three: Cluster, key: str) -> None:
    revision_of(client, f"{key}/1", "green")
    three.partition("a|bc")
    client.put(f"{key}/2", "red")
    found = list(client.list(prefix=f"{key}/", read="red", page_size=1))
    assert [(item.text, item.color, item.revision is None) for item in found] == [
        ("green", "green", False),
        ("red", "red", True),
    ]
    assert [item.text for item in client.list(prefix=f"{key}/")] == ["green"]


def test_values_that_are_no_text_come_back_as_they_are(client: Client, key: str) -> None:
    client.put(key, b"\xff\x00", "image/x", ack="green")
    [item] = client.list(prefix=key)
    [version] = client.history(key)
    assert (item.value, version.value, version.content_type) == (b"\xff\x00", b"\xff\x00", "image/x")


def test_a_history_has_every_revision_newest_first(client: Client, three: Cluster, key: str) -> None:
    writes = [client.put(key, str(number), ack="green") for number in range(5)]
    writes.append(client.delete(key, ack="green"))
    versions = client.history(key, page_size=2)
    found = [next(versions)]
    three["a"].kill()
    found += versions
    assert [(one.revision, one.write) for one in found] == [(one.revision, one.id) for one in reversed(writes)]
    assert [one.value for one in found] == [None, b"4", b"3", b"2", b"1", b"0"]
    item = client.get(key, revision=found[2].revision)
    assert item is not None
    assert item.text == "3"


# Changes


class Counting(threading.Thread):
    """Puts 0, 1, 2, … into a key until it is told to stop; each of them is green when the next is sent."""

    def __init__(self, url: str, key: str) -> None:
        super().__init__()
        self.is_over = threading.Event()
        self.sent = 0
        self._key = key
        self._client = Client(url, retry=PATIENT)

    def run(self) -> None:
        with self._client as client:
            while not self.is_over.is_set():
                client.put(self._key, str(self.sent), ack="green")
                self.sent += 1


def test_a_watch_goes_on_where_it_was_whenever_its_node_is_killed(three: Cluster, key: str) -> None:
    served: list[str] = []
    """The ports of the nodes that served the watch, one after the other."""

    def note(response: httpx.Response) -> None:
        if response.request.url.path == "/v1/watch" and response.status_code == 200:
            served.append(response.request.url.netloc.decode())

    with (
        httpx.Client(event_hooks={"response": [note]}) as http,
        Client([node.url for node in three], retry=PATIENT, http=http) as client,
    ):
        first = revision_of(client, f"{key}/begin", "")
        writer = Counting(three["c"].url, f"{key}/n")
        writer.start()
        seen: list[tuple[int, int]] = []
        kills = 0
        try:
            for event in client.watch(prefix=f"{key}/n", from_revision=first):
                [change] = event.changes
                assert change.value is not None
                seen.append((int(change.value), event.revision))
                if kills == len(served):
                    continue  # this is what the killed node had sent
                if kills == 3:
                    break
                three.revive()
                [watched] = [node for node in three if node.url.endswith(served[-1])]
                watched.kill()
                kills += 1
        finally:
            writer.is_over.set()
            writer.join()
    assert [value for value, _ in seen] == list(range(len(seen)))
    assert [revision for _, revision in seen] == sorted({revision for _, revision in seen})


def test_the_asynchronous_watch_goes_on_too(three: Cluster, key: str) -> None:
    async def story() -> list[bytes | None]:
        async with AsyncClient([node.url for node in three], retry=PATIENT) as client:
            first = (await client.put(key, "0", ack="green")).revision
            found = []
            async with aclosing(client.watch(key=key, from_revision=first or 0)) as events:  # type: ignore[type-var]
                async for event in events:
                    found.append(event.changes[0].value)
                    if len(found) == 10:
                        return found
                    if len(found) == 3:
                        three["a"].kill()
                    await client.put(key, str(len(found)), ack="green")
            return found

    assert asyncio.run(story()) == [str(number).encode() for number in range(10)]


def test_a_watch_begins_where_its_node_is_and_shows_what_was_replaced(client: Client, key: str) -> None:
    revision_of(client, key, "before")
    found: SimpleQueue[Event] = SimpleQueue()

    def watch() -> None:
        for event in client.watch(key=key, previous=True):
            found.put(event)
            if event.changes[0].is_deletion:
                return

    watching = threading.Thread(target=watch)
    watching.start()
    number = 0
    while found.empty():
        client.put(key, str(number := number + 1), ack="green")
    client.delete(key, ack="green")
    watching.join()
    events = []
    while not found.empty():
        events.append(found.get())
    values = [event.changes[0].value for event in events]
    befores = [event.changes[0].previous for event in events]
    assert values[-1] is None
    assert [before.value for before in befores[1:] if before is not None] == values[:-1]
    assert befores[0] is not None


def test_writes_that_are_not_green_are_watched(client: Client, three: Cluster, key: str) -> None:
    first = client.status().revision + 1
    three.partition("a|bc")
    put = client.put(key, b"\xff", "x/y", merge="keep_green")
    added = client.increment(f"{key}/n", 3)
    events: Iterator[WatchEvent] = client.watch_tentative(prefix=key, from_revision=first)
    assert list(islice(events, 2)) == [
        Tentative(put.id, "red", (Operation("put", key, b"\xff", "x/y"),)),
        Tentative(added.id, "red", (Operation("increment", f"{key}/n", by=3),)),
    ]
    three["b"].put(key, "theirs")
    three.heal()
    told: list[WatchEvent] = []
    for event in events:
        if not isinstance(event, Recolored):
            told.append(event)
        if len(told) == 3:
            break
    assert {(one.write, one.outcome) for one in told if isinstance(one, Decided)} == {(put.id, "yielded")}
    assert [change.value for one in told if isinstance(one, Event) for change in one.changes] == [b"theirs", b"3"]


def test_one_change_of_one_key_is_waited_for(client: Client, three: Cluster, key: str) -> None:
    revision = revision_of(client, key, "1")
    with pytest.raises(Unchanged):
        client.wait_for_change(key, revision, timeout=0.2)
    found: SimpleQueue[Changed] = SimpleQueue()

    def wait(after: int) -> threading.Thread:
        waiting = threading.Thread(target=lambda: found.put(client.wait_for_change(key, after, timeout=30.0)))
        waiting.start()
        return waiting

    waiting = wait(revision)
    three["b"].put(key, "2")
    waiting.join()
    changed = found.get()
    assert changed.text == "2"
    waiting = wait(changed.revision)
    three["b"].delete(key)
    waiting.join()
    changed = found.get()
    assert changed.item is None
    waiting = wait(changed.revision)
    three["a"].kill()  # it was the one that was asked to wait
    three["b"].put(key, "3")
    waiting.join()
    assert found.get().text == "3"


# Merges


def test_what_a_merge_changed_is_shown_before_and_after_it(client: Client, three: Cluster, key: str) -> None:
    first = revision_of(client, f"{key}/1", "old")
    three.partition("a|bc")
    last = client.put(f"{key}/1", "mine")
    keeping = client.put(f"{key}/2", "mine", merge="keep_green")
    adding = client.increment(f"{key}/3", 5, if_match="*", timeout=1.0)
    [one, two, _] = client.preview(prefix=f"{key}/", page_size=2)
    assert (one.write, one.color, one.outcome) == (last.id, "red", "applied")
    assert two.details["changes"] == [{"key": f"{key}/2", "before": None, "after": "mine"}]
    for number in (1, 2):
        three["b"].put(f"{key}/{number}", "theirs")
    three["b"].put(f"{key}/3", "x")
    three.heal()
    assert last.wait_green(30.0).outcome == "applied"
    with pytest.raises(Yielded) as raised:
        keeping.wait_green(30.0)
    with pytest.raises(CorelError) as not_a_number:
        adding.wait_green(30.0)
    assert not_a_number.value.code == "not_a_number"
    found = list(client.conflicts(prefix=f"{key}/", from_revision=first, page_size=1))
    assert [(conflict.kind, conflict.value, conflict.other_value) for conflict in found] == [
        ("overwrote", b"mine", b"theirs"),
        ("yielded", b"mine", b"theirs"),
        ("rejected", None, b"x"),
    ]
    assert found[1].other_write == raised.value.beaten_by
    assert found[2].operation == Operation("increment", f"{key}/3", by=5)
    assert list(client.preview(prefix=f"{key}/")) == []


def test_a_copy_on_the_other_side_has_the_outcome_of_the_first(client: Client, three: Cluster, key: str) -> None:
    three.partition("a|bc")
    once = {"idempotency_key": f"{key} once", "if_absent": True}
    mine = client.put(key, "v", **once)  # type: ignore[arg-type]
    with Client(three["b"].url, discover=False) as other:
        theirs = other.put(key, "v", **once)  # type: ignore[arg-type]
        late = client.put(f"{key}/2", "v", idempotency_key=f"{key} late", if_match="*")
        with pytest.raises(ConditionFailed):
            other.put(f"{key}/2", "v", idempotency_key=f"{key} late", if_match="*")
    three.heal()
    found = mine.wait_green(30.0)
    assert (found.outcome, found.duplicate_of, found.duplicate_outcome) == ("duplicate", theirs.id, "applied")
    assert found.revision == theirs.revision
    with pytest.raises(ConditionFailed) as raised:
        late.wait_green(30.0)
    assert raised.value.key == f"{key}/2"
