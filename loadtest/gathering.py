"""What happens around the users of a run: the keys they find, the record, the faults, the statistics at the end.

With workers, each sends its lines of the record to the master as Locust messages, about once a second; the
master writes them to a file for each worker. So workers may run on other machines, and one that dies loses a
second at most."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from pathlib import Path
from random import Random
from typing import Any

import gevent
import httpx
from locust.env import Environment
from locust.runners import MasterRunner, WorkerRunner

from loadtest.faults import plan_faults
from loadtest.nemesis import Nemesis
from loadtest.nodes import Nodes
from loadtest.record import Recorder, RecordFiles, WriteLine, wall_ms
from loadtest.session import Bench
from loadtest.statistics import statistics_of
from loadtest.workloads import Keys, record_key, value_of

_LOAD_PUTS = 100
_MESSAGE = "corelkv_record"
_logger = logging.getLogger("loadtest")


def hosts_of(environment: Environment) -> list[str]:
    return [host.strip().rstrip("/") for host in (environment.host or "").split(",") if host.strip()]


class Gathering:
    """One process's part in a run: the master's, a worker's, or both where there are no workers."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._is_worker = isinstance(environment.runner, WorkerRunner)
        self._is_master = isinstance(environment.runner, MasterRunner)
        self._runs = 0
        self._files: RecordFiles | None = None
        self._bench: Bench | None = None
        self._chaos: gevent.Greenlet | None = None
        self._nemesis: Nemesis | None = None
        self._directory: Path | None = None
        if self._is_master and environment.runner is not None:
            environment.runner.register_message(_MESSAGE, self._on_lines)

    # A run

    def begin(self) -> None:
        self._runs += 1
        options = self._options
        hosts = hosts_of(self._environment)
        if not self._is_worker:
            options.run = options.run or f"{wall_ms():x}"  # Locust sends the options to the workers
            self._directory = directory_of(options.record)
            self._files = RecordFiles(self._directory / "record")
            _load_records(hosts[0], options.records, options.value_bytes, self._recorder("loader"))
            if options.chaos:
                self._begin_chaos(hosts)
        if not self._is_master:
            index = getattr(self._environment.runner, "worker_index", 0)
            recorder = self._recorder(f"worker-{index}" if self._is_worker else "local")
            bench = Bench(hosts, recorder, Keys(options.records, recorder.worker), options)
            self._environment.bench = self._bench = bench  # type: ignore[attr-defined]

    def end(self) -> None:
        if self._bench is not None:
            self._bench.recorder.close()
            self._bench = None
        if self._chaos is not None and self._nemesis is not None:
            self._chaos.kill()
            self._nemesis.end()
            self._chaos = None

    def finish(self) -> None:
        """Writes the statistics, when Locust quits."""
        if self._directory is None:
            return
        stats = self._environment.stats
        seconds = (stats.last_request_timestamp or 0.0) - (stats.start_time or 0.0)
        found: dict[str, Any] = {
            "seconds": round(seconds, 1),
            "rows": statistics_of(stats.entries.values(), stats.total, seconds),
        }
        if self._environment.runner is not None:
            found["exceptions"] = [one["msg"] for one in self._environment.runner.exceptions.values()]
        shape = self._environment.shape_class
        if shape is not None and hasattr(shape, "findings"):
            found |= shape.findings(seconds)
        (self._directory / "statistics.json").write_text(json.dumps(found, indent=1) + "\n")

    def show_progress(self) -> None:
        """Writes once a second how it goes, for whoever started this process."""
        while True:
            gevent.sleep(1.0)
            runner = self._environment.runner
            if self._directory is None or runner is None:
                continue
            total = self._environment.stats.total
            now = {
                "users": runner.user_count,
                "requests_per_second": total.current_rps,
                "failures": total.num_failures,
                "p99_ms": total.get_current_response_time_percentile(0.99) or 0.0,
            }
            (self._directory / "progress.json.new").write_text(json.dumps(now))
            (self._directory / "progress.json.new").rename(self._directory / "progress.json")

    # Its parts

    @property
    def _options(self) -> Any:
        return self._environment.parsed_options

    def _recorder(self, name: str) -> Recorder:
        worker = name if self._runs == 1 else f"{name}-{self._runs}"
        return Recorder(worker, lambda lines: self._emit(worker, lines))

    def _emit(self, worker: str, lines: list[str]) -> None:
        if self._files is not None:
            self._files.append(worker, lines)
        elif self._environment.runner is not None:
            self._environment.runner.send_message(_MESSAGE, {"worker": worker, "lines": lines})

    def _on_lines(self, environment: Environment, msg: Any, **extra: Any) -> None:
        if self._files is not None:
            self._files.append(msg.data["worker"], msg.data["lines"])

    def _begin_chaos(self, hosts: list[str]) -> None:
        options = self._options
        assert self._directory is not None
        nodes = Nodes(hosts)
        names = [node.name for node in nodes.learn()]
        self._nemesis = Nemesis(nodes, self._directory / "faults.jsonl", options.supervisor or None, gevent.sleep)
        plan = plan_faults(
            names,
            float(options.run_time or 86_400.0),
            Random(options.seed),
            options.fault_seconds,
            can_kill=bool(options.supervisor),
        )
        self._chaos = gevent.spawn(self._nemesis.run, plan)


def directory_of(given: str) -> Path:
    return Path(given) if given else Path("build/load") / time.strftime("%Y%m%d-%H%M%S")


def _load_records(host: str, count: int, value_bytes: int, recorder: Recorder) -> None:
    """Writes the keys that users will find, in transactions, and records them as any other write."""
    rng = Random(0)
    with httpx.Client(base_url=host, timeout=30.0, trust_env=False) as client, contextlib.closing(recorder):
        for first in range(0, count, _LOAD_PUTS):
            keys = [record_key(number) for number in range(first, min(count, first + _LOAD_PUTS))]
            puts = [{"put": {"key": key, "value": value_of(rng, value_bytes)}} for key in keys]
            line = WriteLine("load", keys[0], host, wall_ms())
            answer = client.post("/v1/txn", json={"then": puts})
            line.answer(answer.status_code, answer.json())
            recorder.write(line)
            answer.raise_for_status()
    _logger.info("%d keys are there", count)
