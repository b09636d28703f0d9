"""Follows journals while nodes write them: lag, partitions and divergence as they happen.

Spark's stream hands over batches of whole files, each under a number, and after a failure the same files under the
same number again. A batch goes through the transformations of `batches`, on top of the state that the one before
it left (`checkpoint`), so every record counts once, however often the process is killed.

What is kept is bounded. The order is kept from the lowest green line of all nodes on, because what all of them
have told of is compared for good; that is the watermark here, and it is exact where one in time would not be: a
node that comes back after hours tells of old positions with new times. If a node is more than `HORIZON_POSITIONS`
behind, the rest is left to the audit. Messages that are waited for are those that are not green at their senders,
at most `WAITING_MAX`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from spark.reading import records_of
from spark.streaming import batches
from spark.streaming.checkpoint import Checkpoint
from spark.streaming.picture import WAITING_MAX, Alert, Picture, passing_partitions, told_changes

CONTRADICTIONS_TOLD_MAX = 10
"""So many positions of each cluster are named; all are counted."""

SKIPPED_FILES_MAX = 100
"""So many files before one that was read are looked for."""

_NAME = re.compile(r"journal-(\d+)-(\d+)\.jsonl$")

_STOP = (
    "take no more writes for granted: keep all journals and disks, and run corelkv analyze over all exported logs"
)
_MISSING = "raise journal_bytes_max, or follow more often: what was in it is not compared"
_TORN = "a node was killed or lost power while it wrote; nothing else is wrong"
_LOST = "its journal's disk was full or slow: make room"


@dataclass(frozen=True, slots=True)
class Told:
    """What one batch has told."""

    batch: int
    nodes: list[dict[str, Any]]
    """One for each node of which the batch has records: where it is, and how long its messages took."""
    alerts: list[Alert]


class FollowError(Exception):
    """A batch could not be handled."""


class Follower:
    """Handles one batch after the other."""

    def __init__(self, checkpoint: Checkpoint, tell: Callable[[Told], None]) -> None:
        self._checkpoint = checkpoint
        self._tell = tell
        self.error: Exception | None = None
        """What went wrong in a batch. Spark is told only that something did: it makes a text of it, which may be
        longer than it can handle."""

    def handle(self, lines: DataFrame, batch: int) -> None:
        """Handles a batch of journal lines, unless it was handled before."""
        if self._checkpoint.is_done(batch):
            return
        lines.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._tell(self._handled(lines, batch))
        except Exception as error:
            self.error = error
            raise FollowError(f"batch {batch} failed") from None
        finally:
            lines.unpersist()

    def _handled(self, lines: DataFrame, batch: int) -> Told:
        checkpoint, records = self._checkpoint, records_of(lines)
        picture = checkpoint.picture_before(batch)
        facts = [row.asDict() for row in batches.node_facts(records).collect()]
        picture.update(facts)
        wall_ms = max((one["wall_ms"] for one in facts), default=0.0)
        alerts = [
            *self._compare(records, picture, batch, wall_ms),
            *_file_alerts(picture, batches.files_of(lines).collect(), wall_ms, checkpoint.exists),
            *_lost_alerts(facts),
            *passing_partitions(picture, facts),
            *told_changes(picture, wall_ms),
        ]
        lags = self._time(records, picture, batch)
        nodes = [_node_line(batch, one, picture, lags) for one in facts]
        checkpoint.tell(batch, "nodes", nodes)
        checkpoint.tell(batch, "alerts", ({"batch": batch, **alert._asdict()} for alert in alerts))
        checkpoint.done(batch, picture)
        return Told(batch, nodes, alerts)

    def _compare(self, records: DataFrame, picture: Picture, batch: int, wall_ms: float) -> Iterator[Alert]:
        """Compares the green orders of nodes."""
        known = self._checkpoint.frame_before(batch, "order", batches.ORDER)
        positions = batches.compared(known, batches.green_claims(records)).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._checkpoint.keep(batch, "order", batches.kept_order(positions, picture.bounds()))
            found = batches.contradictions(positions)
            counts = {row["cluster"]: row["count"] for row in found.groupBy("cluster").count().collect()}
            for cluster, count in counts.items():
                here = found.where(found["cluster"] == cluster).orderBy("position").limit(CONTRADICTIONS_TOLD_MAX)
                yield from _divergences(cluster, count, here.collect(), wall_ms)
        finally:
            positions.unpersist()

    def _time(
        self, records: DataFrame, picture: Picture, batch: int
    ) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """How long messages took that became green in this batch, by node."""
        waiting = self._checkpoint.frame_before(batch, "waiting", batches.WAITING)
        waited = batches.waits(waiting, records).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            still = batches.still_waiting(waited, picture.incarnations())
            count = still.count()
            if count > WAITING_MAX:
                still = batches.youngest(still, WAITING_MAX / count)
            self._checkpoint.keep(batch, "waiting", still)
            found: dict[tuple[str, str], list[dict[str, Any]]] = {}
            for row in batches.lags(waited).collect():
                lag = row.asDict()
                found.setdefault((lag.pop("cluster"), lag.pop("node")), []).append(lag)
            return found
        finally:
            waited.unpersist()


def _node_line(
    batch: int, facts: Mapping[str, Any], picture: Picture, lags: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> dict[str, Any]:
    key = (facts["cluster"], facts["node"])
    node = picture.nodes[key]
    return {
        "batch": batch,
        "cluster": facts["cluster"],
        "node": facts["node"],
        "wall_ms": node.wall_ms,
        "records": facts["records"],
        "greened": facts["greened"],
        "green": node.green,
        "yellow": node.yellow,
        "length": node.length,
        "red": node.red,
        "stage": node.stage,
        "committed": node.committed,
        "members": list(node.members),
        "to_green": lags.get(key, []),
    }


def _divergences(cluster: str, count: int, rows: Sequence[Row], wall_ms: float) -> Iterator[Alert]:
    for row in rows:
        claims = [(claim["node"], claim["id"]) for claim in row["claims"]]
        said = ", ".join(f"{message_id} at {node}" for node, message_id in claims)
        kind = "changed_green" if len({node for node, _ in claims}) < len(claims) else "divergence"
        of_all = f"one of {count:,} such positions in this batch"
        text = f"different messages are green at position {row['position']}: {said} ({of_all})"
        yield Alert(cluster, kind, str(row["position"]), False, wall_ms, text, _STOP)


def _file_alerts(
    picture: Picture, files: Iterable[Row], wall_ms: float, exists: Callable[[str], bool]
) -> Iterator[Alert]:
    """Of torn lines, and of journal files that have disappeared before they were read: their numbers are skipped,
    and they are not there."""
    for row in sorted(files, key=lambda one: str(one["file"])):
        name = _NAME.search(row["file"])
        if row["torn"]:
            text = f"{row['torn']} lines cannot be read in {row['file']}"
            yield Alert(row["cluster"], "torn", row["file"], False, wall_ms, text, _TORN)
        if name is None or row["node"] is None:
            continue
        key, number = (row["cluster"], row["node"], int(name[1])), int(name[2])
        skipped = range(picture.files.get(key, number - 1) + 1, number)
        missing = [one for one in skipped[-SKIPPED_FILES_MAX:] if not exists(_numbered(row["file"], name, one))]
        if missing:
            those = f"{len(missing)} journal files of {row['node']}"
            text = f"{those} before {name[0]} were deleted before they were read"
            yield Alert(row["cluster"], "missing", row["node"], False, wall_ms, text, _MISSING)
        for older in [one for one in picture.files if one[:2] == key[:2] and one[2] < key[2]]:
            del picture.files[older]
        picture.files[key] = max(number, picture.files.get(key, 0))


def _numbered(file: str, name: re.Match[str], number: int) -> str:
    """The path of another file of the same incarnation."""
    return unquote(file[: name.start(2)] + f"{number:0{len(name[2])}}" + file[name.end(2) :])


def _lost_alerts(facts: Iterable[Mapping[str, Any]]) -> Iterator[Alert]:
    for one in facts:
        if one["lost"]:
            text = f"the journal of {one['node']} lacks {one['lost']:,} events"
            yield Alert(one["cluster"], "lost", one["node"], False, one["wall_ms"], text, _LOST)


def open_checkpoint(spark: SparkSession, directory: str, followed: Sequence[str]) -> Checkpoint:
    """Raises `CheckpointError` if it is of other directories."""
    checkpoint = Checkpoint(spark, directory)
    checkpoint.bind(followed)
    return checkpoint
