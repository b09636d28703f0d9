"""The audit convicts recorded runs of the simulator where its checkers do, and only there. `python -m
tests.simulator audit` does the same with many more runs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.simulator.recording.campaign import convictions
from tests.simulator.recording.cases import Case, record
from tests.simulator.recording.comparison import Verdict, compare, table

CLEAN = [
    *(Case("corel", seed) for seed in (7, 8, 9, 11, 15)),
    *(Case("store", seed) for seed in (2, 9, 11, 12, 22)),
]
"""Among them a cluster that was bootstrapped anew, disks that were replaced, and disks that failed."""

PLANTED = [
    Case("corel", 6, "priority messages take their place by timestamp"),
    Case("corel", 6, "retransmissions are not merged"),
    Case("corel", 2, "one's own disk makes green"),
    Case("corel", 2, "attempts are numbered from the lowest"),
    Case("store", 5, "writes of one message get each other's outcomes"),
]


def test_the_audit_and_the_simulator_agree_on_runs(spark_session: SparkSession, tmp_path: Path) -> None:
    recorded = [record(case, tmp_path) for case in (*CLEAN, *PLANTED)]
    comparisons = compare(recorded, convictions(spark_session, tmp_path))
    found = "\n".join(table(comparisons))
    for one in comparisons:
        expected = Verdict.AGREED_CONVICTED if one.recorded.case.mutant else Verdict.AGREED_CLEAN
        assert one.verdict is expected, found
