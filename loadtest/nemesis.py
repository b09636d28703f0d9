"""Performs the faults of a plan on a cluster while it is under load."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadtest.cluster import node_pids
from loadtest.faults import Fault, Kind
from loadtest.nodes import Nodes
from loadtest.record import wall_ms


class Nemesis:
    """`supervisor` is the process whose children are the nodes, if they may be killed; it starts them again.
    What is done is appended to `log` as JSON lines."""

    def __init__(
        self,
        nodes: Nodes,
        log: Path,
        supervisor: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._log = log
        self._supervisor = supervisor
        self._sleep = sleep
        self._clock = clock

    def run(self, plan: Sequence[Fault]) -> None:
        """Performs the whole plan, each fault at its time from now on."""
        began = self._clock()
        for fault in plan:
            self._sleep(max(0.0, began + fault.at - self._clock()))
            self.perform(fault)

    def perform(self, fault: Fault) -> None:
        if fault.kind is Kind.KILL:
            self._kill(fault.node)
        else:
            for url, chaos in self.disturbances(fault).items():
                self._nodes.disturb(url, chaos)
        self._tell(fault)

    def disturbances(self, fault: Fault) -> dict[str, dict[str, Any]]:
        """Returns what each node is to be told, by URL."""
        found: dict[str, dict[str, Any]] = {}
        for node in self._nodes:
            if fault.kind is Kind.PARTITION:
                others = [name for side in fault.sides if node.name not in side for name in side]
                found[node.url] = {"drop_from": others, "drop_to": others}
            elif fault.kind is Kind.ONE_WAY:
                found[node.url] = {"drop_from": list(fault.sides[0])} if node.name in fault.sides[1] else {}
            else:
                found[node.url] = {"loss": fault.loss} if fault.loss else {}
        return found

    def end(self) -> None:
        """Ends all disturbances."""
        self._nodes.heal()

    def _kill(self, name: str) -> None:
        pid = node_pids(self._supervisor).get(name) if self._supervisor else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _tell(self, fault: Fault) -> None:
        line = {"time_ms": wall_ms(), "kind": str(fault.kind), "text": str(fault)}
        with open(self._log, "a") as file:
            file.write(json.dumps(line) + "\n")
