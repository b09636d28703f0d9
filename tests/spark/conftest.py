"""The session that all tests of Spark share: to start one takes some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.generator import generate
from spark.session import FOR_LITTLE, open_session
from tests.spark.generated import SHAPE

CONF = {
    **FOR_LITTLE,
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedJobs": "1",
    "spark.sql.warehouse.dir": "/nonexistent",
}


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    session = open_session("local[2]", CONF, "tests", is_for_little=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def clean_logs(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthetic logs without violations, which tests do not change."""
    root = tmp_path_factory.mktemp("clean")
    generate(spark_session, SHAPE, str(root))
    return root
