"""What is to be written next, and what may be sent once it is on disk.

One write is under way at a time; what comes meanwhile gathers for the next (group commit). Everything a step wants
written is gathered here in that step, and goes to disk in one atomic `LogWrite`, so no crash leaves half of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from corel.config import CorelConfig
from corel.effects import CorelEffect, Persist
from corel.message_queue import MessageQueue
from corel.messages import Entry
from corel.storage import Lines, LogWrite, Primaries, Record, Yellow
from corel.write_gathering import WriteGathering
from transport import AT_ONCE, BrokenInvariant, Machine, Milliseconds

Continuation: TypeAlias = Callable[[list[CorelEffect]], None]
"""What to do when a write has completed; it adds its effects to the list it is given."""


class Completed(NamedTuple):
    """What follows from a completed write."""

    points: Mapping[Machine, int]
    """Up to which of each member's messages in this view everything is on disk now."""
    then: Iterable[Continuation]


class LogWriter:
    """Gathers the writes of one node. `lines` is the metadata on its disk."""

    def __init__(self, queue: MessageQueue, lines: Lines, config: CorelConfig) -> None:
        self._queue = queue
        self._config = config
        self._lines = lines
        self._next_arrival = lines.next_arrival
        self._open_from = lines.open_from
        self._tail_from = lines.tail_from
        self._clock = lines.clock
        self._token = 0
        # Gathered for the next write
        self._is_dirty = False
        self._to_log: list[Entry] = []
        self._to_green: list[Entry] = []
        self._are_lines_behind = False
        self._greens_since: Milliseconds | None = None
        """Since when green messages wait to be written as green. There is no hurry: they are yellow on every
        member's disk."""
        self._is_yellow_decided = False
        self._points: dict[Machine, int] = {}
        self._gathering = WriteGathering(config.write_gather_ms)
        self._then: list[Continuation] = []
        # Under way
        self._under_way: LogWrite | None = None
        self._logging: list[Entry] = []
        self._greening: list[Entry] = []
        self._points_under_way: dict[Machine, int] = {}
        self._then_under_way: list[Continuation] = []
        # Bodies in memory
        self._evictable: deque[Entry] = deque()
        """Messages that are on disk and likely to remain without their final place for long."""
        self._bodies_bytes = 0

    # State

    @property
    def on_disk(self) -> int:
        """All messages with a lower arrival are on disk."""
        return self._lines.next_arrival

    @property
    def will_reach(self) -> bool:
        """Whether the write under way, or the next, brings more of any member's messages to disk."""
        return bool(self._points or self._points_under_way)

    @property
    def green_on_disk(self) -> int:
        """The green line on disk."""
        return self._lines.green

    @property
    def lines_on_disk(self) -> Lines:
        return self._lines

    @property
    def unwritten_greens(self) -> list[Entry]:
        """The last green messages, whose places in the green order are not on disk yet."""
        return self._greening + self._to_green

    @property
    def is_busy(self) -> bool:
        """Whether something is being written, or waits to be."""
        return self._under_way is not None or self._is_dirty or self._has_leisurely

    # What is to be written

    def begin_view(self) -> None:
        """Drops what was to be sent in the last view. What was to be written still is."""
        self._points, self._points_under_way = {}, {}
        self._then, self._then_under_way = [], []

    def touch(self) -> None:
        """Asks for a write, if only of the lines."""
        self._is_dirty = True

    def touch_later(self) -> None:
        """Asks for a write of the lines when messages that have become green would be written: there is no
        hurry."""
        self._are_lines_behind = True

    @property
    def _has_leisurely(self) -> bool:
        """Whether there is something to write without hurry."""
        return bool(self._to_green) or self._are_lines_behind

    def then(self, continuation: Continuation) -> None:
        """Has `continuation` called once everything that is to be written by now is on disk, unless the view ends
        first."""
        self._then.append(continuation)

    def log(self, entry: Entry) -> None:
        """Adds a message that is new to this node to the next write."""
        entry.arrival = self._next_arrival
        self._next_arrival += 1
        self._clock = max(self._clock, entry.timestamp.clock)
        self._bodies_bytes += entry.size
        self._to_log.append(entry)
        self._is_dirty = True

    def reach(self, machine: Machine, sequence: int) -> None:
        """Notes that everything that this member sent up to this message is on disk as soon as all that is to be
        written by now is. That takes no write of its own: see `take_reached`."""
        self._points[machine] = sequence

    def turned_green(self, entries: Iterable[Entry]) -> None:
        """Adds messages that have become green to the next write. They are not worth a write of their own at once:
        see `tick`."""
        for entry in entries:
            self._to_green.append(entry)
            if entry.body is not None:
                self._bodies_bytes -= entry.size
        if self._evictable:
            self._evictable = deque(entry for entry in self._evictable if self._is_open(entry))

    def decide_yellow(self) -> None:
        """Adds the yellow zone as it is now to the next write. It overrides the colours as which messages were
        logged before."""
        self._is_yellow_decided = True
        self._tail_from = self._next_arrival
        self._is_dirty = True

    def flush_greens(self) -> None:
        """Asks for a write of what has become green, without waiting for something else to write."""
        self._is_dirty = self._is_dirty or self._has_leisurely

    def tick(self, now: Milliseconds) -> None:
        self._gathering.tick(now)
        if self._has_leisurely and self._greens_since is None:
            self._greens_since = now
        elif self._greens_since is not None and now >= self._greens_since + self._config.green_flush_ms:
            self._greens_since = None
            self.flush_greens()

    def next_deadline(self) -> Milliseconds:
        deadline = self._gathering.next_deadline()
        if not self._has_leisurely:
            return deadline
        if self._greens_since is None:
            return AT_ONCE
        return min(deadline, self._greens_since + self._config.green_flush_ms)

    # Writing

    def take_reached(self) -> Mapping[Machine, int]:
        """Returns up to which of each member's messages everything is on disk although nothing was written for
        them: retransmissions that this node does not lack."""
        if self._is_dirty or self._under_way is not None:
            return {}
        points, self._points = self._points, {}
        return points

    def next_write(self, primaries: Primaries, may_wait: bool) -> Persist | None:
        """Returns the next write. Returns None if there is nothing to write, if a write is under way, or if it
        `may_wait` for more messages and does."""
        if not self._is_dirty or self._under_way is not None:
            return None
        is_urgent = not may_wait or bool(self._then) or self._is_yellow_decided
        if not is_urgent and self._gathering.must_wait(self._points):
            return None
        self._gathering.wrote(self._points)
        yellow = None
        if self._is_yellow_decided:
            yellow = Yellow(self._queue.green, tuple([entry.arrival for entry in self._queue.yellow]))
        greened = tuple([entry.arrival for entry in self._to_green])
        lines = self._lines_now(primaries)
        write = LogWrite(tuple(map(Record.of, self._to_log)), greened, yellow, lines)
        self._token += 1
        self._under_way = write
        self._points_under_way, self._points = self._points, {}
        self._then_under_way, self._then = self._then, []
        self._logging, self._to_log = self._to_log, []
        self._greening, self._to_green = self._to_green, []
        self._is_yellow_decided = self._is_dirty = self._are_lines_behind = False
        self._greens_since = None
        return Persist(self._token, write)

    def completed(self, token: int, will_stay_open: bool) -> Completed:
        """Notes that the write of this token is on disk, as all writes before it are. `will_stay_open` says
        whether its messages are likely to remain without their final place for long."""
        if self._under_way is None or token != self._token:
            raise BrokenInvariant(f"write {token} was completed, {self._token} is under way")
        self._lines = self._under_way.lines
        completed = Completed(self._points_under_way, self._then_under_way)
        if will_stay_open:
            self._evict(self._logging)
        self._under_way = None
        self._logging, self._greening = [], []
        self._points_under_way, self._then_under_way = {}, []
        return completed

    def _lines_now(self, primaries: Primaries) -> Lines:
        queue = self._queue
        if len(queue) - queue.green <= self._config.open_scan_max:
            self._open_from = min([entry.arrival for entry in queue], default=self._next_arrival)
        return Lines(
            committed=primaries.committed,
            attempted=primaries.attempted,
            is_voter=primaries.is_voter,
            green=queue.green,
            green_digest=queue.green_digest,
            base=queue.base,
            base_digest=queue.base_digest,
            streams=tuple(sorted(queue.green_last.items())),
            folded=tuple(sorted(queue.folded.items())),
            next_arrival=self._next_arrival,
            open_from=self._open_from,
            tail_from=self._tail_from,
            clock=self._clock,
            attempted_view=primaries.attempted_view,
            generation=primaries.generation,
            participants=primaries.participants,
            cut=primaries.cut,
            is_learned=primaries.is_learned,
            established=primaries.established,
            established_base=primaries.established_base,
            voter_since=primaries.voter_since,
        )

    def _evict(self, entries: Iterable[Entry]) -> None:
        """Takes note of messages that are on disk now. Beyond what memory is allowed, drops the oldest bodies:
        when one is needed, it is read from disk."""
        self._evictable.extend(entries)
        while self._bodies_bytes > self._config.bodies_bytes_max and self._evictable:
            entry = self._evictable.popleft()
            if entry.body is not None and self._is_open(entry):
                entry.body = None
                self._bodies_bytes -= entry.size

    def _is_open(self, entry: Entry) -> bool:
        return self._queue.get(entry.id) is entry
