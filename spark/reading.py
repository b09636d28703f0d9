"""Reads what `sources` has found, as frames with the columns of `schemas`.

Nothing is inferred: every file is read by the schema that its writer shares with us. What cannot be read is left
out, and counted in SKIPPED: torn lines, versions of a schema that this program does not know, journals that are
still being written on a file system where they cannot be copied, exports without a manifest. A Parquet file that
is damaged ends no job: its rows are missing from `logs`, and `audit` says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F

from kvstore.journal_schema import SCHEMA
from kvstore.log_schema import VERSION
from spark import sources
from spark.local_frames import local_frame
from spark.schemas import (
    CORRUPT,
    JOURNAL_LINES,
    LOG_FILES,
    LOG_ROWS,
    LOGS,
    MANIFEST_LINES,
    MANIFESTS,
    RECORDS,
    SKIPPED,
    TOLD,
    TOLD_LINES,
    Columns,
)
from spark.sources import ExportFiles, Sources, cluster_of, find, finished_name
from spark.staging import Staging

TOLD_VERSION = 1
"""The version of the load tests' record that is known here."""

TORN = "torn lines"
FOREIGN = "records of a version that is not known here"
FOREIGN_EXPORT = "exports of a version that is not known here"
UNREADABLE_MANIFEST = "manifests that cannot be read"
UNFINISHED = "journal files that are being written, and cannot be copied from where they are"
UNFINISHED_EXPORT = "files of an export that has not finished"
NO_END = "records of load generators that did not end"
FEWER_LINES = "lines missing from records of load generators"


class _LogFile(NamedTuple):
    path: str
    cluster: str
    node: str
    export: str
    run: int | None
    is_final: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that there is to analyse."""

    records: DataFrame
    logs: DataFrame
    told: DataFrame
    manifests: DataFrame
    files: DataFrame
    """LOG_FILES: the files that `logs` are read from, whether or not they can be."""
    skipped: DataFrame


@dataclass(slots=True)
class _Left:
    """What was left out so far."""

    rows: list[tuple[str, str, str, int]] = field(default_factory=list)

    def out(self, file: str, what: str, count: int = 1) -> None:
        self.rows.append((cluster_of(file), file, what, count))


def read(spark: SparkSession, directories: Iterable[str], work: str) -> Inputs:
    """Reads everything below these directories. `work` is a directory, on a file system that all of Spark's
    processes see, for copies of journals: of those that are being written as they are, and of all in a form that
    can be read again and again. Raises `SourceError`."""
    return read_sources(spark, find(spark, directories), work)


def read_sources(spark: SparkSession, found: Sources, work: str) -> Inputs:
    left = _Left()
    journals = [*found.journals, *_copied(spark, found.unfinished, work, left)]
    journal_lines = _parsed_once(spark, journals, Staging(spark, f"{work}/journals"))
    manifests = _manifests(spark, found.exports, left)
    files = _log_files(found.exports, manifests, left)
    told_lines = _told_lines(spark, found.told)
    skipped = local_frame(spark, left.rows, SKIPPED.ddl)
    return Inputs(
        records=records_of(journal_lines),
        logs=_logs(spark, files),
        told=told_of(told_lines),
        manifests=local_frame(spark, manifests, MANIFESTS.ddl),
        files=_files_frame(spark, files),
        skipped=skipped.unionByName(_skipped_records(spark, journals, journal_lines)).unionByName(
            skipped_told(told_lines)
        ),
    )


# Journals


def records_of(lines: DataFrame) -> DataFrame:
    """Returns RECORDS of the lines of journals, which have their file's cluster as `of_cluster`."""
    known = lines.where(~_is_wrong())
    own = {"cluster": F.col("of_cluster"), "cluster_name": F.col("cluster")}
    return known.select(*(own.get(name, F.col(name)).alias(name) for name in RECORDS))


def _is_wrong() -> Column:
    """Whether a line is not a record of a version that is known here."""
    return F.col(CORRUPT).isNotNull() | ~F.col("version").eqNullSafe(SCHEMA.version)


def _skipped_records(spark: SparkSession, paths: Sequence[str], lines: DataFrame) -> DataFrame:
    """Returns SKIPPED of the lines of journals. Files are read again for their names only if there is anything."""
    if lines.where(_is_wrong()).isEmpty():
        return local_frame(spark, [], SKIPPED.ddl)
    return skipped_lines(_json_lines(spark, paths, JOURNAL_LINES))


def skipped_lines(lines: DataFrame) -> DataFrame:
    """Returns SKIPPED of the lines of journals, which have their `file`."""
    is_torn = F.col(CORRUPT).isNotNull()
    is_foreign = ~is_torn & ~F.col("version").eqNullSafe(SCHEMA.version)
    counted = lines.groupBy("of_cluster", "file").agg(
        F.count_if(is_torn).alias("torn"), F.count_if(is_foreign).alias("foreign")
    )
    return _spread(counted, {TORN: "torn", FOREIGN: "foreign"})


def _parsed_once(spark: SparkSession, paths: Sequence[str], staging: Staging) -> DataFrame:
    """Writes the lines of journals down by what they tell of, so that whoever looks for few events reads little.
    They have the `of_cluster` that their file's path names. To add anything to a line of so many columns takes as
    long as to parse it, so that is only done where there are several clusters."""
    clusters = sorted({cluster_of(path) for path in paths})
    if len(clusters) != 1:
        lines = _json_lines(spark, paths, JOURNAL_LINES).drop("file")
        return staging.keep(lines.sortWithinPartitions("event"))
    lines = _json_reader(spark, JOURNAL_LINES).json(list(paths))
    return staging.keep(lines.sortWithinPartitions("event")).withColumn("of_cluster", F.lit(clusters[0]))


def _copied(spark: SparkSession, unfinished: Sequence[str], work: str, left: _Left) -> list[str]:
    """Copies files that are being written under names that Spark reads, as they are now: whatever reads them
    several times sees the same."""
    copies = []
    for number, path in enumerate(unfinished):
        if not sources.is_local(path):
            left.out(path, UNFINISHED)
            continue
        name = finished_name(path).rpartition("/")[2]
        copy = f"{work}/unfinished/cluster={cluster_of(path)}/{number}/{name}"
        copied = _copy(spark, path, copy) or _copy(spark, finished_name(path), copy)
        if copied:
            copies.append(copied)
        else:
            left.out(path, UNFINISHED)
    return copies


def _copy(spark: SparkSession, path: str, copy: str) -> str:
    """Returns the copy's full path, or "" if the file is not there any more."""
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark._jsparkSession.sessionState().newHadoopConf()
    origin, target = jvm.org.apache.hadoop.fs.Path(path), jvm.org.apache.hadoop.fs.Path(copy)
    system, target_system = origin.getFileSystem(hadoop), target.getFileSystem(hadoop)
    if not system.exists(origin):
        return ""
    jvm.org.apache.hadoop.fs.FileUtil.copy(system, origin, target_system, target, False, hadoop)
    return str(target_system.makeQualified(target).toString())


# Exports


def _manifests(spark: SparkSession, exports: Mapping[str, ExportFiles], left: _Left) -> list[Row]:
    """Returns MANIFESTS. There is one for each run of an export, so the driver can hold them."""
    paths = [path for files in exports.values() for path in files.manifests]
    if not paths:
        return []
    reader = spark.read.schema(MANIFEST_LINES.ddl).option("multiLine", True)
    found = reader.json(paths).select("*", F.col("_metadata.file_path").alias("file")).collect()
    names = {_as_spark_names(spark, path): path for path in paths}
    manifests = []
    for row in found:
        path = names[row["file"]]
        if row["version"] is None or row["number"] is None:
            left.out(path, UNREADABLE_MANIFEST)
        elif row["version"] != VERSION:
            left.out(path, FOREIGN_EXPORT)
        else:
            root = path.rpartition("/")[0].rpartition("/")[0]
            own = {"cluster": cluster_of(path), "export": root, "file": path, "cluster_name": row["cluster"]}
            manifests.append(Row(**{name: own[name] if name in own else row[name] for name in MANIFESTS}))
    return manifests


def _log_files(exports: Mapping[str, ExportFiles], manifests: Sequence[Row], left: _Left) -> list[_LogFile]:
    """Returns the files of finished runs of exports of a version that is known."""
    runs = {(row["export"], row["number"]) for row in manifests}
    known = {export for export, _ in runs}
    files: list[_LogFile] = []
    for root, found in exports.items():
        node = root.rpartition("/")[2]
        tails = [(path, number) for number, paths in sorted(found.tails.items()) for path in paths]
        for path, run in [*((path, None) for path in found.final), *tails]:
            if (root, run) in runs if run is not None else root in known:
                files.append(_LogFile(path, cluster_of(path), node, root, run, run is None))
            else:
                left.out(path, UNFINISHED_EXPORT)
    return files


def _logs(spark: SparkSession, files: Sequence[_LogFile]) -> DataFrame:
    """Returns LOGS. Tails are read apart, so that what needs only them reads only them."""
    parts = [
        _rows(spark, [file for file in files if file.is_final is is_final], is_final) for is_final in (True, False)
    ]
    return parts[0].unionByName(parts[1])


def _rows(spark: SparkSession, files: Sequence[_LogFile], is_final: bool) -> DataFrame:
    """What the path says of a row is joined to it: a table of files is small, and to take each row's path apart
    would cost more than to read the row."""
    if not files:
        return local_frame(spark, [], LOGS.ddl)
    reader = spark.read.schema(LOG_ROWS.ddl).option("ignoreCorruptFiles", True)
    rows = reader.parquet(*(file.path for file in files)).select("*", F.col("_metadata.file_path").alias("file"))
    table = _files_frame(spark, files).drop("is_final")
    return rows.join(F.broadcast(table), "file").withColumn("is_final", F.lit(is_final)).select(*LOGS)


def _files_frame(spark: SparkSession, files: Sequence[_LogFile]) -> DataFrame:
    named = [(_as_spark_names(spark, file.path), *file[1:]) for file in files]
    return local_frame(spark, named, LOG_FILES.ddl)


# The records of load tests


def told_of(lines: DataFrame) -> DataFrame:
    """Returns TOLD of the lines of records, which have their file's cluster as `of_cluster`."""
    writes = lines.where(F.col(CORRUPT).isNull() & (F.col("kind") == "write"))
    own = {"cluster": F.col("of_cluster"), "url": F.col("node")}
    return writes.select(*(own.get(name, F.col(name)).alias(name) for name in TOLD))


def skipped_told(lines: DataFrame) -> DataFrame:
    """Returns SKIPPED of the lines of records: what is torn, and what a generator that died did not write."""
    is_torn = F.col(CORRUPT).isNotNull()
    is_begin, is_end = F.col("kind") == "begin", F.col("kind") == "end"
    counted = lines.groupBy("of_cluster", "file").agg(
        F.count_if(is_torn).alias("torn"),
        F.count_if(is_begin & (F.col("schema") != TOLD_VERSION)).alias("foreign"),
        F.when(F.count_if(is_end) == 0, 1).otherwise(0).alias("endless"),
        (F.coalesce(F.max(F.when(is_end, F.col("lines") + 1)), F.count("*")) - F.count("*")).alias("fewer"),
    )
    return _spread(counted, {TORN: "torn", FOREIGN: "foreign", NO_END: "endless", FEWER_LINES: "fewer"})


def _told_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    return _json_lines(spark, paths, TOLD_LINES)


# All of them


def _json_lines(spark: SparkSession, paths: Sequence[str], schema: Columns) -> DataFrame:
    """Returns the lines of these files, with `file` and the `of_cluster` that its path names."""
    if not paths:
        return local_frame(spark, [], f"{schema.ddl}, file string, of_cluster string")
    lines = _json_reader(spark, schema).json(list(paths)).select("*", F.col("_metadata.file_path").alias("file"))
    clusters = {path: cluster_of(path) for path in paths}
    if len(set(clusters.values())) == 1:
        return lines.withColumn("of_cluster", F.lit(clusters[paths[0]]))
    named = [(_as_spark_names(spark, path), cluster) for path, cluster in clusters.items()]
    return lines.join(F.broadcast(local_frame(spark, named, "file string, of_cluster string")), "file")


def _json_reader(spark: SparkSession, schema: Columns) -> DataFrameReader:
    reader = spark.read.schema(schema.ddl)
    return reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)


def _as_spark_names(spark: SparkSession, path: str) -> str:
    """Returns a path as `_metadata.file_path` has it."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.spark.paths.SparkPath.fromPathString(path).urlEncoded())


def _spread(counted: DataFrame, whats: Mapping[str, str]) -> DataFrame:
    """Returns SKIPPED of counts that are one column each, for what there is at all."""
    pairs: list[Column] = [
        F.struct(F.lit(what).alias("what"), F.col(name).cast("long").alias("count"))
        for what, name in whats.items()
    ]
    spread = counted.select(F.col("of_cluster").alias("cluster"), "file", F.inline(F.array(*pairs)))
    return spread.where("count > 0").select(*SKIPPED)
