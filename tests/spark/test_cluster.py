"""The jobs on a cluster of Spark find what they find on one machine, also if a worker is lost in the middle.

Both tests share a cluster and a driver: six JVMs are started once, and the second run finds them warm."""

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

KILLED_DURING = "causal"
"""The rule of the audit during which a worker is killed. By then there are persisted frames and shuffled data,
which are lost with it."""


class Driver:
    """A program on a cluster that runs the jobs whenever it is asked to."""

    def __init__(self, cluster: Standalone, logs: Path, directory: Path) -> None:
        self.cluster = cluster
        self._log = directory / "driver.log"
        command = [sys.executable, "-m", "tests.spark.cluster_jobs", cluster.master, str(logs), str(directory)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def run(self) -> Iterator[str]:
        """Runs the jobs once. Yields what is done next, and then, as the last line, what was found."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("run", file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            yield line
            if line.startswith("{"):
                return
        pytest.fail(f"the driver has ended: {self._log.read_text()[-4_000:]}")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def driver(clean_logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("cluster")
    with Standalone(directory) as cluster:
        started = Driver(cluster, clean_logs, directory)
        try:
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="module")
def expected(
    spark_session: SparkSession, clean_logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the jobs find in this process."""
    return results(spark_session, str(clean_logs), str(tmp_path_factory.mktemp("work")))


def test_a_cluster_finds_what_one_machine_finds(expected: dict[str, Any], driver: Driver) -> None:
    *_, last = driver.run()
    assert json.loads(last) == expected
    tasks = [driver.cluster.tasks(worker) for worker in driver.cluster.workers]
    assert all(one > 100 for one in tasks), tasks


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(expected: dict[str, Any], driver: Driver) -> None:
    cluster, killed, last = driver.cluster, False, ""
    for line in driver.run():
        last = line
        if line == f"next: {KILLED_DURING}\n":
            cluster.wait_for_task(cluster.workers[0])
            cluster.kill(cluster.workers[0])
            killed = True
    assert killed
    assert json.loads(last) == expected
