"""The COREL algorithm (section 3) as one sans-IO machine: the handler of Fig. 2, Order Rule 1, the establishment
of Fig. 3; the recovery's arithmetic is in `recovery`.

Inputs are what membership reports of one group (`received`, `delivered`, `marked`, `view_changed`), the completion
of writes (`persisted`), and new messages (`submit`). In memory every step takes effect at once; nothing is *said*
of it before all that was to be written by then is on disk (traps 1 and 6).

A message is logged when it is received, while its order is still being agreed on. In a primary component it is
yellow from then on, at its place by timestamp. Members report (`Mark`) up to where they have logged each member's
messages. A message is green when its place is known, which means that every member has been heard past it, and
when every member has logged it and everything before it. So all members' yellow zones begin with what any of them
made green, which is what recovery relies on (decision 12).

Where this differs from the paper:

- Acknowledgements are watermarks in the transport's statuses, bound to the view, not messages (trap 4).
- Messages are logged in the order of receipt rather than of delivery; see above.
- What a view's end settles, without all of its members having been heard, never becomes green by Order Rule 1.
- Commit needs equal digests of everybody's queue besides everybody's attempt.
- A node whose disk was empty counts towards no majority until it has recovered with half of the voters (trap 7).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

from corel import codec
from corel.config import CorelConfig
from corel.effects import Effect, Event, Greened, Logged, Mark, Multicast, Persist, Reordered, Solicit
from corel.invariants import Invariants
from corel.message_queue import BrokenInvariant, MessageQueue
from corel.messages import (
    NOT_LOGGED,
    Attempt,
    Commit,
    Copy,
    Entry,
    Letter,
    MessageId,
    Priority,
    Reds,
    Regular,
    State,
)
from corel.outbox import Outbox
from corel.quorum import Roster
from corel.recovery import Plan, RosterMismatch, make_plan, red_shares
from corel.retransmission import Merge, batches
from corel.storage import Image, Lines, Log, Record, Write, Yellow
from transport.effects import Journal
from transport.messages import SEQUENCE_MAX, Machine, Message, Milliseconds, Timestamp, View

_NEVER = float("inf")
_AT_ONCE = float("-inf")
_BEFORE_ALL = Timestamp(0, "", 0)
_SOLICIT_MS_MAX = 100.0
_READ_AHEAD = 1_024

Continuation: TypeAlias = Callable[[list[Effect]], None]


class Stage(StrEnum):
    """What a node is doing about its component."""

    RECOVERING = "recovering"
    """Exchanging states and messages."""
    ESTABLISHING = "establishing"
    """A majority, on its way to a primary component."""
    PRIMARY = "primary"
    NON_PRIMARY = "non_primary"
    """Recovered, but no majority: messages are exchanged, and stay red."""


class Cause(StrEnum):
    """Why a stage was entered, or something refused."""

    VIEW_CHANGED = "view_changed"
    MAJORITY = "majority"
    NO_MAJORITY = "no_majority"
    COMMITTED_BY_ALL = "committed_by_all"
    ROSTERS_DIFFER = "rosters_differ"
    ORDERS_DIFFER = "orders_differ"
    OUT_OF_PLACE = "out_of_place"
    UNDECODABLE = "undecodable"
    RECOVERED = "recovered"
    STATES = "states"


TRANSITIONS: dict[Stage, tuple[Stage, ...]] = {
    Stage.RECOVERING: (Stage.RECOVERING, Stage.ESTABLISHING, Stage.NON_PRIMARY),
    Stage.ESTABLISHING: (Stage.RECOVERING, Stage.PRIMARY, Stage.NON_PRIMARY),
    Stage.PRIMARY: (Stage.RECOVERING,),
    Stage.NON_PRIMARY: (Stage.RECOVERING,),
}


class Corel:
    """One node's log. `view` is the one membership begins with."""

    def __init__(
        self, me: Machine, view: View, roster: Roster, config: CorelConfig, image: Image, log: Log
    ) -> None:
        self.me = me
        self.view = view
        self.config = config
        self.roster = roster
        self.queue: MessageQueue = image.queue
        self.stage = Stage.RECOVERING
        self.committed = image.lines.committed
        self.attempted = image.lines.attempted
        self.is_voter = image.lines.is_voter
        self.counters: Counter[str] = Counter()
        self._log = log
        self._invariants = Invariants(self.queue) if config.debug_invariants else None
        # Writing
        self._lines = image.lines
        self._next_arrival = image.lines.next_arrival
        self._open_from = image.lines.open_from
        self._tail_from = image.lines.tail_from
        self._clock = image.lines.clock
        self._is_dirty = False
        self._to_log: list[Entry] = []
        self._to_green: list[Entry] = []
        self._is_yellow_decided = False
        self._greens_since: Milliseconds | None = None
        """Since when green messages wait to be written as such. Nobody is in a hurry: they are yellow on every
        disk."""
        self._points: dict[Machine, int] = {}
        """Up to which of each member's messages in this view everything is logged, once what is to be is."""
        self._then: list[Continuation] = []
        self._token = 0
        self._under_way: Write | None = None
        self._logging: list[Entry] = []
        """The messages of the write under way."""
        self._greening: list[Entry] = []
        """Those that it makes green."""
        self._points_under_way: dict[Machine, int] = {}
        self._then_under_way: list[Continuation] = []
        self._evictable: deque[Entry] = deque()
        self._bodies_bytes = 0
        self._outbox = Outbox(me, config)
        self._waits_since: Milliseconds | None = None
        self._has_progressed = False
        self._ordered: deque[Entry] = deque()
        """Delivered in order, and not yet reported as logged."""
        self._foldable: tuple[int, dict[str, int]] | None = None
        """When everybody's green line, on disk, is beyond this one, these streams can be folded away."""
        self._begin_view(view)

    # What others look at

    @property
    def is_open(self) -> bool:
        """Whether regular messages are sent and handled."""
        return self._is_open

    @property
    def is_representative(self) -> bool:
        """Whether this node knew the last primary component when the view began."""
        return self.plan is not None and self.me in self.plan.representatives

    @property
    def unwritten_greens(self) -> list[Entry]:
        """The last green messages, which are not in the order on disk yet."""
        return self._greening + self._to_green

    @property
    def waiting(self) -> int:
        """Messages that were submitted and have not left."""
        return len(self._outbox)

    @property
    def phase(self) -> str:
        """What exactly it waits for, for people and journals."""
        if self.stage is Stage.RECOVERING:
            if self.plan is None:
                return "waiting for states"
            return "merging red messages" if self._merge is not None else "waiting for priority messages"
        if self.stage is Stage.ESTABLISHING:
            return "waiting for commits" if self.committed == self.attempted else "waiting for attempts"
        return "rosters differ" if self.plan is None else str(self.stage)

    def body_of(self, entry: Entry) -> bytes:
        """The body of a message in the queue, from memory or from disk."""
        return entry.body if entry.body is not None else self._log.body(entry.arrival)

    def read_green(self, first: int, count: int) -> list[Entry]:
        """Green messages by position, as far as they are on disk, with bodies."""
        return list(self._log.green(first, count))

    def acknowledged(self, entry: Entry) -> tuple[Machine, ...]:
        """The members known to have logged a message of this view."""
        if not entry.carrier or entry.view != self.view.id:
            return ()
        place = self._place[entry.id.stream]
        return tuple(member for member in self.view.members if self._marks[member][place] >= entry.carrier)

    # Inputs

    def start(self) -> list[Effect]:
        """Begins with the view that membership begins with."""
        return self.view_changed(self.view)

    def submit(self, body: bytes) -> MessageId:
        """Accepts a message, or raises `TooLarge` or `TooMuch`. It leaves with `send`, in this view or, if a
        recovery is under way, in a later one."""
        return self._outbox.accept(body)

    def send(self) -> list[Effect]:
        """What was submitted, as far as it may leave."""
        effects: list[Effect] = []
        self._send_submitted(effects)
        return effects

    def view_changed(self, view: View) -> list[Effect]:
        """Fig. 2: the primary component bit is unset, regular messages wait, and the states are exchanged, but not
        before everything is on disk that they will tell of (trap 6)."""
        effects: list[Effect] = []
        self._outbox.take_back()
        self._begin_view(view)
        self._enter(Stage.RECOVERING, Cause.VIEW_CHANGED, effects)
        self._is_dirty = True  # a write of its own, so that there is one whose completion says that all is on disk
        self._then = [self._send_state]
        self._flush(effects)
        return effects

    def received(self, messages: Iterable[Message]) -> list[Effect]:
        """Causally deliverable messages: what is to be logged can be."""
        effects: list[Effect] = []
        for message in messages:
            self._on_received(message, effects)
        if self._outbox:
            self._send_submitted(effects)
        self._flush(effects)
        return effects

    def delivered(self, messages: Iterable[Message], is_closing: bool) -> list[Effect]:
        """Messages in their final order within the view."""
        effects: list[Effect] = []
        for message in messages:
            item = self._received.pop((message.sender, message.sequence), None)
            if isinstance(item, Entry):
                self._ordered.append(item)
                if not is_closing:
                    self._ordered_through = item.timestamp
            elif item is not None:
                self._on_letter(message, item, effects)
        self._report_logged(effects)
        self._advance_green(effects)
        self._flush(effects)
        return effects

    def marked(self, machine: Machine, marks: Sequence[int]) -> list[Effect]:
        """A member has logged so much of each member's messages."""
        known = self._marks.get(machine)
        if known is None or all(new <= old for new, old in zip(marks, known, strict=True)):
            return []
        effects: list[Effect] = []
        self._marks[machine] = [max(pair) for pair in zip(marks, known, strict=True)]
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def persisted(self, token: int) -> list[Effect]:
        """The write of this token is on disk, and so are all before it."""
        if self._under_way is None or token != self._token:
            raise BrokenInvariant(f"write {token} was completed, {self._token} is under way")
        effects: list[Effect] = []
        write, self._under_way = self._under_way, None
        self._lines = write.lines
        then, self._then_under_way = self._then_under_way, []
        self._note_logged(self._logging)
        self._logging, self._greening = [], []
        own = self._marks[self.me]
        if self._points_under_way:
            for machine, carrier in self._points_under_way.items():
                own[self._place[machine]] = max(own[self._place[machine]], carrier)
            self._points_under_way = {}
            effects.append(Mark(tuple(own), self.view.id))
        for continuation in then:
            continuation(effects)
        self._report_logged(effects)
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def flush(self) -> list[Effect]:
        """Writes what has become green, without waiting for something else to write: before an orderly stop."""
        effects: list[Effect] = []
        self._is_dirty = self._is_dirty or bool(self._to_green)
        self._flush(effects)
        return effects

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the disk, or waits for its turn."""
        return self._under_way is not None or self._is_dirty or bool(self._to_green)

    def tick(self, now: Milliseconds) -> list[Effect]:
        """Asks for acknowledgements that may have been lost, and writes what has become green if nothing else was
        to be written meanwhile."""
        effects: list[Effect] = []
        self._solicit(now, effects)
        if self._to_green and self._greens_since is None:
            self._greens_since = now
        elif self._greens_since is not None and now >= self._greens_since + self.config.green_flush_ms:
            self._is_dirty = self._is_dirty or bool(self._to_green)
            self._greens_since = None
            self._flush(effects)
        return effects

    def next_deadline(self) -> Milliseconds:
        deadline = _NEVER
        if self._is_waiting():
            deadline = _AT_ONCE if self._waits_since is None else self._waits_since + self._solicit_ms
        if self._to_green:
            flush_ms = self.config.green_flush_ms
            deadline = min(deadline, _AT_ONCE if self._greens_since is None else self._greens_since + flush_ms)
        return deadline

    def _solicit(self, now: Milliseconds, effects: list[Effect]) -> None:
        if not self._is_waiting():
            self._waits_since = None
        elif self._waits_since is None or self._has_progressed:
            self._waits_since, self._has_progressed = now, False
            self._solicit_ms = self.config.solicit_after_ms
        elif now >= self._waits_since + self._solicit_ms:
            self._waits_since = now
            self._solicit_ms = min(2.0 * self._solicit_ms, _SOLICIT_MS_MAX)
            ahead = [max(column) for column in zip(*self._marks.values(), strict=True)]
            laggards = [m for m in self.view.members if self._marks[m] != ahead and m != self.me]
            if laggards:
                effects.append(Solicit(tuple(laggards), self.view.id))

    def _is_waiting(self) -> bool:
        is_ordering = self.stage is Stage.PRIMARY and bool(self.queue.yellow)
        return len(self.view.members) > 1 and (is_ordering or bool(self._batches_out))

    # The view

    def _begin_view(self, view: View) -> None:
        self.view = view
        self._is_open = False
        self._place = {member: place for place, member in enumerate(view.members)}
        self._marks: dict[Machine, list[int]] = {member: [0] * len(view.members) for member in view.members}
        self._received: dict[tuple[Machine, int], Entry | Letter] = {}
        """Messages received and not delivered."""
        self._early: list[Entry] = []
        """Regular messages of members that are done with their recovery, while we are not. If the view ends first
        they are forgotten: those who have them will retransmit them."""
        self._ordered = deque(entry for entry in self._ordered if entry.arrival != NOT_LOGGED)
        self._ordered_through = _BEFORE_ALL
        self._points = {}
        self._points_under_way = {}
        self._then = []
        self._then_under_way = []
        self._waits_since = None
        self._has_progressed = False
        self._solicit_ms = self.config.solicit_after_ms
        # Recovery and establishment
        self._states: dict[Machine, State] = {}
        self.plan: Plan | None = None
        self._priority_next: int | None = None
        self._order: list[MessageId] = []
        self._merge: Merge | None = None
        self._outgoing: Iterator[Letter] = iter(())
        self._batches_out: deque[int] = deque()
        """Our batches that not everybody has logged; 0 while we do not know their sequence."""
        self._attempts: dict[Machine, Attempt] = {}
        self._commits: set[Machine] = set()

    def _enter(self, stage: Stage, cause: Cause, effects: list[Effect]) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise BrokenInvariant(f"{self.me} cannot go from {self.stage} to {stage}")
        self.stage = stage
        details: dict[str, object] = {
            "stage": str(stage),
            "view": str(self.view.id),
            "green": self.queue.green,
            "yellow": self.queue.yellow_line,
            "all": len(self.queue),
            "committed": self.committed,
            "attempted": self.attempted,
        }
        effects.append(Journal(Event.STATE, str(self.view.id), cause, details))

    def _open_to_messages(self, effects: list[Effect]) -> None:
        """Fig. 2: continue handling and sending regular messages."""
        self._is_open = True
        early, self._early = self._early, []
        for entry in early:
            self._take(entry, effects)
        self._send_submitted(effects)

    # Messages

    def _on_received(self, message: Message, effects: list[Effect]) -> None:
        try:
            letter = codec.decode(message.payload)
        except codec.LetterError as error:
            self._refuse(message, Cause.UNDECODABLE, effects, str(error))
            return
        key = (message.sender, message.sequence)
        if not isinstance(letter, Regular):
            self._received[key] = letter
            if message.sender == self.me and isinstance(letter, (Priority, Reds)):
                self._batches_out[self._batches_out.index(0)] = message.sequence
            return
        if message.sender == self.me:
            self._outbox.has_left()
        entry = Entry(MessageId(message.sender, letter.sequence), message.clock, message.view, letter.body)
        entry.carrier = message.sequence
        self._received[key] = entry
        if self._is_open:
            self._take(entry, effects)
        else:
            self._early.append(entry)

    def _take(self, entry: Entry, effects: list[Effect]) -> None:
        """A regular message enters the queue, and is logged: yellow in a primary component, else red."""
        stream, sequence = entry.id
        if sequence != self.queue.last_of(stream) + 1:
            effects.append(Journal(Event.REFUSED, str(entry.id), Cause.OUT_OF_PLACE))
            self.counters["refused"] += 1
            return
        if self.stage is Stage.PRIMARY:
            entry.primary = self.committed
            self.queue.add_yellow(entry)
        else:
            self.queue.add_red(entry)
        self._to_write(entry, stream)

    def _to_write(self, entry: Entry, carrier_of: Machine) -> None:
        entry.arrival = self._next_arrival
        self._next_arrival += 1
        self._clock = max(self._clock, entry.timestamp.clock)
        self._bodies_bytes += entry.size
        self._to_log.append(entry)
        if entry.carrier:
            self._points[carrier_of] = entry.carrier
        self._is_dirty = True

    def _send_submitted(self, effects: list[Effect]) -> None:
        if self._is_open:
            for regular in self._outbox.take():
                self._multicast(regular, effects)

    def _on_letter(self, message: Message, letter: Letter, effects: list[Effect]) -> None:
        sender = message.sender
        if isinstance(letter, State):
            self._on_state(sender, letter, effects)
        elif isinstance(letter, Priority):
            self._on_priority(message, letter, effects)
        elif isinstance(letter, Reds):
            self._on_reds(message, letter, effects)
        elif isinstance(letter, Attempt):
            self._on_attempt(sender, letter, effects)
        elif isinstance(letter, Commit):
            self._on_commit(sender, letter, effects)

    def _refuse(self, message: Message, cause: Cause, effects: list[Effect], why: str = "") -> None:
        """A peer's error: everybody in the view sees the same, and does the same."""
        self.counters["refused"] += 1
        details: dict[str, object] = {"sender": str(message.sender), "why": why}
        effects.append(Journal(Event.REFUSED, message.id, cause, details))

    # Order Rule 1

    def _on_marks(self, effects: list[Effect]) -> None:
        self._has_progressed = True
        logged = min(marks[self._place[self.me]] for marks in self._marks.values())
        while self._batches_out and 0 < self._batches_out[0] <= logged:
            self._batches_out.popleft()
        self._send_batches(effects)
        self._advance_green(effects)

    def _advance_green(self, effects: list[Effect]) -> None:
        """Makes green what has its place and is logged by everybody."""
        if self.stage is not Stage.PRIMARY or not self.queue.yellow:
            return
        logged = [min(column) for column in zip(*self._marks.values(), strict=True)]
        place = self._place
        through = self._ordered_through
        count = 0
        for entry in self.queue.yellow:
            if entry.timestamp > through or logged[place[entry.id.stream]] < entry.carrier:
                break
            count += 1
        if count:
            self._turn_green(count, effects)

    def _turn_green(self, count: int, effects: list[Effect]) -> None:
        if not count:
            return
        position = self.queue.green
        turned = self.queue.turn_green(count)
        if self._invariants is not None:
            self._invariants.turned_green([entry.id for entry in turned])
        for entry in turned:
            self._to_green.append(entry)
            if entry.body is not None:
                self._bodies_bytes -= entry.size
        effects.append(Greened(position, tuple(turned)))

    # The recovery procedure

    def _send_state(self, effects: list[Effect]) -> None:
        """Step 1."""
        queue = self.queue
        state = State(
            self.committed,
            self.attempted,
            queue.green,
            queue.green_digest,
            queue.base,
            queue.base_digest,
            tuple([entry.id for entry in queue.tail()]),
            queue.have(),
            self.is_voter,
            self.roster.digest(),
        )
        self._multicast(state, effects)

    def _on_state(self, sender: Machine, state: State, effects: list[Effect]) -> None:
        """Steps 2 to 4."""
        self._states[sender] = state
        if len(self._states) < len(self.view.members):
            return
        try:
            plan = self.plan = make_plan(self._states, self.roster)
        except RosterMismatch:
            self._enter(Stage.NON_PRIMARY, Cause.ROSTERS_DIFFER, effects)
            return
        details: dict[str, object] = {
            "committed": plan.committed,
            "representative": str(plan.representative),
            "green": plan.green,
            "yellow": plan.yellow,
            "priority_from": plan.priority_from,
        }
        effects.append(Journal(Event.STATES_EXCHANGED, str(self.view.id), Cause.STATES, details))
        self._fold_streams()
        if plan.priority_from is None or plan.priority_from == plan.yellow:
            self._adopt(effects)
            return
        self._priority_next = plan.priority_from
        if plan.representative == self.me:
            self._outgoing = self._priority_batches(plan.priority_from, plan.yellow)
            self._send_batches(effects)

    def _priority_batches(self, first: int, last: int) -> Iterator[Letter]:
        """Step 5: our messages between these positions, with bodies where somebody may lack them."""
        others = [state for member, state in self._states.items() if member != self.me]
        haves = [(state.green, dict(state.have)) for state in others]
        yellow = self.queue.yellow[: max(0, last - self.queue.green)]
        green = self.queue.green

        def copies() -> Iterator[Copy]:
            position = first
            for entry in self._entries_between(first, last, green, yellow):
                stream, sequence = entry.id
                has_everybody = all(position < line or have.get(stream, 0) >= sequence for line, have in haves)
                body = None if has_everybody else self.body_of(entry)
                yield Copy(entry.id, entry.timestamp.clock, entry.view, body)
                position += 1

        position = first
        for batch in batches(copies(), self.config.batch_bytes_max):
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

    def _send_batches(self, effects: list[Effect]) -> None:
        while len(self._batches_out) < self.config.batches_ahead_max:
            letter = next(self._outgoing, None)
            if letter is None:
                return
            self._batches_out.append(0)
            self.counters["batches_sent"] += 1
            self._multicast(letter, effects)

    def _on_priority(self, message: Message, letter: Priority, effects: list[Effect]) -> None:
        plan = self.plan
        if plan is None or message.sender != plan.representative or letter.position != self._priority_next:
            self._refuse(message, Cause.OUT_OF_PLACE, effects)
            return
        for position, copy in enumerate(letter.copies, letter.position):
            if self.is_representative or position < self.queue.green:
                continue  # we have it, and at that place
            if not self._accept_copy(copy, message, effects):
                return
            self._order.append(copy.id)
        self._note_point(message)
        self._priority_next += len(letter.copies)
        if self._priority_next == plan.yellow:
            self._adopt(effects)

    def _accept_copy(self, copy: Copy, message: Message, effects: list[Effect]) -> bool:
        """A retransmitted message that we lack is logged, as red; it keeps its timestamp and its id (trap 5)."""
        stream, sequence = copy.id
        last = self.queue.last_of(stream)
        if sequence <= last:
            return True
        if sequence != last + 1 or copy.body is None:
            self._refuse(message, Cause.OUT_OF_PLACE, effects, f"{copy.id} after {stream}.{last}")
            return False
        entry = Entry(copy.id, copy.clock, copy.view, copy.body)
        self.queue.add_red(entry)
        self._to_write(entry, message.sender)
        self.counters["retransmissions_received"] += 1
        return True

    def _note_point(self, message: Message) -> None:
        """All of this message is among what is to be logged, or was logged before."""
        self._points[message.sender] = message.sequence
        self._is_dirty = True

    def _adopt(self, effects: list[Effect]) -> None:
        """Steps 3 and 6, in one atomic write: the lines of the representatives, and their order."""
        plan, queue = self._the_plan(), self.queue
        if self.is_representative:
            demoted = queue.retreat(plan.yellow)
            is_changed = bool(demoted)
        else:
            demoted = queue.adopt(self._order, plan.yellow, plan.base, plan.base_digest)
            self._order = []
            is_changed = True
        self._turn_green(plan.green - queue.green, effects)
        if demoted:
            self.counters["demoted"] += len(demoted)
            details: dict[str, object] = {"ids": [str(entry.id) for entry in demoted[:20]], "count": len(demoted)}
            effects.append(Journal(Event.DEMOTED, str(self.view.id), Cause.STATES, details))
        if is_changed:
            self.committed = plan.committed
            self._decide_yellow()
            effects.append(Reordered())
        self._share_reds(effects)

    def _share_reds(self, effects: list[Effect]) -> None:
        """Step 7."""
        shares = red_shares(self._states, self._yellow_last())
        if not shares:
            self._recovered(effects)
            return
        self._merge = Merge(sorted(shares))
        if self.me in shares:
            mine = {share.stream: share for share in shares[self.me]}
            entries = [
                entry
                for entry in self.queue.red
                if (share := mine.get(entry.id.stream)) and share.after < entry.id.sequence <= share.through
            ]
            details: dict[str, object] = {"count": len(entries)}
            effects.append(Journal(Event.RETRANSMITTING, str(self.view.id), Cause.STATES, details))
            self._outgoing = self._red_batches(entries)
            self._send_batches(effects)

    def _yellow_last(self) -> Callable[[Machine], int]:
        last = dict(self.queue.green_last)
        for entry in self.queue.yellow:
            last[entry.id.stream] = max(last.get(entry.id.stream, 0), entry.id.sequence)
        return lambda stream: SEQUENCE_MAX if self.queue.is_folded(stream) else last.get(stream, 0)

    def _red_batches(self, entries: list[Entry]) -> Iterator[Letter]:
        copies = (Copy(entry.id, entry.timestamp.clock, entry.view, self.body_of(entry)) for entry in entries)
        left = len(entries)
        for batch in batches(copies, self.config.batch_bytes_max):
            left -= len(batch)
            yield Reds(batch, is_last=not left)

    def _on_reds(self, message: Message, letter: Reds, effects: list[Effect]) -> None:
        if self._merge is None or not self._merge.expects(message.sender):
            self._refuse(message, Cause.OUT_OF_PLACE, effects)
            return
        for sender, copy, carrier in self._merge.add(
            message.sender, letter.copies, message.sequence, letter.is_last
        ):
            self._accept_copy(copy, message, effects)
            if carrier:
                self._points[sender] = carrier
                self._is_dirty = True
        if self._merge.is_done():
            self._merge = None
            effects.append(Journal(Event.RETRANSMITTED, str(self.view.id), Cause.RECOVERED))
            effects.append(Reordered())
            self._recovered(effects)

    def _recovered(self, effects: list[Effect]) -> None:
        """Everybody has the same messages in the same order, and, in memory, the same colours."""
        plan = self._the_plan()
        if self.me in plan.restored and not self.is_voter:
            self.is_voter = True
            self._is_dirty = True
            effects.append(Journal(Event.VOTER, str(self.view.id), Cause.RECOVERED))
        if self.roster.is_majority(plan.voters):
            self._establish(effects)
        else:
            self._enter(Stage.NON_PRIMARY, Cause.NO_MAJORITY, effects)
            self._open_to_messages(effects)

    def _the_plan(self) -> Plan:
        if self.plan is None:
            raise BrokenInvariant("there is no plan before all states are known")
        return self.plan

    # Establishing a primary component (Fig. 3)

    def _establish(self, effects: list[Effect]) -> None:
        """Phase one: the attempt is told when it is on disk."""
        self.attempted = self._the_plan().attempted + 1
        self._is_dirty = True
        self._enter(Stage.ESTABLISHING, Cause.MAJORITY, effects)
        attempt = Attempt(self.attempted, self.queue.digest())
        details: dict[str, object] = {"number": self.attempted}
        effects.append(Journal(Event.ATTEMPTED, str(self.view.id), Cause.MAJORITY, details))
        self._then.append(lambda later: self._multicast(attempt, later))

    def _on_attempt(self, sender: Machine, attempt: Attempt, effects: list[Effect]) -> None:
        """Phase two: everybody attempts, so commit, in one atomic write with the yellow marking; then tell it."""
        self._attempts[sender] = attempt
        if self.stage is not Stage.ESTABLISHING or len(self._attempts) < len(self.view.members):
            return
        if len(set(self._attempts.values())) > 1:
            self.counters["orders_differ"] += 1
            self._enter(Stage.NON_PRIMARY, Cause.ORDERS_DIFFER, effects)
            self._open_to_messages(effects)
            return
        self.committed = self.attempted
        self.queue.turn_yellow()
        self._decide_yellow()
        commit = Commit(self.committed)
        details: dict[str, object] = {"number": self.committed, "all": len(self.queue)}
        effects.append(Journal(Event.COMMITTED, str(self.view.id), Cause.MAJORITY, details))
        self._then.append(lambda later: self._multicast(commit, later))

    def _on_commit(self, sender: Machine, commit: Commit, effects: list[Effect]) -> None:
        """Phase three: everybody is bound to this order, so it is final."""
        if commit.number == self.committed:
            self._commits.add(sender)
        if self.stage is not Stage.ESTABLISHING or len(self._commits) < len(self.view.members):
            return
        self._turn_green(len(self.queue) - self.queue.green, effects)
        self._evictable.clear()
        self._enter(Stage.PRIMARY, Cause.COMMITTED_BY_ALL, effects)
        if self._is_everybody_here():
            gone = {member.name: member.incarnation - 1 for member in self.view.members}
            self._foldable = (self.queue.green, gone)
        self._open_to_messages(effects)

    def _fold_streams(self) -> None:
        """Of incarnations that are gone, and all of whose messages are green at everybody, on disk."""
        if self._foldable is None or not self._is_everybody_here():
            return
        line, incarnations = self._foldable
        if all(state.green >= line for state in self._states.values()):
            self.queue.fold(incarnations)
            self._foldable = None
            self._is_dirty = True

    def _is_everybody_here(self) -> bool:
        return [member.name for member in self.view.members] == sorted(self.roster.weights)

    # Writing

    def _decide_yellow(self) -> None:
        """The yellow zone is what it is now, whatever was logged as what before."""
        self._is_yellow_decided = True
        self._tail_from = self._next_arrival
        self._is_dirty = True

    def _flush(self, effects: list[Effect]) -> None:
        """The end of every step. Hands the next write to the disk, if none is under way: what comes meanwhile
        gathers for the one after."""
        if self._invariants is not None:
            self._invariants.check(self.queue)
        if not self._is_dirty or self._under_way is not None:
            return
        yellow = None
        if self._is_yellow_decided:
            yellow = Yellow(self.queue.green, tuple([entry.arrival for entry in self.queue.yellow]))
        greened = tuple([entry.arrival for entry in self._to_green])
        write = Write(tuple(map(_record, self._to_log)), greened, yellow, self._lines_now())
        self._token += 1
        self._under_way = write
        self._points_under_way, self._points = self._points, {}
        self._then_under_way, self._then = self._then, []
        self._logging, self._to_log = self._to_log, []
        self._greening, self._to_green = self._to_green, []
        self._is_yellow_decided = self._is_dirty = False
        self._greens_since = None
        effects.append(Persist(self._token, write))

    def _lines_now(self) -> Lines:
        queue = self.queue
        if len(queue) - queue.green <= self.config.open_scan_max:
            self._open_from = min([entry.arrival for entry in queue], default=self._next_arrival)
        return Lines(
            committed=self.committed,
            attempted=self.attempted,
            is_voter=self.is_voter,
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
        )

    def _note_logged(self, entries: Iterable[Entry]) -> None:
        """They are on disk now: those that will stay open for long need not be in memory."""
        if self.stage is Stage.PRIMARY:
            return
        self._evictable.extend(entries)
        while self._bodies_bytes > self.config.bodies_bytes_max and self._evictable:
            entry = self._evictable.popleft()
            if entry.body is not None and self.queue.get(entry.id) is entry:
                entry.body = None
                self._bodies_bytes -= entry.size

    def _report_logged(self, effects: list[Effect]) -> None:
        """Regular messages, in order, as far as they are on disk here."""
        on_disk = self._lines.next_arrival
        reported: list[Entry] = []
        while self._ordered and self._ordered[0].arrival < on_disk:
            entry = self._ordered[0]
            if entry.arrival == NOT_LOGGED and not self._is_open:
                break  # it is among the early ones
            self._ordered.popleft()
            if entry.arrival != NOT_LOGGED:
                reported.append(entry)
        if reported:
            effects.append(Logged(tuple(reported)))

    def _multicast(self, letter: Letter, effects: list[Effect]) -> None:
        effects.append(Multicast(codec.encode(letter), self.view.id))


def _record(entry: Entry) -> Record:
    if entry.body is None:
        raise BrokenInvariant(f"{entry.id} is not logged, and its body is gone")
    return Record(entry.arrival, entry.id, entry.timestamp.clock, entry.view, entry.primary, entry.body)
