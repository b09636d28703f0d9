"""Simulated processes that keep a journal, by the code with which a real node keeps it.

What is journaled when is as in `kvstore.node.driver` and `kvstore.node.restarting`. The reports that are for the
journal alone are taken out of the effects before these are executed, as in every run, so that a crash after so
many effects is the same crash; each is journaled right before the effect that follows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from corel.disk_errors import DiskError
from corel.effects import Greened, Persist, Queued, Reordered, StageChanged, Yellowed
from corel.recovery_plan import OutOfReach, ReplacedDisk
from kvstore.node.recorder import Recorder
from kvstore.store.green_state import Checkpoint, GreenState
from tests.simulator.checkers import Violation
from tests.simulator.corel.process import CorelProcess
from tests.simulator.recording.journal import SimulatedJournal
from tests.simulator.store.process import StoreProcess
from transport.effects import Journal, TransportEvent
from transport.messages import Datagram


class RecordedProcess(CorelProcess):
    """One node with a journal. `new_journal` returns that of a new process of the node; `on_wiped` is called
    before its disk is replaced."""

    new_journal: Callable[[], SimulatedJournal]
    on_wiped: Callable[[], None]
    is_guarded = False
    """Whether an exception stops the process for good, as it stops a real node, instead of ending the run."""
    journal: SimulatedJournal | None = None
    recorder: Recorder | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._before: dict[int, list[Queued | Yellowed]] = {}
        """The reports that come right before effects which are not executed yet, by the identity of the effect."""
        self._after: dict[int, list[Queued | Yellowed]] = {}
        """Those that no effect follows, by the last effect before them."""

    # Its life

    def journal_start(self, cluster: str) -> None:
        """Begins the journal of an incarnation, before its first effect."""
        if self.journal is None:
            self.journal = self.new_journal()
        self.recorder = Recorder(self.journal, self.me)
        assert self.replica is not None
        weights = self.roster.weights
        self.recorder.started(
            cluster, list(weights), self.replica, self.revision_on_disk(), list(weights.values())
        )

    def journal_written(self) -> None:
        if self.recorder is not None and self.replica is not None:
            self.recorder.written()

    def revision_on_disk(self) -> int:
        """The revision of the state that the log on disk leads to."""
        return 0

    def crash(self) -> None:
        self._end_journal()
        super().crash()

    def _end_journal(self) -> None:
        """Has the journal end with the process, which is killed, unless it was killed before."""
        journal, self.journal, self.recorder = self.journal, None, None
        if journal is not None:
            journal.kill(is_stopped=self.is_paused())

    def pause(self, duration_ms: float) -> None:
        if self.journal is not None and not self.is_paused():
            self.journal.settle()
        super().pause(duration_ms)

    def wipe(self, is_new_cluster: bool = False) -> None:
        self._end_journal()
        self.on_wiped()
        super().wipe(is_new_cluster)

    def _leave(self, error: DiskError | OutOfReach | ReplacedDisk) -> None:
        if self.replica is not None and self.recorder is not None and isinstance(error, DiskError):
            self.recorder.note("stopped", reason="disk", detail=str(error))
        super()._leave(error)

    def _forget_inputs(self) -> None:
        self._before.clear()
        self._after.clear()
        super()._forget_inputs()

    # Effects

    def _execute(self, effects: Sequence[Any], may_stop: bool = False) -> None:
        if self.recorder is not None:
            self._keep_reports(effects)
        super()._execute(effects, may_stop)

    def _keep_reports(self, effects: Sequence[Any]) -> None:
        reports: list[Queued | Yellowed] = []
        last: Any = None
        for effect in effects:
            if isinstance(effect, (Queued, Yellowed)):
                reports.append(effect)
                continue
            if reports:
                self._before[id(effect)] = reports
                reports = []
            last = effect
        if last is None:
            self._record_all(reports)
        elif reports:
            self._after[id(last)] = reports

    def _execute_one(self, effect: Any) -> None:
        if self.recorder is not None:
            self._record_all(self._before.pop(id(effect), []))
            self._record(effect)
        super()._execute_one(effect)
        if self.recorder is not None:
            self._record_all(self._after.pop(id(effect), []))

    def _record_all(self, reports: Sequence[Queued | Yellowed]) -> None:
        for report in reports:
            self._record(report)

    def _record(self, effect: Any) -> None:
        recorder = self.recorder
        assert recorder is not None
        if isinstance(effect, Journal):
            self._record_entry(recorder, effect)
        elif isinstance(effect, Persist):
            recorder.writing(effect.write)
        elif isinstance(effect, Queued):
            recorder.queued(effect)
        elif isinstance(effect, Yellowed):
            recorder.yellowed(effect)
        elif isinstance(effect, Greened):
            recorder.greened(effect)
        elif isinstance(effect, StageChanged):
            recorder.entry(effect.journal())
        elif isinstance(effect, Reordered):
            queue = self.machine_log.queue
            recorder.note("reordered", green=queue.green, yellow=queue.yellow_line, length=len(queue))

    def _record_entry(self, recorder: Recorder, entry: Journal) -> None:
        if entry.event is TransportEvent.DROPPED:
            machine = str(entry.details.get("machine"))
            recorder.note("dropped", machine=machine, reason=str(entry.reason), detail=entry.id, count=1)
        else:
            recorder.entry(entry)

    # An exception stops a node

    def start(self) -> None:
        self._guard(super().start)

    def take_in(self, datagram: Datagram) -> None:
        self._guard(lambda: super(RecordedProcess, self).take_in(datagram))

    def tick(self) -> None:
        self._guard(super().tick)

    def submit_guarded(self, body: bytes) -> None:
        self._guard(lambda: self.submit(body))

    def _resume(self) -> None:
        self._guard(super()._resume)

    def _persisted(self, effect: Persist, starts: int) -> None:
        self._guard(lambda: super(RecordedProcess, self)._persisted(effect, starts))

    def _guard(self, action: Callable[[], object]) -> None:
        if not self.is_guarded:
            action()
            return
        try:
            action()
        except Violation:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self.recorder is not None and self.replica is not None:
            self.recorder.note("stopped", reason="failed", detail=str(error))
        journal, self.journal, self.recorder = self.journal, None, None
        if journal is not None:
            journal.end(is_finished=True)
        self.is_stopped = True
        self.crash()


class RecordedStoreProcess(RecordedProcess, StoreProcess):
    """One node with a store and a journal."""

    def journal_start(self, cluster: str) -> None:
        super().journal_start(cluster)
        self.observer = self.recorder

    def revision_on_disk(self) -> int:
        log = self.machine_log
        state = GreenState(self.tree)
        try:
            for entry in log.read_green(state.line, log.queue.green - state.line):
                state.apply(entry.id, log.body_of(entry), entry.view)
        except DiskError:
            return state.revision  # the store will meet the same damage
        return state.revision

    def _safely(self, action: Callable[[], None]) -> None:
        self._guard(lambda: super(RecordedStoreProcess, self)._safely(action))

    def _written_alone(self, checkpoint: Checkpoint, store: Any) -> None:
        self._guard(lambda: super(RecordedStoreProcess, self)._written_alone(checkpoint, store))

    def _report_written(self) -> None:
        self._guard(super()._report_written)
