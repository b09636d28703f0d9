"""A driver that runs as long as its disk works, and comes back as if restarted when it works again.

A message becomes green when it is on every member's disk, so a node whose disk is full or stalls leaves the others
(trap 8). It keeps its log open for reading, and comes back as a new incarnation that has read its log
(decision 14); `ComingBack` decides when.

A node that lacks too much to join the others takes over the state of one of them meanwhile (`learner`). Then it
leaves in the same way, and its next incarnation goes on with the disk that it has built (`switch`). Writes are
refused with 503 in between; reads are answered from the old disk, but for the moment between its end and the
next incarnation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from random import Random

from corel import Lines, NotAhead, OutOfReach, Stage
from corel.disk_errors import DamagedLog, DiskError
from corel.lmdb_log import LmdbLog, lock_directory
from corel.pinned_log import PinnedLog
from kvstore.node.coming_back import ComingBack, Switching
from kvstore.node.config import NodeConfig
from kvstore.node.disk_watch import DiskWatch
from kvstore.node.driver import Disk, Driver
from kvstore.node.fate_ages import age_fates
from kvstore.node.journal import JournalWriter
from kvstore.node.journal_files import JournalFiles
from kvstore.node.learner import Learner
from kvstore.node.learning import LearningStatus
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.metrics import Metrics
from kvstore.node.milestones import Milestones
from kvstore.node.open_snapshots import OpenSnapshots
from kvstore.node.recorder import Recorder
from kvstore.node.snapshot_format import DamagedSnapshot, LineageEntry
from kvstore.node.snapshot_source import lineage_of
from kvstore.node.snapshot_target import SnapshotTarget, discard, settle
from kvstore.node.stack import build_stack
from kvstore.node.synced_numbers import ClockFloor, next_incarnation
from kvstore.node.telemetry import Telemetry
from kvstore.node.threads import in_thread
from kvstore.store import Store
from transport import Codec, Machine
from transport.chaos import Chaos, ChaosChannel
from transport.udp import Channel, UdpChannel

logger = logging.getLogger("corelkv")

FLUSH_SECONDS = 2.0
"""How long an orderly stop waits for the disk."""

JOURNAL_SECONDS = 1.0
"""How long it waits for the journal, which may be on a disk that is stuck."""

COMPLAINT_SECONDS = 60.0
"""At most one log line in this time about attempts that failed for the same reason."""


UPGRADE_SECONDS = 5.0
"""At most one log line in this time about how far the upgrade of a disk is."""


class Complaint:
    """Says why a node cannot come back: at once when the reason changes, else at a bounded rate."""

    def __init__(self) -> None:
        self._reason = ""
        self._logged_at = 0.0

    def log(self, reason: str, now: float) -> None:
        if reason != self._reason or now - self._logged_at >= COMPLAINT_SECONDS:
            self._reason, self._logged_at = reason, now
            logger.warning("the node cannot come back yet: %s", reason)


class _UpgradeLog:
    """Says in the log how far the upgrade of a disk is, at a bounded rate."""

    def __init__(self) -> None:
        self._told_at = float("-inf")

    def note(self, done: int, total: int) -> None:
        if time.monotonic() - self._told_at >= UPGRADE_SECONDS or done == total:
            self._told_at = time.monotonic()
            logger.info("the log on disk is brought to this version's format: %d of %d messages", done, total)


class RestartingDriver:
    """The drivers of one node's incarnations. Call `start` first, and use it on the event loop that runs it.
    `driver` and `store` are those of the last incarnation. `on_failed` is called if the node stops for good."""

    def __init__(self, config: NodeConfig, on_failed: Callable[[Exception], None] = lambda error: None) -> None:
        self._config = config
        self._on_failed = on_failed
        self._codec = Codec(config.cluster, config.roster.digest())
        self._return: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_new_process = True
        self._journal: JournalWriter | None = None
        self._recorder: Recorder | None = None
        self._coming_back = ComingBack()
        self.metrics = Metrics()
        self.milestones = Milestones()
        self.running_store: Store | None = None
        """The store while the node takes part and takes requests, else None."""
        self._settle()
        self._open_disk()
        self.snapshots = OpenSnapshots(self.log, config.snapshots)
        self._disk_watch = DiskWatch(self.log)
        self._learner = Learner(config, self, self.metrics)
        self.lineage: tuple[LineageEntry, ...] = ()
        """The generations of the cluster before that of this disk."""

    def start(self) -> None:
        """Starts the first incarnation. If that is not possible, nothing is left open."""
        config = self._config
        if config.journal:
            bounds = (config.journal_bytes_max, config.journal_file_bytes_max, config.journal_file_s)
            self._journal = JournalWriter(JournalFiles(config.data / "journal", *bounds))
        try:
            self._begin(Chaos())
        except BaseException:
            if self._journal is not None:
                self._journal.stop()
            self.log.close()
            raise
        self._disk_watch.start()
        self.metrics.loop.start()

    def _settle(self) -> None:
        """Completes a switch that a crash has interrupted. A copy that is damaged is no use, and no harm. Raises
        `DiskError` if another process has the directory, whose copy it may be."""
        config = self._config
        config.data.mkdir(parents=True, exist_ok=True)
        os.close(lock_directory(config.data))
        try:
            if settle(config.data, config.cluster, config.node, config.log.map_bytes):
                logger.info("the node begins with the state that it had taken over from another")
        except DamagedLog as error:
            logger.warning("what was taken over from another node is dropped: %s", error)
            discard(config.data)

    def _open_disk(self) -> None:
        config = self._config
        self.log = LmdbLog(
            config.data,
            config.cluster,
            config.node,
            config.bootstrap,
            config.log.map_bytes,
            _UpgradeLog().note,
            age_fates,
        )
        try:
            self._tree = LmdbTree(self.log, config.log.messages_kept)
        except BaseException:
            self.log.close()
            raise

    @property
    def trouble(self) -> DiskError | OutOfReach | Switching | None:
        """Why the node is away; None while it takes part."""
        return self._coming_back.trouble

    @property
    def learning(self) -> LearningStatus | None:
        """How far the node is with taking over what it lacks; None if it does not."""
        return self._learner.status

    @property
    def chaos(self) -> Chaos | None:
        """The faults injected into the node's network; None if the node was started without chaos."""
        channel = self.driver.channel
        return channel.chaos if isinstance(channel, ChaosChannel) else None

    @chaos.setter
    def chaos(self, chaos: Chaos) -> None:
        channel = self.driver.channel
        if isinstance(channel, ChaosChannel):
            channel.chaos = chaos

    def leave(self) -> None:
        """Answers every request that waits, and takes no more requests."""
        self._is_closing = True
        self._leave_store()

    async def close(self) -> None:
        """Answers every request, writes to disk what is green, and stops when the write under way has ended."""
        self.leave()
        self._disk_watch.stop()
        self.metrics.loop.stop()
        may_close_log = await self._learner.close(FLUSH_SECONDS)
        if self._return is not None:
            self._return.cancel()
            await asyncio.wait([self._return], timeout=FLUSH_SECONDS)
        await self.driver.flush(FLUSH_SECONDS)
        self.driver.close()
        with contextlib.suppress(TimeoutError):  # a stalled disk: the log is not closed
            await asyncio.wait_for(self._writer_ended(), FLUSH_SECONDS)
            self.snapshots.close_all()
            if may_close_log:
                self.log.close()
        await self._close_journal()

    async def _close_journal(self) -> None:
        """Writes the rest of the journal, if its disk takes it in time."""
        journal = self._journal
        if journal is None:
            return
        self.note("stopped", reason="closed")
        journal.stop()
        end = time.monotonic() + JOURNAL_SECONDS
        while journal.is_alive() and time.monotonic() < end:
            await asyncio.sleep(0.005)

    @property
    def lost_events(self) -> int:
        """How many events the journal has lost, because it could not keep up or its disk was full."""
        return 0 if self._journal is None else self._journal.lost

    def note(self, event: str, **fields: object) -> None:
        """Journals an event of this incarnation."""
        if self._recorder is not None:
            self._recorder.note(event, **fields)

    def _begin(self, chaos: Chaos) -> None:
        """Starts the next incarnation: counts it, opens its sockets, reads its disk, and starts its driver."""
        config = self._config
        me = Machine(config.node, next_incarnation(config.data, self._is_new_process))
        self._is_new_process = False
        clock_floor = ClockFloor(config.data)
        channel: Channel = UdpChannel(config.mode)
        if config.chaos:
            channel = ChaosChannel(channel, self._codec, Random(), chaos)
        try:
            now = time.monotonic() * 1_000.0
            stack = build_stack(config, me, self.log, clock_floor.clock, channel.receive_buffer_bytes, now)
        except BaseException:
            channel.close()
            raise
        self._codec.bind(stack.log.generation)
        disk = Disk(self.log, self._tree, config.log.sync_stall_ms)
        recorder = None if self._journal is None else Recorder(self._journal, me)
        telemetry = Telemetry(me, recorder, self.metrics, self.milestones)
        driver = Driver(
            stack,
            channel,
            self._codec,
            self._on_stopped,
            clock_floor,
            disk,
            telemetry,
            self._learner.left_behind,
            lambda: self.snapshots.oldest_line(),
        )
        self._last_begun = driver
        self.metrics.begin(driver.counts, stack.log.queue, time.monotonic())
        try:
            self._tree.load()
            self.lineage = lineage_of(self.log)
            store = Store(
                stack.log,
                self._tree,
                driver.submit,
                driver.check_primary,
                config.store,
                lambda: int(time.time() * 1_000.0),
                self.metrics.store,
                recorder,
            )
            if recorder is not None:
                weights = config.roster.weights
                revision = store.green.revision
                recorder.started(config.cluster, list(weights), stack, revision, list(weights.values()))
                recorder.begun_anew(self.lineage)
            driver.start(store)
        except BaseException:
            driver.close()
            raise
        self.driver, self.store, self._recorder = driver, store, recorder
        self.running_store = None if self._is_closing else store

    def _leave_store(self) -> None:
        self.running_store = None
        self.driver.leave_store()
        self.store.leave()

    def _on_stopped(self, error: Exception) -> None:
        self.note("stopped", reason=_reason(error), detail=str(error))
        if not isinstance(error, (DiskError, OutOfReach)):
            self.leave()
            self._on_failed(error)
            return
        pause = self._coming_back.failed(error, time.monotonic())
        self._leave_store()
        if pause is None:
            logger.critical("the node stays away, and answers reads: %s", error)
        elif not self._is_closing:
            self._return = asyncio.get_running_loop().create_task(self._come_back(pause))

    async def _come_back(self, pause: float) -> None:
        try:
            await self._coming_back.come_back(_RealSurroundings(self), pause)
        except DamagedLog as error:
            logger.critical("the node stays away, and answers reads: %s", error)
        except Exception as error:
            logger.critical("the node cannot come back: %s", error, exc_info=error)
            self.leave()
            self._on_failed(error)
        else:
            logger.info("the node has come back")

    def _begin_again(self) -> None:
        self._begin(self.chaos or Chaos())

    def _reopen_log(self) -> None:
        """Opens log and tree again if LMDB refuses every transaction, so that reads go on and writes can. Nobody
        has a transaction now: the writing thread and the trial have ended, and reads begin and end on this event
        loop; snapshots that others read end."""
        self.snapshots.close_all()
        if self.log.reopen_if_unusable(self._tree.open_tables):
            logger.warning("the log has been opened again: the disk had refused a write of LMDB's meta page")

    # Learning

    @property
    def is_in_primary(self) -> bool:
        """Whether the node is in a primary component."""
        return self.running_store is not None and self.driver.replica.log.stage is Stage.PRIMARY

    def own_lines(self) -> Lines:
        """Returns the lines on this node's disk."""
        pinned = PinnedLog(self.log)
        try:
            return pinned.lines
        finally:
            pinned.close()

    async def switch(self, copy: SnapshotTarget) -> None:
        """Ends this incarnation, makes a whole disk of the copy, and begins the next incarnation with it. Writes
        under way end before. If the copy cannot be used, the next incarnation has the old disk, and the error is
        raised."""
        if self.trouble is not None:
            raise DiskError(f"the node is away: {self.trouble}")
        self.note("stopped", reason="learned")
        self._coming_back.trouble = Switching()
        self._leave_store()
        self.driver.close()
        try:
            await self._writer_ended()
            await in_thread(self._complete, copy)
            self._replace_disk()
        except (asyncio.CancelledError, DamagedSnapshot, NotAhead):
            raise
        except BaseException:
            discard(self._config.data)  # if it is whole, the next start would take it for the node's disk
            raise
        finally:
            if not self._is_closing:
                await self._come_back(0.0)

    def _complete(self, copy: SnapshotTarget) -> None:
        own = PinnedLog(self.log)
        try:
            copy.finish_learning(own.lines, own.open_records())
        finally:
            own.close()
            copy.close()

    def _replace_disk(self) -> None:
        """Puts the copy into the place of the disk. Nothing else happens on the event loop meanwhile."""
        config = self._config
        self._disk_watch.stop()
        self.snapshots.close_all()
        self.log.close()
        try:
            if not settle(config.data, config.cluster, config.node, config.log.map_bytes):
                raise DiskError("what was taken over is not there any more, and has to be fetched again")
        finally:
            self._open_disk()
            self.snapshots = OpenSnapshots(self.log, config.snapshots)
            self._disk_watch = DiskWatch(self.log)
            self._disk_watch.start()

    async def _writer_ended(self) -> None:
        """Waits until no thread writes, not even that of an incarnation which failed while it began."""
        writer = self._last_begun.writer
        while writer is not None and writer.is_alive():
            await asyncio.sleep(0.02)


def _reason(error: Exception) -> str:
    """Returns why an incarnation has stopped, as the journal says it."""
    if isinstance(error, DiskError):
        return "disk"
    return "out_of_reach" if isinstance(error, OutOfReach) else "failed"


class _RealSurroundings:
    """The clock, the threads and the event loop of a node that is away."""

    def __init__(self, node: RestartingDriver) -> None:
        self._node = node
        self._complaint = Complaint()
        self.writer_ended = node._writer_ended
        self.reopen_log = node._reopen_log
        self.begin = node._begin_again

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def try_write(self) -> None:
        await in_thread(self._node.log.try_write)

    def cannot_come_back(self, reason: str) -> None:
        self._complaint.log(reason, self.now())
