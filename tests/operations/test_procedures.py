"""The procedures of docs/operations.md that can be done on one machine, on real nodes under writes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstore.client import Client, CorelError
from tests.api.cluster import Cluster, eventually
from tests.operations.guide import commands, section


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other's URLs."""
    with Cluster("abc", tmp_path) as made:
        urls = ",".join(f"{node.name}={node.url}" for node in made)
        for node in made:
            node._flags = (*node._flags, "--urls", urls)
        yield made.start()


class Writers:
    """Clients that add to a counter, one write after the other, each with another node that it prefers."""

    def __init__(self, cluster: Cluster) -> None:
        self.green = 0
        self.failures: list[CorelError] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write, args=(node.url,)) for node in cluster]

    def _write(self, url: str) -> None:
        with Client(url) as client:
            while not self._stop.is_set():
                try:
                    is_green = client.increment("counter", ack="green").is_green
                except CorelError as error:
                    self.failures.append(error)
                else:
                    with self._lock:
                        self.green += is_green

    def await_more(self, count: int) -> None:
        """Waits until so many more writes are green."""
        goal = self.green + count
        eventually(lambda: self.green >= goal or bool(self.failures))

    @contextmanager
    def running(self) -> Iterator[Writers]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


def counted(cluster: Cluster) -> int:
    return int(cluster["a"].get("counter", "?read=linearizable").body)


def test_upgrading_one_node_at_a_time_fails_no_green_write(cluster: Cluster) -> None:
    procedure = section("Upgrading one node at a time")
    assert "readyz?need=primary" in procedure
    with Writers(cluster).running() as writers:
        writers.await_more(20)
        for node in cluster:
            for every in cluster:
                every.await_ready("?need=primary")
            assert node.stop() == 0
            writers.await_more(20)  # the others go on without it
            node.start()
            node.await_ready("?need=primary")
            writers.await_more(20)
    assert writers.failures == []
    assert counted(cluster) == writers.green
    cluster.await_agreement()


def test_replacing_a_dead_disk_restores_everything_and_the_vote(cluster: Cluster) -> None:
    procedure = section("Replacing a dead disk")
    assert "without `bootstrap`" in procedure
    node = cluster["c"]
    with Writers(cluster).running() as writers:
        writers.await_more(20)
        node.kill()
        shutil.rmtree(node.data)
        writers.await_more(20)  # the others are a majority
        node.start()
        node.await_ready("?need=primary")
        eventually(lambda: node.status()["voter"] is True)
        writers.await_more(20)
    assert writers.failures == []
    cluster.await_agreement()
    cluster["a"].kill()
    cluster.await_views("bc")  # a primary component, with the vote of c
    assert int(node.get("counter", "?read=linearizable").body) == writers.green


def run(command: str, **places: object) -> str:
    """Does a command of the guide, with the places of this test instead of the guide's, and returns what it
    prints."""
    for place, mine in places.items():
        guides = PLACES[place]
        assert guides in command, f"the guide says {command!r}"
        command = command.replace(guides, str(mine))
    program, *arguments = command.split()
    assert program == "corelkv"
    done = subprocess.run(
        [sys.executable, "-m", "kvstore", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PLACES = {
    "url": "http://10.0.0.1:8001",
    "file": "/backups/corelkv.backup",
    "data": "/var/lib/corelkv",
    "node": "--node a",
    "survivors": "/recovery/a /recovery/b",
}


def restore(cluster: Cluster, file: Path) -> None:
    """Walks through "Restoring a cluster" from step 2 on; the nodes are stopped, and their directories away."""
    make_directory, restore = commands("Restoring a cluster")
    assert make_directory == "install -d -o corelkv -g corelkv -m 0700 /var/lib/corelkv"
    for node in cluster:
        subprocess.run(["install", "-d", "-m", "0700", str(node.data)], check=True)
        command = restore.removeprefix("sudo -u corelkv /opt/corelkv/bin/")
        run(command, file=file, data=node.data, node=f"--node {node.name}")
        node.start()
    for node in cluster:
        node.await_ready("?need=primary")
    cluster.await_views("abc")


def test_a_cluster_is_backed_up_under_writes_and_restored(cluster: Cluster, tmp_path: Path) -> None:
    back_up, verify = commands("Backup")[:2]
    file = tmp_path / "corelkv.backup"
    with Writers(cluster).running() as writers:
        writers.await_more(20)
        least = writers.green
        run(back_up, url=cluster["a"].url, file=file)
        most = writers.green + len(cluster.nodes)  # what is under way
        assert "is whole" in run(verify, file=file)
        writers.await_more(20)
    assert writers.failures == []
    for node in cluster:
        node.stop()
        node.data.rename(node.data.with_suffix(".old"))
    restore(cluster, file)
    assert least <= counted(cluster) <= most
    assert {node.status()["lineage"][0]["reason"] for node in cluster} == {"restored from a backup of node a"}
    with Writers(cluster).running() as writers:
        writers.await_more(20)
    assert writers.failures == []
    cluster.await_agreement()


def test_a_cluster_that_lost_most_of_its_disks_goes_on_with_what_is_left(cluster: Cluster, tmp_path: Path) -> None:
    [recover] = commands("When half of the votes or more are lost")
    with Writers(cluster).running() as writers:
        writers.await_more(20)
        final = writers.green
    for name in "bc":
        cluster[name].kill()
        shutil.rmtree(cluster[name].data)
    survivor = cluster["a"]
    cluster.await_views("a")
    assert survivor.put("red", "accepted by the survivor").status == 202
    assert survivor.put("red", "x", "?ack=green").error == "no_primary"
    survivor.stop()
    away = tmp_path / "recovery"
    survivor.data.rename(away)
    file = tmp_path / "corelkv.backup"
    shown = run(f"{recover} --yes", survivors=away, file=file)
    assert "red messages are taken over" in shown
    assert "are LOST" in shown
    restore(cluster, file)
    assert counted(cluster) >= final
    eventually(lambda: all(node.get("red").body == b"accepted by the survivor" for node in cluster))
    [ended] = cluster["b"].status()["lineage"]
    assert ended["reason"].startswith("recovered from the disk of node a")


def test_a_list_is_put_back(cluster: Cluster, tmp_path: Path) -> None:
    text = section("Backup")
    [command] = re.findall(r"```sh\ncorelkv (.*?) > backup.ndjson\n```", text)
    [restore] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    a = cluster["a"]
    a.put("text", "hellö", Content_Type="text/plain")
    a.put("bytes", b"\xff\x00")
    backup = tmp_path / "backup.ndjson"
    arguments = [sys.executable, "-m", "kvstore", *command.split(), "--url", a.url]
    backup.write_bytes(subprocess.run(arguments, capture_output=True, check=True, timeout=60).stdout)
    assert [json.loads(line)["key"] for line in backup.read_text().splitlines()] == ["bytes", "text"]
    a.delete("text")
    a.put("bytes", "overwritten by mistake")
    with open(backup, "rb") as stdin:
        subprocess.run([sys.executable, "-c", restore, a.url], stdin=stdin, check=True, timeout=60)
    assert (a.get("text").body, a.get("bytes").body) == ("hellö".encode(), b"\xff\x00")
    assert a.get("text").headers["content-type"] == "text/plain"
