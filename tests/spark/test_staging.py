"""What is kept is computed once, and is gone at the end."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.local_frames import local_frame
from spark.staging import Staging
from tests.spark.frames import rows_of


def test_a_kept_frame_does_not_change_with_what_it_was_made_from(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    local_frame(spark_session, [(1, "one")], "number long, name string").write.parquet(str(origin))
    staging = Staging(spark_session, str(tmp_path / "work"))
    kept = staging.keep(spark_session.read.parquet(str(origin)).where(F.col("number") > 0))
    for file in origin.iterdir():
        file.unlink()
    assert rows_of(kept, "number", "name") == [(1, "one")]


def test_a_frame_without_rows_keeps_its_columns(spark_session: SparkSession, tmp_path: Path) -> None:
    ddl = "number long, names array<string>"
    staging = Staging(spark_session, str(tmp_path / "work"))
    kept = staging.keep(local_frame(spark_session, [], ddl))
    assert kept.isEmpty()
    assert kept.dtypes == [("number", "bigint"), ("names", "array<string>")]


def test_nothing_remains_at_the_end_or_of_an_earlier_run(spark_session: SparkSession, tmp_path: Path) -> None:
    work = tmp_path / "work"
    interrupted = Staging(spark_session, str(work))
    interrupted.keep(local_frame(spark_session, [(1,)], "number long"))
    staging = Staging(spark_session, str(work))
    assert rows_of(staging.keep(local_frame(spark_session, [(2,)], "number long")), "number") == [(2,)]
    staging.end()
    assert not work.exists()
