"""Measures the audit and the latencies of synthetic logs: events a second, memory, what is shuffled.

`python -m tests.benchmarks.spark --events 1000000 10000000` generates logs of these sizes (and keeps them in
`--logs`), and runs each job in a process of its own, so that the memory is that of one job."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark.audit import audit
from spark.clocks import clocks
from spark.events import answers, message_events
from spark.generator import Shape, generate, shape_of
from spark.latency import latency
from spark.reading import Inputs, read
from spark.session import open_session

JOBS: dict[str, Callable[[SparkSession, Inputs, str], object]] = {}
"""What is measured, by name. Each returns what it found, so that nothing is left out as unused."""


def _audit(spark: SparkSession, inputs: Inputs, work: str) -> object:
    steps: list[tuple[str, float]] = []
    found = audit(spark, inputs, f"{work}/audit", progress=lambda what: steps.append((what, time.monotonic())))
    ends = [at for _, at in steps[1:]] + [time.monotonic()]
    seconds = {what: round(end - at, 1) for (what, at), end in zip(steps, ends, strict=True)}
    return {"verdict": str(found.verdict()), "seconds by step": seconds}


def _latency(_: SparkSession, inputs: Inputs, __: str) -> object:
    records = inputs.records
    events = message_events(records)
    found = latency(events, answers(records), clocks(events).timeline)
    return {"rows": found.latencies.count(), "steps": found.waterfall.count()}


JOBS |= {"audit": _audit, "latency": _latency}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="3g", help="of the JVM")
    parser.add_argument("--logs", type=Path, help="where logs are generated, and found the next time")
    parser.add_argument("--job", choices=sorted(JOBS), help="in this process, of the logs in --logs")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measured(options)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for events in options.events:
            shape = shape_of(events, options.nodes)
            logs = (options.logs or Path(scratch)) / f"{events}-{options.nodes}"
            _generated(shape, logs, options)
            for job in JOBS:
                _run(job, shape, logs, options)


def _generated(shape: Shape, logs: Path, options: argparse.Namespace) -> None:
    if (logs / "export").exists():
        return
    spark = open_session(options.master, _conf(options), "benchmark")
    started = time.monotonic()
    generate(spark, shape, str(logs))
    seconds = time.monotonic() - started
    spark.stop()
    size = sum(file.stat().st_size for file in logs.rglob("*") if file.is_file())
    print(f"generated {shape.events:,} events, {size / 1e6:,.0f} MB, in {seconds:.0f} s", flush=True)


def _run(job: str, shape: Shape, logs: Path, options: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "tests.benchmarks.spark", "--job", job, "--logs", str(logs)]
    command += ["--master", options.master, "--memory", options.memory]
    command += [part for one in options.conf for part in ("--conf", one)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
    seconds = found["seconds"]
    print(
        f"{job} of {shape.events:,} events: {seconds:.1f} s, {shape.events / seconds:,.0f} events/s, "
        f"peak {found['peak_mb']:,.0f} MB, shuffled {found['shuffled'] / shape.events:.1f} B/event, "
        f"read {found['input'] / 1e6:,.0f} MB, spilled {found['spilled'] / 1e6:,.0f} MB; {found['found']}",
        flush=True,
    )


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """One job, from nothing but a started JVM to its result."""
    spark = open_session(options.master, _conf(options), "benchmark")
    with tempfile.TemporaryDirectory() as work:
        started = time.monotonic()
        found = JOBS[options.job](spark, read(spark, [str(options.logs)], work), work)
        seconds = time.monotonic() - started
        figures = {"seconds": seconds, "found": found, "peak_mb": _peak_mb(spark), **_totals(spark)}
    spark.stop()
    return figures


def _conf(options: argparse.Namespace) -> dict[str, str]:
    return {"spark.driver.memory": options.memory, **dict(one.split("=", 1) for one in options.conf)}


def _peak_mb(spark: SparkSession) -> float:
    """The most memory that the JVM, which is driver and executor in one, has had of the machine."""
    jvm: Any = spark.sparkContext._jvm
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1_000


def _totals(spark: SparkSession) -> dict[str, int]:
    """What all stages together have read, shuffled and spilled."""
    context: Any = spark.sparkContext
    store: Any = context._jsc.sc().statusStore()
    no_quantiles: Any = context._gateway.new_array(context._jvm.double, 0)
    stages: Any = store.stageList(None, False, False, no_quantiles, None)
    totals = {"input": 0, "shuffled": 0, "spilled": 0}
    for place in range(stages.size()):
        stage: Any = stages.apply(place)
        totals["input"] += stage.inputBytes()
        totals["shuffled"] += stage.shuffleWriteBytes()
        totals["spilled"] += stage.diskBytesSpilled()
    return totals


if __name__ == "__main__":
    main()
