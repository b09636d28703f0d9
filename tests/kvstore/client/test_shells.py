"""The synchronous and the asynchronous client do the same: each test is one story, told to both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from kvstore.client import (
    NO_RETRIES,
    AsyncClient,
    Client,
    ClientError,
    Compacted,
    ConditionFailed,
    Event,
    Happened,
    Operation,
    Txn,
    Unchanged,
    Unreachable,
)
from tests.kvstore.client.fake_cluster import Fake


class Told:
    """A client of either kind, as if it were synchronous: sleeping takes no time."""

    def __init__(self, fake: Fake, is_async: bool, **options: Any) -> None:
        self.pauses: list[float] = []
        self._now = 0.0
        self._loop = asyncio.new_event_loop() if is_async else None
        rules = {"clock": lambda: self._now, "sleep": self._pause_async if is_async else self._pause, **options}
        self.client: Any = (
            AsyncClient(fake.urls, http=fake.async_http(), **rules)
            if is_async
            else Client(fake.urls, http=fake.http(), **rules)
        )

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now += seconds

    async def _pause_async(self, seconds: float) -> None:
        self._pause(seconds)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **options: self.settle(getattr(self.client, name)(*given, **options))

    def settle(self, result: Any) -> Any:
        if self._loop is None:
            return result
        if inspect.isasyncgen(result):
            return self._items(result)
        return self._loop.run_until_complete(result)

    def _items(self, found: AsyncIterator[Any]) -> Iterator[Any]:
        assert self._loop is not None
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(found))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(found.aclose())  # type: ignore[attr-defined]

    def end(self) -> None:
        if self._loop is not None:
            self._loop.close()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def client(request: pytest.FixtureRequest, fake: Fake) -> Iterator[Told]:
    told = Told(fake, request.param)
    yield told
    told.end()


def test_both_have_the_same_calls_with_the_same_parameters_and_descriptions() -> None:
    def face(kind: type) -> dict[str, tuple[list[str], str | None]]:
        return {
            name: (list(map(str, inspect.signature(made).parameters.values())), made.__doc__)
            for name, made in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert face(Client) == face(AsyncClient)


def test_a_write_has_colour_outcome_and_revision(client: Told) -> None:
    write = client.put("k", "v")
    assert (write.color, write.outcome, write.revision, write.id) == ("green", "applied", 1, "a.1.1.0")
    assert client.get("k").text == "v"
    assert (client.get("k").revision, client.get("nothing")) == (1, None)


def test_a_condition_that_fails_is_an_error_that_says_what_is_there(client: Told) -> None:
    client.put("k", "v")
    with pytest.raises(ConditionFailed) as raised:
        client.put("k", "w", if_absent=True)
    assert (raised.value.happened, raised.value.revision) == (Happened.NO, 1)
    assert client.put("k", "w", if_match=1).revision == 2
    assert client.delete("k", if_match=2).revision == 3


def test_a_write_whose_answer_is_lost_is_repeated_elsewhere_and_applies_once(client: Told, fake: Fake) -> None:
    fake.deaf["a"] = 1
    write = client.put("k", "v")
    assert (write.outcome, write.revision, fake.revision) == ("duplicate", 1, 1)
    hosts = [request.url.host for request in fake.asked if request.method == "PUT"]
    assert hosts == ["a", "b"]
    assert len({request.headers["idempotency-key"] for request in fake.asked if request.method == "PUT"}) == 1


def test_every_write_draws_a_key_of_its_own_unless_it_is_given_one(client: Told, fake: Fake) -> None:
    client.put("k", "v")
    client.put("k", "v")
    client.put("k", "v", idempotency_key="mine")
    client.put("k", "v", idempotency_key=None)
    keys = [request.headers.get("idempotency-key") for request in fake.asked if request.method == "PUT"]
    assert keys[2:] == ["mine", None]
    assert len(set(keys)) == 4


def test_no_node_at_all_is_unreachable_and_nothing_happened(fake: Fake) -> None:
    fake.down = {"a", "b", "c"}
    for is_async in (False, True):
        told = Told(fake, is_async)
        with pytest.raises(Unreachable) as raised:
            told.put("k", "v")
        assert raised.value.happened is Happened.NO
        assert 1.0 < sum(told.pauses) < 30.0
        told.end()


# Lists


def test_a_list_is_of_one_revision_whatever_is_written_meanwhile(client: Told, fake: Fake) -> None:
    for number in range(8):
        fake.put(f"n/{number}", str(number))
    items = client.list(prefix="n/")
    first = next(items)
    fake.put("n/5", None)
    fake.put("n/9", "late")
    found = [first, *items]
    assert [(item.key, item.text) for item in found] == [(f"n/{number}", str(number)) for number in range(8)]
    assert [request.url.path for request in fake.asked].count("/v1/kv") == 3


def test_a_list_goes_on_at_another_node(client: Told, fake: Fake) -> None:
    for number in range(8):
        fake.put(f"n/{number}", str(number))
    items = client.keys(reverse=True, page_size=2)
    found = [next(items).key]
    fake.down = {"a"}
    assert [*found, *(one.key for one in items)] == [f"n/{number}" for number in range(7, -1, -1)]


def test_ranges_counts_and_what_was(client: Told, fake: Fake) -> None:
    for key in "abcde":
        fake.put(key, key)
    fake.put("b", None)
    assert [item.key for item in client.list(start="b", end="d")] == ["c"]
    assert [item.key for item in client.list(start="b", end="d", revision=5)] == ["b", "c"]
    assert client.count(page_size=2).count == 4
    assert [(one.revision, one.value) for one in client.history("b")] == [(6, None), (2, b"b")]
    assert client.get("b", revision=5).text == "b"
    fake.oldest = 6
    with pytest.raises(Compacted) as raised:
        client.get("b", revision=5)
    assert raised.value.oldest == 6
    assert {request.url.host for request in fake.asked[-3:]} == {"a", "b", "c"}  # one might have kept more


def test_conflicts_are_iterated_over(client: Told, fake: Fake) -> None:
    other = {"write": "b.1.1.0", "node": "b", "revision": 4, "value": "theirs"}
    one = {"kind": "overwrote", "key": "k", "write": "c.1.1.0", "node": "c", "revision": 5, "value": "ours"}
    fake.conflicts = [{**one, "other": other}] * 5
    [first, *rest] = client.conflicts(prefix="k")
    assert (first.kind, first.value, first.other_value, first.other_write) == (
        "overwrote",
        b"ours",
        b"theirs",
        "b.1.1.0",
    )
    assert len(rest) == 4


def test_a_conflict_may_be_about_something_else_than_a_value(client: Told, fake: Fake) -> None:
    one = {"key": "k", "write": "c.1.1.0", "node": "c", "revision": None, "other": {"write": "b.1.1.0"}}
    values: list[object] = [{"increment": 3}, {"append": {"base64": "/w=="}}, {"base64": "/w=="}, None]
    fake.conflicts = [{**one, "kind": "rejected", "value": value} for value in values]
    found = list(client.conflicts())
    assert [(conflict.operation, conflict.value) for conflict in found] == [
        (Operation("increment", "k", by=3), None),
        (Operation("append", "k", b"\xff"), None),
        (None, b"\xff"),
        (None, None),
    ]


# Changes


def test_a_watch_survives_nodes_that_break_and_repeats_nothing(client: Told, fake: Fake) -> None:
    for number in range(9):
        fake.put(f"n/{number}", str(number))
    fake.cut_after = {"a": 2, "b": 3}
    events = list(islice(client.watch(from_revision=2), 8))
    assert [event.revision for event in events] == list(range(2, 10))
    hosts = {request.url.host for request in fake.asked if request.url.path == "/v1/watch"}
    assert len(hosts) >= 2


def test_a_watch_of_a_prefix_resumes_behind_what_it_did_not_show(client: Told, fake: Fake) -> None:
    for key in ("x", "n/1", "x", "x", "n/2"):
        fake.put(key, key)
    fake.cut_after = {"a": 2, "b": 2, "c": 2}
    events = list(islice(client.watch(from_revision=1, prefix=["n/", "m/"]), 2))
    assert [(event.revision, event.changes[0].key) for event in events] == [(2, "n/1"), (5, "n/2")]
    last = [request.headers.get("last-event-id") for request in fake.asked if request.url.path == "/v1/watch"]
    assert last == [None, "2", "4"]


def test_a_watch_begins_after_what_there_is(client: Told, fake: Fake) -> None:
    fake.put("new", "1")
    watch = client.watch(key="new")
    answer = fake._watch

    def written_meanwhile(name: str, request: httpx.Request) -> httpx.Response:
        found = answer(name, request)
        if fake.revision == 1:
            fake.put("new", "2")  # the stream breaks before it has this
        return found

    fake._watch = written_meanwhile  # type: ignore[method-assign]
    event = next(watch)
    assert isinstance(event, Event)
    assert (event.revision, event.changes[0].value) == (2, b"2")
    assert "/v1/status" not in {request.url.path for request in fake.asked}


def test_a_watch_from_what_is_not_kept_says_what_is(client: Told, fake: Fake) -> None:
    fake.put("k", "v")
    fake.oldest = 5
    with pytest.raises(Compacted) as raised:
        next(client.watch(from_revision=1))
    assert raised.value.oldest == 5


def test_one_change_of_one_key_can_be_waited_for(client: Told, fake: Fake) -> None:
    fake.put("k", "v")
    assert client.wait_for_change("k", 0).text == "v"
    with pytest.raises(Unchanged):
        client.wait_for_change("k", 1, timeout=0.5)
    fake.put("k", None)
    fake.put("other", "v")
    gone = client.wait_for_change("k", 1)
    assert (gone.item, gone.text, gone.revision) == (None, None, 3)
    fake.put("k", "w")
    assert client.wait_for_change("k", gone.revision).text == "w"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_watch_that_is_left_closes_its_stream(is_async: bool, fake: Fake) -> None:
    fake.put("k", "v")
    watch = (told := Told(fake, is_async)).watch(from_revision=1)
    next(watch)
    assert [stream.is_closed for stream in fake.streams] == [False]
    watch.close()
    assert [stream.is_closed for stream in fake.streams] == [True]
    told.end()


# What is wrong


def test_something_else_than_a_node_is_explained() -> None:
    def page(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"<html>")

    http = httpx.Client(transport=httpx.MockTransport(page))
    client = Client("http://a", http=http, retry=NO_RETRIES)
    for ask in (client.status, client.cluster, lambda: client.put("k", "v"), lambda: list(client.list())):
        with pytest.raises(ClientError, match="is it a corelkv node"):
            ask()


def test_a_header_that_cannot_be_sent_is_explained(client: Told) -> None:
    with pytest.raises(ClientError, match="cannot send that"):
        client.put("k", "v", idempotency_key="ä")


def test_a_transaction_is_built_in_order() -> None:
    txn = Txn(merge="keep_green").if_revision("a", 3).if_absent("b").if_value("c", b"\xff")
    txn.put("a", "x").increment("n", -1).otherwise(Txn().get("a").delete("b"))
    assert txn.content() == {
        "if": [
            {"key": "a", "revision": 3},
            {"key": "b", "exists": False},
            {"key": "c", "value": {"base64": "/w=="}},
        ],
        "then": [
            {"put": {"key": "a", "value": "x", "content_type": "text/plain; charset=utf-8"}},
            {"increment": {"key": "n", "by": -1}},
        ],
        "else": [{"get": {"key": "a"}}, {"delete": {"key": "b"}}],
        "merge": "keep_green",
    }
    with pytest.raises(ValueError, match="no conditions of its own"):
        Txn().otherwise(Txn().if_exists("k"))
