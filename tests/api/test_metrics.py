"""`/metrics` is what Prometheus reads, and says what happened: counts are exact wherever they can be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.app import App
from api.measuring import KEYS, Measuring
from api.metrics import wants_openmetrics
from api.origins import Origins
from kvstore.node import HttpFigures
from tests.api.cluster import Cluster, Node, eventually
from tests.api.scraping import OPENMETRICS, Rise, Scrape, scrape, scrape_openmetrics
from tests.api.watching import watch

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def scrapes(cluster: Cluster) -> dict[str, Scrape]:
    return {node.name: scrape(node) for node in cluster}


def rises(before: dict[str, Scrape], cluster: Cluster) -> dict[str, Rise]:
    return {node.name: Rise(before[node.name], scrape(node)) for node in cluster}


def test_green_writes_are_counted_exactly(cluster: Cluster, key: str) -> None:
    cluster.await_agreement()
    before = scrapes(cluster)
    for number in range(7):
        assert cluster["a"].put(f"{key}/{number}", "value").status == 200
    assert cluster["a"].put(f"{key}/0", "other", if_none_match="*").status == 412
    cluster.await_agreement()
    rise = rises(before, cluster)
    own = rise["a"]
    assert own("corelkv_writes_answered_total", answer="green") == 8
    assert own.total("corelkv_writes_answered_total") == 8
    for name in ("message_logged", "message_yellow", "message_green"):
        assert own(f"corelkv_{name}_seconds_count") == 8, name
    assert own("corelkv_message_merged_seconds_count") == 0
    assert own("corelkv_message_writes_sum") == 8
    assert own("corelkv_http_requests_total", method="PUT", route=KEYS, status="200") == 7
    assert own("corelkv_http_requests_total", method="PUT", route=KEYS, status="412") == 1
    assert own("corelkv_http_request_seconds_count", method="PUT", route=KEYS) == 8
    for one in rise.values():
        assert one("corelkv_green_messages_total") == one("corelkv_green_writes_total") == 8
        assert one("corelkv_green_line") == 8
        assert one("corelkv_revision") == 7
        assert one("corelkv_sync_messages_sum") == 8
        assert one.total("corelkv_view_changes_total") == 0


def test_a_message_takes_longer_to_each_next_line(cluster: Cluster, key: str) -> None:
    before = scrape(cluster["b"])
    for number in range(20):
        cluster["b"].put(key, str(number))
    rise = Rise(before, scrape(cluster["b"]))
    logged, yellow, green = (rise(f"corelkv_message_{name}_seconds_sum") for name in ("logged", "yellow", "green"))
    assert 0.0 < logged <= yellow <= green
    assert green <= rise("corelkv_http_request_seconds_sum", method="PUT", route=KEYS)


def test_a_partition_its_red_writes_and_the_merge_are_told(three: Cluster, key: str) -> None:
    three.await_agreement()
    before = scrapes(three)
    three.partition("ab|c")
    for number in range(3):
        assert three["a"].put(f"{key}/{number}", "green").status == 200
    for number in range(5):
        assert three["c"].put(f"{key}/{number}", "red").status == 202
    assert three["c"].put(key, "refused", "?ack=green").status == 503
    apart = scrape(three["c"])
    assert apart("corelkv_red_messages") == 5
    assert apart("corelkv_in_primary") == 0
    assert apart("corelkv_without_primary_seconds") > 0.0
    assert apart("corelkv_stage", stage="non_primary") == 1
    assert [apart("corelkv_peer_connected", peer=name) for name in "abc"] == [0, 0, 1]
    three.heal()
    three.await_agreement()
    rise = rises(before, three)
    _check_smaller_side(rise["c"])
    assert rise["a"]("corelkv_writes_answered_total", answer="green") == 3
    assert rise["a"]("corelkv_message_green_seconds_count") == 3
    for one in rise.values():
        assert one("corelkv_green_writes_total") == 8
        assert one("corelkv_merge_conflicts_total", kind="overwrote") == 3
        assert one("corelkv_red_messages") == 0
        assert one("corelkv_merge_seconds_count") >= 1
        assert one("corelkv_primary_outage_seconds_count") >= 1
        assert one.total("corelkv_view_changes_total") >= 2
        assert one("corelkv_committed_primary") >= 2 - (one is rise["c"])
        assert one("corelkv_incarnations_total") == 0
    assert (
        rise["a"]("corelkv_view_changes_total", reason="silent")
        + rise["b"]("corelkv_view_changes_total", reason="silent")
        >= 1
    )


def _check_smaller_side(rise: Rise) -> None:
    assert rise("corelkv_writes_answered_total", answer="red") == 5
    assert rise("corelkv_writes_answered_total", answer="no_primary") == 1
    assert rise("corelkv_message_logged_seconds_count") == 5
    assert rise("corelkv_message_merged_seconds_count") == 5
    assert rise("corelkv_message_green_seconds_count") == rise("corelkv_message_yellow_seconds_count") == 0
    assert rise("corelkv_http_requests_total", method="PUT", route=KEYS, status="202") == 5
    assert rise("corelkv_http_requests_total", method="PUT", route=KEYS, status="503") == 1
    assert rise.total("corelkv_primary_losses_total") >= 1
    assert rise("corelkv_stage_changes_total", stage="non_primary", reason="no_majority") >= 1


def test_lost_datagrams_are_requested_and_sent_again(three: Cluster, key: str) -> None:
    before = scrapes(three)
    three["b"].spoil(loss=0.3)
    for number in range(40):
        three["a"].put(key, str(number))
    rise = rises(before, three)
    assert rise["b"]("corelkv_nacks_sent_total") >= 1
    assert sum(one("corelkv_packets_retransmitted_total") for one in rise.values()) >= 1


def test_watches_are_counted_and_not_timed(cluster: Cluster, key: str) -> None:
    node = cluster["c"]
    before = scrape(node)
    with watch(node, f"?key={key}") as stream:
        node.put(key, "seen")
        stream.take(1)
        during = scrape(node)
        assert during("corelkv_queue_depth", queue="watchers") == 1
    labels = {"method": "GET", "route": "/v1/watch"}
    eventually(lambda: scrape(node).samples.get(_requests(**labels, status="200"), 0.0) >= 1)
    after = scrape(node)
    assert Rise(before, after)("corelkv_http_requests_total", **labels, status="200") == 1
    assert Rise(before, after)("corelkv_http_request_seconds_count", **labels) == 0
    assert after("corelkv_queue_depth", queue="watchers") == 0


def _requests(**labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return "corelkv_http_requests_total", frozenset(labels.items())


def test_a_long_poll_is_not_timed(node: Node, key: str) -> None:
    node.put(key, "value")
    before = scrape(node)
    assert node.get(key, "?wait_revision=9007199254740000&timeout_ms=50").status == 304
    assert node.get(key).status == 200
    rise = Rise(before, scrape(node))
    assert rise("corelkv_http_requests_total", method="GET", route=KEYS, status="304") == 1
    assert rise("corelkv_http_request_seconds_count", method="GET", route=KEYS) == 1


def test_clients_cannot_make_labels(node: Node, key: str) -> None:
    def try_everything(name: str) -> Scrape:
        for path in (f"/{name}", f"/v1/{name}", f"/v1/kv/{name}", f"/v1/writes/{name}", f"/v1/kv?prefix={name}"):
            for method in ("GET", "POST", "OPTIONS"):
                node.call(method, path)
        node.call("PROPFIND", f"/v1/kv/{name}")
        node.raw(f"{name} / HTTP/1.1\r\n\r\n".encode())
        return scrape(node)

    first = try_everything(f"{key}/first").samples.keys()
    second = try_everything(f"{key}/second").samples.keys()
    assert first == second
    assert not [labels for _, labels in second if key in str(labels)]
    assert {dict(labels)["method"] for name, labels in second if name == "corelkv_http_requests_total"} <= {
        *("GET", "HEAD", "PUT", "PATCH", "DELETE", "POST", "OPTIONS", "other")
    }


def test_a_refused_request_is_counted(node: Node) -> None:
    before = scrape(node)
    assert b"invalid_http" in node.raw(b"nonsense\r\n\r\n")
    assert Rise(before, scrape(node))("corelkv_http_refusals_total", code="invalid_http") == 1


def test_queues_are_shown_with_their_bounds(node: Node) -> None:
    found = scrape(node)
    depths, limits = (
        {dict(labels)["queue"]: value for (name, labels), value in found.samples.items() if name == wanted}
        for wanted in ("corelkv_queue_depth", "corelkv_queue_limit")
    )
    assert depths.keys() == limits.keys() >= {"held_writes", "waiting_requests", "watchers", "connections"}
    assert all(0 <= depths[queue] <= limits[queue] for queue in depths)
    assert depths["connections"] >= 1


def test_both_formats_parse_and_have_the_same_names(node: Node) -> None:
    text, openmetrics = scrape(node), scrape_openmetrics(node)
    assert text.names == openmetrics.names
    assert text("corelkv_build_info", version="0.1.0", python=_python(text)) == 1
    for name, family in openmetrics.families.items():
        assert name.startswith(("corelkv_", "process_", "python_gc_")), name
        assert family.documentation.endswith(".") or not name.startswith("corelkv_"), name
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds"):
        assert text(f"process_{name}") > 0, name


def _python(found: Scrape) -> str:
    [labels] = [dict(labels) for name, labels in found.samples if name == "corelkv_build_info"]
    return labels["python"]


def test_the_type_follows_accept_and_a_head_has_no_body(node: Node) -> None:
    assert node.get_path("/metrics").headers["content-type"] == TEXT_TYPE
    answer = node.call("GET", "/metrics", headers={"Accept": OPENMETRICS})
    assert answer.headers["content-type"] == OPENMETRICS_TYPE
    assert answer.body.endswith(b"# EOF\n")
    head = node.call("HEAD", "/metrics", headers={"Accept": OPENMETRICS})
    assert (head.status, head.headers["content-type"], head.body) == (200, OPENMETRICS_TYPE, b"")
    assert int(head.headers["content-length"]) > 1_000
    assert node.call("POST", "/metrics").status == 405
    assert node.get_path("/metrics?name=x").error == "unknown_parameter"


def test_a_request_that_breaks_is_counted_as_an_error() -> None:
    async def broken(*arguments: object) -> Any:
        raise LookupError("a bug")

    app, figures = App.__new__(App), HttpFigures()
    app._keys = app.documented = broken  # type: ignore[assignment]
    app._origins = Origins([])
    app._measuring = Measuring(figures)
    for path in ("/v1/kv/key", "/v1/status"):
        with pytest.raises(LookupError):
            asyncio.run(app({"path": path, "method": "GET", "state": {}}, broken, broken))
    assert (figures.requests, figures.errors) == (2, 2)


@pytest.mark.parametrize(
    ("accept", "is_wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", True),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.3", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nan", False),
        ("Application/OpenMetrics-Text ; Q=1", True),
        (";;;,,q=,application/openmetrics-text;version=abc", True),
        ("application/json", False),
    ],
)
def test_openmetrics_is_served_to_those_who_prefer_it(accept: str, is_wanted: bool) -> None:
    assert wants_openmetrics(accept) is is_wanted
