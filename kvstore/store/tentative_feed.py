"""Writes that are not green, for watchers that want to see them: when they appear, when their colour changes, and
how they end.

What is tentative has no revision and cannot be read again later, so events are queued for each watcher, up to a
bound; a watcher that does not keep up has to begin again. Without watchers none of this costs anything."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from corel import Color, Entry, MessageId, MessageQueue
from kvstore.store.feed import Interest
from kvstore.store.green_state import write_id
from kvstore.store.operations import Operation, Write
from kvstore.store.state import Applied, Outcome
from kvstore.store.write_codec import decode_batch, decode_write

EVENTS_MAX = 4_096
"""Most events that wait for one watcher."""


class TentativeWrite(NamedTuple):
    """A write has appeared that is not green."""

    write_id: str
    color: Color
    operations: tuple[Operation, ...]
    """Those of its operations that are of interest."""


class Recolored(NamedTuple):
    """A write that has appeared, and is not green, has another colour now."""

    write_id: str
    color: Color


class Settled(NamedTuple):
    """A write that has appeared is green, and is no change that the watcher sees: it changed nothing of interest,
    or the watcher does not read changes."""

    write_id: str
    outcome: Outcome


TentativeEvent: TypeAlias = TentativeWrite | Recolored | Settled


class TentativeWatcher:
    """What waits for one watcher. `wake` is called when there is something."""

    def __init__(
        self,
        interest: Interest,
        reads_changes: bool,
        wake: Callable[[], None],
        there: Iterable[MessageId],
        events_of: Callable[[MessageId, TentativeWatcher], Iterable[TentativeEvent]],
    ) -> None:
        self.interest = interest
        self.reads_changes = reads_changes
        """Whether it also reads the changes of the green state."""
        self.is_behind = False
        """Whether events were lost, because the watcher did not keep up."""
        self.unseen = dict.fromkeys(there)
        """The messages that were there when it came and that it has not seen yet, in order. They are shown as they
        are when it takes them, and do not wait as events: there may be any number of them."""
        self._events_of = events_of
        self._wake = wake
        self._events: deque[TentativeEvent] = deque()

    def add(self, event: TentativeEvent) -> None:
        if len(self._events) >= EVENTS_MAX:
            self.is_behind = True
        if not self.is_behind:
            self._events.append(event)
        self._wake()

    @property
    def has_events(self) -> bool:
        """Whether there is something to take. As long as there is, a change of the green state is not to be shown:
        it may be that of a write that would seem to appear after it."""
        return bool(self._events or self.unseen)

    def take(self, count: int) -> list[TentativeEvent]:
        """Takes about so many events, or all that there are. None are left only if `has_events` says so."""
        taken: list[TentativeEvent] = []
        for message_id in list(islice(self.unseen, count)):
            if len(taken) >= count:
                break
            del self.unseen[message_id]
            taken += self._events_of(message_id, self)
        return taken + [self._events.popleft() for _ in range(min(count - len(taken), len(self._events)))]


class LogPort(Protocol):
    """What this reads of the log."""

    @property
    def queue(self) -> MessageQueue: ...

    def body_of(self, entry: Entry) -> bytes: ...


class _Message:
    """A message that is not green. Its writes are decoded when somebody is to see them."""

    __slots__ = ("color", "entry", "writes")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.color = Color.YELLOW if entry.primary else Color.RED
        self.writes: list[tuple[str, Write]] | None = None


class TentativeFeed:
    """The watchers of one node's tentative writes."""

    def __init__(self, log: LogPort) -> None:
        self._log = log
        self._watchers: dict[TentativeWatcher, None] = {}
        """In the order in which they came."""
        self._known: dict[MessageId, _Message] = {}
        """The messages that are not green; nothing while there are no watchers."""

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, interest: Interest, wake: Callable[[], None], reads_changes: bool = True) -> TentativeWatcher:
        """Adds a watcher. It begins with the writes that are not green at the moment."""
        if not self._watchers:
            self._known = {entry.id: _Message(entry) for entry in self._log.queue}
            self._recolor()
        watcher = TentativeWatcher(interest, reads_changes, wake, self._known, self._appearances)
        self._watchers[watcher] = None
        return watcher

    def remove(self, watcher: TentativeWatcher) -> None:
        self._watchers.pop(watcher, None)
        watcher.unseen.clear()
        if not self._watchers:
            self._known = {}

    # What the store reports

    def logged(self, entries: Iterable[Entry]) -> None:
        """Takes in messages that are on this node's disk now."""
        for entry in entries:
            if entry.id not in self._known and self._log.queue.get(entry.id) is not None:
                self._known[entry.id] = _Message(entry)
                for watcher in list(self._watchers):  # one that is woken may leave
                    for event in self._appearances(entry.id, watcher):
                        watcher.add(event)

    def reordered(self) -> None:
        """Takes in that the lines, or the order of what is not green, may have changed."""
        self.logged(self._log.queue)
        self._recolor()

    def applied(self, message_id: MessageId, applied: Sequence[Applied]) -> None:
        """Takes in that a message is green."""
        message = self._known.pop(message_id, None)
        if message is None:
            return
        for watcher in self._that_have_seen(message_id):
            for (name, write), done in zip(self._writes(message), applied, strict=True):
                is_change = watcher.reads_changes and any(map(watcher.interest.has, done.changes))
                if not is_change and _operations(write, watcher):
                    watcher.add(Settled(name, done.outcome))
        for watcher in self._watchers:
            watcher.unseen.pop(message_id, None)

    def _recolor(self) -> None:
        queue = self._log.queue
        yellow = {entry.id for entry in queue.yellow}
        for message_id, message in list(self._known.items()):
            is_green = queue.get(message_id) is None  # and is about to be applied
            color = Color.YELLOW if is_green or message_id in yellow else Color.RED
            if color is not message.color:
                message.color = color
                for watcher in self._that_have_seen(message_id):
                    for name, write in self._writes(message):
                        if _operations(write, watcher):
                            watcher.add(Recolored(name, color))

    # Watchers and messages

    def _that_have_seen(self, message_id: MessageId) -> list[TentativeWatcher]:
        """Returns a list, because a watcher that is woken may leave."""
        return [watcher for watcher in self._watchers if message_id not in watcher.unseen]

    def _appearances(self, message_id: MessageId, watcher: TentativeWatcher) -> list[TentativeEvent]:
        """Returns that the writes of a message have appeared, as far as they are of interest."""
        message = self._known[message_id]
        operations = [(name, _operations(write, watcher)) for name, write in self._writes(message)]
        return [TentativeWrite(name, message.color, wanted) for name, wanted in operations if wanted]

    def _writes(self, message: _Message) -> list[tuple[str, Write]]:
        if message.writes is None:
            batch, message_id = decode_batch(self._log.body_of(message.entry)), message.entry.id
            message.writes = [
                (write_id(message_id, index), decode_write(data)) for index, data in enumerate(batch.writes)
            ]
        return message.writes


def _operations(write: Write, watcher: TentativeWatcher) -> tuple[Operation, ...]:
    """Returns what the write may do to keys of interest."""
    return tuple([one for one in (*write.then, *(write.otherwise or ())) if watcher.interest.has(one.key)])
