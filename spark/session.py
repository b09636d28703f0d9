"""A session of Spark, on this machine or on a cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""All processors of this machine."""

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "64m",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_ON_THIS_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "1000",
}


SMALL_BYTES = 64 * 1_048_576
"""Up to this size it takes longer to compile code for a plan than to interpret the plan."""

FOR_LITTLE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""What a session has if there is little to read."""

JVM_FOR_LITTLE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute spends half of its time on optimising code, and gains nothing by it."""

JVM_FOR_MUCH = (
    "-XX:+UseParallelGC"
    " -XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500 -XX:Tier3CompileThreshold=10000"
    " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Throughput counts, not pauses. And only what runs for all rows, as the reading of JSON does, is optimised:
hundreds of plans have code of their own, each of which runs for a second. With a JVM's own thresholds half of the
processor time goes into compiling them; with much higher ones the reading takes twice as long."""


class SparkUnavailable(Exception):
    """Something that Spark needs is not installed; the text says what to do."""


def open_session(
    master: str = LOCAL, conf: Mapping[str, str] | None = None, app: str = "corelkv", is_for_little: bool = False
) -> SparkSession:
    """Returns a session; one that is there already, if there is. `conf` overrides what is set here.
    `is_for_little` says that there is little to read (`is_little`). Raises `SparkUnavailable`."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable("PySpark is not installed: pip install 'corelkv[spark]'") from None
    _check_java()
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings(master, conf or {}, is_for_little).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def fit(spark: SparkSession, input_bytes: int) -> None:
    """Has a session interpret its plans, in few tasks, if there is little to read."""
    if input_bytes <= SMALL_BYTES:
        for name, value in FOR_LITTLE.items():
            spark.conf.set(name, value)


def is_little(directories: Iterable[str]) -> bool:
    """Returns whether directories hold at most `SMALL_BYTES`, as far as that can be told without Spark: what is
    not on a local disk counts as much."""
    total = 0
    for directory in directories:
        path = directory.removeprefix("file://")
        if "://" in path:
            return False
        for folder, _, names in os.walk(path):
            for name in names:
                total += _size(Path(folder, name))
                if total > SMALL_BYTES:
                    return False
    return True


def settings(master: str, conf: Mapping[str, str], is_for_little: bool = False) -> dict[str, str]:
    """Returns the configuration of a session. What only suits one machine is left out for a cluster's master."""
    is_here = master.startswith("local")
    options = f"-Dlog4j2.configurationFile={_log_settings().as_uri()}"
    if is_here:
        options = f"{options} {JVM_FOR_LITTLE if is_for_little else JVM_FOR_MUCH}"
    here = _ON_THIS_MACHINE if is_here else {}
    return {**_ALWAYS, "spark.driver.extraJavaOptions": options, **here, **conf}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # a node has removed it since
        return 0


def _log_settings() -> Path:
    return Path(__file__).with_name("log4j2.properties")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise SparkUnavailable(
            "Spark needs Java 17 or newer, and there is none: apt-get install openjdk-17-jre-headless, "
            "or set JAVA_HOME"
        )
    if not Path(java).exists():
        raise SparkUnavailable(
            f"JAVA_HOME is {home}, where there is no bin/java: set it to where Java 17 or newer is"
        )
