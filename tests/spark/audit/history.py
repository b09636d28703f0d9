"""A history of three nodes, as their journals, exported logs and clients tell it: a primary component of all, a
cut between two of them and the third, which goes on alone, and the merge. Everything in it is as it should be;
tests plant violations in copies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kvstore.log_schema import DIGEST_BYTES
from spark.reading import Inputs
from spark.schemas import LOG_FILES, LOGS, MANIFESTS, RECORDS, SKIPPED, TOLD, Columns

NODES = ("a", "b", "c")
BOTH, CUT, ALONE, MERGED = "10.a.1", "20.a.1", "21.c.1", "30.a.1"
"""The views."""

Fields = dict[str, Any]


@dataclass(slots=True)
class Message:
    id: str
    clock: int
    view: str
    known: dict[str, int]
    revision: int = 0
    """The revision after it. Every message has one write, which is applied."""

    @property
    def sender(self) -> str:
        return self.id.split(".")[0]

    @property
    def body(self) -> bytes:
        return f"body of {self.id}".encode()


@dataclass(slots=True)
class Told:
    """Everything that is told of one cluster."""

    records: list[Fields] = field(default_factory=list)
    logs: list[Fields] = field(default_factory=list)
    manifests: list[Fields] = field(default_factory=list)
    files: list[Fields] = field(default_factory=list)
    told: list[Fields] = field(default_factory=list)

    def copy(self) -> Told:
        return deepcopy(self)

    def of(self, event: str, node: str | None = None, **fields: object) -> list[Fields]:
        """Returns records of an event."""
        return [
            one
            for one in self.records
            if one["event"] == event
            and node in (None, one["node"])
            and all(one.get(name) == value for name, value in fields.items())
        ]

    def rows(self, node: str, position: int, run: int | None = None) -> list[Fields]:
        """Returns the rows of exported logs at a position: final ones, or those of the tail of a run."""
        return [row for row in self.logs if (row["node"], row["position"], row["run"]) == (node, position, run)]


class Cluster:
    """Writes a history."""

    def __init__(self) -> None:
        self.told = Told()
        self._now = 1_000.0
        self._clock = 10
        self._lasts: dict[str, int] = {}
        self.order: list[Message] = []
        """The green order."""
        self.queues: dict[str, list[Message]] = {node: [] for node in NODES}
        """What is not green at each node."""
        self.green = dict.fromkeys(NODES, 0)
        for node in NODES:
            lines = {"green": 0, "yellow": 0, "length": 0, "revision": 0}
            self.record(node, "started", roster=list(NODES), weights=[1, 1, 1], **lines)

    def record(self, node: str, event: str, **fields: object) -> None:
        self._now += 0.5
        common = {"version": 1, "node": node, "incarnation": 1, "monotonic_ms": self._now, "wall_ms": self._now}
        self.told.records.append({**common, "event": event, **fields})

    def view(self, view: str, nodes: Iterable[str]) -> None:
        members = [f"{node}.1" for node in nodes]
        for node in nodes:
            self.record(node, "view", view=view, members=members, transitional=members)

    def stage(self, node: str, view: str, stage: str, committed: int, yellow: int) -> None:
        length = self.green[node] + len(self.queues[node])
        lines = {"green": self.green[node], "yellow": yellow, "length": length}
        self.record(node, "stage", view=view, stage=stage, committed=committed, attempted=committed, **lines)

    def send(self, sender: str, view: str, nodes: Iterable[str], color: str) -> Message:
        """A message is sent, and received and logged by all members."""
        self._clock += 1
        sequence = self._lasts[sender] = self._lasts.get(sender, 0) + 1
        known = {one.id.rpartition(".")[0]: int(one.id.rpartition(".")[2]) for one in self.queues[sender]}
        message = Message(f"{sender}.1.{sequence}", self._clock, view, known)
        for node in nodes:
            self.queues[node].append(message)
            event = "sent" if node == sender else "received"
            fields = {"ids": [message.id], "clocks": [message.clock], "sizes": [len(message.body)]}
            self.record(node, event, view=view, color=color, **fields)
        for node in nodes:
            self.record(node, "logged", ids=[message.id], color=color)
        return message

    def make_green(self, node: str, count: int) -> None:
        """The first messages of a node's queue become green, and are applied and answered."""
        turned, self.queues[node] = self.queues[node][:count], self.queues[node][count:]
        position = self.green[node]
        for place, message in enumerate(turned, position):
            if place == len(self.order):
                message.revision = place + 1
                self.order.append(message)
            assert self.order[place] is message
        ids = [message.id for message in turned]
        self.green[node] += count
        self.record(node, "green", ids=ids, position=position)
        self.record(
            node, "applied", ids=ids, position=position, writes=[1] * count, revisions=[m.revision for m in turned]
        )
        for message in turned:
            if message.sender == node:
                self.answer(node, message, "green", "applied", message.revision)

    def answer(self, node: str, message: Message, color: str, outcome: str, revision: int | None) -> None:
        runs = {"firsts": [0], "counts": [1], "outcomes": [outcome], "revisions": [revision]}
        self.record(node, "acknowledged", id=message.id, color=color, **runs)
        write = {"worker": "w", "url": node, "operation": "put", "key": "k", "time_ms": self._now, "status": 200}
        answer = {"certainty": "acknowledged", "id": f"{message.id}.0", "color": color, "outcome": outcome}
        self.told.told.append({**write, **answer, "revision": revision, "duration_ms": 0.1})

    def establish(self, view: str, nodes: Iterable[str], number: int) -> None:
        """All members have the same queue: it becomes yellow, then green."""
        members = [f"{node}.1" for node in nodes]
        for node in nodes:
            self.stage(node, view, "establishing", number - 1, self.green[node])
            self.record(node, "attempted", view=view, number=number)
        for node in nodes:
            length = self.green[node] + len(self.queues[node])
            self.record(node, "committed", view=view, number=number, length=length)
            ids = [message.id for message in self.queues[node]]
            if ids:
                self.record(node, "yellow", view=view, ids=ids, position=self.green[node])
        for node in nodes:
            if self.queues[node]:
                self.make_green(node, len(self.queues[node]))
            self.stage(node, view, "primary", number, self.green[node])
            self.record(node, "established", view=view, number=number, members=members)

    def recover(self, view: str, nodes: Iterable[str], committed: int) -> None:
        for node in nodes:
            green = max(self.green[one] for one in nodes)
            self.record(node, "states_exchanged", view=view, committed=committed, green=green, yellow=green)

    def export(self, node: str, number: int, committed: int, yellow: Iterable[Message] = ()) -> None:
        """Exports a node: all but its last two green messages are final."""
        root, final = f"file:/out/{node}", max(0, self.green[node] - 2)
        digest, first = bytes(DIGEST_BYTES), 0
        name = f"{root}/log/segment=0/part-%012d-%012d.parquet"
        exported = max(
            (row["position"] + 1 for row in self.told.logs if row["node"] == node and row["is_final"]), default=0
        )
        messages = [*self.order[: self.green[node]], *self.queues[node]]
        for position, message in enumerate(messages):
            row = _row(message, position, digest)
            digest = row["digest"]
            if position < exported:
                continue
            is_final = position < final
            color = "green" if position < self.green[node] else "yellow" if message in yellow else "red"
            row |= {"color": color, "primary": 1 if message.view == BOTH else 0}
            if is_final:
                where: Fields = {"run": None, "file": name % (exported, final - 1)}
            else:
                where = {"run": number, "file": f"{root}/tail/export={number:06}/part-0.parquet"}
                row |= {"revision": None, "writes": None}
            self.told.logs.append({**row, **where, "node": node, "export": root, "is_final": is_final})
        if final > exported:
            run = {"node": node, "export": root, "run": None, "is_final": True}
            self.told.files.append({"file": name % (exported, final - 1), **run})
        at = {row["position"]: row["digest"] for row in self.told.logs if row["node"] == node and row["is_final"]}
        self.told.manifests.append(
            {
                "version": 1,
                "export": root,
                "number": number,
                "exported_ms": int(self._now) + 1,
                "node": node,
                "file": f"{root}/exports/{number:06}.json",
                "disk": f"disk of {node}",
                "generation": "00ff",
                "first": first,
                "first_digest": "00" * 32,
                "final": final,
                "final_digest": at[final - 1].hex() if final else "00" * 32,
                "green": self.green[node],
                "yellow": self.green[node] + len(list(yellow)),
                "length": len(messages),
                "committed": committed,
                "attempted": committed,
                "bodies": True,
            }
        )


def _row(message: Message, position: int, digest: bytes) -> Fields:
    sender, incarnation, sequence = message.id.split(".")
    sha = hashlib.sha256(message.body).digest()
    write = {"operations": [{"kind": "put", "key": "k", "value_bytes": 1, "by": None}], "outcome": "applied"}
    return {
        "position": position,
        "id": message.id,
        "sender": sender,
        "incarnation": int(incarnation),
        "sequence": int(sequence),
        "clock": message.clock,
        "view": message.view,
        "body": message.body,
        "body_bytes": len(message.body),
        "body_sha256": sha,
        "basis_known": message.known,
        "digest": hashlib.sha256(digest + message.id.encode() + sha).digest(),
        "revision": message.revision,
        "writes": [{**write, "revision": message.revision}],
    }


def clean_history() -> Told:
    """Returns what is told of a history without violations."""
    cluster = Cluster()
    cluster.view(BOTH, NODES)
    for node in NODES:
        cluster.stage(node, BOTH, "recovering", 0, 0)
    cluster.recover(BOTH, NODES, 0)
    cluster.establish(BOTH, NODES, 1)
    for sender in ("a", "b", "c", "a", "b"):
        cluster.send(sender, BOTH, NODES, "yellow")
    for node in NODES:
        cluster.make_green(node, 5)
    fallen = cluster.send("c", BOTH, ("c",), "yellow")
    _cut(cluster, fallen)
    _merge(cluster, fallen)
    for node in NODES:
        cluster.record(node, "stopped", reason="closed")
        cluster.export(node, 2, 3)
    return cluster.told


def _cut(cluster: Cluster, fallen: Message) -> None:
    """Two nodes go on as a primary component, and the third alone. It has a yellow message that nobody else
    has."""
    two = ("a", "b")
    cluster.view(CUT, two)
    cluster.view(ALONE, ("c",))
    for node in two:
        cluster.stage(node, CUT, "recovering", 1, 5)
    cluster.stage("c", ALONE, "recovering", 1, 6)
    cluster.recover(CUT, two, 1)
    cluster.recover(ALONE, ("c",), 1)
    cluster.establish(CUT, two, 2)
    cluster.stage("c", ALONE, "non_primary", 1, 6)
    cluster.export("c", 1, 1, [fallen])
    for sender in ("a", "b", "a"):
        cluster.send(sender, CUT, two, "yellow")
    for node in two:
        cluster.make_green(node, 3)
    cluster.export("a", 1, 2)
    for _ in range(2):
        message = cluster.send("c", ALONE, ("c",), "red")
        cluster.answer("c", message, "red", "pending", None)


def _merge(cluster: Cluster, fallen: Message) -> None:
    """The third node takes over the order of the two, its yellow message falls back to red, and all red messages
    are shared."""
    cluster.view(MERGED, NODES)
    for node in ("a", "b"):
        cluster.stage(node, MERGED, "recovering", 2, 8)
    cluster.stage("c", MERGED, "recovering", 1, 6)
    cluster.recover(MERGED, NODES, 2)
    reds, news = list(cluster.queues["c"]), cluster.order[5:8]
    cluster.record("a", "copies_sent", view=MERGED, kind="priority", ids=[one.id for one in news])
    cluster.record("c", "recovered", view=MERGED, ids=[one.id for one in news], color="red")
    cluster.queues["c"] = [*news, *reds]
    cluster.make_green("c", 3)
    cluster.record("c", "demoted", view=MERGED, ids=[fallen.id], count=1)
    cluster.record("c", "copies_sent", view=MERGED, kind="red", ids=[one.id for one in reds])
    for node in ("a", "b"):
        cluster.record(node, "recovered", view=MERGED, ids=[one.id for one in reds], color="red")
        cluster.queues[node] += reds
    cluster.establish(MERGED, NODES, 3)


def inputs_of(spark: SparkSession, clusters: Mapping[str, Told]) -> Inputs:
    """Returns the frames of all of these clusters."""

    def frame(name: str, schema: Columns) -> DataFrame:
        rows = [
            tuple({"cluster": cluster, **one}.get(column) for column in schema)
            for cluster, told in clusters.items()
            for one in getattr(told, name)
        ]
        return spark.createDataFrame(rows, schema.ddl)

    return Inputs(
        records=frame("records", RECORDS),
        logs=frame("logs", LOGS),
        told=frame("told", TOLD),
        manifests=frame("manifests", MANIFESTS),
        files=frame("files", LOG_FILES),
        skipped=spark.createDataFrame([], SKIPPED.ddl),
    )
