"""A watch over streams that break, repeat, end and begin anew."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.client import (
    Change,
    ClientError,
    Compacted,
    Decided,
    Event,
    Operation,
    Previous,
    Recolored,
    Reconnected,
    Refused,
    Reply,
    Request,
    Tentative,
    Unreachable,
    WatchEvent,
)
from kvstore.client.replies import Failure
from kvstore.client.watching import Watch, WatchOptions
from tests.kvstore.client.scripted import LOST, REFUSED, A, B, C, World, problem


def event(revision: int, **more: object) -> bytes:
    change = {"key": "k", "value": str(revision), **more}
    data = {"revision": revision, "write": f"a.1.{revision}.0", "changes": [change]}
    return f"id: {revision}\ndata: {json.dumps(data)}\n\n".encode()


def named(name: str, **data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def watched(world: World, count: int, tentative: bool = False, **options: object) -> list[WatchEvent]:
    given: WatchOptions = {"from_revision": 1, **options}  # type: ignore[typeddict-item]
    return world.take(Watch(world.calls(), given, tentative).run(), count)


def revisions(events: list[WatchEvent]) -> list[int]:
    return [one.revision for one in events if isinstance(one, Event)]


def test_it_resumes_on_another_node_with_the_last_id() -> None:
    world = World(streams={A: [[event(1), event(2), LOST]], B: [[event(3)]]})
    assert revisions(watched(world, 3)) == [1, 2, 3]
    (first, asked), (second, resumed) = world.asked
    assert (first, second) == (A, B)
    assert (asked.query["from"], resumed.headers["Last-Event-ID"], "from" in resumed.query) == ("1", "2", False)


def test_what_was_seen_is_dropped() -> None:
    world = World(streams={A: [[event(1), event(2)]], B: [[event(1), event(2), event(2), event(3)]]})
    assert revisions(watched(world, 3)) == [1, 2, 3]


def test_an_event_that_is_cut_is_not_one() -> None:
    world = World(streams={A: [[event(1), event(2)[:-5]]], B: [[event(2)]]})
    assert revisions(watched(world, 2)) == [1, 2]
    assert world.asked[1][1].headers["Last-Event-ID"] == "1"


def test_a_heartbeat_with_an_id_moves_the_place_to_resume_from() -> None:
    world = World(streams={A: [[b": beat\n\n", b": beat\nid: 40\n\n", LOST]], B: [[event(41)]]})
    assert revisions(watched(world, 1)) == [41]
    assert world.asked[1][1].headers["Last-Event-ID"] == "40"


def test_a_heartbeat_of_a_node_that_is_behind_does_not() -> None:
    world = World(streams={A: [[b"id: 5\n\n", LOST]], B: [[event(10)]]})
    assert revisions(watched(world, 1, from_revision=10)) == [10]
    assert world.asked[1][1].query["from"] == "10"


def test_a_node_that_asks_to_resume_is_left() -> None:
    world = World(streams={A: [[event(1), named("resume", reason="stopping"), event(2)]], B: [[event(2)]]})
    assert revisions(watched(world, 2)) == [1, 2]
    assert world.urls == [A, B]


def test_streams_that_bring_nothing_are_opened_ever_more_slowly() -> None:
    world = World(streams={A: [*[[]] * 6, [event(1)]]})
    feed = Watch(world.calls(A), {"from_revision": 1}, False).run()
    assert revisions(world.take(feed, 1)) == [1]
    assert [round(pause / 0.1, 1) for pause in world.pauses] == sorted(round(p / 0.1, 1) for p in world.pauses)
    assert (len(world.pauses), world.pauses[-1] > 0.8) == (5, True)


def test_the_first_connection_may_fail_for_good() -> None:
    world = World({A: [REFUSED], B: [REFUSED], C: [REFUSED]})
    with pytest.raises(Unreachable):
        watched(world, 1)


def test_a_watch_that_was_connected_waits_for_a_node_to_come_back() -> None:
    def comes_back(request: Request) -> str:
        if len(world.asked) == 100:
            world.streams[A] = [[event(2)]]
        return REFUSED

    world = World({A: comes_back}, {A: [[event(1)]]})
    feed = Watch(world.calls(A), {"from_revision": 1}, False).run()
    assert revisions(world.take(feed, 2)) == [1, 2]


def test_it_is_too_late_when_every_node_says_so() -> None:
    gone = problem(410, "compacted", oldest=5)
    before = World({url: [gone] for url in (A, B, C)})
    within = World({url: [gone] for url in (A, B, C)}, {A: [[event(1), named("compacted", oldest=5)]]})
    for world, asked in ((before, [A, B, C]), (within, [A, B, C, A])):
        with pytest.raises(Compacted) as raised:
            watched(world, 2)
        assert raised.value.oldest == 5
        assert world.urls == asked


def test_a_node_that_keeps_more_is_found() -> None:
    world = World({A: [problem(410, "compacted", oldest=5)]}, {B: [[event(1), named("compacted", oldest=9)]]})
    world.streams[C] = [[event(2)]]
    assert revisions(watched(world, 2)) == [1, 2]
    assert world.urls == [A, B, A, C]


def test_a_wrong_request_ends_it() -> None:
    world = World({A: [problem(400, "invalid_parameter")]})
    with pytest.raises(Refused):
        watched(world, 1)


def test_without_a_revision_it_begins_after_that_of_the_node() -> None:
    world = World(streams={A: [[b"retry: 1000\nid: 16\n\n", LOST]], B: [[b"id: 16\n\n", event(17)]]})
    feed = Watch(world.calls(), {"prefix": ["p/", "q/"], "previous": True}, False).green()
    assert [one.revision for one in world.take(feed, 1)] == [17]
    (_, begun), (_, resumed) = world.asked
    assert begun.target == resumed.target == "/v1/watch?prefix=p%2F&prefix=q%2F&prev=true"
    assert ("Last-Event-ID" in begun.headers, resumed.headers["Last-Event-ID"]) == (False, "16")


def test_changes_have_what_they_replaced_if_asked() -> None:
    before = {"value": {"base64": "/w=="}, "revision": 3, "content_type": "x/y"}
    world = World(streams={A: [[event(4, prev=before), event(5, prev=None)]]})
    first, second = watched(world, 2, previous=True)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert first.changes == (Change("k", b"4", None, Previous(b"\xff", 3, "x/y")),)
    assert second.changes[0].previous is None


def test_tentative_writes_their_colours_and_what_becomes_of_them() -> None:
    operations = [
        {"put": {"key": "k", "value": {"base64": "/w=="}, "content_type": "x/y"}},
        {"delete": {"key": "l"}},
        {"increment": {"key": "n", "by": -2}},
        {"append": {"key": "t", "value": "more"}},
    ]
    pieces = [
        named("tentative", write="c.1.1.0", color="red", operations=operations),
        named("recolored", write="c.1.1.0", color="yellow"),
        named("outcome", write="c.1.1.0", color="green", outcome="rejected"),
        named("something_new", x=1),
        event(1),
    ]
    world = World(streams={A: [[*pieces, LOST]], B: [[event(2)]]})
    assert watched(world, 6, tentative=True) == [
        Tentative(
            "c.1.1.0",
            "red",
            (
                Operation("put", "k", b"\xff", "x/y"),
                Operation("delete", "l"),
                Operation("increment", "n", by=-2),
                Operation("append", "t", b"more"),
            ),
        ),
        Recolored("c.1.1.0", "yellow"),
        Decided("c.1.1.0", "rejected"),
        Event(1, "a.1.1.0", (Change("k", b"1"),)),
        Reconnected(B),
        Event(2, "a.1.2.0", (Change("k", b"2"),)),
    ]
    assert world.asked[0][1].query["colors"] == "red,yellow,green"


@pytest.mark.parametrize("data", [b"data: x\n\n", b"id: x\n\n", b"id: 1\ndata: {}\n\n", b"id: 1\ndata: [1]\n\n"])
def test_events_that_no_node_sends_are_explained(data: bytes) -> None:
    with pytest.raises(ClientError, match="cannot be understood"):
        watched(World(streams={A: [[data]]}), 1)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_wherever_streams_break_each_revision_comes_once_and_in_order(seed: int) -> None:
    rng, total = Random(seed), 30

    class Cuts(World):
        def _opened(self, url: str, request: Request) -> Reply | Failure:
            last = request.headers.get("Last-Event-ID", "0")
            first = max(1, int(last) + 1 - rng.randrange(3))  # a node that repeats what was seen
            data = b"".join(event(one) for one in range(first, total + 1))
            size = rng.randrange(1, 200)
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            self.streams[url] = [[*pieces[: rng.randrange(len(pieces) + 1)], LOST]]
            return super()._opened(url, request)

    assert revisions(watched(Cuts(), total)) == list(range(1, total + 1))
