"""`/v1/status/stream`: every change of the status, at a bounded rate, shared by all who listen."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from api.status_stream import STREAMS_MAX, TICK_SECONDS
from tests.api.cluster import TIMEOUT_SECONDS, Cluster, Node, answer_of, eventually
from tests.api.watching import Watch
from tests.ports import HOST


@contextlib.contextmanager
def stream(node: Node) -> Iterator[Watch]:
    connection = http.client.HTTPConnection(HOST, node.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/status/stream")
        response = connection.getresponse()
        assert response.status == 200, answer_of(response)
        assert response.headers["content-type"] == "text/event-stream"
        with contextlib.closing(response):
            yield Watch(response)


def first(watch: Watch, kind: str) -> Any:
    return next(event.data for event in watch if event.kind == kind)


def test_it_begins_with_milestones_samples_and_the_status(node: Node) -> None:
    with stream(node) as watch:
        begin = {event.kind: event.data for event in watch.take(3)}
        sample = first(watch, "figures")[-1]
    assert list(begin) == ["milestones", "figures", "status"]
    status = node.status()
    for name in ("node", "incarnation", "view", "state", "phase", "primary", "last_committed_primary"):
        assert begin["status"][name] == status[name]
    assert [one["name"] for one in begin["status"]["nodes"]] == ["a", "b", "c"]
    last = [one for one in begin["milestones"] if one["event"] == "stage"][-1]
    assert (last["details"]["stage"], last["reason"]) == ("primary", "committed_by_all")
    assert {"time_ms", "writes_per_s", "time_to_green_ms", "sync_ms", "red"} <= set(sample)


def test_a_write_is_seen_and_a_node_at_rest_sends_samples_only(node: Node, key: str) -> None:
    with stream(node) as watch:
        line = first(watch, "status")["green"]["line"]
        node.put(key, "x")
        while line == (line := first(watch, "status")["green"]["line"]):
            pass
        kinds = [event.kind for event in watch.take(4)]
    assert kinds.count("figures") >= 2


def test_statuses_come_at_a_bounded_rate_however_much_is_written(node: Node, key: str) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            node.put(key, "x")

    writer = threading.Thread(target=write)
    times = []
    with stream(node) as watch:
        writer.start()
        try:
            for event in watch:
                if event.kind == "status":
                    times.append(event.data["time_ms"])
                if len(times) == 8:
                    break
        finally:
            stop.set()
            writer.join()
    assert len(set(times)) == 8
    assert times[-1] - times[0] >= 6.5 * TICK_SECONDS * 1_000.0, "they came too often"


def test_a_cut_is_seen_with_its_milestones_and_when_the_others_were_heard(three: Cluster) -> None:
    with stream(three["c"]) as watch:
        assert first(watch, "status")["state"] == "primary"
        three.partition("ab|c")
        seen: list[Any] = []
        for event in watch:
            if event.kind == "milestones":
                seen += event.data
            if event.kind == "status" and event.data["state"] == "non_primary":
                break
    others = [node for node in event.data["nodes"] if not node["me"]]
    assert [node["connected"] for node in others] == [False, False]
    assert all(0 < time.time() * 1_000.0 - node["last_heard_ms"] < 60_000 for node in others)
    numbers = [one["number"] for one in seen]
    assert numbers == sorted(set(numbers))
    suspected = [one for one in seen if one["event"] == "suspected"]
    assert {machine[0] for one in suspected for machine in one["details"]["machines"]} == {"a", "b"}
    assert seen[-1]["details"]["stage"] == "non_primary" or seen[-1]["event"] == "view"


def test_streams_are_bounded_and_those_that_end_make_room(node: Node) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(STREAMS_MAX):
            stack.enter_context(stream(node))
        refused = node.get_path("/v1/status/stream")
        assert (refused.status, refused.error) == (503, "too_many_streams")

    def is_there_room() -> bool:
        with contextlib.suppress(AssertionError), stream(node):
            return True
        return False

    eventually(is_there_room)


def test_a_reader_that_takes_nothing_costs_no_other_reader_anything(node: Node, key: str) -> None:
    with stream(node), stream(node) as watch:
        for number in range(50):
            node.put(key, str(number))
        line = node.status()["green"]["line"]
        while first(watch, "status")["green"]["line"] < line:
            pass


def test_streams_end_when_the_node_stops(alone: Node) -> None:
    with stream(alone) as watch:
        first(watch, "status")
        began = time.monotonic()
        assert alone.stop() == 0
        assert time.monotonic() - began < 4.0
        assert [event for event in watch if event.kind == "resume"] == []


def test_parameters_and_other_methods_are_refused(node: Node) -> None:
    assert node.get_path("/v1/status/stream?x=1").error == "unknown_parameter"
    assert node.call("POST", "/v1/status/stream", json.dumps({}).encode()).status == 405
