"""The exported logs of a synthetic cluster.

Digests are a chain over the whole order, which no two tasks can compute at once. So the order goes through the
driver: each segment comes in as one text of ids and one of body digests, and its digests go out as one run of
bytes. That takes a few microseconds a message, and the memory of some segments; everything else about a row is
computed by the tasks, from its position."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from kvstore.log_schema import DIGEST_BYTES, FIELDS, SEGMENT_POSITIONS, VERSION
from spark.files import Files
from spark.generator.changes import revision_at
from spark.generator.order import in_array, looked_up, steps
from spark.generator.rows import at_node, body_of, with_content
from spark.generator.shape import START_US, Shape
from spark.local_frames import local_frame

GROUP_SEGMENTS = 16
"""So many segments are in the driver's memory at a time, with 2 MiB of digests each."""

FIRST_DIGEST = bytes(DIGEST_BYTES)
EXPORT = 1
"""The number of the one run of the export that the logs seem to come from."""


@dataclass(frozen=True, slots=True)
class Log:
    """A node's log in the end."""

    node: str
    index: int
    final: int
    green: int
    yellow: int
    length: int
    committed: int


def logs_of(shape: Shape) -> list[Log]:
    """Of every node. The last green messages of each have not reached its tree."""
    length, number = shape.majority_length, 2 * shape.cycles
    lines = (shape.minority_green, shape.minority_yellow, shape.minority_length)
    majority = (length - 2 * shape.majority, length, length, length, number)
    minority = (shape.minority_green - 2 * shape.nodes, *lines, number - 1)
    return [
        Log(name, index, *(majority if index < shape.majority else minority))
        for index, name in enumerate(shape.names)
    ]


def write_exports(spark: SparkSession, shape: Shape, out: str, with_bodies: bool = False) -> None:
    """Writes the exports of all nodes to directories of their names."""
    files, logs, chain = Files(spark, out), logs_of(shape), Chain(spark, shape)
    scratch = f"{out}/_rows"
    for group in chain.groups():
        rows = _final_rows(shape, with_content(shape, _positions(spark, group), with_bodies), logs)
        rows.write.mode("overwrite").partitionBy("node", "segment").parquet(scratch)
        for log in logs:
            for segment, _ in group:
                _place_segment(files, scratch, out, log, segment)
    tails = [_tail_rows(shape, log, _tail_positions(spark, shape, chain, log), with_bodies) for log in logs]
    reduce(DataFrame.unionByName, tails).write.mode("overwrite").partitionBy("node").parquet(scratch)
    for log in logs:
        directory, tail = f"{scratch}/node={log.node}", f"{out}/{log.node}/tail/export={EXPORT:06}"
        for name in _parquet_files(files, directory):
            files.move(f"{directory}/{name}", f"{tail}/{_part(log.final, log.length - 1)}")
        manifest = json.dumps(_manifest(log, chain, with_bodies), indent=2)
        files.write(f"{out}/{log.node}/exports/{EXPORT:06}.json", manifest)
    files.delete(scratch)


class Chain:
    """The digests of the order."""

    def __init__(self, spark: SparkSession, shape: Shape) -> None:
        self._spark = spark
        self._shape = shape
        self._kept: dict[int, bytes] = {}
        """After the last messages, by position, from before the first tail on."""
        self._keep_from = min(log.final for log in logs_of(shape)) - 1

    def groups(self) -> Iterator[list[tuple[int, bytes]]]:
        """Segments with the digests of their messages, some at a time."""
        count = -(-self._shape.majority_length // SEGMENT_POSITIONS)
        digest = FIRST_DIGEST
        for first in range(0, count, GROUP_SEGMENTS):
            group = []
            for row in self._order(first, min(count, first + GROUP_SEGMENTS)):
                digests = list(chained(digest, row.ids.split(" "), row.bodies.split(" ")))
                digest = digests[-1]
                position = row.segment * SEGMENT_POSITIONS
                begin = max(0, self._keep_from - position)
                self._kept.update(enumerate(digests[begin:], position + begin))
                group.append((row.segment, b"".join(digests)))
            yield group

    def at(self, line: int) -> bytes:
        """The digest of so many messages; of as many as are final at some node, or of more."""
        return self._kept[line - 1] if line else FIRST_DIGEST

    def _order(self, first: int, end: int) -> list[Row]:
        segments = self._spark.range(first, end, 1, end - first)
        last = f"least({self._shape.majority_length}L, (id + 1) * {SEGMENT_POSITIONS}L) - 1"
        messages = in_array(f"sequence(id * {SEGMENT_POSITIONS}L, {last})", steps(self._shape))
        rows = segments.selectExpr("id as segment", f"{messages} as messages")
        return _names_and_bodies(self._shape, rows, "segment").collect()


def _names_and_bodies(shape: Shape, rows: DataFrame, *columns: str) -> DataFrame:
    """The ids, and the body digests, of arrays of `messages`, as texts."""
    digests = f"transform(messages, m -> sha2({body_of(shape, 'm.id', 'm.bytes')}, 256))"
    ids = "array_join(messages.id, ' ') as ids"
    return rows.selectExpr(*columns, ids, f"array_join({digests}, ' ') as bodies")


def chained(digest: bytes, ids: Iterable[str], bodies: Iterable[str]) -> Iterator[bytes]:
    """The digests of the order after each of the messages, from the one before them on."""
    for message_id, body in zip(ids, bodies, strict=True):
        digest = sha256(digest + message_id.encode() + bytes.fromhex(body)).digest()
        yield digest


# Final rows


def _positions(spark: SparkSession, group: Sequence[tuple[int, bytes]]) -> DataFrame:
    """Columns `position` and `digest` of segments, each of them in order and in one task."""
    digests = local_frame(spark, list(group), "segment long, digests binary").repartition(len(group), "segment")
    return digests.selectExpr(
        f"""inline(transform(sequence(0, cast(length(digests) / {DIGEST_BYTES} as int) - 1), k -> named_struct(
            'position', segment * {SEGMENT_POSITIONS}L + k,
            'digest', substring(digests, k * {DIGEST_BYTES} + 1, {DIGEST_BYTES}))))"""
    )


def _final_rows(shape: Shape, rows: DataFrame, logs: Sequence[Log]) -> DataFrame:
    each = rows.withColumn("log", F.expr(f"explode(sequence(0L, {len(logs) - 1}L))"))
    final = each.filter(f"position < {looked_up([log.final for log in logs], 'log')}")
    named = {
        "node": looked_up(shape.names, "log"),
        "segment": f"position div {SEGMENT_POSITIONS}",
        "color": "'green'",
    }
    placed = at_node(shape, final, "log").withColumns({name: F.expr(of) for name, of in named.items()})
    return placed.select(*FIELDS, "node", "segment").sortWithinPartitions("node", "segment", "position")


def _place_segment(files: Files, scratch: str, out: str, log: Log, segment: int) -> None:
    directory = f"{scratch}/node={log.node}/segment={segment}"
    first = segment * SEGMENT_POSITIONS
    for name in _parquet_files(files, directory):
        last = min(log.final, first + SEGMENT_POSITIONS) - 1
        files.move(f"{directory}/{name}", f"{out}/{log.node}/log/segment={segment}/{_part(first, last)}")


def _parquet_files(files: Files, directory: str) -> list[str]:
    return [name for name in files.names(directory) if name.endswith(".parquet")]


def _part(first: int, last: int) -> str:
    return f"part-{first:012}-{last:012}.parquet"


# Tails


def _tail_positions(spark: SparkSession, shape: Shape, chain: Chain, log: Log) -> DataFrame:
    """Columns `position`, as in the order, `queued_at` in this log, and `digest`. After what it has of the order,
    the minority has its red messages, which will get other places."""
    shared = min(log.length, log.yellow - shape.minority if log.index >= shape.majority else log.yellow)
    places = list(range(log.final, log.length))
    positions = [place if place < shared else place + shape.apart for place in places]
    listed = ", ".join(f"{position}L" for position in positions[shared - log.final :])
    digests = [chain.at(place + 1) for place in places[: shared - log.final]]
    if listed:
        messages = in_array(f"array({listed})", steps(shape))
        order = spark.range(1).selectExpr(f"{messages} as messages")
        row = _names_and_bodies(shape, order).collect()[0]
        digests += chained(chain.at(shared), row.ids.split(" "), row.bodies.split(" "))
    rows = list(zip(positions, places, digests, strict=True))
    return local_frame(spark, rows, "position long, queued_at long, digest binary").coalesce(1)


def _tail_rows(shape: Shape, log: Log, positions: DataFrame, with_bodies: bool) -> DataFrame:
    color = f"if(queued_at < {log.green}, 'green', if(queued_at < {log.yellow}, 'yellow', 'red'))"
    undecided = """transform(writes, w -> named_struct('operations', w.operations, 'otherwise', w.otherwise,
        'conditions', w.conditions, 'idempotency_key', w.idempotency_key, 'merge', w.merge,
        'outcome', cast(null as string), 'revision', cast(null as bigint), 'reason', cast(null as string),
        'first', w.first))"""
    rows = with_content(shape, positions, with_bodies)
    placed = at_node(shape, rows, f"{log.index}").withColumns(
        {
            "node": F.lit(log.node),
            "position": F.col("queued_at"),
            "color": F.expr(color),
            "writes": F.expr(undecided),
            "revision": F.lit(None).cast("long"),
        }
    )
    return placed.select(*FIELDS, "node")


def _manifest(log: Log, chain: Chain, with_bodies: bool) -> dict[str, object]:
    return {
        "version": VERSION,
        "number": EXPORT,
        "exported_ms": START_US // 1_000,
        "cluster": "synthetic",
        "node": log.node,
        "disk": f"00000000-0000-4000-8000-{log.index:012}",
        "generation": "00" * 16,
        "first": 0,
        "first_digest": FIRST_DIGEST.hex(),
        "final": log.final,
        "final_digest": chain.at(log.final).hex(),
        "green": log.green,
        "yellow": log.yellow,
        "length": log.length,
        "green_digest": sha256(chain.at(log.green)).hexdigest(),
        "committed": log.committed,
        "attempted": log.committed,
        "revision": revision_at(log.final),
        "bodies": with_bodies,
    }
