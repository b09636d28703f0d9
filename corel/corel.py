"""The COREL algorithm (section 3) as one sans-IO machine: the handler of Fig. 2 and Order Rule 1.

What happens at a view change, the recovery procedure and the establishment of Fig. 3, is in `view_recovery`; what
is written when is in `log_writer`, and which member has logged what in `acknowledgements`.

Inputs are what membership reports of one group (`received`, `delivered`, `marked`, `view_changed`), the completion
of writes (`persisted`), and new messages (`submit`). In memory every step takes effect at once; no message reports
it before everything that was to be written by then is on disk (traps 1 and 6).

A message is logged when it is received, while its order is still being agreed on. In a primary component it is
yellow from then on, at its place by timestamp. Members report (`Mark`) up to where they have logged each member's
messages. A message is green when its place is known, which means that every member has been heard past it, and
when every member has logged it and everything before it. So all members' yellow zones begin with what any of them
made green, which is what recovery relies on (decision 12).

Where this differs from the paper:

- Acknowledgements are watermarks in the transport's statuses, bound to the view, not messages (trap 4).
- Messages are logged in the order of receipt rather than of delivery; see above.
- A message whose place is settled by the end of a view, without every member having been heard past it, never
  becomes green by Order Rule 1.
- Besides the attempts of all members, commitment needs equal digests of all members' queues.
- A node whose disk was empty counts towards no majority until it has recovered with voters that hold half of the
  roster's weight (trap 7).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from corel import codec
from corel.acknowledgements import Acknowledgements
from corel.config import CorelConfig
from corel.effects import CorelEffect, CorelEvent, Logged, Mark, Multicast, PrimaryConfirmed, Queued, Solicit
from corel.log_state import LogState
from corel.message_queue import MessageQueue
from corel.messages import (
    NOT_LOGGED,
    Color,
    Entry,
    GreenDigests,
    MessageId,
    Payload,
    PrimaryCheck,
    Priority,
    Reds,
    Regular,
)
from corel.outbox import Outbox
from corel.quorum import Roster
from corel.stages import Cause, Phase, Stage
from corel.storage import Image, LogReader, LogSize
from corel.view_recovery import ViewRecovery, refusal
from membership import Progress
from transport import Journal, Machine, Message, Milliseconds, Service, Timestamp, View

_BEFORE_ALL = Timestamp(0, "", 0)


class Corel:
    """The log of one node. `view` is the view that membership begins with."""

    def __init__(
        self, me: Machine, view: View, roster: Roster, config: CorelConfig, image: Image, reader: LogReader
    ) -> None:
        self.me = me
        self.view = view
        self.config = config
        self.roster = roster
        self._state = LogState(image, config)
        self._writer = self._state.writer
        self.queue: MessageQueue = self._state.queue
        self.counters: Counter[str] = self._state.counters
        self._reader = reader
        self._outbox = Outbox(me, config)
        self._ordered: deque[Entry] = deque()
        """Regular messages that were delivered in order and are not yet reported as logged."""
        self._taken: list[Entry] = []
        """Regular messages that were put into the queue in this step."""
        self._begin_view(view)

    # State

    @property
    def stage(self) -> Stage:
        return self._recovery.stage

    @property
    def phase(self) -> Phase:
        """What exactly the node waits for within its stage."""
        return self._recovery.phase

    @property
    def voters(self) -> tuple[str, ...]:
        """The members whose votes count in this view; none as long as that is not known."""
        plan = self._recovery.plan
        return () if plan is None else plan.voters

    @property
    def committed(self) -> int:
        """Last_Committed_Primary."""
        return self._state.committed

    @property
    def attempted(self) -> int:
        """Last_Attempted_Primary."""
        return self._state.attempted

    @property
    def generation(self) -> bytes:
        """The generation of the cluster that this node is bound to; empty if it is bound to none."""
        return self._state.generation if self._state.is_bound else b""

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def is_open(self) -> bool:
        """Whether regular messages are sent and handled."""
        return self._is_open

    @property
    def is_representative(self) -> bool:
        """Whether, when the view began, no member knew of a later primary component than this node. False until
        the states of all members are here."""
        return self._recovery.is_representative

    @property
    def unwritten_greens(self) -> list[Entry]:
        """The last green messages, whose places in the green order are not on disk yet."""
        return self._writer.unwritten_greens

    @property
    def will_mark(self) -> bool:
        """Whether messages are on their way to disk that a `Mark` will acknowledge to the other members."""
        return self._writer.will_reach

    @property
    def green_on_disk(self) -> int:
        """The green line on disk, with which a restart would begin."""
        return self._writer.green_on_disk

    @property
    def progress(self) -> Progress:
        """How far this node has got, as its heartbeats say. All of it is on disk, but for yellow messages."""
        lines = self._writer.lines_on_disk
        has_zone = lines.committed > 0 and not lines.is_learned
        known = max(lines.green, self.queue.yellow_line) if has_zone else lines.green
        decided = 2 * lines.established + 1 if lines.established else 0
        return Progress(2 * lines.committed + has_zone, decided, lines.green, known, self._state.floor)

    @property
    def is_learned(self) -> bool:
        """Whether this node knows of the last primary component only by its green messages (`learning`)."""
        return self._state.is_learned

    @property
    def cut(self) -> int:
        """The first position of the green order that is kept."""
        return self._state.cut

    @property
    def is_writing(self) -> bool:
        """Whether something is being written, or waits to be."""
        return self._writer.is_busy

    @property
    def waiting(self) -> int:
        """How many submitted messages have not left."""
        return len(self._outbox)

    def body_of(self, entry: Entry) -> bytes:
        """Returns the body of a message in the queue, from memory or from disk."""
        return entry.body if entry.body is not None else self._reader.body(entry.arrival)

    def read_green(self, first: int, count: int) -> list[Entry]:
        """Returns green messages by position, as far as they are on disk, with bodies."""
        return list(self._reader.green(first, count))

    def acknowledged(self, entry: Entry) -> tuple[Machine, ...]:
        """Returns the members known to have logged a message; none if it is not of this view."""
        return self._acknowledgements.of(entry)

    # Inputs

    def start(self) -> list[CorelEffect]:
        """Begins the recovery of the view that membership begins with."""
        return self.view_changed(self.view)

    def submit(self, body: bytes) -> MessageId:
        """Accepts a message and returns its id, or raises `TooLarge` or `TooMuch`. It leaves with `send` or, if a
        recovery is under way, when that of this view or of a later one is over."""
        return self._outbox.accept(body)

    def send(self) -> list[CorelEffect]:
        """Sends submitted messages, as far as they may leave."""
        effects: list[CorelEffect] = []
        self._send_submitted(effects)
        return effects

    def check_primary(self, number: int) -> list[CorelEffect]:
        """Asks all members of the primary component, by a message that they acknowledge, whether they are still in
        it. `PrimaryConfirmed` says that they were; there is no answer if the view ends first. Outside a primary
        component it asks nothing."""
        if self.stage is not Stage.PRIMARY:
            return []
        return [Multicast(codec.encode(PrimaryCheck(number)), self.view.id, Service.SAFE)]

    def view_changed(self, view: View) -> list[CorelEffect]:
        """Begins a new view (Fig. 2): regular messages wait until its recovery is over."""
        effects: list[CorelEffect] = []
        self._outbox.take_back()
        self._recovery.end(effects)
        self._begin_view(view)
        self._recovery.begin(effects)
        self._flush(effects)
        return effects

    def received(self, messages: Iterable[Message]) -> list[CorelEffect]:
        """Takes in causally deliverable messages. Regular ones are logged now, before their order is known, or
        once the recovery is over."""
        effects: list[CorelEffect] = []
        for message in messages:
            self._on_received(message, effects)
        self._report_queued(effects)
        if self._outbox:
            self._send_submitted(effects)
        self._flush(effects)
        return effects

    def delivered(self, messages: Iterable[Message], is_closing: bool) -> list[CorelEffect]:
        """Takes in messages in their final order within the view. `is_closing` says that the end of the view
        settled it."""
        effects: list[CorelEffect] = []
        for message in messages:
            item = self._received.pop((message.sender, message.sequence), None)
            if isinstance(item, Entry):
                self._ordered.append(item)
                if not is_closing:
                    self._ordered_through = item.timestamp
            elif isinstance(item, PrimaryCheck):
                if message.sender == self.me and not is_closing:
                    effects.append(PrimaryConfirmed(item.number))
            elif item is not None:
                self._recovery.on_payload(message, item, effects)
                if self._recovery.is_over and not self._is_open:
                    self._open_to_messages(effects)
        self._report_logged(effects)
        self._advance_green(effects)
        self._flush(effects)
        return effects

    def marked(self, machine: Machine, marks: Sequence[int]) -> list[CorelEffect]:
        """Takes in how far a member has logged each member's messages."""
        if not self._acknowledgements.heard(machine, marks):
            return []
        effects: list[CorelEffect] = []
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def persisted(self, token: int) -> list[CorelEffect]:
        """Records that the write of this token is on disk, as all writes before it are, and sends what waited for
        it."""
        completed = self._writer.completed(token, will_stay_open=self.stage is not Stage.PRIMARY)
        effects: list[CorelEffect] = []
        self._mark(completed.points, effects)
        for say in completed.then:
            say(effects)
        self._report_logged(effects)
        self._on_marks(effects)
        self._flush(effects)
        return effects

    def applied(self, line: int, size: LogSize) -> None:
        """Notes that the layer above has the result of everything before this line on disk and needs none of it,
        and how large the log is there. What is beyond the retention is cut off with the next write. In a recovery
        nothing is: this node has told the others from where on it can retransmit. What is applied then is cut off
        after a later call."""
        if self._recovery.is_over:
            self._state.truncate(line, size)

    def flush(self) -> list[CorelEffect]:
        """Writes what has become green without waiting for something else to write. Used before an orderly
        stop."""
        effects: list[CorelEffect] = []
        self._writer.flush_greens()
        self._flush(effects)
        return effects

    def tick(self, now: Milliseconds) -> list[CorelEffect]:
        """Asks for acknowledgements that may have been lost, and writes what has become green if there was nothing
        else to write in the meantime."""
        effects: list[CorelEffect] = []
        laggards = self._acknowledgements.tick(now, self._is_waiting())
        if laggards:
            effects.append(Solicit(laggards, self.view.id))
        self._writer.tick(now)
        self._flush(effects)
        return effects

    def next_deadline(self) -> Milliseconds:
        return min(self._acknowledgements.next_deadline(self._is_waiting()), self._writer.next_deadline())

    def _is_waiting(self) -> bool:
        """Whether this node cannot go on without other members' acknowledgements."""
        is_ordering = self.stage is Stage.PRIMARY and bool(self.queue.yellow)
        is_held_up = self._is_open and bool(self._outbox) and self._outbox.waits_for_disks
        return len(self.view.members) > 1 and (is_ordering or self._recovery.is_sending or is_held_up)

    # The view

    def _begin_view(self, view: View) -> None:
        self.view = view
        self._is_open = False
        self._acknowledgements = Acknowledgements(self.me, view, self.config.solicit_after_ms)
        self._writer.begin_view()
        self._received: dict[tuple[Machine, int], Entry | Payload] = {}
        """Messages that were received and are not delivered yet."""
        self._early: list[Entry] = []
        """Regular messages of members that have finished their recovery while this node has not. If the view ends
        first they are dropped: the members that logged them will retransmit them."""
        self._ordered = deque(entry for entry in self._ordered if entry.arrival != NOT_LOGGED)
        self._ordered_through = _BEFORE_ALL
        self._recovery = ViewRecovery(self.me, view, self.roster, self.config, self._state, self._reader)

    def _open_to_messages(self, effects: list[CorelEffect]) -> None:
        """Continues handling and sending regular messages (Fig. 2)."""
        self._is_open = True
        early, self._early = self._early, []
        for entry in early:
            self._take(entry, effects)
        self._report_queued(effects)
        self._send_submitted(effects)

    # Messages

    def _on_received(self, message: Message, effects: list[CorelEffect]) -> None:
        try:
            payload = codec.decode(message.payload)
        except codec.PayloadError as error:
            self.counters["refused"] += 1
            effects.append(refusal(message, Cause.UNDECODABLE, str(error)))
            return
        key = (message.sender, message.sequence)
        if not isinstance(payload, Regular):
            self._received[key] = payload
            if message.sender == self.me and isinstance(payload, (GreenDigests, Priority, Reds)):
                self._recovery.has_left(message.sequence)
            return
        if message.sender == self.me:
            self._outbox.has_left(message.sequence)
        entry = Entry(MessageId(message.sender, payload.sequence), message.clock, message.view, payload.body)
        entry.carrier = message.sequence
        self._received[key] = entry
        if self._is_open:
            self._take(entry, effects)
        else:
            self._early.append(entry)

    def _take(self, entry: Entry, effects: list[CorelEffect]) -> None:
        """Puts a regular message into the queue, yellow in a primary component and red elsewhere, and logs it."""
        stream, sequence = entry.id
        if sequence != self.queue.last_of(stream) + 1:
            effects.append(Journal(CorelEvent.REFUSED, str(entry.id), Cause.OUT_OF_PLACE))
            self.counters["refused"] += 1
            return
        if self.stage is Stage.PRIMARY:
            entry.primary = self.committed
            self.queue.add_yellow(entry)
        else:
            self.queue.add_red(entry)
        self._writer.log(entry)
        self._writer.reach(stream, entry.carrier)
        self._taken.append(entry)

    def _report_queued(self, effects: list[CorelEffect]) -> None:
        if self._taken:
            color = Color.YELLOW if self.stage is Stage.PRIMARY else Color.RED
            effects.append(Queued(tuple(self._taken), color, self.view.id, len(self.queue)))
            self._taken.clear()

    def _send_submitted(self, effects: list[CorelEffect]) -> None:
        if self._is_open:
            view = self.view.id
            effects += [Multicast(codec.encode(regular), view) for regular in self._outbox.take()]

    # Order Rule 1

    def _on_marks(self, effects: list[CorelEffect]) -> None:
        self._acknowledgements.progressed()
        logged_by_all = self._acknowledgements.by_all(self.me)
        self._outbox.logged_by_all(logged_by_all)
        if self._outbox:
            self._send_submitted(effects)
        self._recovery.logged_by_all(logged_by_all, effects)
        self._advance_green(effects)

    def _advance_green(self, effects: list[CorelEffect]) -> None:
        """Makes green the messages whose places are known and which every member has logged."""
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
        self._state.turn_green(count, effects)

    # Writing

    def _flush(self, effects: list[CorelEffect]) -> None:
        """Ends a step: hands the next write to the disk, if it is due, and acknowledges what needs none."""
        if points := self._writer.take_reached():
            self._mark(points, effects)
            self._on_marks(effects)
        self._state.flush(self._is_open and len(self.view.members) > 1, effects)

    def _mark(self, points: Mapping[Machine, int], effects: list[CorelEffect]) -> None:
        """Reports to the other members that everything up to these points is on disk here."""
        if points:
            effects.append(Mark(self._acknowledgements.logged_here(points), self.view.id))

    def _report_logged(self, effects: list[CorelEffect]) -> None:
        """Reports regular messages, in order, as far as they are on disk here."""
        on_disk = self._writer.on_disk
        reported: list[Entry] = []
        while self._ordered and self._ordered[0].arrival < on_disk:
            entry = self._ordered[0]
            if entry.arrival == NOT_LOGGED and not self._is_open:
                break  # it is in `_early`
            self._ordered.popleft()
            if entry.arrival != NOT_LOGGED:
                reported.append(entry)
        if reported:
            effects.append(Logged(tuple(reported)))
