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
from tests.operations.guide import section


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


def test_a_backup_is_put_back(cluster: Cluster, tmp_path: Path) -> None:
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
