"""What an audit has found, as frames and as a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame, Row, SparkSession

from spark.audit.digests import LINES
from spark.audit.findings import CHECKED, INCOMPLETE
from spark.audit.histories import HISTORIES
from spark.schemas import VIOLATIONS, Columns, columns

COUNTS = columns(cluster="string", rule="string", count="long")
VERDICTS = columns(cluster="string", verdict="string")


class Verdict(StrEnum):
    AGREED = "agreed"
    VIOLATED = "violated"
    NOT_PROVABLE = "not provable"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Everything that was found. All of it is small: of violations there are the first few of each rule and
    cluster, and how many there are in all."""

    violations: list[Row]
    """VIOLATIONS"""
    counts: list[Row]
    """COUNTS: how many violations there are of each rule."""
    checked: list[Row]
    """CHECKED"""
    incomplete: list[Row]
    """INCOMPLETE"""
    lines: list[Row]
    """LINES: to be compared with by a later audit."""
    histories: list[Row]
    """HISTORIES of the messages that violations name."""

    def verdict(self, cluster: str | None = None) -> Verdict:
        """Returns the verdict on a cluster, or on all of them. Where nothing was there to compare, nothing is
        proven."""
        if any(_is_of(row, cluster) for row in self.violations):
            return Verdict.VIOLATED
        has_order = any(_is_of(row, cluster) and row["count"] for row in self.checked)
        if not has_order or any(_is_of(row, cluster) for row in self.incomplete):
            return Verdict.NOT_PROVABLE
        return Verdict.AGREED

    def clusters(self) -> list[str]:
        return sorted({row["cluster"] for row in (*self.checked, *self.violations, *self.incomplete)})

    def frames(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Returns all of it as frames, by the name of the directory to write them to."""
        verdicts = [(cluster, str(self.verdict(cluster))) for cluster in self.clusters()]
        return {
            "violations": _frame(spark, self.violations, VIOLATIONS),
            "counts": _frame(spark, self.counts, COUNTS),
            "checked": _frame(spark, self.checked, CHECKED),
            "incomplete": _frame(spark, self.incomplete, INCOMPLETE),
            "lines": _frame(spark, self.lines, LINES),
            "histories": _frame(spark, self.histories, HISTORIES),
            "verdicts": spark.createDataFrame(verdicts, VERDICTS.ddl),
        }

    def write(self, spark: SparkSession, directory: str, kind: str = "parquet") -> None:
        """Writes the frames below a directory, as `parquet` or `json`."""
        for name, frame in self.frames(spark).items():
            frame.coalesce(1).write.mode("overwrite").format(kind).save(f"{directory}/{name}")


def _is_of(row: Row, cluster: str | None) -> bool:
    return cluster is None or row["cluster"] == cluster


def _frame(spark: SparkSession, rows: list[Row], schema: Columns) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in schema) for row in rows], schema.ddl)
