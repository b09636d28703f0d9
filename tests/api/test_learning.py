"""Real nodes that lack much: they take over the state of another through HTTP, while the others go on."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.api.cluster import Cluster, Node, eventually
from tests.api.scraping import scrape
from tests.journals import read_journal
from tests.ports import HOST
from tests.small_disks import mounted

REACH = 50
FLAGS = (
    *("--set", f"log.recovery_messages_max={REACH}", "--set", f"log.messages_kept={4 * REACH}"),
    *("--set", "store.checkpoint_ms=50", "--set", "snapshots.chunk_bytes=16384"),
    *("--set", "membership.back_off_ms=100", "--set", "membership.back_off_ms_max=200"),
)
SLOW = ("--transfer-bytes-per-s", "200000")
"""So slow that a transfer of the state of these tests can be interrupted in the middle."""
GAP_SECONDS_MAX = 3.0
"""The longest time without a green write at the others while a node learns and joins. The machine that runs the
tests may be busy; the figure that counts is printed."""


class LearningCluster(Cluster):
    """Nodes that know each other's URLs."""

    def __enter__(self) -> LearningCluster:
        return self

    def start(self) -> LearningCluster:
        for node in self:
            node.start("--bootstrap", *self.urls)
        for node in self:
            node.await_ready("")
        self.await_views("".join(self.nodes))
        return self

    @property
    def urls(self) -> tuple[str, str]:
        return "--urls", ",".join(f"{node.name}={node.url}" for node in self)

    def await_voter(self, name: str) -> None:
        """Waits until this node is in the primary component of all, with a vote and nothing left to learn."""
        self.await_views("".join(self.nodes))
        eventually(lambda: self[name].status()["voter"] and self[name].status()["learning"] is None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LearningCluster]:
    with LearningCluster("abc", tmp_path, FLAGS) as made:
        yield made.start()


def fill(node: Node, count: int, prefix: str = "k") -> None:
    """Makes so many writes green, in fewer messages: writes that come at the same time share one."""

    def put(number: int) -> int:
        return node.put(f"{prefix}/{number:06}", b"%d " % number * 300).status

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(put, range(count))) == {200}


def line(node: Node) -> int:
    return int(node.status()["green"]["line"])


def fall_behind(cluster: Cluster, through: str = "a") -> None:
    """Writes until one that is not connected lacks more than the reach."""
    begin, number = line(cluster[through]), 0
    while line(cluster[through]) < begin + 6 * REACH:
        fill(cluster[through], 100, f"late/{number}")
        number += 1


def take_down(cluster: Cluster, name: str, is_wiped: bool = True) -> None:
    """Stops a node and replaces its disk by an empty one, and waits until the others go on without it."""
    cluster[name].stop()
    if is_wiped:
        shutil.rmtree(cluster[name].data)
    cluster.await_views("".join(other for other in cluster.nodes if other != name))


def keys(node: Node) -> Any:
    """Everything that a node has, as lists return it."""
    found, start = [], ""
    while True:
        page = node.get_path(f"/v1/kv?limit=1000{start}").json
        found += page["items"]
        if page["cursor"] is None:
            return found
        start = f"&cursor={page['cursor']}"


def assert_same(cluster: Cluster) -> None:
    cluster.await_agreement()
    revision = cluster["a"].status()["green"]["revision"]
    assert all(node.get("k/000000", f"?min_revision={revision}").status in (200, 404) for node in cluster)
    first, *others = [keys(node) for node in cluster]
    assert len(first) >= 6 * REACH
    assert all(one == first for one in others)


def test_a_node_with_an_empty_disk_learns_joins_and_votes(cluster: LearningCluster) -> None:
    take_down(cluster, "c")
    fall_behind(cluster)
    cluster["c"].start(*cluster.urls, "--journal")
    cluster.await_voter("c")
    assert "has taken over the state of" in cluster["c"].output
    assert_same(cluster)
    assert scrape(cluster["c"])("corelkv_transfers_total", outcome="switched") == 1
    events = [record["event"] for record in read_journal(cluster["c"].data / "journal").records]
    assert events.index("learning_began") < events.index("stopped") < events.index("learning_switched")
    assert not (cluster["c"].data / "incoming").exists()
    cluster["a"].stop()  # b and c are a majority: c votes
    cluster.await_views("bc")
    assert cluster["c"].put("after", "x").status == 200


def test_red_writes_of_a_node_that_was_cut_off_survive_what_it_learns(cluster: LearningCluster) -> None:
    cluster.partition("ab|c")
    reds = [cluster["c"].put(f"red/{number}", f"{number}", "?ack=red") for number in range(20)]
    assert {answer.status for answer in reds} == {202}
    fall_behind(cluster)
    cluster.heal()
    cluster.await_voter("c")
    assert "has taken over the state of" in cluster["c"].output
    assert_same(cluster)
    for number, answer in enumerate(reds):
        assert cluster["a"].get(f"red/{number}").body == f"{number}".encode()
        assert cluster["a"].fate(answer.json["id"]).json["color"] == "green"


def test_a_node_that_learns_takes_red_writes_and_answers_reads(cluster: LearningCluster) -> None:
    fill(cluster["a"], 100)
    take_down(cluster, "c", is_wiped=False)
    fall_behind(cluster)
    cluster["c"].start(*cluster.urls, *SLOW)
    await_phase(cluster["c"], "state")
    assert cluster["c"].get("k/000001").status == 200
    written = cluster["c"].put("meanwhile", "x", "?ack=red")
    assert written.status == 202
    assert cluster["c"].get_path("/readyz").status == 200
    assert cluster["c"].get_path("/readyz?need=primary").status == 503
    cluster.await_voter("c")
    cluster.await_agreement()
    assert cluster["a"].get("meanwhile").body == b"x"


def await_phase(node: Node, phase: str) -> dict[str, Any]:
    """Waits until the node is in this phase, with something fetched."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        with contextlib.suppress(OSError):
            learning = node.status()["learning"]
            found.update(learning or {})
            return learning is not None and learning["phase"] == phase and learning["bytes"] > 0
        return False

    eventually(is_there, lambda: node.output)
    return found


def test_a_learner_that_is_killed_in_the_middle_goes_on_where_it_was(cluster: LearningCluster) -> None:
    take_down(cluster, "c")
    fall_behind(cluster)
    cluster["c"].start(*cluster.urls, *SLOW)
    before = await_phase(cluster["c"], "state")
    cluster["c"].kill()
    assert (cluster["c"].data / "incoming" / "data.mdb").exists()
    cluster["c"].start(*cluster.urls, *SLOW)
    after = await_phase(cluster["c"], "state")
    assert after["bytes"] >= before["bytes"]
    assert after["source"] == before["source"]
    cluster.await_voter("c")
    assert_same(cluster)


DYING = """
import os
from kvstore.node.restarting import RestartingDriver
RestartingDriver._replace_disk = lambda self: os._exit(9)
"""


def test_a_learner_that_dies_in_the_middle_of_the_switch_begins_with_what_it_has_learned(tmp_path: Path) -> None:
    with LearningCluster("abc", tmp_path, FLAGS).start() as cluster:
        take_down(cluster, "c", is_wiped=False)
        fall_behind(cluster)
        dying = Node("c", cluster.flags, tmp_path, prelude=DYING)
        dying.start(*cluster.urls, *SLOW)
        dying.await_ready("")
        assert dying.put("red", "x", "?ack=red").status == 202
        assert dying.wait() == 9
        cluster["c"].start(*cluster.urls)
        cluster.await_voter("c")
        assert "begins with the state that it had taken over" in cluster["c"].output
        assert_same(cluster)
        assert cluster["a"].get("red").body == b"x"


def test_a_source_that_is_killed_in_the_middle_is_replaced_by_another(tmp_path: Path) -> None:
    with LearningCluster("abcd", tmp_path, FLAGS).start() as cluster:
        take_down(cluster, "d")
        fall_behind(cluster)
        cluster["d"].start(*cluster.urls, *SLOW)
        source = await_phase(cluster["d"], "state")["source"]
        cluster[source].kill()
        eventually(lambda: "has taken over the state of" in cluster["d"].output, lambda: cluster["d"].output)
        assert f"cannot learn what it lacks from {source}" in cluster["d"].output
        cluster.await_views("".join(name for name in "abcd" if name != source))
        assert f"has taken over the state of {source}" not in cluster["d"].output


def test_two_nodes_learn_from_one_at_the_same_time(tmp_path: Path) -> None:
    with LearningCluster("abc", tmp_path, (*FLAGS, "--roster", "a=3,b,c")).start() as cluster:
        for name in "bc":
            cluster[name].stop()
            shutil.rmtree(cluster[name].data)
        eventually(lambda: cluster["a"].status()["view"]["members"] == ["a"])
        cluster["a"].await_ready()  # its votes are a majority
        fall_behind(cluster)
        for name in "bc":
            cluster[name].start(*cluster.urls, *SLOW)
        sources = [await_phase(cluster[name], "state")["source"] for name in "bc"]
        assert sources == ["a", "a"]
        for name in "bc":
            cluster.await_voter(name)
        assert_same(cluster)


def test_a_node_whose_disk_is_full_in_the_middle_goes_on_as_it_was_and_learns_when_there_is_room(
    tmp_path: Path,
) -> None:
    haste = "import kvstore.node.learning; kvstore.node.learning.DISK_PAUSE_SECONDS = 0.5"
    with mounted(tmp_path / "c", 24), LearningCluster("abc", tmp_path, FLAGS, prelude=haste) as cluster:
        for name in "ab":
            cluster[name].start("--bootstrap", *cluster.urls)
        cluster["a"].await_ready()
        fall_behind(cluster)
        cluster["c"].start(*cluster.urls, *SLOW)
        await_phase(cluster["c"], "state")
        filler = tmp_path / "c" / "filler"
        filler.write_bytes(bytes(12_000_000))
        eventually(lambda: "own disk does not take the copy: no room" in cluster["c"].output)
        assert cluster["c"].put("red", "x", "?ack=red").status == 202
        filler.unlink()
        cluster.await_voter("c")
        assert_same(cluster)
        assert cluster["a"].get("red").body == b"x"


def test_a_node_that_knows_no_urls_says_so_and_goes_on_in_red(tmp_path: Path) -> None:
    with Cluster("abc", tmp_path, FLAGS) as cluster:
        cluster.start()
        take_down(cluster, "c")
        fall_behind(cluster)
        cluster["c"].start()
        eventually(lambda: "Set urls to the HTTP addresses" in cluster["c"].output, lambda: cluster["c"].output)
        assert cluster["c"].put("red", "x", "?ack=red").status == 202
        assert cluster["c"].status()["learning"]["source"] == ""


class Guarded(BaseHTTPRequestHandler):
    """A proxy that asks everybody for a password."""

    def do_POST(self) -> None:
        self.send_error(401)

    def log_message(self, format: str, *arguments: object) -> None: ...


def test_behind_a_proxy_with_passwords_a_node_learns_at_addresses_of_the_nodes_own(
    cluster: LearningCluster,
) -> None:
    take_down(cluster, "c")
    fall_behind(cluster)
    with HTTPServer((HOST, 0), Guarded) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,)).start()
        try:
            url = f"http://{HOST}:{proxy.server_port}"
            urls = ("--urls", ",".join(f"{name}={url}" for name in "abc"))
            cluster["c"].start(*urls)
            eventually(lambda: "asks for a password" in cluster["c"].output, lambda: cluster["c"].output)
            cluster["c"].stop()
            cluster["c"].start(*urls, "--node-urls", cluster.urls[1])
            cluster.await_voter("c")
        finally:
            proxy.shutdown()
    told = cluster["c"].get_path("/v1/cluster").json["nodes"]
    assert {node["url"] for node in told} == {url}, "clients are told of the proxy only"


def test_the_others_go_on_while_a_node_learns_and_joins(cluster: LearningCluster) -> None:
    take_down(cluster, "c")
    fall_behind(cluster)
    ended, times = threading.Event(), list[float]()

    def write() -> None:
        number = 0
        while not ended.is_set():
            if cluster["b"].put(f"load/{number}", "x", "?ack=green&timeout_ms=10000").status == 200:
                times.append(time.monotonic())
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        started = time.monotonic()
        cluster["c"].start(*cluster.urls)
        cluster.await_voter("c")
        joined = time.monotonic() - started
        time.sleep(0.5)
    finally:
        ended.set()
        writer.join()
    gap = max(after - before for before, after in pairwise(times))
    print(f"the longest gap between two green writes was {gap:.2f} s; the node had its vote after {joined:.1f} s")
    assert gap < GAP_SECONDS_MAX
    assert_same(cluster)
