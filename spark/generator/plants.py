"""Violations that are planted in logs, to see that the audit finds them.

Each changes the files of one node, or of all, that are already there: it works on real logs as well as on
synthetic ones. What is changed is in the last segment of an exported log, or in one file of a journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kvstore.log_schema import FIELDS
from spark.files import Files
from spark.generator.exports import FIRST_DIGEST, chained
from spark.local_frames import local_frame
from spark.schemas import LOG_ROWS

Change: TypeAlias = Callable[[DataFrame, int], DataFrame]
"""What is done to the rows of a segment. The number is the position at which it is to be done."""


class PlantError(Exception):
    """The logs are not such that this violation can be planted in them; the text says why."""


def plant(spark: SparkSession, out: str, name: str) -> None:
    """Plants a violation in the logs of `generate`. Raises `PlantError`."""
    if name not in PLANTS:
        raise PlantError(f"there is no violation {name!r}: {', '.join(sorted(PLANTS))}")
    PLANTS[name](_Logs(spark, out))


class _Logs:
    """The logs in a directory."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self.spark = spark
        self.out = out
        self.files = Files(spark, out)
        self.nodes = self.files.names(f"{out}/export")
        if not self.nodes:
            raise PlantError(f"there are no exported logs in {out}/export")

    def middle(self, nodes: Sequence[str]) -> int:
        """A position in the middle of what all these nodes have of the last segment."""
        bounds = [self._rows(self._last_file(node)).agg(F.min("position"), F.max("position")) for node in nodes]
        firsts, lasts = zip(*((row[0], row[1]) for one in bounds for row in one.collect()), strict=True)
        if len(set(firsts)) > 1:
            raise PlantError("the logs of the nodes end in different segments: try another number of events")
        return int(firsts[0] + (min(lasts) - firsts[0]) // 2)

    def change_rows(self, node: str, at: int, change: Change, is_chained: bool) -> None:
        """Changes the last segment of a node's log; with right digests from there on, if it is to be chained."""
        root, file = f"{self.out}/export/{node}", self._last_file(node)
        rows = self._rows(file)
        changed = change(rows, at)
        if is_chained:
            tail = f"{root}/tail/{self.files.names(f'{root}/tail')[-1]}"
            changed, last = self._chained(changed, self._digest_before(root, rows))
            self._chain_tail(tail, last)
            self._chain_manifest(f"{root}/exports", last)
        self._replace(changed, file)

    def _last_file(self, node: str) -> str:
        log = f"{self.out}/export/{node}/log"
        segments = sorted(self.files.names(log), key=lambda name: int(name.partition("=")[2]))
        return f"{log}/{segments[-1]}/{self.files.names(f'{log}/{segments[-1]}')[-1]}"

    def _rows(self, path: str) -> DataFrame:
        return self.spark.read.schema(LOG_ROWS.ddl).parquet(path)

    def change_lines(self, node: str, change: Callable[[DataFrame], DataFrame]) -> None:
        """Changes the first file of a node's journal, a column `value`."""
        directory = f"{self.out}/data/{node}/journal"
        file = f"{directory}/{self.files.names(directory)[0]}"
        scratch = f"{self.out}/_changed"
        changed = change(self.spark.read.text(file).coalesce(1))
        changed.select("value").write.mode("overwrite").text(scratch)
        self._move_from(scratch, ".txt", file)

    def _digest_before(self, root: str, rows: DataFrame) -> bytes:
        """The digest of the order before the first of the rows."""
        first = rows.agg(F.min("position")).collect()[0][0]
        if first == 0:
            return FIRST_DIGEST
        before = self._rows(f"{root}/log").filter(F.col("position") == first - 1)
        return bytes(before.select("digest").collect()[0][0])

    def _chained(self, rows: DataFrame, digest: bytes) -> tuple[DataFrame, bytes]:
        order = rows.selectExpr("position", "id", "hex(body_sha256) as body").orderBy("position").collect()
        digests = list(chained(digest, [row.id for row in order], [row.body for row in order]))
        chain = [(row.position, digest) for row, digest in zip(order, digests, strict=True)]
        renewed = local_frame(self.spark, chain, "position long, digest binary")
        return rows.drop("digest").join(renewed, "position"), digests[-1]

    def _chain_tail(self, directory: str, digest: bytes) -> None:
        for file in self.files.names(directory):
            rows = self._rows(f"{directory}/{file}")
            self._replace(self._chained(rows, digest)[0], f"{directory}/{file}")

    def _chain_manifest(self, directory: str, digest: bytes) -> None:
        path = f"{directory}/{self.files.names(directory)[-1]}"
        manifest = {**json.loads(self.files.read(path)), "final_digest": digest.hex()}
        self.files.write(path, json.dumps(manifest, indent=2))

    def _replace(self, rows: DataFrame, file: str) -> None:
        scratch = f"{self.out}/_changed"
        ordered = rows.select(*FIELDS).coalesce(1).sortWithinPartitions("position")
        ordered.write.mode("overwrite").parquet(scratch)
        self._move_from(scratch, ".parquet", file)

    def _move_from(self, scratch: str, suffix: str, file: str) -> None:
        for name in self.files.names(scratch):
            if name.endswith(suffix) and not name.startswith((".", "_")):
                self.files.move(f"{scratch}/{name}", file)
        self.files.delete(scratch)


# In exported logs


def _exchanged(rows: DataFrame, first: int, second: int) -> DataFrame:
    """Two messages at each other's places."""
    at = F.col("position")
    moved = F.when(at == first, second).when(at == second, first).otherwise(at)
    return rows.withColumn("position", moved.cast("long"))


def _swap(rows: DataFrame, at: int) -> DataFrame:
    return _exchanged(rows, at, at + 1)


def _overtaken(rows: DataFrame, at: int) -> DataFrame:
    """A message before the one that its sender had sent before it."""
    earlier = rows.filter(F.col("position") == at).first()
    assert earlier is not None
    later = rows.filter((F.col("position") > at) & (F.col("sender") == earlier.sender)).agg(F.min("position"))
    return _exchanged(rows, at, later.collect()[0][0])


def _twice(rows: DataFrame, at: int) -> DataFrame:
    """A message at two places, at the second instead of another one."""
    kept = rows.filter(F.col("position") != at + 1)
    return kept.unionByName(
        rows.filter(F.col("position") == at).withColumn("position", F.lit(at + 1).cast("long"))
    )


def _missing(rows: DataFrame, at: int) -> DataFrame:
    return rows.filter(F.col("position") != at)


def _at(at: int, name: str, changed: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn(name, F.expr(f"if(position = {at}, {changed}, {name})"))


def _flipped(rows: DataFrame, at: int) -> DataFrame:
    """One byte of a body, or of its digest where there are no bodies."""

    def flip(name: str) -> str:
        byte = f"conv(hex(substring({name}, 1, 1)), 16, 10)"
        return f"unhex(concat(lpad(hex(cast({byte} as bigint) ^ 1), 2, '0'), substring(hex({name}), 3)))"

    has_body = rows.filter("body is not null").limit(1).count() > 0
    name = "body" if has_body else "body_sha256"
    return _at(at, name, flip(name))(rows)


def _other_outcome(rows: DataFrame, at: int) -> DataFrame:
    changed = """transform(writes, (w, k) -> if(k > 0, w, named_struct('operations', w.operations,
        'otherwise', w.otherwise, 'conditions', w.conditions, 'idempotency_key', w.idempotency_key,
        'merge', w.merge, 'outcome', 'rejected', 'revision', w.revision, 'reason', 'condition_failed',
        'first', w.first)))"""
    return _at(at, "writes", changed)(rows)


def _other_revision(rows: DataFrame, at: int) -> DataFrame:
    return _at(at, "revision", "revision + 1")(rows)


# In journals


def _without(event: str, lines: DataFrame) -> DataFrame:
    return lines.filter(F.get_json_object("value", "$.event") != event)


def _one(lines: DataFrame, event: str, condition: str = "true") -> str:
    """One line of this event, of which there are enough before and after it."""
    found = lines.filter(F.get_json_object("value", "$.event") == event).filter(condition)
    texts = [row.value for row in found.limit(20).collect()]
    if not texts:
        raise PlantError(f"there is no record of {event}")
    return str(texts[len(texts) // 2])


def _edited(lines: DataFrame, line: str, *instead: dict[str, object]) -> DataFrame:
    """Other lines instead of this one."""
    texts = [json.dumps(one, separators=(",", ":")) for one in instead]
    replaced = F.when(F.col("value") == line, F.array(*map(F.lit, texts))).otherwise(F.array("value"))
    return lines.select(F.explode(replaced).alias("value"))


def _second_primary(lines: DataFrame) -> DataFrame:
    """The minority establishes a primary component of its own, with the number of the majority's."""
    line = _one(lines, "stage", "value like '%\"no_majority\"%' and get_json_object(value, '$.committed') > 0")
    stage = json.loads(line)
    common = {name: stage[name] for name in ("version", "node", "incarnation", "monotonic_ms", "wall_ms")}
    number, me = stage["committed"] + 1, f"{stage['node']}.{stage['incarnation']}"
    phase = {**common, "view": stage["view"], "reason": "majority", "number": number}
    return _edited(
        lines,
        line,
        stage,
        {**phase, "event": "attempted"},
        {**phase, "event": "committed", "length": stage["length"]},
        {**phase, "event": "established", "members": [me]},
    )


def _told_otherwise(lines: DataFrame) -> DataFrame:
    """A client was told another revision than its write has."""
    line = _one(lines, "acknowledged", "value like '%\"green\"%'")
    told = json.loads(line)
    told["revisions"][0] += 1_000_000
    return _edited(lines, line, told)


def _told_of_nothing(lines: DataFrame) -> DataFrame:
    """A client was told of a write that is in no log."""
    line = _one(lines, "acknowledged", "value like '%\"green\"%'")
    told = json.loads(line)
    stream, _, sequence = told["id"].rpartition(".")
    told["id"] = f"{stream}.{int(sequence) + 1_000_000_000}"
    return _edited(lines, line, told)


def _other_order(lines: DataFrame) -> DataFrame:
    """A node journaled its messages as green in another order."""
    line = _one(lines, "green", 'value like \'%,%"ids":["%","%\'')
    green = json.loads(line)
    green["ids"].reverse()
    return _edited(lines, line, green)


def _green_demoted(lines: DataFrame) -> DataFrame:
    """Messages became red that were green."""
    line = _one(lines, "green")
    green = json.loads(line)
    common = {name: green[name] for name in ("version", "node", "incarnation", "monotonic_ms", "wall_ms")}
    demoted = {**common, "event": "demoted", "reason": "states", "count": len(green["ids"]), "ids": green["ids"]}
    return _edited(lines, line, green, demoted)


def _in_rows(change: Change, is_chained: bool, logs: _Logs) -> None:
    node = logs.nodes[1]
    logs.change_rows(node, logs.middle([node]), change, is_chained)


def _in_all_rows(change: Change, logs: _Logs) -> None:
    """In the logs of all nodes, and without journals, which would contradict them."""
    at = logs.middle(logs.nodes)
    for node in logs.nodes:
        logs.change_rows(node, at, change, is_chained=True)
    logs.files.delete(f"{logs.out}/data")


def _in_lines(change: Callable[[DataFrame], DataFrame], index: int, logs: _Logs) -> None:
    logs.change_lines(logs.nodes[index], change)


PLANTS: dict[str, Callable[[_Logs], None]] = {
    "swap": partial(_in_rows, _swap, True),
    "twice": partial(_in_rows, _twice, True),
    "overtaken": partial(_in_all_rows, _overtaken),
    "missing": partial(_in_rows, _missing, False),
    "flip": partial(_in_rows, _flipped, False),
    "outcome": partial(_in_rows, _other_outcome, False),
    "revision": partial(_in_rows, _other_revision, False),
    "demotion": partial(_in_lines, partial(_without, "demoted"), -1),
    "primaries": partial(_in_lines, _second_primary, -1),
    "told": partial(_in_lines, _told_otherwise, 0),
    "lost": partial(_in_lines, _told_of_nothing, 0),
    "journal-order": partial(_in_lines, _other_order, 1),
    "green-demoted": partial(_in_lines, _green_demoted, 1),
}
"""The violations by name. What is planted in one node's log is in that of the second, but what only a node of a
minority can do is in that of the last."""
