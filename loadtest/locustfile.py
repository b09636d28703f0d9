"""What Locust loads: `locust -f loadtest/locustfile.py --host http://127.0.0.1:8001,http://127.0.0.1:8002`. With
its web page, headless, alone or with workers; docs/loadtest.md has examples."""

from __future__ import annotations

import logging
from typing import Any

import gevent
from locust import LoadTestShape, events
from locust.env import Environment
from locust.runners import WorkerRunner

from loadtest.gathering import Gathering
from loadtest.options import add_options
from loadtest.shapes import Knee, Observed, Shape, shape_of
from loadtest.statistics import Phases
from loadtest.users import (
    Batcher,
    Counter,
    RedWriter,
    Swapper,
    Watcher,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
)

__all__ = [
    "YcsbA", "YcsbB", "YcsbC", "YcsbD", "YcsbE", "YcsbF", "Counter", "Swapper", "Batcher", "RedWriter", "Watcher",
    "Load",
]  # fmt: skip


class Load(LoadTestShape):
    """The shape of `--shape`, with the users and the time of `--users` and `--run-time`."""

    use_common_options = True

    def __init__(self) -> None:
        super().__init__()
        self._shape: Shape | None = None
        self._phases = Phases()

    def reset_time(self) -> None:
        super().reset_time()
        self._shape = None
        self._phases = Phases()

    def tick(self) -> tuple[int, float] | None:
        assert self.runner is not None
        if self._shape is None:
            options: Any = self.runner.environment.parsed_options
            users, seconds = int(options.num_users or 1), options.run_time
            self._shape = shape_of(options.shape, users, float(seconds) if seconds else None, options.knee_p99_ms)
        total = self.runner.stats.total
        p99 = total.get_current_response_time_percentile(0.99) or 0.0
        elapsed = self.get_run_time()
        level = self._shape.at(elapsed, Observed(total.current_rps, p99))
        if level is not None:
            self._phases.note(level.users, elapsed, total)
        return level

    def findings(self, seconds: float) -> dict[str, Any]:
        """Returns how each part of a run of so many seconds went, and what a search for the knee has found."""
        phases = [] if self.runner is None else self._phases.figures(seconds, self.runner.stats.total)
        return {"phases": phases, "knee": self._knee_steps()}

    def _knee_steps(self) -> dict[str, Any] | None:
        if not isinstance(self._shape, Knee):
            return None
        steps = [
            {"users": users, "requests_per_second": round(seen.requests_per_second, 1), "p99_ms": seen.p99_ms}
            for users, seen in self._shape.steps
        ]
        return {"users": self._shape.knee, "steps": steps}


@events.init_command_line_parser.add_listener
def _add_options(parser: Any) -> None:
    add_options(parser)


@events.init.add_listener
def _on_init(environment: Environment, **extra: Any) -> None:
    logging.getLogger("httpx").setLevel(logging.WARNING)  # which has a line for every request
    gathering = Gathering(environment)
    environment.events.test_start.add_listener(lambda **extra: gathering.begin())
    environment.events.test_stop.add_listener(lambda **extra: gathering.end())
    environment.events.quitting.add_listener(lambda **extra: _on_quitting(environment, gathering))
    if not isinstance(environment.runner, WorkerRunner):
        gevent.spawn(gathering.show_progress)


def _on_quitting(environment: Environment, gathering: Gathering) -> None:
    gathering.finish()
    environment.process_exit_code = 0  # whether failures matter is for the service levels to say
