"""How the members of one view come to have the same messages: the retransmissions of steps 5 and 7.

Which member sends what follows from the states; what the lines become in between (step 6) is decided by
`view_recovery`. Messages go in bounded batches, a few ahead of what every member has logged: no disk is overrun,
and no queue fills."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from corel.config import CorelConfig
from corel.log_writer import LogWriter
from corel.message_queue import MessageQueue, chained
from corel.messages import (
    EMPTY_DIGEST,
    Copy,
    Entry,
    GreenDigests,
    MessageId,
    Payload,
    Priority,
    Reds,
    State,
    Stream,
)
from corel.recovery_plan import Contradiction, Plan, red_shares
from corel.retransmission import Merge, batches
from corel.storage import LogReader
from transport import SEQUENCE_MAX, BrokenInvariant, Machine, Message

_READ_AHEAD = 1_024

Refuse: TypeAlias = Callable[[str], None]
"""Called with the reason why something that a peer sent is not accepted."""


class RecoveryTransfer:
    """The retransmissions of one view, as seen by the member `me`."""

    def __init__(
        self,
        me: Machine,
        plan: Plan,
        states: Mapping[Machine, State],
        queue: MessageQueue,
        writer: LogWriter,
        reader: LogReader,
        config: CorelConfig,
        counters: Counter[str],
    ) -> None:
        self._me = me
        self._plan = plan
        self._states = states
        self._queue = queue
        self._writer = writer
        self._reader = reader
        self._config = config
        self._counters = counters
        self._priority_next = plan.yellow if plan.priority_from is None else plan.priority_from
        self._are_prefixes_checked = plan.priority_from is None
        has_already = queue.yellow[: max(0, self._priority_next - queue.green)]
        self._order: list[MessageId] = [entry.id for entry in has_already]
        self._merge: Merge | None = None
        self._accepted: list[Entry] = []
        self._outgoing: Iterator[Payload] = iter(())
        self._batches_out: deque[int] = deque()
        """The transport's sequences of our batches that not every member has logged; 0 while a batch has not
        left."""

    # What is sent

    @property
    def is_sending(self) -> bool:
        """Whether a batch that this node sent is not logged by every member."""
        return bool(self._batches_out)

    def next_payloads(self) -> list[Payload]:
        """Returns the batches that may be sent now."""
        payloads: list[Payload] = []
        while len(self._batches_out) < self._config.batches_ahead_max:
            payload = next(self._outgoing, None)
            if payload is None:
                break
            self._batches_out.append(0)
            self._counters["batches_sent"] += 1
            payloads.append(payload)
        return payloads

    def has_left(self, sequence: int) -> None:
        """Notes that our next batch has left, as the transport's message of this sequence."""
        self._batches_out[self._batches_out.index(0)] = sequence

    def logged_by_all(self, sequence: int) -> None:
        """Notes that every member has logged what we sent up to this sequence."""
        while self._batches_out and 0 < self._batches_out[0] <= sequence:
            self._batches_out.popleft()

    # Priority messages (step 5)

    @property
    def is_priority_done(self) -> bool:
        return self._are_prefixes_checked and self._priority_next == self._plan.yellow

    @property
    def order(self) -> list[MessageId]:
        """What follows our green prefix in the representative's order, as far as it has arrived."""
        return self._order

    def begin_priority(self) -> None:
        if self._plan.representative == self._me and self._plan.priority_from is not None:
            priority = self._priority_batches(self._plan.priority_from, self._plan.yellow)
            self._outgoing = chain([self._green_digests()], priority)

    def _green_digests(self) -> GreenDigests:
        """Returns the digests of our order at the green lines of all members."""
        queue = self._queue
        lines = [self._states[member].green for member in sorted(self._states)]
        return GreenDigests(tuple(self._digest_at(line, queue) for line in lines))

    def _digest_at(self, line: int, queue: MessageQueue) -> bytes:
        if line > queue.green:
            return chained(queue.green_digest, queue.yellow[: line - queue.green])
        if line < self._states[self._me].cut:
            return EMPTY_DIGEST  # of a representative: nobody compares it
        return self._reader.green_digest(line)

    def on_green_digests(self, message: Message, green_digests: GreenDigests, refuse: Refuse) -> None:
        """Compares the members' green prefixes with the representative's; raises `Contradiction` if they
        differ."""
        digests = green_digests.digests
        is_first = not self._are_prefixes_checked and message.sender == self._plan.representative
        if not is_first or len(digests) != len(self._states):
            refuse("digests of green prefixes that nobody asked for")
            return
        self._are_prefixes_checked = True
        self._writer.reach(message.sender, message.sequence)
        members = sorted(self._states)
        pairs = zip(members, digests, strict=True)
        cut = self._states[self._plan.representative].cut
        differing = [
            member
            for member, digest in pairs
            if self._states[member].green >= cut and self._states[member].green_digest != digest
        ]
        if differing:
            agreeing = [member for member in members if member not in differing]
            raise Contradiction(
                "green prefixes differ from the representative's (Agreed Green)", (differing, agreeing)
            )

    def _priority_batches(self, first: int, last: int) -> Iterator[Payload]:
        """Yields our messages between these positions, with bodies where a member may lack them."""
        others = [state for member, state in self._states.items() if member != self._me]
        haves = [(state.green, dict(state.have)) for state in others]
        green = self._queue.green
        yellow = self._queue.yellow[: max(0, last - green)]

        def copies() -> Iterator[Copy]:
            position = first
            for entry in self._entries_between(first, last, green, yellow):
                stream, sequence = entry.id
                is_everywhere = all(position < line or have.get(stream, 0) >= sequence for line, have in haves)
                yield self._copy(entry, with_body=not is_everywhere)
                position += 1

        position = first
        for batch in batches(copies(), self._config.batch_bytes_max):
            yield Priority(position, batch)
            position += len(batch)

    def _entries_between(self, first: int, last: int, green: int, yellow: list[Entry]) -> Iterator[Entry]:
        position = first
        while position < min(last, green):
            chunk = self._reader.green(position, min(last, green, position + _READ_AHEAD) - position)
            if not chunk:
                raise BrokenInvariant(f"the log has {green} green messages, but none at {position}")
            yield from chunk
            position += len(chunk)
        yield from yellow[max(0, first - green) : max(0, last - green)]

    def on_priority(self, message: Message, priority: Priority, refuse: Refuse) -> None:
        """Takes in a batch of the representative's priority messages."""
        plan = self._plan
        if (
            message.sender != plan.representative
            or priority.position != self._priority_next
            or self.is_priority_done
        ):
            refuse(f"priority messages from {priority.position} on, {self._priority_next} is next")
            return
        for position, copy in enumerate(priority.copies, priority.position):
            if self._me in plan.representatives or position < self._queue.green:
                continue  # we have it, and at that place
            if not self._accept(copy, refuse):
                return
            self._order.append(copy.id)
        self._writer.reach(message.sender, message.sequence)
        self._priority_next += len(priority.copies)

    # Red messages (step 7)

    @property
    def is_merging(self) -> bool:
        return self._merge is not None

    def begin_merge(self) -> int | None:
        """Begins step 7. Returns how many messages are ours to send, or None if no member has to send any."""
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

    def _red_batches(self, entries: list[Entry]) -> Iterator[Payload]:
        copies = (self._copy(entry, with_body=True) for entry in entries)
        left = len(entries)
        for batch in batches(copies, self._config.batch_bytes_max):
            left -= len(batch)
            yield Reds(batch, is_last=not left)

    def on_reds(self, message: Message, reds: Reds, refuse: Refuse) -> bool:
        """Takes in a batch of red messages. Returns whether all red messages are merged now."""
        if self._merge is None or not self._merge.expects(message.sender):
            refuse("nobody asked for red messages of this sender")
            return False
        for sender, copy, carrier in self._merge.add(message.sender, reds.copies, message.sequence, reds.is_last):
            self._accept(copy, refuse)
            if carrier:
                self._writer.reach(sender, carrier)
        if not self._merge.is_done():
            return False
        self._merge = None
        return True

    # Common to both steps

    def _copy(self, entry: Entry, with_body: bool) -> Copy:
        body = None
        if with_body:
            body = entry.body if entry.body is not None else self._reader.body(entry.arrival)
        return Copy(entry.id, entry.timestamp.clock, entry.view, body)

    def take_accepted(self) -> list[Entry]:
        """Returns the messages that this node lacked and has logged since the last call."""
        accepted, self._accepted = self._accepted, []
        return accepted

    def _accept(self, copy: Copy, refuse: Refuse) -> bool:
        """Logs a message that this node lacks, as red; it keeps its timestamp and its id (trap 5). Returns whether
        the copy was in place."""
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
        self._accepted.append(entry)
        self._counters["retransmissions_received"] += 1
        return True
