"""A standalone cluster of Spark on this machine: a master and workers, processes of the installed PySpark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyspark

from spark.session import JVM_FOR_LITTLE

START_S = 120.0
"""On a machine with much else to do a process takes its time to start."""

_HOME = Path(pyspark.__file__).parent
_RUNNING, _FINISHED = ": Running task ", ": Finished task "


class Standalone:
    """A master and two workers, which end with it."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._count = workers
        self.master = ""

    def __enter__(self) -> Standalone:
        try:
            self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
            self.master = self._found("master", r"Starting Spark master at (spark://\S+)")
            for name in self.workers:
                options = ["--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                work = ["--work-dir", str(self._directory / name)]
                self._start(name, "org.apache.spark.deploy.worker.Worker", *options, *work, self.master)
            for name in self.workers:
                self._found(name, r"(Successfully registered) with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def workers(self) -> list[str]:
        return [f"worker-{number}" for number in range(1, self._count + 1)]

    def kill(self, name: str) -> None:
        """Kills a worker, and the executors that it has started, as the loss of a machine would."""
        process = self._processes[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def tasks(self, name: str) -> int:
        """How many tasks the executors of a worker have finished."""
        return sum(log.count(_FINISHED) for log in self._executor_logs(name))

    def wait_for_task(self, name: str) -> None:
        """Waits until an executor of the worker is in the middle of a task."""

        def is_busy() -> bool:
            return any(log.count(_RUNNING) > log.count(_FINISHED) for log in self._executor_logs(name))

        wait_until(is_busy, f"{name} to run a task")

    def _start(self, name: str, main: str, *options: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JVM_FOR_LITTLE,
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(_HOME / "bin" / "spark-class"), main, "--host", "127.0.0.1", *options]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def _found(self, name: str, pattern: str) -> str:
        found: list[str] = []

        def is_there() -> bool:
            assert self._processes[name].poll() is None, f"{name} has ended: {self._log(name)[-2000:]}"
            found.extend(re.findall(pattern, self._log(name)))
            return bool(found)

        wait_until(is_there, f"{name} to say {pattern}")
        return found[0]

    def _executor_logs(self, name: str) -> list[str]:
        return [file.read_text(errors="replace") for file in (self._directory / name).glob("*/*/stderr")]

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < ends, f"waited too long for {what}"
        time.sleep(0.05)
