"""The COREL algorithm (section 3) as one sans-IO machine: the handler of Fig. 2, Order Rule 1, the establishment
of Fig. 3. The recovery's arithmetic is in `recovery`, its retransmissions in `exchange`, what is written when in
`log_writer`, who has logged what in `acknowledgements`.

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
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from corel import codec
from corel.acknowledgements import Acknowledgements
from corel.config import CorelConfig
from corel.effects import Effect, Event, Greened, Logged, Mark, Multicast, Proven, Reordered, Solicit
from corel.exchange import Exchange
from corel.invariants import Invariants
from corel.log_writer import LogWriter
from corel.message_queue import BrokenInvariant, MessageQueue
from corel.messages import (
    NOT_LOGGED,
    Attempt,
    Commit,
    Entry,
    Letter,
    MessageId,
    Priority,
    Probe,
    Reds,
    Regular,
    State,
)
from corel.outbox import Outbox
from corel.quorum import Roster
from corel.recovery import Contradiction, Plan, make_plan
from corel.storage import Image, Log
from transport.effects import Journal
from transport.messages import Machine, Message, Milliseconds, Service, Timestamp, View

_BEFORE_ALL = Timestamp(0, "", 0)


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
    CONTRADICTION = "contradiction"
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
        self._writer = LogWriter(self.queue, image.lines, config)
        self._outbox = Outbox(me, config)
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
        return self._writer.unwritten_greens

    @property
    def will_mark(self) -> bool:
        """Whether messages are on their way to disk that the others wait to hear of."""
        return self._writer.will_reach

    @property
    def green_on_disk(self) -> int:
        """The green line, as a start would find it."""
        return self._writer.green_on_disk

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
            is_merging = self._exchange is not None and self._exchange.is_merging
            return "merging red messages" if is_merging else "waiting for priority messages"
        if self.stage is Stage.ESTABLISHING:
            return "waiting for commits" if self.committed == self.attempted else "waiting for attempts"
        return "waiting for a contradicting node to leave" if self.plan is None else str(self.stage)

    def body_of(self, entry: Entry) -> bytes:
        """The body of a message in the queue, from memory or from disk."""
        return entry.body if entry.body is not None else self._log.body(entry.arrival)

    def read_green(self, first: int, count: int) -> list[Entry]:
        """Green messages by position, as far as they are on disk, with bodies."""
        return list(self._log.green(first, count))

    def acknowledged(self, entry: Entry) -> tuple[Machine, ...]:
        """The members known to have logged a message of this view."""
        return self._acknowledgements.of(entry)

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

    def probe(self, number: int) -> list[Effect]:
        """In a primary component: asks all its members, by a message that they acknowledge, whether they are still
        in it. `Proven` says that they were; there is no answer if the view ends first."""
        if self.stage is not Stage.PRIMARY:
            return []
        return [Multicast(codec.encode(Probe(number)), self.view.id, Service.SAFE)]

    def view_changed(self, view: View) -> list[Effect]:
        """Fig. 2: the primary component bit is unset, regular messages wait, and the states are exchanged, but not
        before everything is on disk that they will tell of (trap 6)."""
        effects: list[Effect] = []
        self._outbox.take_back()
        self._begin_view(view)
        self._enter(Stage.RECOVERING, Cause.VIEW_CHANGED, effects)
        self._writer.touch()  # a write of its own, whose completion says that all is on disk
        self._writer.then(self._send_state)
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
            elif isinstance(item, Probe):
                if message.sender == self.me and not is_closing:
                    effects.append(Proven(item.number))
            elif item is not None:
                self._on_letter(message, item, effects)
        self._report_logged(effects)
        self._advance_green(effects)
        self._flush(effects)
        return effects

    def marked(self, machine: Machine, marks: Sequence[int]) -> list[Effect]:
        """A member has logged so much of each member's messages."""
        if not self._acknowledgements.heard(machine, marks):
            return []
        effects: list[Effect] = []
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def persisted(self, token: int) -> list[Effect]:
        """The write of this token is on disk, and so are all before it."""
        completed = self._writer.completed(token, will_stay_open=self.stage is not Stage.PRIMARY)
        effects: list[Effect] = []
        if completed.points:
            effects.append(Mark(self._acknowledgements.logged_here(completed.points), self.view.id))
        for say in completed.then:
            say(effects)
        self._report_logged(effects)
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def flush(self) -> list[Effect]:
        """Writes what has become green, without waiting for something else to write: before an orderly stop."""
        effects: list[Effect] = []
        self._writer.flush_greens()
        self._flush(effects)
        return effects

    @property
    def is_writing(self) -> bool:
        """Whether something is on its way to the disk, or waits for its turn."""
        return self._writer.is_busy

    def tick(self, now: Milliseconds) -> list[Effect]:
        """Asks for acknowledgements that may have been lost, and writes what has become green if nothing else was
        to be written meanwhile."""
        effects: list[Effect] = []
        laggards = self._acknowledgements.tick(now, self._is_waiting())
        if laggards:
            effects.append(Solicit(laggards, self.view.id))
        self._writer.tick(now)
        self._flush(effects)
        return effects

    def next_deadline(self) -> Milliseconds:
        return min(self._acknowledgements.next_deadline(self._is_waiting()), self._writer.next_deadline())

    def _is_waiting(self) -> bool:
        """Whether others' acknowledgements are what it takes to go on."""
        is_ordering = self.stage is Stage.PRIMARY and bool(self.queue.yellow)
        is_sending = self._exchange is not None and self._exchange.is_sending
        is_held_up = self._is_open and bool(self._outbox) and self._outbox.waits_for_disks
        return len(self.view.members) > 1 and (is_ordering or is_sending or is_held_up)

    # The view

    def _begin_view(self, view: View) -> None:
        self.view = view
        self._is_open = False
        self._acknowledgements = Acknowledgements(self.me, view, self.config.solicit_after_ms)
        self._writer.begin_view()
        self._received: dict[tuple[Machine, int], Entry | Letter] = {}
        """Messages received and not delivered."""
        self._early: list[Entry] = []
        """Regular messages of members that are done with their recovery, while we are not. If the view ends first
        they are forgotten: those who have them will retransmit them."""
        self._ordered = deque(entry for entry in self._ordered if entry.arrival != NOT_LOGGED)
        self._ordered_through = _BEFORE_ALL
        # Recovery and establishment
        self._states: dict[Machine, State] = {}
        self.plan: Plan | None = None
        self._exchange: Exchange | None = None
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
                self._the_exchange().has_left(message.sequence)
            return
        if message.sender == self.me:
            self._outbox.has_left(message.sequence)
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
        self._writer.log(entry)
        self._writer.reach(stream, entry.carrier)

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

    def _refusal(self, message: Message, effects: list[Effect]) -> Callable[[str], None]:
        return lambda why: self._refuse(message, Cause.OUT_OF_PLACE, effects, why)

    def _refuse(self, message: Message, cause: Cause, effects: list[Effect], why: str = "") -> None:
        """A peer's error: everybody in the view sees the same, and does the same."""
        self.counters["refused"] += 1
        details: dict[str, object] = {"sender": str(message.sender), "why": why}
        effects.append(Journal(Event.REFUSED, message.id, cause, details))

    # Order Rule 1

    def _on_marks(self, effects: list[Effect]) -> None:
        self._acknowledgements.progressed()
        logged_by_all = self._acknowledgements.by_all(self.me)
        self._outbox.logged_by_all(logged_by_all)
        if self._outbox:
            self._send_submitted(effects)
        if self._exchange is not None:
            self._exchange.logged_by_all(logged_by_all)
            self._send_batches(effects)
        self._advance_green(effects)

    def _advance_green(self, effects: list[Effect]) -> None:
        """Makes green what has its place and is logged by everybody."""
        if self.stage is not Stage.PRIMARY or not self.queue.yellow:
            return
        logged = self._acknowledgements.everywhere()
        place = self._acknowledgements.place
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
        self._writer.turned_green(turned)
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
        except Contradiction as contradiction:
            self._wait_out(contradiction, effects)
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
        self._exchange = Exchange(
            self.me, plan, self._states, self.queue, self._writer, self._log, self.config, self.counters
        )
        if self._exchange.is_priority_done:
            self._adopt(effects)
            return
        self._exchange.begin_priority()
        self._send_batches(effects)

    def _wait_out(self, contradiction: Contradiction, effects: list[Effect]) -> None:
        """Somebody's state cannot be. Everybody knows the same, so whoever is not believed stops, its data intact,
        and the others go on in the next view."""
        unbelieved = contradiction.unbelieved(self.roster)
        if self.me in unbelieved:
            raise contradiction
        details: dict[str, object] = {"why": str(contradiction), "unbelieved": [str(one) for one in unbelieved]}
        effects.append(Journal(Event.CONTRADICTED, str(self.view.id), Cause.CONTRADICTION, details))
        self._enter(Stage.NON_PRIMARY, Cause.CONTRADICTION, effects)

    def _send_batches(self, effects: list[Effect]) -> None:
        for letter in self._the_exchange().next_letters():
            self._multicast(letter, effects)

    def _on_priority(self, message: Message, letter: Priority, effects: list[Effect]) -> None:
        """Step 5."""
        exchange = self._exchange
        if exchange is None or exchange.is_priority_done:
            self._refuse(message, Cause.OUT_OF_PLACE, effects)
            return
        exchange.on_priority(message, letter, self._refusal(message, effects))
        if exchange.is_priority_done:
            self._adopt(effects)

    def _adopt(self, effects: list[Effect]) -> None:
        """Steps 3 and 6, in one atomic write: the lines of the representatives, and their order."""
        plan, queue = self._the_plan(), self.queue
        if self.is_representative:
            demoted = queue.retreat(plan.yellow)
            is_changed = bool(demoted)
        else:
            demoted = queue.adopt(self._the_exchange().order, plan.yellow, plan.base, plan.base_digest)
            is_changed = True
        self._turn_green(plan.green - queue.green, effects)
        if demoted:
            self.counters["demoted"] += len(demoted)
            details: dict[str, object] = {"ids": [str(entry.id) for entry in demoted[:20]], "count": len(demoted)}
            effects.append(Journal(Event.DEMOTED, str(self.view.id), Cause.STATES, details))
        if is_changed:
            self.committed = plan.committed
            self._writer.decide_yellow()
            effects.append(Reordered())
        self._share_reds(effects)

    def _share_reds(self, effects: list[Effect]) -> None:
        """Step 7."""
        exchange = self._the_exchange()
        count = exchange.begin_merge()
        if count is None:
            self._recovered(effects)
            return
        if count:
            details: dict[str, object] = {"count": count}
            effects.append(Journal(Event.RETRANSMITTING, str(self.view.id), Cause.STATES, details))
            self._send_batches(effects)

    def _on_reds(self, message: Message, letter: Reds, effects: list[Effect]) -> None:
        """Step 7, at those who lack them."""
        if self._exchange is None or not self._exchange.is_merging:
            self._refuse(message, Cause.OUT_OF_PLACE, effects)
        elif self._exchange.on_reds(message, letter, self._refusal(message, effects)):
            effects.append(Journal(Event.RETRANSMITTED, str(self.view.id), Cause.RECOVERED))
            effects.append(Reordered())
            self._recovered(effects)

    def _recovered(self, effects: list[Effect]) -> None:
        """Everybody has the same messages in the same order, and, in memory, the same colours."""
        plan = self._the_plan()
        if self.me in plan.restored and not self.is_voter:
            self.is_voter = True
            self._writer.touch()
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

    def _the_exchange(self) -> Exchange:
        if self._exchange is None:
            raise BrokenInvariant("nothing is retransmitted before all states are known")
        return self._exchange

    # Establishing a primary component (Fig. 3)

    def _establish(self, effects: list[Effect]) -> None:
        """Phase one: the attempt is told when it is on disk."""
        self.attempted = self._the_plan().attempted + 1
        self._writer.touch()
        self._enter(Stage.ESTABLISHING, Cause.MAJORITY, effects)
        attempt = Attempt(self.attempted, self.queue.digest())
        details: dict[str, object] = {"number": self.attempted}
        effects.append(Journal(Event.ATTEMPTED, str(self.view.id), Cause.MAJORITY, details))
        self._writer.then(lambda later: self._multicast(attempt, later))

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
        self._writer.decide_yellow()
        commit = Commit(self.committed)
        details: dict[str, object] = {"number": self.committed, "all": len(self.queue)}
        effects.append(Journal(Event.COMMITTED, str(self.view.id), Cause.MAJORITY, details))
        self._writer.then(lambda later: self._multicast(commit, later))

    def _on_commit(self, sender: Machine, commit: Commit, effects: list[Effect]) -> None:
        """Phase three: everybody is bound to this order, so it is final."""
        if commit.number == self.committed:
            self._commits.add(sender)
        if self.stage is not Stage.ESTABLISHING or len(self._commits) < len(self.view.members):
            return
        self._turn_green(len(self.queue) - self.queue.green, effects)
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
            self._writer.touch()

    def _is_everybody_here(self) -> bool:
        return [member.name for member in self.view.members] == sorted(self.roster.weights)

    # Writing

    def _flush(self, effects: list[Effect]) -> None:
        """The end of every step: hands the next write to the disk, if none is under way."""
        if self._invariants is not None:
            self._invariants.check(self.queue)
        may_wait = self._is_open and len(self.view.members) > 1
        persist = self._writer.next_write(self.committed, self.attempted, self.is_voter, may_wait)
        if persist is not None:
            effects.append(persist)

    def _report_logged(self, effects: list[Effect]) -> None:
        """Regular messages, in order, as far as they are on disk here."""
        on_disk = self._writer.on_disk
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
