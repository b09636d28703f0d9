"""Large synthetic logs, themselves made by Spark: journals and exported logs of a cluster that is partitioned and
merged again and again, as large as wanted, the same for the same seed.

`shape` says what happens, `order` which message is where, `journals` and `exports` what nodes have written of it.
Nothing is shuffled but the lines of journals, each once, so that a file has the lines of one node in their
order. The driver makes the records of changes, some dozen a cycle, and the chain of digests (`exports`)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.files import Files
from spark.generator.exports import write_exports
from spark.generator.journals import journal_lines
from spark.generator.plants import PLANTS, PlantError, plant
from spark.generator.shape import Shape, shape_of

__all__ = ["PLANTS", "PlantError", "Shape", "generate", "plant", "shape_of"]

FILE_CYCLES = 4
"""So many cycles of a large cluster are in one file of a journal: some 10 MB."""


def generate(spark: SparkSession, shape: Shape, out: str, with_bodies: bool = False) -> None:
    """Writes journals to `out/data/NODE/journal` and exported logs to `out/export/NODE`."""
    write_journals(spark, shape, f"{out}/data")
    write_exports(spark, shape, f"{out}/export", with_bodies)


def write_journals(spark: SparkSession, shape: Shape, out: str) -> None:
    """Writes the journals of all nodes to directories of their names."""
    files, scratch = Files(spark, out), f"{out}/_lines"
    slices = -(-shape.cycles // FILE_CYCLES)
    lines = journal_lines(spark, shape, max(slices, spark.sparkContext.defaultParallelism))
    lines = lines.selectExpr("node", "incarnation", f"cycle div {FILE_CYCLES} as part", "us", "line")
    ordered = lines.repartition(slices, "part").sortWithinPartitions("node", "incarnation", "part", "us")
    by = ("node", "incarnation", "part")
    ordered.select(*by, "line").write.mode("overwrite").partitionBy(*by).text(scratch)
    for node in shape.names:
        for incarnation in _values(files, f"{scratch}/node={node}"):
            _place_journal(
                files, f"{scratch}/node={node}/incarnation={incarnation}", incarnation, f"{out}/{node}/journal"
            )
    files.delete(scratch)


def _place_journal(files: Files, source: str, incarnation: int, target: str) -> None:
    number = 0
    for part in _values(files, source):
        for name in files.names(f"{source}/part={part}"):
            if name.endswith(".txt"):
                number += 1
                files.move(f"{source}/part={part}/{name}", f"{target}/journal-{incarnation:012}-{number:06}.jsonl")


def _values(files: Files, directory: str) -> list[int]:
    """The values by which a directory is divided."""
    return sorted(int(name.partition("=")[2]) for name in files.names(directory) if "=" in name)
