"""The key-value store as a sans-IO machine over the log: it combines the states, the writes and the waiters.

Writes are held until the log takes messages, and are sent many to a message: the next message is sent when the
last one is on this node's disk, and in a primary component with the next round (`rounds`), so batches grow by
themselves under load.

Green messages are applied a bounded number of writes at a time, so that the node does not fall silent during a
merge of thousands of writes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from corel import (
    Color,
    Entry,
    Greened,
    Logged,
    MessageId,
    PrimaryConfirmed,
    Reordered,
    ReplicaEffect,
    Stage,
    StageChanged,
    TooMuch,
)
from kvstore.store.config import StoreConfig
from kvstore.store.feed import Feed
from kvstore.store.figures import StoreFigures
from kvstore.store.green_state import Checkpoint, FateForgotten, GreenState, Tree, write_id
from kvstore.store.history import Snapshot
from kvstore.store.observer import AppliedMessage, Observer
from kvstore.store.pending_writes import PendingWrites
from kvstore.store.red_state import Preview, RedState
from kvstore.store.replies import Ack, Overloaded, Ready, Respond, Trouble
from kvstore.store.rounds import Rounds
from kvstore.store.state import Applied, Basis, Item, Outcome, expiry_of
from kvstore.store.tentative_feed import TentativeFeed
from kvstore.store.waiters import Deadlines, LogView, Waiter, Waiters
from kvstore.store.write_codec import encode_batch
from transport import AT_ONCE, NEVER, BrokenInvariant, Milliseconds

_REPLAY_MESSAGES_MAX = 256
"""How many messages of the log are read at a time when a node starts."""

_PREVIEW_WRITES_MAX = 2_048
"""Most writes that one request for a preview may have to apply."""

_CHECKPOINT_RETRY_MS = 20.0
"""How long to wait when a checkpoint is due and cannot be taken yet."""


class LogPort(LogView, Protocol):
    """What the store reads of the log."""

    @property
    def is_open(self) -> bool: ...

    def body_of(self, entry: Entry) -> bytes: ...

    def read_green(self, first: int, count: int) -> list[Entry]: ...


class Store:
    """One node's store. It sends a message with `submit` and begins a primary check with `check_primary`; the log
    reports the results through `handle`."""

    def __init__(
        self,
        log: LogPort,
        tree: Tree,
        submit: Callable[[bytes], MessageId],
        check_primary: Callable[[int], None],
        config: StoreConfig | None = None,
        wall_ms: Callable[[], int] = lambda: 0,
        figures: StoreFigures | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`wall_ms` says when writes are accepted, for people to read: nothing is decided by it."""
        self.config = config or StoreConfig()
        self._figures = figures or StoreFigures()
        self._wall_ms = wall_ms
        self._log = log
        self._submit = submit
        self.green = GreenState(tree, self.config.history_revisions, self.config.history_bytes)
        self._red = RedState(self.green, log.body_of)
        self._backlog: deque[Entry] = deque()
        """Green messages that are not applied yet."""
        self._observer = observer
        on_answered = None if observer is None else observer.answered
        self._writes = PendingWrites(self.config, self._figures, on_answered)
        self._waiters = Waiters(log, check_primary, self.config.waiters_max)
        self._deadlines = Deadlines()
        self.feed = Feed()
        self.tentative_feed = TentativeFeed(log)
        self._rounds = Rounds(self.config)
        self._checkpoint_due: Milliseconds = NEVER
        self._replay()
        self.green.conflict_counts = self._figures.conflicts  # without those of the replay

    def _replay(self) -> None:
        """Applies the messages of the log that are green and not in the tree."""
        while self.green.line < self._log.queue.green:
            entries = self._log.read_green(self.green.line, _REPLAY_MESSAGES_MAX)
            if not entries:
                raise RuntimeError(f"the log has no green message {self.green.line}")
            for entry in entries:
                self.green.apply(entry.id, self._log.body_of(entry), entry.view)

    # What the log reports

    def handle(self, report: ReplicaEffect) -> None:
        """Takes any report of the layers below; those that the store does not need are ignored."""
        if isinstance(report, Logged):
            self._writes.logged(report.entries, self._log.stage is Stage.PRIMARY)
            if self.tentative_feed:
                self.tentative_feed.logged(report.entries)
            self.dispatch()
        elif isinstance(report, Greened):
            self._on_greened(report)
        elif isinstance(report, PrimaryConfirmed):
            self._waiters.confirmed(report.number, self.green.line)
        elif isinstance(report, StageChanged):
            self._on_stage_changed()
        elif isinstance(report, Reordered) and self.tentative_feed:
            self.tentative_feed.reordered()

    def _on_greened(self, greened: Greened) -> None:
        known = self.green.line + len(self._backlog) - greened.position
        if known < 0:
            raise BrokenInvariant(f"green messages from {greened.position} on, {-known} before them are missing")
        self._backlog.extend(greened.entries[known:])
        self._apply_backlog()
        self.dispatch()

    def _apply_backlog(self) -> None:
        """Applies green messages, up to the bounds at which the network or the disk gets its turn."""
        left = self.config.apply_writes_max
        position, done = self.green.line, list[AppliedMessage]()
        while left > 0 and self._may_apply():
            entry = self._backlog[0]
            applied = self.green.apply(entry.id, self._log.body_of(entry), entry.view)
            self._backlog.popleft()
            left -= max(1, len(applied))
            self._on_applied(entry.id, applied)
            done.append(AppliedMessage(entry.id, applied, self.green.revision))
        if done and self._observer is not None:
            self._observer.applied(position, done)
        self._waiters.reached_revision(self.green.revision)
        self._waiters.release_readers(self.green.line)

    def _may_apply(self) -> bool:
        return bool(self._backlog) and self.green.unwritten < self.config.checkpoints_max

    def _on_applied(self, message_id: MessageId, applied: list[Applied]) -> None:
        self._figures.green_writes += len(applied)
        if writes := self._writes.take_sent(message_id):
            self._rounds.end(len(writes), self._writes.held_count)
            self._writes.answer_green(writes, applied)
        self._waiters.applied(message_id)
        if self.tentative_feed:
            self.tentative_feed.applied(message_id, applied)
        if self.feed:
            for done in applied:
                if done.changes and done.outcome.revision is not None:
                    self.feed.changed(done.outcome.revision, done.changes)

    def _on_stage_changed(self) -> None:
        if self._log.stage is Stage.NON_PRIMARY:
            self._writes.accept_red()
        self._waiters.stage_changed()
        if self.tentative_feed:
            self.tentative_feed.reordered()
        self.dispatch()

    # Writing

    def write(self, data: bytes, ack: Ack, deadline: Milliseconds, respond: Respond) -> None:
        """Holds a write until `dispatch` sends it. Raises `Overloaded`."""
        write = self._writes.hold(data, self._log.queue.green, ack, respond)
        self._deadlines.add(deadline, write, self._waiting_count())

    def dispatch(self) -> None:
        """Sends the held writes that may be sent now."""
        writes, ahead_max = self._writes, self.config.messages_ahead_max
        while writes.is_any_held and self._log.is_open and writes.unlogged_count < ahead_max:
            if self._must_wait() or not self._send_batch():
                return

    def _must_wait(self) -> bool:
        writes = self._writes
        if self._log.stage is not Stage.PRIMARY or writes.is_batch_full:
            return False
        return self._rounds.must_wait(writes.held_count, is_under_way=writes.is_any_sent)

    def _send_batch(self) -> bool:
        writes = self._writes
        batch = writes.next_batch(self._log.stage is Stage.PRIMARY)
        if not batch:
            return True
        try:
            expires = expiry_of(batch[0].line)  # that of the write which came first, while least was green
            body = encode_batch([write.data for write in batch], expires, self._wall_ms(), self._basis())
            message_id = self._submit(body)
        except TooMuch:  # sent again when the log reports what it has logged
            writes.hold_again(batch)
            return False
        except BaseException:
            writes.hold_again(batch)
            raise
        writes.sent(message_id, batch)
        self._figures.batch_writes.observe(len(batch))
        self._figures.batch_bytes.observe(len(body))
        self._rounds.begin()
        return True

    def _basis(self) -> Basis:
        """Returns what this node knows: what it has applied, what is about to be, and what is not green."""
        known = {f"{stream.name}.{stream.incarnation}": last for stream, last in self._log.queue.have()}
        for entry in self._backlog:
            stream, sequence = entry.id
            name = f"{stream.name}.{stream.incarnation}"
            known[name] = max(sequence, known.get(name, 0))
        line = self._log.queue.green if self._log.stage is Stage.PRIMARY else None
        return Basis(self.green.revision, known, line)

    @property
    def held(self) -> int:
        """How many writes wait to be sent."""
        return self._writes.held_count

    @property
    def held_bytes(self) -> int:
        return self._writes.held_bytes

    @property
    def waiting(self) -> int:
        """How many requests wait for a revision, a write or a linearizable read."""
        return self._waiters.count

    @property
    def unapplied(self) -> int:
        """How many green messages are not applied yet."""
        return len(self._backlog)

    # Reading

    def find(self, key: str) -> Item | None:
        """What the key holds in the green state."""
        return self.green.item(key)

    def find_red(self, key: str) -> tuple[Item | None, Color]:
        """What the key holds in the red state, with the colour of the write that decides it."""
        self._refresh_red()
        return self._red.item(key), self._red.color(key)

    def _refresh_red(self) -> None:
        """Brings the red state up to date. Raises `Overloaded` if that needs more than `red_writes_max` writes;
        the next call continues."""
        queue = self._log.queue
        entries = [*self._backlog, *queue]
        if not self._red.refresh(entries, len(self._backlog) + len(queue.yellow), self.config.red_writes_max):
            raise Overloaded("the red state is being brought up to date")

    def outcome(self, message_id: MessageId, index: int) -> tuple[Color, Outcome | None] | None:
        """The colour of a write and, if it is green, what became of it; None if it is not known here. A write that
        was sent but is not logged is not known. Raises `FateForgotten`."""
        fate = self.green.fate(message_id)
        if fate is not None:
            return (Color.GREEN, fate.outcomes[index]) if index < len(fate.outcomes) else None
        if any(entry.id == message_id for entry in self._backlog):
            return Color.YELLOW, None  # it is green, and is about to be applied
        entry = self._log.queue.get(message_id)
        if entry is None:
            if 1 <= message_id.sequence <= self._log.queue.last_of(message_id.stream):
                raise FateForgotten(message_id)  # it is green, and its fate was deleted
            return None
        self._refresh_red()
        if self._red.outcome(write_id(message_id, index)) is None:
            return None
        return (Color.YELLOW if self._log.queue.is_yellow(entry) else Color.RED), None

    def red_snapshot(self) -> tuple[Snapshot, Callable[[str], Color]]:
        """Returns the red state as it is now, and the colour of what each key holds. Raises `Overloaded`."""
        self._refresh_red()
        return self._red.snapshot()

    def preview(self) -> list[Preview]:
        """Returns what each write that is not green would do if it merged onto the green state as it is now, in
        order. Raises `Overloaded`; the next call continues."""
        self._refresh_red()
        return self._red.preview(_PREVIEW_WRITES_MAX)

    # Waiting: all of these raise `Overloaded`

    def when_linearizable(self, deadline: Milliseconds, ready: Ready) -> None:
        """Calls `ready` when the green state has everything that was green anywhere when this was called."""
        self._waiters.add_linearizable(self._wait(deadline, ready))

    def when_revision(self, revision: int, deadline: Milliseconds, ready: Ready) -> None:
        """Calls `ready` when the green state has reached this revision."""
        if self.green.revision >= revision:
            ready(None)
        else:
            self._waiters.add_for_revision(revision, self._wait(deadline, ready))

    def when_green(self, message_id: MessageId, deadline: Milliseconds, ready: Ready) -> None:
        """Calls `ready` when a message that is known and not green has become green."""
        self._waiters.add_for_green(message_id, self._wait(deadline, ready))

    def _wait(self, deadline: Milliseconds, ready: Ready) -> Waiter:
        waiter = self._waiters.make(ready)
        self._deadlines.add(deadline, waiter, self._waiting_count())
        return waiter

    def _waiting_count(self) -> int:
        return self._writes.unanswered + self._waiters.count

    # Time

    def tick(self, now: Milliseconds) -> None:
        self._deadlines.tick(now)
        if self._backlog:
            self._apply_backlog()
        self._rounds.tick(now)
        self.dispatch()
        if not self.green.unwritten:
            self._checkpoint_due = NEVER
        elif self._checkpoint_due == NEVER:
            self._checkpoint_due = now + self.config.checkpoint_ms

    def next_deadline(self) -> Milliseconds:
        if self._may_apply() or (self.green.unwritten and self._checkpoint_due == NEVER):
            return AT_ONCE
        deadline = self._deadlines.next_deadline()
        if self._writes.is_any_held:
            deadline = min(deadline, self._rounds.next_deadline())
        return min(deadline, self._checkpoint_due) if self.green.unwritten else deadline

    # Checkpoints

    def take_checkpoint(self, green_on_disk: int, now: Milliseconds) -> Checkpoint | None:
        """Returns the next checkpoint for the tree, if one is due. `green_on_disk` is the log's green line on
        disk, as it is now or as the write that takes the checkpoint along makes it."""
        is_due = now >= self._checkpoint_due
        checkpoint = self.green.take_checkpoint(green_on_disk, only_full=not is_due)
        if is_due:  # without one, the log's green line is not on disk yet, or one is being written
            pause_ms = self.config.checkpoint_ms if checkpoint is not None else _CHECKPOINT_RETRY_MS
            self._checkpoint_due = now + pause_ms
        return checkpoint

    def checkpoint_written(self, checkpoint: Checkpoint) -> None:
        """Drops a checkpoint that is in the tree on disk now."""
        self.green.written(checkpoint)

    # The end

    def end_feeds(self) -> None:
        """Wakes every watcher that waits for a change: none will be served here any more."""
        self.feed.wake_all(self.green.revision)

    def leave(self) -> None:
        """Answers every request: the node has left the others, so nothing that they wait for will happen here."""
        self._writes.leave()
        self.end_feeds()
        for waiter in list(self._waiters):
            waiter.answer(Trouble.AWAY)
