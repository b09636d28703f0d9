"""The recovery of one view (section 3.5.2) and the establishment of a primary component in it (Fig. 3).

A `ViewRecovery` begins with a view and ends in a primary component, or without one; when the view changes first,
the next view's recovery takes its place. It decides when each step begins: the arithmetic of steps 3, 4 and 7 is
in `recovery_plan`, the retransmissions of steps 5 and 7 are in `recovery_transfer`.

No message reports a step before everything that was to be written by then is on disk (traps 1 and 6)."""

from __future__ import annotations

from collections.abc import Callable

from corel import codec
from corel.config import CorelConfig
from corel.effects import CorelEffect, CorelEvent, Multicast, Queued, Reordered, StageChanged, Yellowed
from corel.log_state import LogState
from corel.messages import Attempt, Color, Commit, GreenDigests, Payload, Priority, Reds, State, is_folded
from corel.participation import DOUBTS, remembering_attempt, remembering_commitment, unmergeable
from corel.quorum import Roster
from corel.recovery_plan import Contradiction, Plan, ReplacedDisk, make_plan
from corel.recovery_transfer import RecoveryTransfer
from corel.stages import TRANSITIONS, Cause, Phase, Stage
from corel.storage import LogReader
from transport import BrokenInvariant, Journal, Machine, Message, View


class ViewRecovery:
    """One view's recovery, as seen by the member `me`."""

    def __init__(
        self, me: Machine, view: View, roster: Roster, config: CorelConfig, state: LogState, reader: LogReader
    ) -> None:
        self.stage = Stage.RECOVERING
        self.phase = Phase.STATES
        self.is_over = False
        """Whether regular messages may be sent and handled from now on (Fig. 2)."""
        self.plan: Plan | None = None
        """What follows from the states of all members; None until they are all here."""
        self._me = me
        self._view = view
        self._roster = roster
        self._config = config
        self._state = state
        self._queue = state.queue
        self._writer = state.writer
        self._reader = reader
        self._states: dict[Machine, State] = {}
        self._transfer: RecoveryTransfer | None = None
        self._attempts: dict[Machine, Attempt] = {}
        self._commits: set[Machine] = set()

    # What the handler of Fig. 2 uses

    @property
    def is_representative(self) -> bool:
        """Whether, when the view began, no member knew of a later primary component than this node. False until
        the states of all members are here."""
        return self.plan is not None and self._me in self.plan.representatives

    @property
    def is_sending(self) -> bool:
        """Whether something this node retransmitted is not logged by every member."""
        return self._transfer is not None and self._transfer.is_sending

    def begin(self, effects: list[CorelEffect]) -> None:
        """Unsets the primary component bit (Fig. 2), and sends this node's state once everything that it reports
        is on disk (trap 6)."""
        self._report_stage(Cause.VIEW_CHANGED, effects)
        self._writer.touch()  # so that a write completes, and with it all before it
        self._writer.then(self._send_state)

    def end(self, effects: list[CorelEffect]) -> None:
        """Ends with the view, which is over."""
        if self.stage is Stage.ESTABLISHING:
            self._abort(Cause.VIEW_CHANGED, effects)

    def on_payload(self, message: Message, payload: Payload, effects: list[CorelEffect]) -> None:
        """Takes in a member's next payload of the recovery, in the order of the view."""
        sender = message.sender
        if self.phase is Phase.CONTRADICTION:
            return  # what members send until the contradicting one has left leads nowhere
        if isinstance(payload, State):
            self._on_state(sender, payload, effects)
        elif isinstance(payload, GreenDigests):
            self._on_green_digests(message, payload, effects)
        elif isinstance(payload, Priority):
            self._on_priority(message, payload, effects)
        elif isinstance(payload, Reds):
            self._on_reds(message, payload, effects)
        elif isinstance(payload, Attempt):
            self._on_attempt(sender, payload, effects)
        elif isinstance(payload, Commit):
            self._on_commit(sender, payload, effects)

    def has_left(self, sequence: int) -> None:
        """Notes that our next batch has left, as the transport's message of this sequence."""
        self._the_transfer().has_left(sequence)

    def logged_by_all(self, sequence: int, effects: list[CorelEffect]) -> None:
        """Notes that every member has logged what we sent up to this sequence: more may be retransmitted."""
        if self._transfer is not None and self.phase is not Phase.CONTRADICTION:
            self._transfer.logged_by_all(sequence)
            self._send_batches(effects)

    # The stage

    def _enter(self, stage: Stage, phase: Phase, cause: Cause, effects: list[CorelEffect]) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise BrokenInvariant(f"{self._me} cannot go from {self.stage} to {stage}")
        self.stage = stage
        self.phase = phase
        self._report_stage(cause, effects)

    def _report_stage(self, cause: Cause, effects: list[CorelEffect]) -> None:
        queue, state = self._queue, self._state
        lines = (queue.green, queue.yellow_line, len(queue), state.committed, state.attempted)
        effects.append(StageChanged(self.stage, cause, self._view.id, *lines))

    def _end_without_primary(self, cause: Cause, effects: list[CorelEffect]) -> None:
        """Ends the recovery. Messages are exchanged in this view, and stay red."""
        self._enter(Stage.NON_PRIMARY, Phase.NON_PRIMARY, cause, effects)
        self.is_over = True

    # Steps 1 to 4: states

    def _send_state(self, effects: list[CorelEffect]) -> None:
        """Sends this node's state (step 1)."""
        queue = self._queue
        state = State(
            self._state.committed,
            self._state.attempted,
            queue.green,
            queue.green_digest,
            queue.base,
            queue.base_digest,
            tuple([entry.id for entry in queue.tail()]),
            queue.have(),
            self._state.is_voter,
            self._roster.digest(),
            self._state.generation,
            self._state.attempted_view,
            self._state.disk,
            self._state.participants,
            self._state.cut,
            self._state.is_learned,
            self._state.established,
            self._state.established_base,
            self._state.voter_since,
            tuple(sorted(queue.folded.items())),
        )
        self._multicast(state, effects)

    def _on_state(self, sender: Machine, state: State, effects: list[CorelEffect]) -> None:
        """Takes in a member's state. When all states are here, makes the plan and begins the retransmissions
        (steps 2 to 4)."""
        self._states[sender] = state
        if len(self._states) < len(self._view.members):
            return
        try:
            plan = self.plan = make_plan(self._states, self._roster)
        except Contradiction as contradiction:
            self._on_contradiction(contradiction, effects)
            return
        self.phase = Phase.PRIORITY_MESSAGES
        details: dict[str, object] = {
            "committed": plan.committed,
            "representative": str(plan.representative),
            "green": plan.green,
            "yellow": plan.yellow,
            "priority_from": plan.priority_from,
        }
        effects.append(Journal(CorelEvent.STATES_EXCHANGED, str(self._view.id), Cause.STATES, details))
        for member, doubt in plan.doubts.items():
            doubted: dict[str, object] = {"machine": str(member), "detail": DOUBTS[doubt]}
            effects.append(Journal(CorelEvent.VOTE_DOUBTED, str(self._view.id), Cause.STATES, doubted))
        if plan.is_generation_final and not self._state.is_bound:
            self._state.bind(plan.generation)
            self._report_stage(Cause.STATES, effects)
        self._fold_streams()
        self._transfer = RecoveryTransfer(
            self._me,
            plan,
            self._states,
            self._queue,
            self._writer,
            self._reader,
            self._config,
            self._state.counters,
        )
        if self._transfer.is_priority_done:
            self._adopt(effects)
            return
        self._transfer.begin_priority()
        self._send_batches(effects)

    def _on_contradiction(self, contradiction: Contradiction, effects: list[CorelEffect]) -> None:
        """Handles states that contradict each other. All members know the same, so a node that is not believed
        stops, with its data intact, and the others go on in the next view. In this one nothing is taken over."""
        unbelieved = contradiction.unbelieved(self._roster)
        if self._me in unbelieved:
            raise contradiction
        details: dict[str, object] = {"detail": str(contradiction), "machines": [str(one) for one in unbelieved]}
        effects.append(Journal(CorelEvent.CONTRADICTED, str(self._view.id), Cause.CONTRADICTION, details))
        self._enter(Stage.NON_PRIMARY, Phase.CONTRADICTION, Cause.CONTRADICTION, effects)

    # Steps 5 to 7: messages

    def _send_batches(self, effects: list[CorelEffect]) -> None:
        for payload in self._the_transfer().next_payloads():
            self._multicast(payload, effects)
            if isinstance(payload, (Priority, Reds)):
                self._journal_copies(payload, effects)

    def _journal_copies(self, payload: Priority | Reds, effects: list[CorelEffect]) -> None:
        ids = [copy.id for copy in payload.copies if copy.body is not None]
        if ids:
            details: dict[str, object] = {
                "kind": "priority" if isinstance(payload, Priority) else "red",
                "ids": ids,
            }
            effects.append(Journal(CorelEvent.COPIES_SENT, str(self._view.id), Cause.STATES, details))

    def _report_recovered(self, effects: list[CorelEffect]) -> None:
        accepted = self._the_transfer().take_accepted()
        if accepted:
            effects.append(Queued(tuple(accepted), Color.RED, self._view.id, len(self._queue), is_recovered=True))

    def _on_green_digests(self, message: Message, digests: GreenDigests, effects: list[CorelEffect]) -> None:
        """Step 5, before anything is taken from the representative, or from those it would lead."""
        transfer = self._transfer
        if transfer is None:
            self._refuse(message, effects)
            return
        try:
            transfer.on_green_digests(message, digests, self._refusal(message, effects))
        except Contradiction as contradiction:
            self._on_contradiction(contradiction, effects)
            return
        if transfer.is_priority_done:
            self._adopt(effects)

    def _on_priority(self, message: Message, priority: Priority, effects: list[CorelEffect]) -> None:
        """Takes in a batch of priority messages (step 5)."""
        transfer = self._transfer
        if transfer is None or transfer.is_priority_done:
            self._refuse(message, effects)
            return
        transfer.on_priority(message, priority, self._refusal(message, effects))
        self._report_recovered(effects)
        if transfer.is_priority_done:
            self._adopt(effects)

    def _adopt(self, effects: list[CorelEffect]) -> None:
        """Takes over the lines of the representatives, and their order, in one atomic write (steps 3 and 6)."""
        plan, queue = self._the_plan(), self._queue
        if self.is_representative:
            demoted = queue.retreat(plan.yellow)
            is_changed = bool(demoted)
        else:
            demoted = queue.adopt(self._the_transfer().order, plan.yellow, plan.base, plan.base_digest)
            is_changed = True
        self._state.turn_green(plan.green - queue.green, effects)
        if demoted:
            self._state.counters["demoted"] += len(demoted)
            details: dict[str, object] = {"ids": [entry.id for entry in demoted], "count": len(demoted)}
            effects.append(Journal(CorelEvent.DEMOTED, str(self._view.id), Cause.STATES, details))
        if is_changed:
            self._state.committed, self._state.is_learned = plan.committed, plan.is_learned
            self._decide_yellow(effects)
            effects.append(Reordered())
        self._state.note_established(*plan.established)
        self._check_mergeable()
        self._share_reds(effects)

    def _check_mergeable(self) -> None:
        """Raises `ReplacedDisk` if this node has red messages in streams that others have folded away. Everything
        in those that any other node has is green here by now, so these were only on a disk that was replaced."""
        folded = [dict(state.folded) for state in self._states.values()]
        lost = [
            entry.id for entry in self._queue.red if any(is_folded(entry.id.stream, known) for known in folded)
        ]
        if lost:
            raise ReplacedDisk(unmergeable(lost))

    def _share_reds(self, effects: list[CorelEffect]) -> None:
        """Begins the retransmission of red messages, if any member lacks some (step 7)."""
        count = self._the_transfer().begin_merge()
        if count is None:
            self._recovered(effects)
            return
        self.phase = Phase.RED_MESSAGES
        if count:
            details: dict[str, object] = {"count": count}
            effects.append(Journal(CorelEvent.RETRANSMITTING, str(self._view.id), Cause.STATES, details))
            self._send_batches(effects)

    def _on_reds(self, message: Message, reds: Reds, effects: list[CorelEffect]) -> None:
        """Takes in a batch of red messages (step 7)."""
        if self._transfer is None or not self._transfer.is_merging:
            self._refuse(message, effects)
            return
        is_merged = self._transfer.on_reds(message, reds, self._refusal(message, effects))
        self._report_recovered(effects)
        if is_merged:
            effects.append(Journal(CorelEvent.MERGED, str(self._view.id), Cause.RECOVERED))
            effects.append(Reordered())
            self._recovered(effects)

    def _recovered(self, effects: list[CorelEffect]) -> None:
        """Begins the establishment if the members are a majority. They all have the same messages in the same
        order and, in memory, the same colours."""
        plan = self._the_plan()
        if self._roster.is_majority(plan.voters) and not plan.is_learned:
            self._establish(effects)
        else:
            self._end_without_primary(Cause.NO_MAJORITY, effects)

    # Establishing a primary component (Fig. 3)

    def _establish(self, effects: list[CorelEffect]) -> None:
        """Phase one: the attempt is sent once it is on disk."""
        state = self._state
        state.attempted = self._the_plan().attempted + 1
        state.participants = remembering_attempt(self._the_plan().memory, self._the_plan().votes)
        if not state.is_bound:
            state.attempted_view, state.generation = self._view.id, self._the_plan().generation
        self._writer.touch()
        self._enter(Stage.ESTABLISHING, Phase.ATTEMPTS, Cause.MAJORITY, effects)
        attempt = Attempt(state.attempted, self._queue.digest())
        details: dict[str, object] = {"number": state.attempted}
        effects.append(Journal(CorelEvent.ATTEMPTED, str(self._view.id), Cause.MAJORITY, details))
        self._writer.then(lambda later: self._multicast(attempt, later))

    def _on_attempt(self, sender: Machine, attempt: Attempt, effects: list[CorelEffect]) -> None:
        """Phase two: when all members attempt, commits in one atomic write with the yellow marking. The commit
        message is sent once that is on disk."""
        self._attempts[sender] = attempt
        if self.stage is not Stage.ESTABLISHING or len(self._attempts) < len(self._view.members):
            return
        state = self._state
        if len(set(self._attempts.values())) > 1:
            state.counters["orders_differ"] += 1
            self._abort(Cause.ORDERS_DIFFER, effects)
            self._end_without_primary(Cause.ORDERS_DIFFER, effects)
            return
        was_bound = state.is_bound
        state.committed, state.is_learned = state.attempted, False
        state.participants = remembering_commitment(state.participants, self._the_plan().votes, state.committed)
        if self._me in self._the_plan().restored:  # all members remember by now which disk has the vote
            state.is_voter, state.voter_since = True, self._me.incarnation
            effects.append(Journal(CorelEvent.VOTER, str(self._view.id), Cause.RECOVERED))
        self.phase = Phase.COMMITS
        self._queue.turn_yellow()
        self._decide_yellow(effects)
        effects.append(Reordered())
        commit = Commit(state.committed)
        details: dict[str, object] = {"number": state.committed, "length": len(self._queue)}
        effects.append(Journal(CorelEvent.COMMITTED, str(self._view.id), Cause.MAJORITY, details))
        if not was_bound:
            self._report_stage(Cause.MAJORITY, effects)  # from now on datagrams carry the generation
        self._writer.then(lambda later: self._multicast(commit, later))

    def _on_commit(self, sender: Machine, commit: Commit, effects: list[CorelEffect]) -> None:
        """Phase three: when all members have committed, they are all bound to this order, so it is final."""
        if commit.number == self._state.committed:
            self._commits.add(sender)
        if self.stage is not Stage.ESTABLISHING or len(self._commits) < len(self._view.members):
            return
        self._state.turn_green(len(self._queue) - self._queue.green, effects)
        self._state.note_established(self._state.committed, self._queue.base)
        self._enter(Stage.PRIMARY, Phase.PRIMARY, Cause.COMMITTED_BY_ALL, effects)
        details: dict[str, object] = {"number": commit.number, "members": list(map(str, self._view.members))}
        effects.append(Journal(CorelEvent.ESTABLISHED, str(self._view.id), Cause.COMMITTED_BY_ALL, details))
        if self._is_whole_roster():
            gone = {member.name: member.incarnation - 1 for member in self._view.members}
            self._state.foldable = (self._queue.green, gone)
        self.is_over = True

    def _abort(self, cause: Cause, effects: list[CorelEffect]) -> None:
        details: dict[str, object] = {"number": self._state.attempted}
        effects.append(Journal(CorelEvent.ABORTED, str(self._view.id), cause, details))

    def _decide_yellow(self, effects: list[CorelEffect]) -> None:
        """Has the yellow zone written as it is now."""
        self._writer.decide_yellow()
        effects.append(Yellowed(self._queue.green, tuple(self._queue.yellow), self._view.id))

    # Streams of old incarnations

    def _fold_streams(self) -> None:
        """Folds away streams of incarnations that are gone, once all their messages are green on every disk."""
        if self._state.foldable is None or not self._is_whole_roster():
            return
        line, incarnations = self._state.foldable
        states = self._states.values()
        is_open = any(is_folded(stream, incarnations) for state in states for stream, _ in state.have)
        if not is_open and all(state.green >= line for state in states):
            self._queue.fold(incarnations)
            self._state.foldable = None
            self._writer.touch()

    def _is_whole_roster(self) -> bool:
        return [member.name for member in self._view.members] == sorted(self._roster.weights)

    # Shared by all steps

    def _the_plan(self) -> Plan:
        if self.plan is None:
            raise BrokenInvariant("there is no plan before all states are known")
        return self.plan

    def _the_transfer(self) -> RecoveryTransfer:
        if self._transfer is None:
            raise BrokenInvariant("nothing is retransmitted before all states are known")
        return self._transfer

    def _refusal(self, message: Message, effects: list[CorelEffect]) -> Callable[[str], None]:
        return lambda why: self._refuse(message, effects, why)

    def _refuse(self, message: Message, effects: list[CorelEffect], why: str = "") -> None:
        """Refuses a message: a peer's error, which all members of the view see and treat alike."""
        self._state.counters["refused"] += 1
        effects.append(refusal(message, Cause.OUT_OF_PLACE, why))

    def _multicast(self, payload: Payload, effects: list[CorelEffect]) -> None:
        effects.append(Multicast(codec.encode(payload), self._view.id))


def refusal(message: Message, cause: Cause, why: str) -> Journal:
    """Returns the journal's record of a message that a peer should not have sent."""
    details: dict[str, object] = {"machine": str(message.sender), "detail": why}
    return Journal(CorelEvent.REFUSED, message.id, cause, details)
