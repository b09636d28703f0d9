"""What the driver tells of its work: to the metrics, the journal, the milestones and the log.

Nothing here changes what a node does. What happens for every datagram is not told through here: the driver counts
it itself, with the histograms of `Metrics`, so that it costs no call more."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from enum import StrEnum

from corel import CorelEvent, Greened, Logged, MessageQueue, Persist, Queued, Stage, StageChanged, Yellowed
from corel.disk_errors import DiskError
from kvstore.node.message_times import MessageTimes
from kvstore.node.metrics import Metrics
from kvstore.node.milestones import Milestones
from kvstore.node.peer_errors import PeerErrors
from kvstore.node.recorder import Recorder
from membership import MembershipEvent, ViewChanged
from transport import Journal, Machine, TransportEvent, WindowStuck

logger = logging.getLogger("corelkv")


class Telemetry:
    """That of one incarnation. Metrics and milestones may be those of all incarnations of a process."""

    def __init__(
        self,
        me: Machine,
        journal: Recorder | None = None,
        metrics: Metrics | None = None,
        milestones: Milestones | None = None,
    ) -> None:
        self.peer_errors = PeerErrors()
        self.journal = journal
        self.metrics = metrics or Metrics()
        self._times = MessageTimes(me, self.metrics.times)
        self._milestones = milestones or Milestones()

    @property
    def lost(self) -> int:
        """How many events are missing in the journal."""
        return 0 if self.journal is None else self.journal.lost

    # The life of messages

    def submitted(self, sequence: int) -> None:
        self._times.submitted(sequence, time.monotonic())

    def queued(self, effect: Queued) -> None:
        if self.journal is not None:
            self.journal.queued(effect)

    def writing(self, persist: Persist) -> None:
        self.metrics.sync_records.observe(len(persist.write.records))
        self._times.writing(persist.write)
        if self.journal is not None:
            self.journal.writing(persist.write)

    def written(self) -> None:
        self._times.written(time.monotonic())
        if self.journal is not None:
            self.journal.written()

    def logged(self, effect: Logged) -> None:
        self._times.settled(effect.entries, time.monotonic())

    def yellowed(self, effect: Yellowed) -> None:
        if self.journal is not None:
            self.journal.yellowed(effect)

    def greened(self, effect: Greened) -> None:
        self.metrics.messages_green += len(effect.entries)
        self._times.greened(effect.entries, time.monotonic())
        if self.journal is not None:
            self.journal.greened(effect)

    def reordered(self, queue: MessageQueue) -> None:
        if self.journal is not None:
            self.journal.note("reordered", green=queue.green, yellow=queue.yellow_line, length=len(queue))

    # The group

    def view_changed(self, effect: ViewChanged) -> None:
        self.metrics.group.view_changed(effect.view, time.monotonic())
        logger.info("view %s: %s", effect.view.id, ", ".join(map(str, effect.view.members)))

    def stage_changed(self, effect: StageChanged, members: Sequence[Machine]) -> None:
        self.metrics.group.stage_changed(effect, time.monotonic())
        self.entry(effect.journal())
        if effect.stage in (Stage.PRIMARY, Stage.NON_PRIMARY):
            names = ", ".join(member.name for member in members)
            logger.info("%s component with %s", effect.stage.replace("_", " "), names)

    def window_stuck(self, effect: WindowStuck) -> None:
        self.metrics.group.stuck_windows += 1
        logger.warning("the window is stuck: waiting for %s", ", ".join(map(str, effect.laggards)))

    def entry(self, entry: Journal) -> None:
        """What a machine asks to be journaled."""
        if entry.event is TransportEvent.DROPPED:
            self.peer_error(entry.reason, str(entry.details.get("machine")), entry.id)
            return
        if isinstance(entry.event, MembershipEvent):
            self.metrics.group.membership_event(entry)
        elif entry.event is CorelEvent.VOTE_DOUBTED:
            logger.warning("%s does not vote: %s", entry.details["machine"], entry.details["detail"])
        self._milestones.note(entry)
        if self.journal is not None:
            self.journal.entry(entry)

    def peer_error(self, reason: StrEnum, machine: str, detail: str) -> None:
        """Counts and, at a bounded rate, logs and journals what a peer did wrong: its errors must not push
        everything else out of the journal."""
        count = self.peer_errors.note(reason, f"{machine} {detail}".strip())
        if count and self.journal is not None:
            self.journal.note("dropped", machine=machine, reason=str(reason), detail=detail, count=count)

    def disk_failed(self, error: DiskError) -> None:
        logger.error("the node leaves the others: %s", error)
        self.metrics.disk_failures[type(error).__name__] += 1
        self.metrics.group.end(time.monotonic())
