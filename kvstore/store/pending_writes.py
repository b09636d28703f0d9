"""The writes that clients wait for, from the moment they are held to their answer.

A write is *held* until it is *sent*, in a batch that is one message of the log; it is *logged* when that message
is on this node's disk. What its `ack` asks for is judged when it is sent. A write that has not been sent by its
deadline is withdrawn; one that has been sent stands, whether or not a client still waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import chain

from corel import Color, Entry, MessageId
from kvstore.store.config import StoreConfig
from kvstore.store.figures import StoreFigures
from kvstore.store.green_state import write_id
from kvstore.store.observer import Answered
from kvstore.store.replies import Accepted, Ack, Answer, Done, Failed, Overloaded, Respond, Trouble
from kvstore.store.state import Applied
from kvstore.store.waiters import PRUNE_FROM
from kvstore.store.write_codec import BATCH_OVERHEAD_BYTES, WRITE_OVERHEAD_BYTES


class _Progress(StrEnum):
    HELD = "held"
    SENT = "sent"
    LOGGED = "logged"
    ANSWERED = "answered"


class PendingWrite:
    """A write that a client waits for."""

    __slots__ = (
        "_writes",
        "ack",
        "data",
        "entry",
        "index",
        "line",
        "message_id",
        "progress",
        "respond",
        "write_id",
    )

    def __init__(self, writes: PendingWrites, data: bytes, line: int, ack: Ack, respond: Respond) -> None:
        self._writes = writes
        self.data = data
        self.line = line
        """How many messages were green here when the write came."""
        self.ack = ack
        self.respond = respond
        self.progress = _Progress.HELD
        self.write_id = ""
        self.message_id: MessageId | None = None
        """Its message, once it is sent."""
        self.index = 0
        """The write's place in its message."""
        self.entry: Entry | None = None
        """The write's message, once it is on this node's disk."""

    @property
    def is_answered(self) -> bool:
        return self.progress is _Progress.ANSWERED

    def expire(self) -> None:
        self._writes.give_up(self, Trouble.TIMEOUT)


class PendingWrites:
    """All pending writes of one node. `on_answered` is told the answers to writes that have an id, many at a
    time."""

    def __init__(
        self,
        config: StoreConfig,
        figures: StoreFigures,
        on_answered: Callable[[list[Answered]], None] | None = None,
    ) -> None:
        self._config = config
        self._counts = figures.answers
        self._on_answered = on_answered
        self._answers: list[Answered] = []
        """What `on_answered` has not been told yet."""
        self._held: deque[PendingWrite] = deque()
        """Withdrawn writes stay in it until their turn comes, or until there are too many of them."""
        self.held_count = 0
        self.held_bytes = 0
        self._sent: dict[MessageId, list[PendingWrite]] = {}
        """This node's messages and their writes. A message is kept until it is green, or until it is logged and
        all its writes are answered."""
        self._unlogged: set[MessageId] = set()
        """Those of the messages in `_sent` that are not on this node's disk."""
        self.unanswered = 0
        """How many writes have not been answered."""

    # Holding

    @property
    def is_any_held(self) -> bool:
        """Whether writes are held; all of them may have been withdrawn."""
        return bool(self._held)

    @property
    def is_any_sent(self) -> bool:
        """Whether a message of this node is in flight: not green, and with unanswered writes or not logged."""
        return bool(self._sent)

    @property
    def unlogged_count(self) -> int:
        """How many of this node's messages are not on its disk yet."""
        return len(self._unlogged)

    @property
    def is_batch_full(self) -> bool:
        """Whether the held writes fill a message."""
        config = self._config
        held_bytes = self.held_bytes + self.held_count * WRITE_OVERHEAD_BYTES
        return self.held_count >= config.batch_writes_max or held_bytes >= config.batch_bytes_max

    def hold(self, data: bytes, line: int, ack: Ack, respond: Respond) -> PendingWrite:
        """Adds a write to the held ones; `line` messages are green here. Raises `Overloaded` if there are too
        many."""
        config = self._config
        if self.held_count >= config.held_max or self.held_bytes >= config.held_bytes_max:
            self._counts[Trouble.OVERLOADED] += 1
            raise Overloaded(f"{self.held_count} writes wait")
        write = PendingWrite(self, data, line, ack, respond)
        self._held.append(write)
        self._count_held(write, 1)
        self.unanswered += 1
        return write

    def _count_held(self, write: PendingWrite, sign: int) -> None:
        self.held_count += sign
        self.held_bytes += sign * len(write.data)

    # Sending

    def next_batch(self, is_primary: bool) -> list[PendingWrite]:
        """Takes the writes for the next message. Writes that must be green are refused outside a primary
        component."""
        room = self._config.batch_bytes_max - BATCH_OVERHEAD_BYTES
        batch: list[PendingWrite] = []
        while self._held and len(batch) < self._config.batch_writes_max:
            write = self._held[0]
            size = len(write.data) + WRITE_OVERHEAD_BYTES
            if batch and size > room:
                break
            self._held.popleft()
            if write.progress is _Progress.ANSWERED:
                continue
            self._count_held(write, -1)
            if write.ack is Ack.GREEN and not is_primary:
                self._fail(write, Trouble.NO_PRIMARY)
                continue
            batch.append(write)
            room -= size
        return batch

    def hold_again(self, batch: list[PendingWrite]) -> None:
        """Puts back a batch that the log did not accept."""
        self._held.extendleft(reversed(batch))
        for write in batch:
            self._count_held(write, 1)

    def sent(self, message_id: MessageId, batch: list[PendingWrite]) -> None:
        """Registers that this batch was sent, as this message."""
        for index, write in enumerate(batch):
            write.progress = _Progress.SENT
            write.write_id, write.message_id, write.index = write_id(message_id, index), message_id, index
            write.data = b""
        self._sent[message_id] = batch
        self._unlogged.add(message_id)

    # Answering

    def logged(self, entries: Iterable[Entry], is_primary: bool) -> None:
        """Registers that these messages, of this node or of others, are on this node's disk, and accepts the
        writes that need no more than that."""
        for entry in entries:
            if entry.id in self._unlogged:
                self._unlogged.discard(entry.id)
                for write in self._sent[entry.id]:
                    if write.progress is _Progress.SENT:
                        write.progress = _Progress.LOGGED
                        write.entry = entry
                    if write.ack is Ack.RED or (write.ack is Ack.AUTO and not is_primary):
                        self._accept(write)
                self._drop_answered(entry.id)
        self._tell_answers()

    def take_sent(self, message_id: MessageId) -> list[PendingWrite]:
        """Returns the writes of a message that has become green, and drops the message. Messages of other nodes
        have none here."""
        self._unlogged.discard(message_id)
        return self._sent.pop(message_id, [])

    def answer_green(self, writes: Iterable[PendingWrite], applied: Sequence[Applied]) -> None:
        """Answers these writes of one green message; `applied` is what each write of the message did."""
        for write in writes:
            self._answer(write, Done(write.write_id, applied[write.index]), Color.GREEN)
        self._tell_answers()

    def accept_red(self) -> None:
        """Accepts the logged writes with `Ack.AUTO`: there is no primary component, so they need not be green."""
        for message_id, sent in list(self._sent.items()):
            for write in sent:
                if write.progress is _Progress.LOGGED and write.ack is Ack.AUTO:
                    self._accept(write)
            self._drop_answered(message_id)
        self._tell_answers()

    def give_up(self, write: PendingWrite, trouble: Trouble) -> None:
        """Ends the wait for a write, because of `trouble`. A held write is withdrawn, a sent one is undecided, and
        a logged one is accepted."""
        if write.progress is _Progress.HELD:
            self._withdraw(write, trouble)
        elif write.progress is _Progress.SENT:
            self._fail(write, Trouble.UNDECIDED, write.write_id)
        elif write.progress is _Progress.LOGGED:
            self._accept(write)
        self._tell_answers()

    def leave(self) -> None:
        """Ends the wait for every write: the node has left the others, so nothing more will come of them here."""
        for write in (*self._held, *chain.from_iterable(self._sent.values())):
            self.give_up(write, Trouble.AWAY)

    def _withdraw(self, write: PendingWrite, trouble: Trouble) -> None:
        """Withdraws a write that was not sent, so that it never will be."""
        self._count_held(write, -1)
        write.data = b""
        self._fail(write, trouble)
        if len(self._held) > PRUNE_FROM + 2 * self.held_count:
            self._held = deque(one for one in self._held if one.progress is not _Progress.ANSWERED)

    def _accept(self, write: PendingWrite) -> None:
        """Answers a write that is on this node's disk. It is yellow if it was received in a primary component, and
        may be final already."""
        is_yellow = write.entry is not None and write.entry.primary
        color = Color.YELLOW if is_yellow else Color.RED
        self._answer(write, Accepted(write.write_id, color), color)

    def _fail(self, write: PendingWrite, trouble: Trouble, write_id: str = "") -> None:
        self._answer(write, Failed(trouble, write_id), trouble)

    def _answer(self, write: PendingWrite, answer: Answer, kind: Color | Trouble) -> None:
        if write.progress is not _Progress.ANSWERED:
            write.progress = _Progress.ANSWERED
            self._counts[kind] += 1
            self.unanswered -= 1
            respond, write.respond = write.respond, _ignore_answer  # frees what the callback holds
            respond(answer)
            if self._on_answered is not None and write.message_id is not None:
                self._answers.append((write.message_id, write.index, answer))

    def _tell_answers(self) -> None:
        if self._on_answered is not None and self._answers:
            answers, self._answers = self._answers, []
            self._on_answered(answers)

    def _drop_answered(self, message_id: MessageId) -> None:
        """Drops the answered writes of a message, which may remain red for hours."""
        unanswered = [one for one in self._sent[message_id] if one.progress is not _Progress.ANSWERED]
        if unanswered or message_id in self._unlogged:
            self._sent[message_id] = unanswered
        else:
            del self._sent[message_id]


def _ignore_answer(answer: Answer) -> None:
    """Replaces a callback that has been called."""
