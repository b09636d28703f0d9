"""A session suits its master, and says what is missing for one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.session import SMALL_BYTES, SparkUnavailable, is_little, open_session, settings


def test_a_clusters_master_gets_nothing_that_only_suits_one_machine() -> None:
    names = set(settings("spark://example:7077", {}))
    assert not {name for name in names if name.startswith("spark.driver.host") or "memory" in name}
    assert "spark.driver.host" in settings("local[4]", {})


def test_what_is_given_overrides_the_defaults() -> None:
    assert settings("local", {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


def test_a_jvm_for_little_does_not_optimise_and_one_of_a_cluster_is_left_alone() -> None:
    option = "TieredStopAtLevel"
    assert option in settings("local[2]", {}, is_for_little=True)["spark.driver.extraJavaOptions"]
    assert option not in settings("local[2]", {})["spark.driver.extraJavaOptions"]
    assert "-XX" not in settings("spark://example:7077", {}, is_for_little=True)["spark.driver.extraJavaOptions"]


def test_what_is_little_is_told_from_the_sizes_of_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with (tmp_path / "below" / "journal.jsonl").open("wb") as file:
        file.truncate(SMALL_BYTES)
    assert is_little([str(tmp_path)])
    assert is_little([tmp_path.as_uri()])
    (tmp_path / "one").write_bytes(b"x")
    assert not is_little([str(tmp_path)])
    assert not is_little(["hdfs://example/logs"])


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="Java 17"):
        open_session()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailable, match="openjdk"):
        open_session()


def test_a_missing_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailable, match=r"corelkv\[spark\]"):
        open_session()


def test_times_are_in_utc(spark_session: SparkSession) -> None:
    assert spark_session.conf.get("spark.sql.session.timeZone") == "UTC"
