"""The key-value store as a sans-IO machine over the log: who waits for what, and who is told what when.

Writes are held until the log takes messages, and travel many to a message: the next message leaves when the last
one is on this node's disk, and in a primary component in the next round (`rounds`), so batches grow by themselves
under load. What a write is promised (`ack`) is judged when it leaves. A write that has not left by its deadline is
withdrawn; one that has left stands, whoever waits for it or not.

Green messages are applied a bounded number of writes at a time, so a merge of thousands does not silence the
node."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Protocol, TypeAlias

from corel.corel import Stage
from corel.effects import Greened, Logged
from corel.message_queue import BrokenInvariant, MessageQueue
from corel.messages import Color, Entry, MessageId
from corel.outbox import TooMuch
from kvstore.green_state import Checkpoint, GreenState, Tree, write_id
from kvstore.red_state import RedState
from kvstore.rounds import Rounds
from kvstore.state import Applied, Item, Outcome
from kvstore.store_config import StoreConfig
from kvstore.write_codec import BATCH_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES, encode_batch
from transport.messages import Milliseconds

_NEVER = float("inf")
_AT_ONCE = float("-inf")
_REPLAY_AT_ONCE = 256
_AGAIN_MS = 20.0
_PRUNE_FROM = 64
"""Fewer who were told already are not worth a search."""


class Ack(StrEnum):
    """What a writer waits for."""

    AUTO = "auto"
    """Green in a primary component, else red."""
    GREEN = "green"
    RED = "red"
    """That it is on this node's disk."""


class Trouble(StrEnum):
    """Why a request was not served."""

    NO_PRIMARY = "no_primary"
    TIMEOUT = "timeout"
    UNDECIDED = "undecided"
    """It has left, but is not on this node's disk: it may be accepted, or not."""
    OVERLOADED = "overloaded"
    AWAY = "away"
    """The node has left the others, because of its disk or because it stops."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write is green."""

    write_id: str
    applied: Applied


@dataclass(frozen=True, slots=True)
class Accepted:
    """The write is on this node's disk, and stands."""

    write_id: str
    color: Color


@dataclass(frozen=True, slots=True)
class Failed:
    """`write_id` is there if the write may stand nevertheless."""

    trouble: Trouble
    write_id: str = ""


Answer: TypeAlias = Done | Accepted | Failed
Reply: TypeAlias = Callable[[Answer], None]
Ready: TypeAlias = Callable[[Trouble | None], None]
"""Told that what was waited for is there, or why it will not be."""


class Overloaded(Exception):
    """Too much waits already. Nothing was accepted."""


class LogPort(Protocol):
    """What the store needs of the log."""

    @property
    def stage(self) -> Stage: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def queue(self) -> MessageQueue: ...

    def body_of(self, entry: Entry) -> bytes: ...

    def read_green(self, first: int, count: int) -> list[Entry]: ...


class _Progress(StrEnum):
    HELD = "held"
    SENT = "sent"
    LOGGED = "logged"
    ANSWERED = "answered"


@dataclass(slots=True)
class _Waiting:
    """A write that somebody waits for."""

    data: bytes
    ack: Ack
    reply: Reply
    progress: _Progress = _Progress.HELD
    write_id: str = ""
    index: int = 0
    """In its message."""
    entry: Entry | None = None
    """Its message, once that is on this node's disk."""

    @property
    def is_told(self) -> bool:
        return self.progress is _Progress.ANSWERED


@dataclass(slots=True)
class _Reader:
    """A linearizable read."""

    once: _Once
    after: MessageId | None = None
    """The last message of the queue when it began: once this is green and applied, the read may go on."""
    line: int = 0


class Machine:
    """One node's store. `submit` and `probe` hand things to the log; what comes of a message is reported later."""

    def __init__(
        self,
        log: LogPort,
        tree: Tree,
        submit: Callable[[bytes], MessageId],
        probe: Callable[[int], None],
        config: StoreConfig | None = None,
    ) -> None:
        self.config = config or StoreConfig()
        self._log = log
        self._submit = submit
        self._probe = probe
        self.green = GreenState(tree)
        self._red = RedState(self.green, log.body_of)
        self._backlog: deque[Entry] = deque()
        """Green, and not applied."""
        self._held: deque[_Waiting] = deque()
        """Those who gave up are among them until their turn comes."""
        self._held_count = 0
        self._held_bytes = 0
        self._sent: dict[MessageId, list[_Waiting]] = {}
        """Own messages that are not green, with those who wait for them."""
        self._rounds = Rounds(self.config)
        self._ahead: set[MessageId] = set()
        """Those that are not on this node's disk."""
        self._readers: list[_Reader] = []
        """They wait for the next probe."""
        self._probed: list[_Reader] = []
        """They wait for the one under way."""
        self._proven: deque[_Reader] = deque()
        """They wait for messages to become green."""
        self._probe_number = 0
        self._followers: dict[MessageId, list[_Once]] = {}
        """They wait for this message to be green."""
        self._revisions: list[tuple[int, int, _Once]] = []
        """They wait for this revision: a heap."""
        self._patience: list[tuple[Milliseconds, int, _Waiting | _Once]] = []
        """Who gives up when: a heap. Those who were answered are in it until there are too many of them."""
        self._unanswered = 0
        """Writes that somebody waits for."""
        self._count = 0
        self._waiters = 0
        """Readers, followers and those who wait for a revision that have not been told."""
        self._checkpoint_due: Milliseconds = _NEVER
        self._replay()

    def _replay(self) -> None:
        """What is green on disk and not in the tree."""
        while self.green.line < self._log.queue.green:
            entries = self._log.read_green(self.green.line, _REPLAY_AT_ONCE)
            if not entries:
                raise RuntimeError(f"the log has no green message {self.green.line}")
            for entry in entries:
                self.green.apply(entry.id, self._log.body_of(entry))

    # Writing

    def write(self, data: bytes, ack: Ack, deadline: Milliseconds, reply: Reply) -> None:
        """Holds a write; it leaves with `dispatch`. Raises `Overloaded`."""
        config = self.config
        if self._held_count >= config.held_max or self._held_bytes >= config.held_bytes_max:
            raise Overloaded(f"{self._held_count} writes wait")
        waiting = _Waiting(data, ack, reply)
        self._held.append(waiting)
        self._count_held(waiting, 1)
        self._unanswered += 1
        self._be_patient(deadline, waiting)

    def dispatch(self) -> None:
        """Sends what may leave."""
        while self._held and self._log.is_open and len(self._ahead) < self.config.messages_ahead_max:
            if self._must_wait() or not self._send_batch():
                return

    def _must_wait(self) -> bool:
        if self._log.stage is not Stage.PRIMARY or self._held_count >= self.config.batch_writes_max:
            return False
        if self._held_bytes + self._held_count * WRITE_OVERHEAD_BYTES >= self.config.batch_bytes_max:
            return False
        return self._rounds.must_wait(self._held_count, is_under_way=bool(self._sent))

    def _send_batch(self) -> bool:
        batch = self._next_batch()
        if not batch:
            return True
        try:
            message_id = self._submit(encode_batch([waiting.data for waiting in batch]))
        except TooMuch:  # the log says when it takes more, by logging
            self._hold_again(batch)
            return False
        except BaseException:
            self._hold_again(batch)
            raise
        for index, waiting in enumerate(batch):
            waiting.progress = _Progress.SENT
            waiting.write_id, waiting.index = write_id(message_id, index), index
            waiting.data = b""
        self._sent[message_id] = batch
        self._ahead.add(message_id)
        self._rounds.begin()
        return True

    def _hold_again(self, batch: list[_Waiting]) -> None:
        self._held.extendleft(reversed(batch))
        for waiting in batch:
            self._count_held(waiting, 1)

    def _next_batch(self) -> list[_Waiting]:
        is_primary = self._log.stage is Stage.PRIMARY
        room = self.config.batch_bytes_max - BATCH_OVERHEAD_BYTES
        batch: list[_Waiting] = []
        while self._held and len(batch) < self.config.batch_writes_max:
            waiting = self._held[0]
            size = len(waiting.data) + WRITE_OVERHEAD_BYTES
            if batch and size > room:
                break
            self._held.popleft()
            if waiting.progress is _Progress.ANSWERED:
                continue
            self._count_held(waiting, -1)
            if waiting.ack is Ack.GREEN and not is_primary:
                self._answer(waiting, Failed(Trouble.NO_PRIMARY))
                continue
            batch.append(waiting)
            room -= size
        return batch

    def _give_up_write(self, waiting: _Waiting) -> None:
        if waiting.progress is _Progress.HELD:
            self._withdraw(waiting, Trouble.TIMEOUT)
        elif waiting.progress is _Progress.SENT:
            self._answer(waiting, Failed(Trouble.UNDECIDED, waiting.write_id))
        elif waiting.progress is _Progress.LOGGED:
            self._accept(waiting)

    def _withdraw(self, waiting: _Waiting, trouble: Trouble) -> None:
        """It has not left, and never will."""
        self._count_held(waiting, -1)
        waiting.data = b""
        self._answer(waiting, Failed(trouble))
        if len(self._held) > _PRUNE_FROM + 2 * self._held_count:
            self._held = deque(one for one in self._held if one.progress is not _Progress.ANSWERED)

    def _count_held(self, waiting: _Waiting, sign: int) -> None:
        self._held_count += sign
        self._held_bytes += sign * len(waiting.data)

    def _answer(self, waiting: _Waiting, answer: Answer) -> None:
        if waiting.progress is not _Progress.ANSWERED:
            waiting.progress = _Progress.ANSWERED
            self._unanswered -= 1
            reply, waiting.reply = waiting.reply, _tell_nobody
            reply(answer)

    def _accept(self, waiting: _Waiting) -> None:
        """It is on this node's disk: yellow if it was received in a primary component, and may be final
        already."""
        is_yellow = waiting.entry is not None and waiting.entry.primary
        self._answer(waiting, Accepted(waiting.write_id, Color.YELLOW if is_yellow else Color.RED))

    # What the log reports

    def logged(self, logged: Logged) -> None:
        is_primary = self._log.stage is Stage.PRIMARY
        for entry in logged.entries:
            if entry.id in self._ahead:
                self._ahead.discard(entry.id)
                for waiting in self._sent[entry.id]:
                    if waiting.progress is _Progress.SENT:
                        waiting.progress = _Progress.LOGGED
                        waiting.entry = entry
                    if waiting.ack is Ack.RED or (waiting.ack is Ack.AUTO and not is_primary):
                        self._accept(waiting)
                self._forget_answered(entry.id)
        self.dispatch()

    def greened(self, greened: Greened) -> None:
        skipped = self.green.line + len(self._backlog) - greened.position
        if skipped < 0:
            raise BrokenInvariant(f"green messages from {greened.position} on, {-skipped} before them are missing")
        self._backlog.extend(greened.entries[skipped:])
        self.work()
        self.dispatch()

    def work(self) -> None:
        """Applies green messages, as many as may be before others get their turn, or the disk its."""
        left = self.config.apply_writes_max
        while left > 0 and self._may_apply():
            entry = self._backlog[0]
            applied = self.green.apply(entry.id, self._log.body_of(entry))
            self._backlog.popleft()
            left -= max(1, len(applied))
            self._on_applied(entry.id, applied)
        while self._revisions and self._revisions[0][0] <= self.green.revision:
            heappop(self._revisions)[2](None)
        self._release_readers()

    def _may_apply(self) -> bool:
        return bool(self._backlog) and self.green.unwritten < self.config.checkpoints_max

    def _on_applied(self, message_id: MessageId, applied: list[Applied]) -> None:
        self._ahead.discard(message_id)
        sent = self._sent.pop(message_id, ())
        if sent:
            self._rounds.end(len(sent), self._held_count)
        for waiting in sent:
            self._answer(waiting, Done(waiting.write_id, applied[waiting.index]))
        for ready in self._followers.pop(message_id, ()):
            ready(None)

    def stage_changed(self) -> None:
        """The log is in another stage."""
        stage = self._log.stage
        if stage is Stage.NON_PRIMARY:
            for message_id, sent in list(self._sent.items()):
                for waiting in sent:
                    if waiting.progress is _Progress.LOGGED and waiting.ack is Ack.AUTO:
                        self._accept(waiting)
                self._forget_answered(message_id)
        if stage is not Stage.PRIMARY:
            self._readers = [*self._probed, *self._proven, *self._readers]
            self._probed, self._proven = [], deque()
        self._begin_probe()
        self.dispatch()

    def _forget_answered(self, message_id: MessageId) -> None:
        """Red writes may wait for hours to be green; nobody waits for them."""
        unanswered = [one for one in self._sent[message_id] if one.progress is not _Progress.ANSWERED]
        if unanswered or message_id in self._ahead:
            self._sent[message_id] = unanswered
        else:
            del self._sent[message_id]

    # Reading

    def find(self, key: str) -> Item | None:
        """In the green state."""
        return self.green.item(key)

    def find_red(self, key: str) -> tuple[Item | None, Color]:
        """In the red state, with the colour of what decides."""
        self._refresh()
        return self._red.item(key), self._red.color(key)

    def _refresh(self) -> None:
        """Raises `Overloaded` if there is more to look at than may be at once; the next look goes on."""
        queue = self._log.queue
        entries = [*self._backlog, *queue]
        if not self._red.refresh(entries, len(self._backlog) + len(queue.yellow), self.config.red_writes_max):
            raise Overloaded("the red state is being brought up to date")

    def when_linearizable(self, deadline: Milliseconds, ready: Ready) -> None:
        """Tells when the green state has everything that was green anywhere when this was called. Raises
        `Overloaded`, as all who wait."""
        once = self._wait(deadline, ready)
        if len(self._readers) > _PRUNE_FROM + 2 * self._waiters:
            self._readers = [reader for reader in self._readers if not reader.once.is_told]
        self._readers.append(_Reader(once))
        self._begin_probe()

    def _wait(self, deadline: Milliseconds, ready: Ready) -> _Once:
        """Someone who is told once, by the deadline at the latest."""
        if self._waiters >= self.config.waiters_max:
            raise Overloaded(f"{self._waiters} requests wait")
        self._waiters += 1
        once = _Once(ready, self._has_been_told)
        self._be_patient(deadline, once)
        return once

    def _has_been_told(self) -> None:
        self._waiters -= 1

    def _begin_probe(self) -> None:
        """One at a time: who comes while one is under way waits for the next."""
        if not self._readers:
            return
        if self._log.stage is Stage.NON_PRIMARY:
            readers, self._readers = self._readers, []
            for reader in readers:
                reader.once(Trouble.NO_PRIMARY)
        elif self._log.stage is Stage.PRIMARY and not self._probed:
            self._probed, self._readers = [one for one in self._readers if not one.once.is_told], []
            last = self._last_open()
            for reader in self._probed:
                reader.after, reader.line = last, self._log.queue.green
            self._probe_number += 1
            if self._probed:
                self._probe(self._probe_number)

    def _last_open(self) -> MessageId | None:
        queue = self._log.queue
        zone = queue.red or queue.yellow
        return zone[-1].id if zone else None

    def proven(self, number: int) -> None:
        """The probe of this number has its answer."""
        if number == self._probe_number:
            self._proven.extend(self._probed)
            self._probed = []
            self._release_readers()
            self._begin_probe()

    def _release_readers(self) -> None:
        while self._proven:
            reader = self._proven[0]
            if reader.after is not None:
                if self._log.queue.get(reader.after) is not None:
                    return
                reader.after, reader.line = None, self._log.queue.green
            if self.green.line < reader.line:
                return
            self._proven.popleft()
            reader.once(None)

    def when_revision(self, revision: int, deadline: Milliseconds, ready: Ready) -> None:
        """Tells when the green state has come so far."""
        if self.green.revision >= revision:
            ready(None)
            return
        once = self._wait(deadline, ready)
        if len(self._revisions) > _PRUNE_FROM + 2 * self._waiters:
            self._revisions = [one for one in self._revisions if not one[2].is_told]
            heapify(self._revisions)
        self._count += 1
        heappush(self._revisions, (revision, self._count, once))

    # What became of a write

    def outcome(self, message_id: MessageId, index: int) -> tuple[Color, Outcome | None] | None:
        """The colour of a write and, if it is green, what became of it; None if it is not known here. A write that
        has left but is not logged is not known."""
        fate = self.green.fate(message_id)
        if fate is not None:
            return (Color.GREEN, fate.outcomes[index]) if index < len(fate.outcomes) else None
        if any(entry.id == message_id for entry in self._backlog):
            return Color.YELLOW, None  # as good as green: it is in the next few moments
        entry = self._log.queue.get(message_id)
        if entry is None:
            return None
        self._refresh()
        if self._red.outcome(write_id(message_id, index)) is None:
            return None
        return (Color.YELLOW if self._log.queue.is_yellow(entry) else Color.RED), None

    def when_green(self, message_id: MessageId, deadline: Milliseconds, ready: Ready) -> None:
        """Tells when a message that is known and not green has become it."""
        once = self._wait(deadline, ready)
        if len(self._followers) > _PRUNE_FROM + 2 * self._waiters:
            self._followers = {
                followed: [one for one in followers if not one.is_told]
                for followed, followers in self._followers.items()
                if not all(one.is_told for one in followers)
            }
        self._followers.setdefault(message_id, []).append(once)

    # Time

    def _be_patient(self, deadline: Milliseconds, who: _Waiting | _Once) -> None:
        if len(self._patience) > _PRUNE_FROM + 2 * (self._unanswered + self._waiters):
            self._patience = [one for one in self._patience if not one[2].is_told]
            heapify(self._patience)
        self._count += 1
        heappush(self._patience, (deadline, self._count, who))

    def tick(self, now: Milliseconds) -> None:
        while self._patience and self._patience[0][0] <= now:
            who = heappop(self._patience)[2]
            if isinstance(who, _Once):
                who(Trouble.TIMEOUT)
            else:
                self._give_up_write(who)
        if self._backlog:
            self.work()
        self._rounds.tick(now)
        self.dispatch()
        if not self.green.unwritten:
            self._checkpoint_due = _NEVER
        elif self._checkpoint_due == _NEVER:
            self._checkpoint_due = now + self.config.checkpoint_ms

    def next_deadline(self) -> Milliseconds:
        if self._may_apply() or (self.green.unwritten and self._checkpoint_due == _NEVER):
            return _AT_ONCE
        deadline = self._patience[0][0] if self._patience else _NEVER
        if self._held:
            deadline = min(deadline, self._rounds.next_deadline())
        return min(deadline, self._checkpoint_due) if self.green.unwritten else deadline

    def take_checkpoint(self, line_on_disk: int, now: Milliseconds) -> Checkpoint | None:
        """The next for the tree, if one is due. The log's green line on disk is here, or will be with it."""
        is_due = now >= self._checkpoint_due
        checkpoint = self.green.take_checkpoint(line_on_disk, only_full=not is_due)
        if is_due:  # if there is none, the log's green line is not on disk yet, or one is on its way
            self._checkpoint_due = now + (self.config.checkpoint_ms if checkpoint is not None else _AGAIN_MS)
        return checkpoint

    @property
    def held(self) -> int:
        """Writes that wait to leave."""
        return self._held_count

    # The end

    def leave(self) -> None:
        """The node has left the others: nothing that waits will come."""
        for waiting in self._everyone_waiting():
            if waiting.progress is _Progress.HELD:
                self._withdraw(waiting, Trouble.AWAY)
            else:
                self._give_up_write(waiting)
        for reader in (*self._readers, *self._probed, *self._proven):
            reader.once(Trouble.AWAY)
        for once in (*chain.from_iterable(self._followers.values()), *[one[2] for one in self._revisions]):
            once(Trouble.AWAY)

    def _everyone_waiting(self) -> Iterator[_Waiting]:
        yield from list(self._held)
        yield from list(chain.from_iterable(self._sent.values()))


def _tell_nobody(answer: Answer) -> None:
    """Instead of one who was told: what it held can go."""


class _Once:
    """Passes on the first of what it is told."""

    def __init__(self, ready: Ready, then: Callable[[], None]) -> None:
        self._ready: Ready | None = ready
        self._then = then

    @property
    def is_told(self) -> bool:
        return self._ready is None

    def __call__(self, trouble: Trouble | None) -> None:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            self._then()
            ready(trouble)
