"""A session of Spark, on this machine or on a cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""All processors of this machine."""

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_ON_THIS_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "16",
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


class SparkUnavailable(Exception):
    """Something that Spark needs is not installed; the text says what to do."""


def open_session(master: str = LOCAL, conf: Mapping[str, str] | None = None, app: str = "corelkv") -> SparkSession:
    """Returns a session; one that is there already, if there is. `conf` overrides what is set here. Raises
    `SparkUnavailable`."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkUnavailable("PySpark is not installed: pip install 'corelkv[spark]'") from None
    _check_java()
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings(master, conf or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def fit(spark: SparkSession, input_bytes: int) -> None:
    """Has a session interpret its plans, in few tasks, if there is little to read."""
    if input_bytes <= SMALL_BYTES:
        for name, value in FOR_LITTLE.items():
            spark.conf.set(name, value)


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the configuration of a session. What only suits one machine is left out for a cluster's master."""
    quiet = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_settings().as_uri()}"}
    here = _ON_THIS_MACHINE if master.startswith("local") else {}
    return {**_ALWAYS, **quiet, **here, **conf}


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
