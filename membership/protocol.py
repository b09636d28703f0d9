"""The Transis membership protocol: faults (Fig. 3) and joins (Figs. 5 to 8), without timers and without a network.

Inputs are control messages that have arrived, communication breaks, and the end of the α interval; outputs are
control messages to broadcast and views to install. `group` adds time, loss and the messages of the view.

The names are the paper's: `current` is CCS, `join_machines` J, `faults_before` and `faults_after` F_before and
F_after, `last_join` and `last_faults` J_LAST and F_LAST, `accept` the Accept set, `electors` the messages that
make a view. In the faults protocol, where there is no join, `faults_before` is F.

Where this differs from the figures, and why:

- Fig. 7 broadcasts a FA for every FA received; we do, as in Fig. 3, only when our set has grown. Otherwise two
  machines would answer each other for ever.
- Fig. 6 enters Stage 1 when an AJ of the CCS arrives; we enter it for a JOIN of the CCS too, as Lemma 5.6 needs.
- A foreign JOIN that includes us is an invitation as an AJ is. Its sender may have committed before we were ready.
- When α expires and no machine has answered, Stage 1 ends without a JOIN, which would be for the CCS itself.
- Every view is J without all faults. The paper delivers J \\ F_before as a view of its own and then removes
  F_after, and removes F_before ∩ CCS before the join completes. These views are not needed: a machine sends no
  messages from its FA or JOIN until its view, so nothing would be delivered in them. Hence one machine may install
  V-f and then V-f-g while another goes from V to V-f-g. The views that electors name tell a member which others
  came the same way as it did (the transitional set).
- A FA does not carry a join configuration: the last JOIN of its sender says to which it belongs, for messages of
  one machine come in order. Carried, it would have to be right also after that configuration has become a view (a
  machine that missed an elector still needs it), and could then be taken for a later join of the same machines.
- A control message of a suspected machine that had to be let in, because others follow it, is not acted upon; Fig.
  7 says so, Fig. 3 does not. A machine that followed it has acted upon it, and its own messages say so.
- If a name is in J twice, that machine has restarted: the older incarnation is faulty.
- A FA or JOIN that declares us faulty breaks communication with its sender. It enters the graph only if a machine
  follows it that has not acted upon it, and so does not declare us faulty.
- JOINs carry cut-vectors as AJs do: who learns of a set from a JOIN, at once or later, must be able to follow it.
- An AJ, or a foreign JOIN in Stage 1, of machines that not every member hears is ignored (decision 10), and so is
  an invitation of a machine that declared us faulty in the same view.
- A foreign JOIN is neither an invitation nor followed in Stage 1 if a machine that it names, faults excepted, is
  known to have left the view it is named by: that machine cannot agree to it any more, and whoever committed to it
  would wait in vain. Such JOINs are still repeated long after cuts, by machines that wait (`can_succeed`).
- A break in Stage 1 leads to Stage 2, as in Fig. 6, only if a machine joins; else to the faults protocol. A break
  with a machine that was about to join leads to neither.
- In Stage 2, messages of a machine outside J are kept until J includes it, and acted upon then, as it will not
  send them again.
- We break with a machine that does not agree in time (this makes the paper's admissible histories).
- If J grows beyond what a view can hold, the last of the machines outside the CCS are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from membership.accusers import Accusers
from membership.control_dag import ControlDag
from membership.messages import (
    AttemptJoin,
    Body,
    Configuration,
    Control,
    Fault,
    Join,
    JoiningSet,
    in_order,
    joining_sets,
)
from membership.stages import TRANSITIONS, Cause, DataPlane, Emitted, Entered, Installed, Output, Stage, Suspected
from transport import Acks, BrokenInvariant, Machine, View, ViewId

MachineSet: TypeAlias = frozenset[Machine]

_NO_MACHINES: MachineSet = frozenset()


class MembershipProtocol:
    """One machine's part of the protocol. `may_join` says whether our members and the given machines all hear each
    other, as far as is known; `is_room_for` whether one view can hold the given machines; `can_succeed` whether
    the machines that a JOIN names are, as far as is known, still in the views that it names them by."""

    def __init__(
        self,
        me: Machine,
        view: View,
        data: DataPlane,
        may_join: Callable[[MachineSet], bool],
        is_room_for: Callable[[MachineSet], bool] = lambda machines: True,
        log_max: int = 64,
        can_succeed: Callable[[Join], bool] = lambda join: True,
    ) -> None:
        self.me = me
        self.view = view
        self.current: MachineSet = frozenset(view.members)
        self.dag = ControlDag(me, log_max)
        for member in view.members:
            self.dag.track(member, 0)
        self.stage = Stage.IDLE
        self.join_machines: MachineSet = _NO_MACHINES
        self.faults_before: MachineSet = _NO_MACHINES
        self.faults_after: MachineSet = _NO_MACHINES
        self.last_join: dict[Machine, Configuration] = {}
        self.last_faults: dict[Machine, MachineSet] = {}
        self.sets: dict[ViewId, JoiningSet] = {}
        """The joining sets that make up J, as they were first announced."""
        self.electors: dict[Machine, Control] = {}
        """The last FA or JOIN of each machine in this change."""
        self.covered: dict[Machine, int] = {}
        """Up to which sequence control messages in the graph cover each member's messages of our view."""
        self._data = data
        self._may_join = may_join
        self._is_room_for = is_room_for
        self._can_succeed = can_succeed
        self._deferred: dict[Machine, list[Control]] = {}
        """Messages in the graph that will be acted upon when J comes to include their senders."""
        self._accusers = Accusers(me)
        self._out: list[Output] = []

    # Inputs

    def offer(self, control: Control) -> list[Output]:
        """Takes a control message that has arrived, perhaps again, perhaps before those it follows."""
        sender = control.sender
        self._accusers.note(control)
        if sender not in self.dag.streams and self._is_invitation(control):
            self._track(control.body)
            if self.stage is Stage.IDLE:
                self._attempt(Cause.INVITED)
        if sender in self.dag.streams and sender != self.me and self.dag.is_new(control):
            self.dag.store(control)
            if self._excludes_me(control):
                self._break_with(frozenset((sender,)), Cause.ACCUSED_ME)
            elif isinstance(control.body, Join) and sender not in self.suspects:
                self._track(control.body)
        return self.advance()

    def break_with(self, machines: Iterable[Machine], cause: Cause) -> list[Output]:
        """Declares these machines faulty: communication with them is broken."""
        self._break_with(frozenset(machines), cause)
        return self.advance()

    def attempt(self) -> list[Output]:
        """Stage 0: attempts to join foreign machines, which every member hears."""
        if self.stage is Stage.IDLE:
            self._attempt(Cause.FOREIGN_HEARD)
        return self.advance()

    def alpha_expired(self) -> list[Output]:
        if self.stage is Stage.GATHERING:
            if self._has_joiners():
                self._commit(Cause.ALPHA_EXPIRED)
            elif self.faults_before & self.current:
                self._enter_faults(Cause.ALPHA_EXPIRED)
            else:
                self._enter_idle(Cause.NOBODY_ANSWERED)
        return self.advance()

    def advance(self) -> list[Output]:
        """Takes in the messages that may enter the graph by now, and returns what the caller is to do. It stops at
        a view: the caller installs that and calls it again."""
        while True:
            control = self._take_deferred()
            if control is None:
                if self._assent_if_agreed():
                    break
                control = self.dag.take_next(self.suspects, self._has_what_it_covers)
            if control is None:
                break
            self._on_control(control)
        out, self._out = self._out, []
        return out

    # State

    @property
    def suspects(self) -> MachineSet:
        return self.faults_before | self.faults_after

    @property
    def accept(self) -> MachineSet:
        """The machines whose agreement the change needs: the members of the view it will make."""
        return (self.join_machines or self.current) - self.suspects

    def is_ending_view(self) -> bool:
        """Whether this machine has sent a FA or JOIN, and so must send no more messages of the view."""
        return self.me in self.electors

    def awaited(self) -> MachineSet:
        """The machines of `accept` that have not agreed yet."""
        if self.stage is Stage.FAULTS:
            return frozenset(q for q in self.accept if self._faults_of(q) & self.current != self.faults_before)
        if self.stage is Stage.COMMITTED:
            configuration = self._configuration()
            return frozenset(
                q
                for q in self.accept
                if self.last_join.get(q) != configuration or not self._faults_of(q) >= self.faults_after
            )
        return _NO_MACHINES

    def covers_to_require(self) -> Iterable[Acks]:
        """The covers of pending control messages of our view that may enter the graph."""
        for control in self.dag.pending():
            if control.view == self.view.id and self.dag.is_wanted(control, self.suspects):
                yield control.cover

    # Control messages, in causal order

    def _on_control(self, control: Control) -> None:
        self._note(control)
        if control.sender in self.suspects:
            return
        is_outside = control.sender not in self.join_machines | self.current
        denies_me = self._excludes_me(control)
        is_offer = self.stage is Stage.GATHERING and not isinstance(control.body, Fault) and not denies_me
        if is_outside and not is_offer:
            self._defer(control)
        elif denies_me:
            self._break_with(frozenset((control.sender,)), Cause.ACCUSED_ME)
        elif isinstance(control.body, AttemptJoin):
            self._on_attempt(control, control.body)
        elif isinstance(control.body, Join):
            self._on_join(control, control.body)
        else:
            self._on_fault(control, control.body)

    def _take_deferred(self) -> Control | None:
        """In Stage 2, returns a deferred message whose sender was not in J, or not to be followed, and now is."""
        if self.stage is Stage.COMMITTED:
            for sender, controls in self._deferred.items():
                if controls and sender in self.accept:
                    return controls.pop(0)
        return None

    def _defer(self, control: Control) -> None:
        self._deferred.setdefault(control.sender, []).append(control)

    def _on_attempt(self, control: Control, attempt: AttemptJoin) -> None:
        if self.stage in (Stage.IDLE, Stage.FAULTS) and control.sender in self.current:
            self._enter_gathering(Cause.ATTEMPT_RECEIVED, control)
        if self.stage is Stage.GATHERING:
            newcomers = attempt.joining.machines - self.join_machines
            if not newcomers or self._may_join(newcomers):
                self._add_set(attempt.joining)

    def _on_join(self, control: Control, join: Join) -> None:
        if self.stage in (Stage.IDLE, Stage.FAULTS) and control.sender in self.current:
            self._enter_gathering(Cause.JOIN_RECEIVED, control)
        if self.stage is Stage.GATHERING and not self._should_follow(control.sender, join):
            self._defer(control)
        elif self.stage is Stage.GATHERING:
            self._deferred.pop(control.sender, None)  # an earlier JOIN of the sender
            self._incorporate_join(control.sender, join)
        else:
            views, faults = _configuration_of(join)
            is_known = views <= self.sets.keys() and faults <= self.faults_before
            self._incorporate_join(control.sender, join)
            if not is_known:
                self._broadcast_join()

    def _on_fault(self, control: Control, fault: Fault) -> None:
        sender, faults = control.sender, frozenset(fault.faults)
        self.last_faults[sender] = self._faults_of(sender) | faults
        if self.stage in (Stage.IDLE, Stage.FAULTS):
            if faults & self.current - self.faults_before:
                self._add_faults_before(faults & self.current, Cause.FAULT_RECEIVED)
                self._enter_faults(Cause.FAULT_RECEIVED)
        elif self.stage is Stage.GATHERING:
            self._add_faults_before(faults, Cause.FAULT_RECEIVED)
        elif self.last_join.get(sender) == self._configuration():
            if faults - self.suspects:
                self._add_faults_after(faults - self.suspects, Cause.FAULT_RECEIVED)
                self._broadcast_fault()
        elif faults - self.faults_before:
            self._add_faults_before(faults, Cause.FAULT_RECEIVED)
            self._broadcast_join()

    # Breaks

    def _break_with(self, machines: MachineSet, cause: Cause) -> None:
        broken = (machines & (self.join_machines | self.current)) - self.suspects - {self.me}
        if not broken:
            return
        if self.stage is Stage.COMMITTED:
            self._add_faults_after(broken, cause)
            self._broadcast_fault()
            return
        self._add_faults_before(broken, cause)
        if not self.faults_before & self.current:
            return  # only machines that were about to join, and we have committed to nothing
        if self.stage is Stage.GATHERING and self._has_joiners():
            self._commit(cause)
        else:
            self._enter_faults(cause)

    # Stages

    def _enter_idle(self, cause: Cause) -> None:
        self.join_machines = self.faults_before = self.faults_after = _NO_MACHINES
        self.last_join.clear()
        self.last_faults.clear()
        self.sets.clear()
        self.electors.clear()
        self._deferred.clear()
        self.dag.keep_only(self.current)
        self._track_pending_joins()
        self._enter(Stage.IDLE, cause)

    def _enter_faults(self, cause: Cause) -> None:
        """Enters the faults protocol, or stays in it with more faults than before."""
        self.join_machines = _NO_MACHINES
        self.faults_before &= self.current
        self.sets.clear()
        self._deferred.clear()
        self.dag.keep_only(self.current)
        if self.stage is not Stage.FAULTS:
            self._enter(Stage.FAULTS, cause)
        if not self.faults_before <= self._faults_of(self.me):
            self._broadcast_fault()
        self._track_pending_joins()

    def _attempt(self, cause: Cause) -> None:
        joining = JoiningSet(self.view.id, self._cut_vector())
        self._enter_gathering(cause)
        self._emit(AttemptJoin(joining))

    def _enter_gathering(self, cause: Cause, trigger: Control | None = None) -> None:
        """Enters Stage 1. The cut-vector of our set must not hide `trigger`, which made us enter (Lemma 5.6)."""
        self.join_machines = self.current
        cut_vector = self._cut_vector()
        if trigger is not None:
            before = trigger.sequence - 1
            cut_vector = tuple((m, before if m == trigger.sender else cut) for m, cut in cut_vector)
        self._add_set(JoiningSet(self.view.id, cut_vector))
        self._enter(Stage.GATHERING, cause)

    def _commit(self, cause: Cause) -> None:
        self._enter(Stage.COMMITTED, cause)
        self._broadcast_join()

    def _enter(self, stage: Stage, cause: Cause) -> None:
        if stage not in TRANSITIONS[self.stage]:
            raise BrokenInvariant(f"{self.me} cannot go from {self.stage} to {stage}")
        self.stage = stage
        self._out.append(Entered(stage, cause, in_order(self.accept)))

    # The macros of Fig. 5

    def _broadcast_join(self) -> None:
        self.faults_before |= self.faults_after
        self.faults_after = _NO_MACHINES
        self._emit(Join(tuple(self.sets[view] for view in sorted(self.sets)), in_order(self.faults_before)))

    def _broadcast_fault(self) -> None:
        self._emit(Fault(in_order(self.suspects)))

    def _incorporate_join(self, sender: Machine, join: Join) -> None:
        for joining in join.sets:
            self._add_set(joining)
        self.last_join[sender] = _configuration_of(join)
        self.last_faults[sender] = self._faults_of(sender) | frozenset(join.faults)
        self._add_faults_before(frozenset(join.faults), Cause.JOIN_RECEIVED)

    # Sets

    def _add_set(self, joining: JoiningSet) -> None:
        self.sets.setdefault(joining.view, joining)
        self.join_machines |= self.sets[joining.view].machines | joining.machines
        newest: dict[str, Machine] = {}
        for machine in sorted(self.join_machines):
            if (older := newest.get(machine.name)) is not None:
                self._add_faults_before(frozenset((older,)), Cause.RESTARTED)
            newest[machine.name] = machine
        foreign = sorted(self.join_machines - self.current)
        while foreign and not self._is_room_for(self.join_machines - self.suspects):
            self._add_faults_before(frozenset((foreign.pop(),)), Cause.NO_ROOM)

    def _add_faults_before(self, faults: MachineSet, cause: Cause) -> None:
        self._suspect(faults, cause)
        self.faults_before |= faults

    def _add_faults_after(self, faults: MachineSet, cause: Cause) -> None:
        self._suspect(faults, cause)
        self.faults_after |= faults

    def _suspect(self, faults: MachineSet, cause: Cause) -> None:
        if self.me in faults:
            raise BrokenInvariant(f"{self.me} was about to declare itself faulty")
        if new := faults - self.suspects:
            self._out.append(Suspected(in_order(new), cause))

    def _configuration(self) -> Configuration:
        return (frozenset(self.sets), self.faults_before)

    def _faults_of(self, machine: Machine) -> MachineSet:
        return self.last_faults.get(machine, _NO_MACHINES)

    # The graph

    def _emit(self, body: Body) -> None:
        cover = () if isinstance(body, AttemptJoin) else self._data.cover()
        sequence = self.dag.own_sequence + 1
        control = Control(self.me, sequence, self._data.next_clock(), self.view.id, self.dag.acks(), cover, body)
        self.dag.add_own(control)
        self._out.append(Emitted(control))
        self._note(control)
        if isinstance(body, Join):
            self.last_join[self.me] = self._configuration()
        if not isinstance(body, AttemptJoin):
            self.last_faults[self.me] = self._faults_of(self.me) | frozenset(body.faults)

    def _note(self, control: Control) -> None:
        if isinstance(control.body, AttemptJoin):
            return
        self.electors[control.sender] = control
        if control.view == self.view.id:
            for machine, sequence in control.cover:
                self.covered[machine] = max(self.covered.get(machine, 0), sequence)

    def _cut_vector(self) -> Acks:
        positions = self.dag.streams
        return tuple((m, positions[m].inserted_through if m in positions else 0) for m in self.view.members)

    def _track(self, body: Body) -> None:
        """Follows the machines of the body's joining sets, each from its cut-counter on."""
        for joining in joining_sets(body):
            for machine, cut in joining.cut_vector:
                self.dag.track(machine, cut)

    def _track_pending_joins(self) -> None:
        """Goes on to follow the machines of our view's JOINs that wait to enter: then they make us join those."""
        for control in list(self.dag.pending()):
            is_ours = control.view == self.view.id and control.sender not in self.suspects
            if is_ours and isinstance(control.body, Join) and not self._excludes_me(control):
                self._track(control.body)

    def _excludes_me(self, control: Control) -> bool:
        """Whether the message declares us faulty, or would join a machine of our name that started after us."""
        return control.accuses(self.me) or any(
            machine.name == self.me.name and machine.incarnation > self.me.incarnation
            for joining in joining_sets(control.body)
            for machine in joining.machines
        )

    def _should_follow(self, sender: Machine, join: Join) -> bool:
        """Whether to follow a JOIN that comes before we have committed: a member's always, a foreign one if it
        includes us, can still succeed, and our members and its newcomers hear each other."""
        if sender in self.current:
            return True
        if self.me not in join.machines or not self._can_succeed(join):
            return False
        newcomers = join.machines - frozenset(join.faults) - self.join_machines
        return not newcomers or self._may_join(newcomers)

    def _has_joiners(self) -> bool:
        """Whether a foreign machine would join, or a machine has committed to a join."""
        return bool(self.last_join or self.join_machines - self.faults_before - self.current)

    def _is_invitation(self, control: Control) -> bool:
        body = control.body
        if isinstance(body, Fault) or self.stage not in (Stage.IDLE, Stage.GATHERING):
            return False
        machines = body.joining.machines if isinstance(body, AttemptJoin) else body.machines
        if control.sender not in machines or self._excludes_me(control) or self._accusers.sent(control):
            return False
        if isinstance(body, Join):
            if self.me not in machines or not self._can_succeed(body):
                return False
            machines -= frozenset(body.faults)
        return self._may_join(machines - self.current)

    def _has_what_it_covers(self, control: Control) -> bool:
        return control.view != self.view.id or self._data.has(control.cover)

    # Agreement

    def _assent_if_agreed(self) -> bool:
        is_agreed = self.stage in (Stage.FAULTS, Stage.COMMITTED) and not self.awaited()
        if is_agreed:
            self._install(self.accept)
        return is_agreed

    def _install(self, members: MachineSet) -> None:
        electors = tuple(self.electors[machine] for machine in in_order(members))
        last = max(electors, key=lambda control: (control.clock, control.sender))
        view = View(
            ViewId(last.clock, *last.sender),
            in_order(members),
            tuple(control.sender for control in electors if control.view == self.view.id),
        )
        if view.id <= self.view.id:
            raise BrokenInvariant(f"{self.me} was about to install {view} after {self.view}")
        expected = {control.sender: dict(control.cover)[control.sender] for control in electors}
        covered = {machine: self.covered.get(machine, 0) for machine in self.view.members}
        self.view = view
        self.covered = {}
        absent = in_order(self.join_machines - self.current - members)
        self._out.append(Installed(view, covered, expected, electors, absent))
        self.current = members
        self.dag.prune_log()
        self._accusers.forget(members)
        self._enter_idle(Cause.ASSENTED)


def _configuration_of(join: Join) -> Configuration:
    return (frozenset(joining.view for joining in join.sets), frozenset(join.faults))
