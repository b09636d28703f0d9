"""How the members of one view come to have the same messages: the retransmissions of steps 5 and 7.

What is to be sent by whom follows from the states; what the lines become in between (step 6) is `Corel`'s.
Messages go in bounded batches, a few ahead of what everybody has logged: no disk is overrun, no queue fills."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from corel.config import CorelConfig
from corel.log_writer import LogWriter
from corel.message_queue import BrokenInvariant, MessageQueue
from corel.messages import Copy, Entry, Letter, MessageId, Priority, Reds, State, Stream
from corel.recovery import Plan, red_shares
from corel.retransmission import Merge, batches
from corel.storage import Log
from transport.messages import SEQUENCE_MAX, Machine, Message

_READ_AHEAD = 1_024

Refuse: TypeAlias = Callable[[str], None]
"""Told why something a peer sent is not taken."""


class Exchange:
    """One view's, as seen by `me`."""

    def __init__(
        self,
        me: Machine,
        plan: Plan,
        states: Mapping[Machine, State],
        queue: MessageQueue,
        writer: LogWriter,
        log: Log,
        config: CorelConfig,
        counters: Counter[str],
    ) -> None:
        self._me = me
        self._plan = plan
        self._states = states
        self._queue = queue
        self._writer = writer
        self._log = log
        self._config = config
        self._counters = counters
        self._priority_next = plan.yellow if plan.priority_from is None else plan.priority_from
        self._order: list[MessageId] = []
        self._merge: Merge | None = None
        self._outgoing: Iterator[Letter] = iter(())
        self._batches_out: deque[int] = deque()
        """Our batches that not everybody has logged; 0 while we do not know their sequence."""

    # What is sent

    @property
    def is_sending(self) -> bool:
        """Whether something we sent is not logged by everybody."""
        return bool(self._batches_out)

    def next_letters(self) -> list[Letter]:
        """What may be sent now."""
        letters: list[Letter] = []
        while len(self._batches_out) < self._config.batches_ahead_max:
            letter = next(self._outgoing, None)
            if letter is None:
                break
            self._batches_out.append(0)
            self._counters["batches_sent"] += 1
            letters.append(letter)
        return letters

    def has_left(self, sequence: int) -> None:
        """The next of our letters is on its way under this number."""
        self._batches_out[self._batches_out.index(0)] = sequence

    def logged_by_all(self, sequence: int) -> None:
        """Everybody has logged what we sent up to here."""
        while self._batches_out and 0 < self._batches_out[0] <= sequence:
            self._batches_out.popleft()

    # Priority messages (step 5)

    @property
    def is_priority_done(self) -> bool:
        return self._priority_next == self._plan.yellow

    @property
    def order(self) -> list[MessageId]:
        """What follows our green prefix, as the representative has it."""
        return self._order

    def begin_priority(self) -> None:
        if self._plan.representative == self._me and self._plan.priority_from is not None:
            self._outgoing = self._priority_batches(self._plan.priority_from, self._plan.yellow)

    def _priority_batches(self, first: int, last: int) -> Iterator[Letter]:
        """Our messages between these positions, with bodies where somebody may lack them."""
        others = [state for member, state in self._states.items() if member != self._me]
        haves = [(state.green, dict(state.have)) for state in others]
        green = self._queue.green
        yellow = self._queue.yellow[: max(0, last - green)]

        def copies() -> Iterator[Copy]:
            position = first
            for entry in self._entries_between(first, last, green, yellow):
                stream, sequence = entry.id
                has_everybody = all(position < line or have.get(stream, 0) >= sequence for line, have in haves)
                yield self._copy(entry, with_body=not has_everybody)
                position += 1

        position = first
        for batch in batches(copies(), self._config.batch_bytes_max):
            yield Priority(position, batch)
            position += len(batch)

    def _entries_between(self, first: int, last: int, green: int, yellow: list[Entry]) -> Iterator[Entry]:
        position = first
        while position < min(last, green):
            chunk = self._log.green(position, min(last, green, position + _READ_AHEAD) - position)
            if not chunk:
                raise BrokenInvariant(f"the log has {green} green messages, but none at {position}")
            yield from chunk
            position += len(chunk)
        yield from yellow[max(0, first - green) : max(0, last - green)]

    def on_priority(self, message: Message, letter: Priority, refuse: Refuse) -> None:
        plan = self._plan
        if (
            message.sender != plan.representative
            or letter.position != self._priority_next
            or self.is_priority_done
        ):
            refuse(f"priority messages from {letter.position} on, {self._priority_next} is next")
            return
        for position, copy in enumerate(letter.copies, letter.position):
            if self._me in plan.representatives or position < self._queue.green:
                continue  # we have it, and at that place
            if not self._accept(copy, refuse):
                return
            self._order.append(copy.id)
        self._writer.reach(message.sender, message.sequence)
        self._priority_next += len(letter.copies)

    # Red messages (step 7)

    @property
    def is_merging(self) -> bool:
        return self._merge is not None

    def begin_merge(self) -> int | None:
        """Returns how many messages are ours to send, or None if nobody has to send any."""
        shares = red_shares(self._states, self._yellow_last())
        if not shares:
            return None
        self._merge = Merge(sorted(shares))
        mine = {share.stream: share for share in shares.get(self._me, ())}
        entries = [
            entry
            for entry in self._queue.red
            if (share := mine.get(entry.id.stream)) and share.after < entry.id.sequence <= share.through
        ]
        self._outgoing = self._red_batches(entries)
        return len(entries)

    def _yellow_last(self) -> Callable[[Stream], int]:
        last = dict(self._queue.green_last)
        for entry in self._queue.yellow:
            last[entry.id.stream] = max(last.get(entry.id.stream, 0), entry.id.sequence)
        return lambda stream: SEQUENCE_MAX if self._queue.is_folded(stream) else last.get(stream, 0)

    def _red_batches(self, entries: list[Entry]) -> Iterator[Letter]:
        copies = (self._copy(entry, with_body=True) for entry in entries)
        left = len(entries)
        for batch in batches(copies, self._config.batch_bytes_max):
            left -= len(batch)
            yield Reds(batch, is_last=not left)

    def on_reds(self, message: Message, letter: Reds, refuse: Refuse) -> bool:
        """Returns whether all red messages are merged now."""
        if self._merge is None or not self._merge.expects(message.sender):
            refuse("nobody asked for red messages of this sender")
            return False
        for sender, copy, carrier in self._merge.add(
            message.sender, letter.copies, message.sequence, letter.is_last
        ):
            self._accept(copy, refuse)
            if carrier:
                self._writer.reach(sender, carrier)
        if not self._merge.is_done():
            return False
        self._merge = None
        return True

    # Both

    def _copy(self, entry: Entry, with_body: bool) -> Copy:
        body = None
        if with_body:
            body = entry.body if entry.body is not None else self._log.body(entry.arrival)
        return Copy(entry.id, entry.timestamp.clock, entry.view, body)

    def _accept(self, copy: Copy, refuse: Refuse) -> bool:
        """A message that we lack is logged, as red; it keeps its timestamp and its id (trap 5)."""
        stream, sequence = copy.id
        last = self._queue.last_of(stream)
        if sequence <= last:
            return True
        if sequence != last + 1 or copy.body is None:
            refuse(f"{copy.id} after {stream}.{last}")
            return False
        entry = Entry(copy.id, copy.clock, copy.view, copy.body)
        self._queue.add_red(entry)
        self._writer.log(entry)
        self._counters["retransmissions_received"] += 1
        return True
