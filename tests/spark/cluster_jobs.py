"""The jobs as a program of their own, because a process has one session of Spark, and the tests' is a local one.

`python -m tests.spark.cluster_jobs MASTER LOGS WORK` prints what the audit and the latencies are, as one JSON
object, for each line that it reads. Before each job it prints a line, so that whoever started it can do harm in
the middle."""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import Row, SparkSession

from spark.audit import audit
from spark.clocks import clocks
from spark.events import answers, message_events
from spark.latency import latency
from spark.reading import read
from spark.session import FOR_LITTLE, JVM_FOR_LITTLE, open_session

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.default.parallelism": "2",
    "spark.driver.defaultJavaOptions": JVM_FOR_LITTLE,
    "spark.executor.defaultJavaOptions": JVM_FOR_LITTLE,
    **FOR_LITTLE,
}


def results(spark: SparkSession, logs: str, work: str) -> dict[str, Any]:
    """What the jobs find, in an order that does not depend on which task was first."""
    inputs = read(spark, [logs], work)
    found = audit(spark, inputs, f"{work}/audit", progress=lambda what: print(f"next: {what}", flush=True))
    print("next: latency", flush=True)
    events, told = message_events(inputs.records), answers(inputs.records)
    latencies = latency(events, told, clocks(events).timeline).latencies
    return {
        "verdict": str(found.verdict()),
        "violations": _sorted(found.violations),
        "checked": _sorted(found.checked),
        "lines": _sorted(found.lines),
        "latencies": _sorted(latencies.collect()),
    }


def _sorted(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(_rounded(row.asDict(recursive=True)), default=str, sort_keys=True) for row in rows)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Sums of floating point numbers depend on their order in the last digits."""
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}


def main(master: str, logs: str, work: str) -> None:
    spark = open_session(master, CONF, "corelkv tests")
    try:
        for number, _ in enumerate(sys.stdin):
            print(json.dumps(results(spark, logs, f"{work}/work-{number}")), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
