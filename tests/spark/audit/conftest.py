"""One audit of many clusters: a clean one, and one for each planted violation. Spark takes as long for all of them
as for one."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.audit import AuditResult, audit
from tests.spark.audit.history import clean_history, inputs_of
from tests.spark.audit.planted import EARLIER, PLANTED, earlier_lines


@pytest.fixture(scope="session")
def audited(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    clusters = {"clean": clean_history()}
    for name, plant in PLANTED.items():
        told = clean_history()
        plant(told)
        clusters[name] = told
    work = str(tmp_path_factory.mktemp("audit"))
    return audit(spark_session, inputs_of(spark_session, clusters), work, earlier_lines(spark_session, EARLIER))
