"""The jobs on a cluster of Spark find what they find on one machine, also if a worker is lost in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.cluster_jobs import results
from tests.spark.standalone import Standalone

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def expected(
    spark_session: SparkSession, clean_logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the jobs find in this process."""
    return results(spark_session, str(clean_logs), str(tmp_path_factory.mktemp("work")))


def submitted(cluster: Standalone, logs: Path, work: Path) -> Iterator[str]:
    """What a driver prints line by line. It is a process of its own, and ends with whoever reads its lines."""
    command = [sys.executable, "-m", "tests.spark.cluster_jobs", cluster.master, str(logs), str(work)]
    with (work / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert driver.stdout is not None
    try:
        yield from driver.stdout
        assert driver.wait() == 0, (work / "driver.log").read_text()[-4_000:]
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()


def test_a_cluster_finds_what_one_machine_finds(
    expected: dict[str, Any], clean_logs: Path, tmp_path: Path
) -> None:
    with Standalone(tmp_path) as cluster:
        *_, last = submitted(cluster, clean_logs, tmp_path)
        assert json.loads(last) == expected
        assert all(cluster.executors(worker) for worker in cluster.workers)


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(
    expected: dict[str, Any], clean_logs: Path, tmp_path: Path
) -> None:
    killed, last = False, ""
    with Standalone(tmp_path) as cluster:
        for line in submitted(cluster, clean_logs, tmp_path):
            last = line
            if line.startswith("next: ") and not killed and cluster.executors(cluster.workers[0]):
                cluster.wait_for_task(cluster.workers[0])
                cluster.kill(cluster.workers[0])
                killed = True
    assert killed
    assert json.loads(last) == expected
