"""Fetches what the nodes have after a run into the ledger."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from loadtest.audit import Audit, feed_digest, judge
from loadtest.feed import FeedCheck, Lost, follow
from loadtest.ledger import FateRow, FeedRow, Ledger, LogRow
from loadtest.nodes import Node, Nodes
from loadtest.record import FeedDigest, FeedLine

SAMPLE = 300
"""How many acknowledged writes are asked for by their id at every node, besides those that only a node can tell
of."""
QUIET_SECONDS = 90.0


def audit_run(directory: Path, nodes: Nodes, say: Callable[[str], None], sample: int = SAMPLE) -> Audit:
    """Waits until the nodes are quiet, fetches everything, and judges it."""
    nodes.heal_if_disturbed()
    revision = nodes.await_quiet(QUIET_SECONDS)
    nodes.learn()
    ledger = Ledger(directory / "ledger.sqlite")
    with contextlib.closing(ledger):
        say("reading the record")
        ledger.add_record(directory / "record")
        ledger.add_feed(read_feed(directory / "feed.tsv"))
        _fetch_feed(ledger, nodes, revision, say)
        _fetch_logs(ledger, nodes, say)
        ledger.index()
        _fetch_fates(ledger, nodes, sample, say)
        _fetch_counters(ledger, nodes)
        for node in nodes:
            say(f"comparing the state of {node.name}")
            ledger.add_digest(
                node.name, f"the state at revision {revision}", nodes.state_digest(node.url, revision)
            )
        return judge(ledger, revision)


# The feed that was followed during the run


class Follower:
    """Follows the feed during a run in a thread of its own, into a file that the audit reads."""

    def __init__(self, urls: list[str], path: Path, first: int) -> None:
        self._urls = urls
        self._path = path
        self._first = first
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopped = threading.Event()
        self.revision = first - 1
        self.problem: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, revision: int, seconds: float = 30.0) -> None:
        """Waits until it has everything up to that revision, and ends it."""
        waited = threading.Event()
        while self.revision < revision and seconds > 0 and self.problem is None:
            waited.wait(0.1)
            seconds -= 0.1
        self._stopped.set()

    def _run(self) -> None:
        with open(self._path, "w", buffering=65_536) as file:
            check = FeedCheck("follower", self._tell)
            try:
                for event in follow(self._urls, self._first):
                    check.take(event)
                    if event.write_id:
                        file.write(f"{event.revision}\t{event.write_id}\t{json.dumps(event.key)}\n")
                        file.flush()
                        self.revision = event.revision
                    if self._stopped.is_set():
                        return
            except Lost as lost:
                self.problem = str(lost)

    def _tell(self, line: FeedLine) -> None:
        self.problem = line.fault or self.problem


def read_feed(path: Path) -> Iterator[FeedRow]:
    """Returns the feed that was followed; nothing if none was."""
    if not path.exists():
        return
    with open(path) as file:
        for line in file:
            if line.endswith("\n"):
                revision, write_id, key = line.rstrip("\n").split("\t", 2)
                yield FeedRow(int(revision), write_id, json.loads(key))


# What the nodes have


def _fetch_feed(ledger: Ledger, nodes: Nodes, revision: int, say: Callable[[str], None]) -> None:
    """Compares what every node keeps of the feed with what was followed, from the first revision that both have.
    If nothing was followed, what the first node keeps is taken for it."""
    everyone = list(nodes)
    if ledger.feed_range() == (1, 0):
        say(f"reading the feed of {everyone[0].name}")
        ledger.add_feed(_kept_feed(everyone[0], nodes.oldest_revision(everyone[0].url) + 1, revision))
    oldest = max(nodes.oldest_revision(node.url) + 1 for node in everyone)
    first = max(ledger.feed_range()[0], oldest)
    what = f"the feed from revision {first} on"
    ledger.add_digest("followed", what, feed_digest(ledger, first, revision))
    for node in everyone:
        say(f"reading the feed of {node.name}")
        digest = FeedDigest()
        for row in _kept_feed(node, first, revision):
            digest.add(row.revision, row.id)
        ledger.add_digest(node.name, what, digest.text)


def _kept_feed(node: Node, first: int, last: int) -> Iterator[FeedRow]:
    if first > last:
        return
    for event in follow([node.url], first):
        if event.write_id:
            yield FeedRow(event.revision, event.write_id, event.key)
        if event.revision >= last:
            return


def _fetch_logs(ledger: Ledger, nodes: Nodes, say: Callable[[str], None]) -> None:
    """The log of the first node goes into the ledger; those of the others must have the same digest."""
    for number, node in enumerate(nodes):
        say(f"reading the log of {node.name}")
        digest = hashlib.sha256()
        rows = _log_rows(nodes, node, digest.update)
        if number == 0:
            ledger.add_log(rows)
        else:
            for _ in rows:
                pass
        ledger.add_digest(node.name, "the log", digest.hexdigest())


def _log_rows(nodes: Nodes, node: Node, digest: Callable[[bytes], None]) -> Iterator[LogRow]:
    for entry in nodes.log(node.url):
        position, color = entry["position"], entry["color"]
        digest(f"{position} {entry['id']} {color}\n".encode())
        for operation in entry["operations"]:
            if "write" in operation:
                yield LogRow(operation["write"], position, color)


def _fetch_fates(ledger: Ledger, nodes: Nodes, sample: int, say: Callable[[str], None]) -> None:
    """Asks the nodes for outcomes: for those of red writes that are not in the feed, which one node tells and
    all others must repeat, and for a sample of all others."""
    undecided = """
        SELECT DISTINCT w.id FROM writes w WHERE w.certainty = 'acknowledged' AND w.color != 'green'
        AND NOT EXISTS (SELECT 1 FROM feed WHERE feed.id = w.id)"""
    ids = [row[0] for row in ledger.rows(undecided)]
    others = """
        SELECT DISTINCT id FROM writes WHERE certainty = 'acknowledged' AND color = 'green'
        ORDER BY random() LIMIT ?"""
    ids += [row[0] for row in ledger.rows(others, sample)]
    for node in nodes:
        say(f"asking {node.name} for {len(ids):,} outcomes")
        ledger.add_fates(_fate(nodes, node, write_id) for write_id in ids)


def _fate(nodes: Nodes, node: Node, write_id: str) -> FateRow:
    found = nodes.fate(node.url, write_id) or {}
    return FateRow(node.name, write_id, found.get("color"), found.get("outcome"), found.get("revision"))


def _fetch_counters(ledger: Ledger, nodes: Nodes) -> None:
    keys = [row[0] for row in ledger.rows("SELECT DISTINCT key FROM writes WHERE operation = 'increment'")]
    for node in nodes:
        for key in keys:
            ledger.add_counter(node.name, key, int(nodes.value(node.url, key) or 0))
