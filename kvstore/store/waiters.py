"""Requests that wait for something other than a write of their own, and the deadlines of all requests.

A waiter is answered once: that what it waits for has happened, or why it will not. Answered waiters stay in the
collections until there are too many of them, because searching for each one would cost more than it saves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Protocol

from corel import MessageId, MessageQueue, Stage
from kvstore.store.replies import Overloaded, Ready, Trouble
from transport import NEVER, Milliseconds

PRUNE_FROM = 64
"""Fewer answered waiters than this are not worth a search."""


class Expiring(Protocol):
    """A request that is answered at its deadline, unless it was answered before."""

    @property
    def is_answered(self) -> bool: ...

    def expire(self) -> None: ...


class Deadlines:
    """The deadlines of all requests."""

    def __init__(self) -> None:
        self._heap: list[tuple[Milliseconds, int, Expiring]] = []
        self._count = 0

    def add(self, deadline: Milliseconds, request: Expiring, waiting: int) -> None:
        """Adds a request; `waiting` is how many requests have not been answered."""
        if len(self._heap) > PRUNE_FROM + 2 * waiting:
            self._heap = [one for one in self._heap if not one[2].is_answered]
            heapify(self._heap)
        self._count += 1
        heappush(self._heap, (deadline, self._count, request))

    def tick(self, now: Milliseconds) -> None:
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[2].expire()

    def next_deadline(self) -> Milliseconds:
        return self._heap[0][0] if self._heap else NEVER


class Waiter:
    """A request that waits. It passes its first answer on, and ignores any later one."""

    def __init__(self, ready: Ready, then: Callable[[], None]) -> None:
        self._ready: Ready | None = ready
        self._then = then

    @property
    def is_answered(self) -> bool:
        return self._ready is None

    def expire(self) -> None:
        self.answer(Trouble.TIMEOUT)

    def answer(self, trouble: Trouble | None) -> None:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            self._then()
            ready(trouble)


@dataclass(slots=True)
class _Reader:
    """A linearizable read."""

    waiter: Waiter
    after: MessageId | None = None
    """The last message of the queue when the check began: once it is green and applied, the read may go on."""
    line: int = 0
    """Once `after` is green: the line that the green state has to reach."""


class LogView(Protocol):
    """What the waiters read of the log."""

    @property
    def stage(self) -> Stage: ...

    @property
    def queue(self) -> MessageQueue: ...


class Waiters:
    """All requests of one node that wait for a revision, for a message to be green, or for a linearizable read.

    `check_primary` asks the log whether this is still the primary component (decision 16). One check is under way
    at a time, and serves all reads that arrived before it began."""

    def __init__(self, log: LogView, check_primary: Callable[[int], None], waiters_max: int) -> None:
        self._log = log
        self._check_primary = check_primary
        self._waiters_max = waiters_max
        self.count = 0
        """How many waiters have not been answered."""
        self._revisions: list[tuple[int, int, Waiter]] = []
        """A heap, ordered by the revision that each waits for."""
        self._pushed = 0
        self._followers: dict[MessageId, list[Waiter]] = {}
        """The requests that wait for each message to become green."""
        self._unchecked: list[_Reader] = []
        """Reads that wait for the next primary check."""
        self._checking: list[_Reader] = []
        """Reads that wait for the check under way."""
        self._confirmed: deque[_Reader] = deque()
        """Reads that wait for messages to become green and to be applied."""
        self._check_number = 0

    def make(self, ready: Ready) -> Waiter:
        """Returns a new waiter that calls `ready`. Raises `Overloaded` if too many wait."""
        if self.count >= self._waiters_max:
            raise Overloaded(f"{self.count} requests wait")
        self.count += 1
        return Waiter(ready, self._on_answered)

    def _on_answered(self) -> None:
        self.count -= 1

    def __iter__(self) -> Iterator[Waiter]:
        """All waiters; some may have been answered."""
        for reader in (*self._unchecked, *self._checking, *self._confirmed):
            yield reader.waiter
        yield from chain.from_iterable(self._followers.values())
        yield from [waiter for _, _, waiter in self._revisions]

    # A revision, a message

    def add_for_revision(self, revision: int, waiter: Waiter) -> None:
        if len(self._revisions) > PRUNE_FROM + 2 * self.count:
            self._revisions = [one for one in self._revisions if not one[2].is_answered]
            heapify(self._revisions)
        self._pushed += 1
        heappush(self._revisions, (revision, self._pushed, waiter))

    def reached_revision(self, revision: int) -> None:
        """Answers the requests that wait for at most this revision, which the green state has reached."""
        while self._revisions and self._revisions[0][0] <= revision:
            heappop(self._revisions)[2].answer(None)

    def add_for_green(self, message_id: MessageId, waiter: Waiter) -> None:
        if len(self._followers) > PRUNE_FROM + 2 * self.count:
            self._followers = {
                followed: [one for one in followers if not one.is_answered]
                for followed, followers in self._followers.items()
                if not all(one.is_answered for one in followers)
            }
        self._followers.setdefault(message_id, []).append(waiter)

    def applied(self, message_id: MessageId) -> None:
        """Answers the requests that wait for this message: it is green, and its writes are applied."""
        for waiter in self._followers.pop(message_id, ()):
            waiter.answer(None)

    # Linearizable reads

    def add_linearizable(self, waiter: Waiter) -> None:
        if len(self._unchecked) > PRUNE_FROM + 2 * self.count:
            self._unchecked = [reader for reader in self._unchecked if not reader.waiter.is_answered]
        self._unchecked.append(_Reader(waiter))
        self.begin_check()

    def stage_changed(self) -> None:
        """Begins a check if the new stage allows it. Reads that were confirmed in a primary component that is over
        must be checked again in the next one."""
        if self._log.stage is not Stage.PRIMARY:
            self._unchecked = [*self._checking, *self._confirmed, *self._unchecked]
            self._checking, self._confirmed = [], deque()
        self.begin_check()

    def begin_check(self) -> None:
        """Begins a check for the reads that wait for one, unless one is under way: then they wait for the next.
        Without a primary component they are answered that there is none."""
        if not self._unchecked:
            return
        if self._log.stage is Stage.NON_PRIMARY:
            readers, self._unchecked = self._unchecked, []
            for reader in readers:
                reader.waiter.answer(Trouble.NO_PRIMARY)
        elif self._log.stage is Stage.PRIMARY and not self._checking:
            self._checking, self._unchecked = [one for one in self._unchecked if not one.waiter.is_answered], []
            last = self._last_open()
            for reader in self._checking:
                reader.after, reader.line = last, self._log.queue.green
            self._check_number += 1
            if self._checking:
                self._check_primary(self._check_number)

    def _last_open(self) -> MessageId | None:
        queue = self._log.queue
        zone = queue.red or queue.yellow
        return zone[-1].id if zone else None

    def confirmed(self, number: int, green_line: int) -> None:
        """Ends the check of this number, which succeeded; the green state is at `green_line`."""
        if number == self._check_number:
            self._confirmed.extend(self._checking)
            self._checking = []
            self.release_readers(green_line)
            self.begin_check()

    def release_readers(self, green_line: int) -> None:
        """Answers the confirmed reads for which it is enough that the green state is at `green_line`."""
        while self._confirmed:
            reader = self._confirmed[0]
            if reader.after is not None:
                if self._log.queue.get(reader.after) is not None:
                    return
                reader.after, reader.line = None, self._log.queue.green
            if green_line < reader.line:
                return
            self._confirmed.popleft()
            reader.waiter.answer(None)
