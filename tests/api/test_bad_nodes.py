"""Nodes that are killed, stopped, overloaded, started wrongly or out of disk space: no acknowledged write is lost,
and the errors say what to do."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.api.cluster import Answer, Cluster, Node, answer_of, eventually
from tests.ports import HOST
from tests.small_disks import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of a file system of 3 MB, which is soon full."""
    with mounted(tmp_path / "small", megabytes=3) as directory:
        yield directory


def fill(node: Node, disk: Path) -> Path:
    """Fills the disk until the node notices, and returns the file to remove."""
    filler = disk / "filler"
    filler.write_bytes(bytes(2_400_000))
    assert node.put("large", bytes(1_000_000)).status in (503, 504)
    eventually(lambda: node.status()["disk"] != "ok")
    return filler


class Writers:
    """Clients that write numbered keys until `end` is called, and the answers to them."""

    def __init__(self, node: Node, key: str, clients: int = 4) -> None:
        self.acknowledged: dict[str, str] = {}
        """Keys of writes that were answered 200 or 202, with their ids."""
        self.strange: list[object] = []
        self._node = node
        self._key = key
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def _write(self, client: int) -> None:
        number = 0
        while not self._is_over.is_set():
            key, number = f"{self._key}/{client}/{number}", number + 1
            try:
                answer = self._node.put(key, "x")
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.02)  # it hung up, or is not there: no answer is no promise
            except Exception as error:
                self.strange.append(error)
            else:
                if answer.status in (200, 202):
                    self.acknowledged[key] = answer.json["id"]
                elif answer.status not in (503, 504):
                    self.strange.append(answer)

    def end(self) -> dict[str, str]:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30.0)
        assert self.strange == []
        assert len(self.acknowledged) > 0
        return self.acknowledged


# Stopped and killed


def test_a_node_that_is_stopped_while_it_is_written_to_loses_nothing_acknowledged(alone: Node, key: str) -> None:
    incarnation = alone.status()["incarnation"]
    writers = Writers(alone, key)
    eventually(lambda: len(writers.acknowledged) > 20)
    assert alone.stop() == 0
    acknowledged = writers.end()
    alone.start()
    alone.await_ready()
    assert [key for key in acknowledged if alone.get(key).status != 200] == []
    assert alone.status()["incarnation"] > incarnation


def test_a_node_that_is_killed_keeps_everything_acknowledged(alone: Node, key: str) -> None:
    incarnation = alone.status()["incarnation"]
    writers = Writers(alone, key)
    eventually(lambda: len(writers.acknowledged) > 20)
    alone.kill()
    acknowledged = writers.end()
    alone.start()
    alone.await_ready()
    assert [key for key in acknowledged if alone.get(key).status != 200] == []
    assert {alone.fate(write_id).json["outcome"] for write_id in acknowledged.values()} == {"applied"}
    assert alone.status()["incarnation"] > incarnation


def test_the_others_go_on_without_a_killed_node_which_catches_up(three: Cluster, key: str) -> None:
    writers = Writers(three["c"], key)
    eventually(lambda: len(writers.acknowledged) > 20)
    three["c"].kill()
    acknowledged = writers.end()
    three.await_views("ab")
    meanwhile = three["a"].put(key, "meanwhile")
    assert meanwhile.status == 200
    three["c"].start()
    three["c"].await_ready()
    three.await_views("abc")
    three.await_agreement()
    assert three["c"].get(key).body == b"meanwhile"
    for node in three:
        assert [key for key in acknowledged if node.get(key).status != 200] == []


def test_red_writes_survive_a_kill_of_all_and_become_green(three: Cluster, key: str) -> None:
    three.partition("a|b|c")
    ids = [node.put(f"{key}/{node.name}", "x").json["id"] for node in three]
    for node in three:
        node.kill()
    for node in three:
        node.start()
    for node in three:
        node.await_ready()
    for write_id in ids:
        assert three["a"].fate(write_id, "?wait=green&timeout_ms=20000").json["outcome"] == "applied"
    assert [three["b"].get(f"{key}/{name}").status for name in "abc"] == [200] * 3


def test_those_who_wait_when_a_node_stops_hear_something_or_are_hung_up_on(alone: Node, key: str) -> None:
    alone.put(key, "x")
    paths = [f"/v1/kv/{key}?min_revision={2**60}&timeout_ms=600000", "/v1/kv/k?read=linearizable"] * 5
    with ThreadPoolExecutor(len(paths)) as pool, contextlib.ExitStack() as idle:
        idle.enter_context(alone.connect())
        half = idle.enter_context(alone.connect())
        half.sendall(b"PUT /v1/kv/half HTTP/1.1\r\nContent-Length: 10\r\n\r\nx")

        def ask(path: str) -> int:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                return alone.get_path(path).status
            return 0

        asked = [pool.submit(ask, path) for path in paths]
        time.sleep(0.3)
        started = time.monotonic()
        assert alone.stop() == 0
        assert time.monotonic() - started < 15.0
        assert {one.result() for one in asked} <= {0, 404, 503, 504}
        assert "Traceback" not in alone.output
    alone.start()
    alone.await_ready()
    assert (alone.get("half").status, alone.get(key).body) == (404, b"x")


def test_a_second_signal_does_no_harm(alone: Node, key: str) -> None:
    alone.put(key, "x")
    alone.signal(signal.SIGTERM)
    alone.signal(signal.SIGINT)
    assert alone.wait() == 0
    alone.start()
    alone.await_ready()
    assert alone.get(key).body == b"x"


def test_a_node_that_was_paused_answers_again_and_knows_what_it_missed(three: Cluster, key: str) -> None:
    three["c"].signal(signal.SIGSTOP)
    three.await_views("ab")
    revision = three["a"].put(key, "x").json["revision"]
    three["c"].signal(signal.SIGCONT)
    three.await_views("abc")
    assert three["c"].get(key, f"?min_revision={revision}").body == b"x"


# Disks


def test_a_node_whose_disk_is_full_says_so_keeps_reading_and_comes_back(tmp_path: Path, small_disk: Path) -> None:
    with Cluster("a", tmp_path, ("--data", str(small_disk / "a"), "--journal")) as cluster:
        node = cluster.start()["a"]
        revision = node.put("k", "x").json["revision"]
        filler = fill(node, small_disk)
        refused = node.put("k", "y")
        assert (refused.status, refused.error) == (503, "away")
        assert "disk" in refused.json["message"]
        assert node.get("k").body == node.get("k", "?read=red").body == b"x"
        assert node.get("k", "?read=linearizable").status == 503
        assert node.get_path("/livez").status == 200
        ready = node.get_path("/readyz")
        assert (ready.status, "Make room" in ready.json["message"]) == (503, True)
        assert node.status()["primary"] is False
        assert node.get_path("/v1/log").status == 200
        filler.unlink()
        node.await_ready()
        assert node.put("k", "z").status == 200
        assert node.get("k", f"?min_revision={revision + 1}").body == b"z"


def test_a_node_whose_disk_is_full_still_reads_at_a_revision_that_it_has(tmp_path: Path, small_disk: Path) -> None:
    with Cluster("a", tmp_path, ("--data", str(small_disk / "a"))) as cluster:
        node = cluster.start()["a"]
        revision = node.put("k", "x").json["revision"]
        fill(node, small_disk)
        assert node.get("k", f"?min_revision={revision}").body == b"x"


STALLING = """
import os, time
from corel.lmdb_log import LmdbLog
write = LmdbLog.write
def stalling(log, *arguments):
    while os.path.exists(log.directory / "stall"):
        time.sleep(0.01)
    write(log, *arguments)
LmdbLog.write = stalling
"""
"""A prelude that makes writes of the log stall while there is a file `stall` in the log's directory."""


@contextlib.contextmanager
def stalled(node: Node) -> Iterator[None]:
    [directory] = {file.parent for file in node.data.rglob("data.mdb")}
    (directory / "stall").touch()
    try:
        yield
    finally:
        (directory / "stall").unlink()


def test_a_write_that_is_not_on_disk_in_time_is_undecided_and_one_that_has_not_left_is_withdrawn(
    tmp_path: Path,
) -> None:
    with Cluster("a", tmp_path, ("--set", "log.sync_stall_ms=20000"), prelude=STALLING) as cluster:
        node = cluster.start()["a"]
        with stalled(node):
            left = node.put("left", "x", "?timeout_ms=300")
            held = node.put("held", "x", "?timeout_ms=300")
        assert (left.status, left.error) == (504, "undecided")
        assert left.headers["location"] == f"/v1/writes/{left.json['id']}"
        assert (held.status, held.error) == (503, "timeout")
        assert "id" not in held.json
        assert node.fate(left.json["id"], "?wait=green").json["outcome"] == "applied"
        assert (node.get("left").body, node.get("held").status) == (b"x", 404)


def test_the_others_go_on_without_a_node_whose_disk_stalls_and_it_comes_back(tmp_path: Path) -> None:
    with Cluster("abc", tmp_path, ("--set", "log.sync_stall_ms=500"), prelude=STALLING) as cluster:
        cluster.start()
        a, c = cluster["a"], cluster["c"]
        first = a.put("k", "before").json["revision"]
        assert c.get("k", f"?min_revision={first}").body == b"before"
        with stalled(c):
            during = a.put("k", "during", "?ack=green&timeout_ms=20000")
            assert during.status == 200, "it waited until c had left"
            eventually(lambda: c.status()["disk"] != "ok")
            refused = c.put("k", "lost")
            assert (refused.status, refused.error) == (503, "away")
            assert "disk" in refused.json["message"]
            assert c.get("k").body == b"before"
            assert c.get_path("/readyz").status == 503
            assert a.put("k", "after", "?ack=green").status == 200
        cluster.await_views("abc")
        cluster.await_agreement()
        assert c.get("k").body == b"after"


# Overload


def put_at_once(node: Node, value: bytes, count: int) -> list[Answer]:
    """Sends all requests while the node is paused, so that they arrive before it handles the first."""
    with contextlib.ExitStack() as stack:
        clients = [http.client.HTTPConnection(HOST, node.port, timeout=20.0) for _ in range(count)]
        for client in clients:
            client.connect()
            stack.callback(client.close)
        node.signal(signal.SIGSTOP)
        for number, client in enumerate(clients):
            client.request("PUT", f"/v1/kv/{number}", value)
        node.signal(signal.SIGCONT)
        return [answer_of(client.getresponse()) for client in clients]


@pytest.mark.parametrize("bound", ["held_max = 3", "held_bytes_max = 3000"])
def test_more_writes_than_may_wait_are_refused_and_those_accepted_are_there(tmp_path: Path, bound: str) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f"[store]\n{bound}\n")
    with Cluster("a", tmp_path, ("--config", str(config))) as cluster:
        node = cluster.start()["a"]
        answers = put_at_once(node, bytes(1_000), 60)
        assert {answer.status for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert (refused.headers["retry-after"], refused.error) == ("1", "overloaded")
        for number, answer in enumerate(answers):
            assert node.get(str(number)).status == (200 if answer.status == 200 else 404)
        assert node.put("k", "x").status == 200


# Started wrongly


def refusal(node: Node, *flags: str) -> str:
    """Starts a node that cannot run, and returns its last line of output."""
    node.start(*flags)
    return last_words(node)


def last_words(node: Node) -> str:
    assert node.wait() > 0
    assert "Traceback" not in node.output
    return [line for line in node.output.splitlines() if line][-1]


def test_a_port_in_use(alone: Node, tmp_path: Path) -> None:
    with Cluster("b", tmp_path, ("--http", f"{HOST}:{alone.port}")) as cluster:
        said = refusal(cluster["b"], "--bootstrap")
    assert f"{HOST}:{alone.port}" in said
    assert "--http" in said
    assert alone.put("k", "x").status == 200


def test_a_data_directory_of_another_node_another_cluster_or_none_at_all(alone: Node, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a directory")
    alone.stop()
    wrong = [
        Cluster("b", tmp_path, ("--data", str(alone.data)), cluster=alone.cluster),
        Cluster("a", tmp_path, ("--data", str(alone.data)), cluster="another"),
        Cluster("c", tmp_path, ("--data", str(file))),
    ]
    with contextlib.ExitStack() as stack:
        nodes = [node for cluster in wrong for node in stack.enter_context(cluster)]
        for node in nodes:
            node.start("--bootstrap")
        said = [last_words(node) for node in nodes]
    assert str(alone.data) in said[0]
    assert str(alone.data) in said[1]
    assert str(file) in said[2]
    alone.start()
    alone.await_ready()


def test_two_processes_with_one_data_directory(alone: Node, tmp_path: Path) -> None:
    incarnation = alone.status()["incarnation"]
    with Cluster("a", tmp_path, ("--data", str(alone.data))) as cluster:
        said = refusal(cluster["a"])
    assert str(alone.data) in said
    assert alone.put("k", "y").status == 200
    alone.kill()
    alone.start()
    alone.await_ready()
    assert alone.get("k").body == b"y"
    assert alone.status()["incarnation"] > incarnation


def test_a_data_directory_that_is_damaged(tmp_path: Path) -> None:
    with Cluster("a", tmp_path) as cluster:
        node = cluster.start()["a"]
        node.put("k", "x")
        node.stop()
        [file] = list(node.data.rglob("data.mdb"))
        file.write_bytes(b"\xff" * file.stat().st_size)
        assert str(node.data) in refusal(node)


def test_a_node_that_is_not_in_its_roster(tmp_path: Path) -> None:
    with Cluster("a", tmp_path, roster="bc") as cluster:
        said = refusal(cluster["a"])
    assert "roster" in said


def test_a_node_of_another_roster_stays_outside_and_holds_up_nobody(three: Cluster, tmp_path: Path) -> None:
    three["c"].stop()
    three.await_views("ab")
    flags = (*three.flags, "--roster", "a,b,c,d", "--data", str(three["c"].data))
    odd = Node("c", flags, tmp_path)
    odd.start()
    try:
        odd.await_ready("")
        eventually(lambda: odd.status()["dropped_datagrams"].get("other_roster", 0) > 0)
        assert odd.status()["view"]["members"] == ["c"]
        assert three["a"].put("k", "x", "?ack=green").status == 200
    finally:
        odd.kill()
        three["c"].start()
    three["c"].await_ready()


def _set_incarnation(node: Node, last: int) -> None:
    """Makes an empty disk count from this number on."""
    node.data.mkdir(parents=True)
    (node.data / "incarnation").write_text(f"{last}\n")


def _has_dropped(node: Node, reason: str) -> bool:
    return int(node.status()["dropped_datagrams"].get(reason, 0)) > 0


def test_a_node_left_over_from_before_a_bootstrap_is_kept_out_and_mixes_nothing(tmp_path: Path) -> None:
    """a and b are wiped and bootstrapped anew, c is forgotten. Names and roster are the same."""
    with Cluster("abc", tmp_path) as cluster:
        cluster.start()
        old = [cluster["a"].put("k", f"old {number}").json["id"] for number in range(5)]
        eventually(lambda: cluster["c"].get("k").body == b"old 4")
        for name in "abc":
            cluster[name].stop()
        for name in "ab":
            shutil.rmtree(cluster[name].data)
            cluster[name].start("--bootstrap")
        for name in "ab":
            cluster[name].await_ready()
        new = [cluster["a"].put("k", f"new {number}").json["id"] for number in range(3)]
        assert not set(new) & set(old)
        cluster["c"].start()
        cluster["c"].await_ready("")
        for node in (cluster["a"], cluster["c"]):
            eventually(partial(_has_dropped, node, "other_cluster"))
        assert "belongs to another cluster of this name" in cluster["c"].output
        assert cluster["a"].put("k", "newest", "?ack=green").status == 200
        assert cluster["c"].put("k", "x", "?ack=green").error == "no_primary"
        assert (cluster["b"].get("k").body, cluster["c"].get("k").body) == (b"newest", b"old 4")
        cluster["c"].stop()
        shutil.rmtree(cluster["c"].data)
        cluster["c"].start()
        cluster["c"].await_ready()
        eventually(lambda: cluster["c"].get("k").body == b"newest")


def test_an_empty_disk_does_not_vote_until_it_has_learnt_what_there_is(tmp_path: Path) -> None:
    with Cluster("abc", tmp_path) as cluster:
        for name in "ab":
            cluster[name].start("--bootstrap")
        cluster["c"].start()
        for name in "abc":
            cluster[name].await_ready()
        revision = cluster["a"].put("k", "x").json["revision"]
        assert cluster["c"].get("k", f"?min_revision={revision}").body == b"x"
        eventually(lambda: cluster["c"].status()["voter"] is True)
        cluster["b"].kill()
        cluster.await_views("ac")
        assert cluster["c"].put("k", "y", "?ack=green").status == 200


def twin_of(node: Node, flags: Sequence[str], directory: Path) -> Node:
    """Returns another node of the same name, with its own disk."""
    directory.mkdir(exist_ok=True)
    return Node(node.name, flags, directory)


def test_a_node_started_again_on_a_new_disk_replaces_its_twin_and_the_others_go_on(tmp_path: Path) -> None:
    with Cluster("abc", tmp_path) as cluster:
        before = cluster.start()["a"].put("k", "before").json["revision"]
        twin = twin_of(cluster["a"], cluster.flags, tmp_path / "new")
        twin.start()
        try:
            assert cluster["a"].wait() == 1
            assert "another process goes by the name of this node: a." in cluster["a"].output
            twin.await_ready()
            written = cluster["b"].put("k", "after", "?ack=green")
            assert (written.status, written.json["revision"]) == (200, before + 1)
            assert twin.get("k", f"?min_revision={before + 1}").body == b"after"
        finally:
            twin.kill()


def test_a_twin_of_an_older_incarnation_stops_and_the_others_go_on(tmp_path: Path) -> None:
    """The clock of a was ahead when it was started."""
    with Cluster("abc", tmp_path) as cluster:
        _set_incarnation(cluster["a"], 10**14)
        cluster.start()
        twin = twin_of(cluster["a"], cluster.flags, tmp_path / "new")
        twin.start("--bootstrap")
        try:
            assert twin.wait() == 1
            assert "Stop one of them, or give each its own name in the roster" in twin.output
        finally:
            twin.kill()
        assert cluster["b"].put("k", "x", "?ack=green").status == 200
        assert cluster["a"].get("k", "?read=linearizable").body == b"x"
