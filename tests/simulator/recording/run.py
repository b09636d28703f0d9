"""Runs of the log and of the store that are recorded. What happens in them is what happens in a run of the same
seed that is not: the recording only looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, cast

from corel.corel import Corel
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.run import CorelRun
from tests.simulator.recording.process import RecordedProcess, RecordedStoreProcess
from tests.simulator.recording.recording import Recording
from tests.simulator.store.run import StoreRun


@dataclass(frozen=True, slots=True)
class PlannedExport:
    """In the middle of a run the disk of a node is exported, be the node up or not."""

    at_ms: float
    node: str
    is_anew: bool
    """Whether it is exported to a new directory, or to the one of the last export."""


def draw_exports(seed: int, nodes: Iterable[str], duration_ms: float) -> list[PlannedExport]:
    random = Random(f"exports {seed}")
    return [
        PlannedExport(random.uniform(0.1, 1.0) * duration_ms, node, random.random() < 0.3)
        for node in nodes
        for _ in range(random.choice((0, 1, 1, 3)))
    ]


class RecordedRun(CorelRun):
    """A recorded run of the log. One that is not judged goes on after a violation, and a process that raises is
    stopped for good, as a real one is."""

    process_type = RecordedProcess

    def __init__(self, plan: Any, recording: Recording, is_judged: bool = True) -> None:
        self.recording = recording
        super().__init__(plan, None, is_judged)
        recording.now = lambda: self.world.now

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.disk_failures.forgive_rot()
            self.recording.finish(map(_recorded, self.processes.values()))

    def _make(self, name: str, address: str | None = None) -> CorelProcess:
        process = _recorded(super()._make(name, address))
        process.is_guarded = not self.is_judged
        self.recording.adopt(process)
        return process

    def _on_started(self, process: CorelProcess, log: Corel) -> None:
        _recorded(process).journal_start(self.recording.name)
        super()._on_started(process, log)

    def _on_written(self, process: CorelProcess) -> None:
        _recorded(process).journal_written()
        super()._on_written(process)

    def _send(self, process: CorelProcess) -> None:
        _recorded(process)._guard(partial(super()._send, process))

    def _schedule_faults(self) -> None:
        super()._schedule_faults()
        for export in draw_exports(self.plan.seed, self.processes, self.plan.below.duration_ms):
            self.world.at(export.at_ms, partial(self._export, export))

    def _export(self, export: PlannedExport) -> None:
        process = _recorded(self.processes[export.node])
        is_read = self.recording.export(process, export.is_anew)
        self.coverage["exports" if is_read else "exports of disks that cannot be read"] += 1

    def _replace_disk(self, node: str, down_ms: float = 1.0) -> None:
        self.recording.disk_replaced(_recorded(self.processes[node]))
        super()._replace_disk(node, down_ms)


class RecordedStoreRun(RecordedRun, StoreRun):
    """A recorded run of the store."""

    store_process_type = RecordedStoreProcess


def _recorded(process: CorelProcess) -> RecordedProcess:
    return cast(RecordedProcess, process)
