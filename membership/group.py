"""The machine of this layer: the membership protocol with timers, over one transport per view.

It hands datagrams to the transport of the view they belong to, sends heartbeats, watches for machines that fall
silent and for foreign ones, and repeats control messages to machines that lack them. When the protocol has agreed
on a view, it closes one transport and opens the next. Messages of a view that we are about to install are kept for
it; messages of views just closed are kept for members that still need them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from membership import codec
from membership.attempts import Attempts
from membership.closed_views import ClosedViews
from membership.config import MembershipConfig
from membership.departures import Departures
from membership.detector import FailureDetector
from membership.early_frames import EarlyFrames, view_of
from membership.effects import (
    ChangeStarted,
    LeftBehind,
    MembershipEffect,
    MembershipEvent,
    Refused,
    Unicast,
    ViewChanged,
)
from membership.failed_joins import FailedJoins
from membership.messages import (
    AttemptJoin,
    Control,
    GroupFrame,
    Join,
    Machines,
    Presence,
    Probe,
    ProbeReply,
    Progress,
)
from membership.neighbours import Neighbours
from membership.protocol import MachineSet, MembershipProtocol
from membership.repetition import Repetition
from membership.stages import Cause, Emitted, Entered, Installed, Output, Stage, Suspected
from transport import (
    AT_ONCE,
    NEVER,
    SEQUENCE_MAX,
    Acks,
    Broadcast,
    BrokenInvariant,
    Datagram,
    DecodeError,
    Envelope,
    FlowFigures,
    Frame,
    Journal,
    Lansis,
    Machine,
    Milliseconds,
    Nack,
    Packet,
    Reason,
    Retransmission,
    Service,
    Status,
    TransportConfig,
    TransportEvent,
    View,
    ViewId,
    WindowStuck,
    check_members,
)


class _LansisPlane:
    """The data plane of the current view, as the protocol sees it."""

    def __init__(self, lansis: Lansis) -> None:
        self.lansis = lansis

    def next_clock(self) -> int:
        self.lansis.clock += 1
        return self.lansis.clock

    def cover(self) -> Acks:
        return self.lansis.cover()

    def has(self, cover: Acks) -> bool:
        return self.lansis.has(cover)


class Group:
    """One machine's membership and transport. `clock` must be above that of every view it has ever been in."""

    def __init__(
        self,
        me: Machine,
        config: MembershipConfig,
        transport_config: TransportConfig,
        random: Random,
        now: Milliseconds,
        clock: int = 1,
    ) -> None:
        self.me = me
        self.config = config
        self._transport_config = transport_config
        self._random = random
        alone = View(ViewId(clock, *me), (me,), (me,))
        self._lansis = Lansis(me, alone, transport_config, random, now)
        self._lansis.clock = clock
        self._plane = _LansisPlane(self._lansis)
        self._now = now
        self._protocol = MembershipProtocol(
            me, alone, self._plane, self._may_join, self._is_room_for, config.control_log_max, self._can_succeed
        )
        self._detector = FailureDetector(config, now)
        self._neighbours = Neighbours(me, config)
        self._departures = Departures(self._protocol, self._neighbours, config)
        self._failed_joins = FailedJoins(me, config)
        self._attempts = Attempts(self._protocol, self._neighbours, config, random, now)
        self._repetition = Repetition(self._protocol, config, random)
        self._closed = ClosedViews(config)
        self._early = EarlyFrames(config)
        self._presence_at = now + config.presence_ms * random.random()
        self._response_at = NEVER
        self._left_behind_at = AT_ONCE
        """Before this time it is not reported again that this machine is behind others."""
        self._probes = 0
        self._heard_before: Machines = ()
        """The machines that had been heard lately when our last heartbeat was sent."""
        self._has_news = False
        """Whether there is something to tell soon: the interval after the next heartbeat is then a short one."""

    # What the layer above sees

    @property
    def view(self) -> View:
        return self._protocol.view

    @property
    def clock(self) -> int:
        return self._lansis.clock

    @property
    def stage(self) -> Stage:
        return self._protocol.stage

    @property
    def counters(self) -> Counter[str]:
        return self._lansis.counters

    @property
    def flow(self) -> FlowFigures:
        return self._lansis.flow

    @property
    def lansis(self) -> Lansis:
        """The transport of the current view."""
        return self._lansis

    @property
    def protocol(self) -> MembershipProtocol:
        return self._protocol

    def is_changing(self) -> bool:
        return self._protocol.is_ending_view()

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[MembershipEffect]:
        return list(self._lansis.multicast(service, payload, view))

    def mark(self, marks: tuple[int, ...]) -> None:
        self._lansis.mark(marks)

    def expect_mark(self) -> None:
        self._lansis.expect_mark()

    def solicit(self, machines: Iterable[Machine]) -> None:
        self._lansis.solicit(machines)

    def report_progress(self, progress: Progress) -> None:
        self._neighbours.progress = progress

    # Inputs

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[MembershipEffect]:
        self._now = now
        sender = datagram.sender
        if sender.name == self.me.name:  # only one machine at a time may have a name
            return [self._drop(Reason.MY_OWN_NAME, sender)]
        if not self._neighbours.heard(sender, now):
            return [self._drop(Reason.OLD_INCARNATION, sender)]
        effects: list[MembershipEffect] = []
        protocol = self._protocol
        view = protocol.view.id
        for frame in datagram.frames:
            kind = type(frame)
            if (kind is not Packet and kind is not Status) or frame.view != view:  # type: ignore[union-attr]
                sorted_out = [self._sort_out(sender, frame, effects) for frame in datagram.frames]
                datagram = Datagram(sender, tuple(frame for frame in sorted_out if frame is not None))
                break
        if sender in protocol.current:
            if datagram.frames:
                effects.extend(self._lansis.receive(datagram, now))
            if protocol.dag.has_pending():
                self._execute(protocol.advance(), effects)
        else:
            self._break_with_older_incarnations(sender, effects)
        return effects

    def port_unreachable(self, machine: Machine, now: Milliseconds) -> None:
        self._detector.heard(machine, self._neighbours.heard_at(machine))
        self._detector.port_unreachable(machine, now)

    def tick(self, now: Milliseconds) -> list[MembershipEffect]:
        self._now = now
        effects: list[MembershipEffect] = []
        if now >= self._detector.deadline:
            self._look_for_silence(effects)
        if now >= self._attempts.alpha_at:
            self._attempts.alpha_at = NEVER
            self._execute(self._protocol.alpha_expired(), effects)
        if now >= self._response_at:
            self._response_at = NEVER
            self._break_with(self._protocol.awaited(), Cause.UNRESPONSIVE, effects)
        self._tick_transport(effects)
        if now >= self._presence_at or now >= self._attempts.look_at:
            self._look_around(effects)
        if now >= self._presence_at:
            self._send_presence(effects)
        for control in self._repetition.due(now):
            self.counters["controls_resent"] += 1
            effects.append(Broadcast(self._datagram(control)))
            effects.append(Journal(MembershipEvent.CONTROL_RESENT, control.id, Reason.REQUESTED))
        return effects

    def next_deadline(self) -> Milliseconds:
        deadline = self._lansis.next_deadline()
        if deadline == AT_ONCE:
            return deadline
        deadline = min(deadline, self._detector.deadline, self._presence_at, self._response_at)
        deadline = min(deadline, self._attempts.look_at, self._attempts.alpha_at)
        return min(deadline, self._closed.next_deadline(), self._repetition.next_deadline())

    # Frames

    def _sort_out(self, sender: Machine, frame: Frame, effects: list[MembershipEffect]) -> Frame | None:
        """Handles a frame that is for the membership; returns one that is for the current view's transport."""
        if isinstance(frame, Envelope):
            try:
                self._on_group_frame(sender, codec.decode(frame.body), effects)
            except DecodeError as error:
                effects.append(self._drop(error.reason, sender))
            return None
        if isinstance(frame, Nack):
            self._closed.answer(frame, self._now)
            return frame if frame.machine in self._protocol.current else None
        view = view_of(frame)
        if view == self._protocol.view.id:
            return frame
        if isinstance(frame, Retransmission) and view in self._closed:
            self._closed.heard_answer(frame.packet, sender, self._now)
        elif (
            view not in self._closed and self._protocol.stage is not Stage.IDLE and sender in self._protocol.accept
        ):
            self._early.keep(sender, frame)
        return None

    def _on_group_frame(self, sender: Machine, group_frame: GroupFrame, effects: list[MembershipEffect]) -> None:
        if isinstance(group_frame, Control):
            self._on_control(group_frame, effects)
        elif isinstance(group_frame, Presence):
            self._on_presence(sender, group_frame)
        elif isinstance(group_frame, Probe):
            effects.append(Unicast(sender, self._datagram(ProbeReply(group_frame.number))))
        else:
            self._detector.probe_answered(sender)

    def _on_control(self, control: Control, effects: list[MembershipEffect]) -> None:
        sender = control.sender
        self._repetition.transmitted(control, self._now)
        if (reason := self._objection(control)) is not None:
            effects.append(self._drop(reason, sender, control.id))
            return
        if sender in self._protocol.dag.streams:
            if not self._protocol.dag.is_new(control):
                return  # most are repetitions that another machine has asked for
        elif self._neighbours.view_of(sender) != control.view:
            return  # an invitation to a view that is over
        self._lansis.clock = max(self._lansis.clock, control.clock)
        self._execute(self._protocol.offer(control), effects)
        self._has_news = True
        if self._protocol.dag.has_pending():
            self._require_covers(effects)
            self._execute(self._protocol.advance(), effects)

    def _objection(self, control: Control) -> Reason | None:
        """Why a control message is a peer's error; None if it is acceptable."""
        clock_max = min(self._lansis.clock + self._transport_config.clock_jump_max, SEQUENCE_MAX // 2)
        if control.clock > clock_max:
            return Reason.CLOCK_JUMP
        if control.view == self._protocol.view.id:
            members = self._protocol.current
            if control.sender not in members or any(machine not in members for machine, _ in control.cover):
                return Reason.NOT_A_MEMBER
            here = dict(self._lansis.cover())
            if dict(control.cover).get(self.me, 0) > here[self.me]:
                return Reason.ACKS_UNSENT
            if control.cover and dict(control.cover)[control.sender] < here[control.sender]:
                return Reason.OUT_OF_ORDER  # it sends nothing more in the view, so it covers all it has sent
            jump_max = self._transport_config.sequence_jump_max
            if any(sequence > here[machine] + jump_max for machine, sequence in control.cover):
                return Reason.SEQUENCE_JUMP
        return None

    def _on_presence(self, sender: Machine, presence: Presence) -> None:
        self._detector.heard_presence(sender, self._now)
        if sender not in self._heard_before:  # it cannot join us before it knows that we hear it
            self._presence_at = min(self._presence_at, self._now + self.config.presence_pending_ms)
        if self._neighbours.update(sender, presence):
            self._attempts.heard_news(self._now)
        if sender not in self._protocol.suspects:
            self._repetition.offer(sender, dict(presence.controls), self._now)
        if self._closed and self._is_whole():
            self._closed.clear()  # every member is in the current view, so none needs earlier ones

    # The protocol's outputs

    def _execute(self, outputs: list[Output], effects: list[MembershipEffect]) -> None:
        for output in outputs:
            if isinstance(output, Emitted):
                self._send_control(output.control, effects)
            elif isinstance(output, Suspected):
                # Foreign machines too: messages that were required only because a JOIN of such a machine follows
                # them may be held by no survivor.
                self._lansis.suspect(output.machines)
                self._require_covers(effects)
                details: dict[str, object] = {"machines": list(map(str, output.machines))}
                effects.append(Journal(MembershipEvent.SUSPECTED, str(self.view.id), output.cause, details))
            elif isinstance(output, Installed):
                self._install(output, effects)
            else:
                self._on_entered(output, effects)
        if any(isinstance(output, Installed) for output in outputs):
            self._execute(self._protocol.advance(), effects)
            return
        self._attempts.end_if_complete(self._now)
        watched = self._protocol.current.union(self._protocol.join_machines) - self._protocol.suspects - {self.me}
        self._detector.watch_only(sorted(watched), self._now)

    def _send_control(self, control: Control, effects: list[MembershipEffect]) -> None:
        ends_view = not isinstance(control.body, AttemptJoin)
        if ends_view and not self._lansis.is_held():
            self._lansis.hold()
            effects.append(ChangeStarted(self._lansis.view))
        if ends_view:
            self._response_at = self._now + self.config.response_ms
        self._repetition.transmitted(control, self._now)
        self._has_news = True
        effects.append(Broadcast(self._datagram(control)))
        effects.append(Journal(MembershipEvent.CONTROL_SENT, control.id, Reason.NEW, control.details()))

    def _on_entered(self, entered: Entered, effects: list[MembershipEffect]) -> None:
        self._attempts.entered(entered.stage, self._now)
        if entered.stage in (Stage.FAULTS, Stage.COMMITTED):
            self._response_at = self._now + self.config.response_ms
        if entered.stage is Stage.IDLE:
            self._response_at = NEVER
            self._departures.clear()
            self._failed_joins.change_ended()
            if entered.cause is Cause.NOBODY_ANSWERED:
                self._attempts.nobody_answered(self._now)
                self._early.clear()
        details: dict[str, object] = {"stage": str(entered.stage), "machines": list(map(str, entered.accept))}
        effects.append(Journal(MembershipEvent.STAGE, str(self.view.id), entered.cause, details))

    def _install(self, installed: Installed, effects: list[MembershipEffect]) -> None:
        old, view = self._lansis, installed.view
        if (here := dict(old.cover())) != installed.covered:
            raise BrokenInvariant(f"{self.me} has {here} at the end of {old.view.id}, not {installed.covered}")
        effects.extend(old.close())
        self._closed.add(old, self._now)
        self._lansis = Lansis(
            self.me, view, self._transport_config, self._random, self._now, installed.expected, old
        )
        self._plane.lansis = self._lansis
        details: dict[str, object] = {
            "members": list(map(str, view.members)),
            "transitional": list(map(str, view.transitional)),
            "electors": [control.id for control in installed.electors],
        }
        effects.append(Journal(MembershipEvent.VIEW, str(view.id), Cause.ASSENTED, details))
        effects.append(ViewChanged(view))
        if self._lansis.refused:
            effects.append(Refused(tuple(self._lansis.refused)))
        self._back_off_failed_joins(old.view, installed, effects)
        self._has_news = True
        for sender, frame in self._early.take(view.id):
            effects.extend(self._lansis.receive(Datagram(sender, (frame,)), self._now))

    def _back_off_failed_joins(self, old: View, installed: Installed, effects: list[MembershipEffect]) -> None:
        """Makes machines back off that have just joined and are gone already, or were to join and did not."""
        gone = self._failed_joins.installed(old, installed, self._now)
        if gone:
            self._neighbours.back_off(gone, self._now)
            details: dict[str, object] = {"machines": list(map(str, gone))}
            effects.append(Journal(MembershipEvent.BACKED_OFF, str(installed.view.id), Cause.SILENT, details))

    # Time

    def _look_for_silence(self, effects: list[MembershipEffect]) -> None:
        for machine in self._detector.watched():
            self._detector.heard(machine, self._neighbours.heard_at(machine))
        silent, probed = self._detector.look(self._now)
        for machine in probed:
            self._probes += 1
            effects.append(Unicast(machine, self._datagram(Probe(self._probes))))
            effects.append(Journal(MembershipEvent.PROBED, str(machine), Cause.SILENT))
        is_dead = all(map(self._detector.is_unreachable, silent))
        self._break_with(silent, Cause.PORT_UNREACHABLE if is_dead else Cause.SILENT, effects)

    def _tick_transport(self, effects: list[MembershipEffect]) -> None:
        if self._now >= self._lansis.next_deadline():
            ticked = self._lansis.tick(self._now)
            effects.extend(ticked)
            for effect in ticked:
                if isinstance(effect, WindowStuck):
                    self._break_with(effect.laggards, Cause.STUCK, effects)
            if self._protocol.dag.has_pending():
                self._execute(self._protocol.advance(), effects)
        if self._closed:
            effects.extend(self._closed.answers_due(self._now))

    def _look_around(self, effects: list[MembershipEffect]) -> None:
        """Looks for machines that have left, for foreign views to join and for machines that are far ahead."""
        protocol = self._protocol
        if self._now >= self._left_behind_at:
            self._report_if_behind(effects)
        is_time = self._attempts.look(self._now)
        if protocol.stage is not Stage.IDLE:
            self._break_with(self._departures.from_change(self._now), Cause.DEPARTED, effects)
            return
        self._break_with(self._departures.from_view(self._now), Cause.DEPARTED, effects)
        if is_time and self._is_whole() and protocol.stage is Stage.IDLE:
            self._execute(protocol.attempt(), effects)

    def _report_if_behind(self, effects: list[MembershipEffect]) -> None:
        ahead = self._neighbours.furthest_ahead(self._needed(), self._now)
        if ahead is not None:
            self._left_behind_at = self._now + self.config.presence_ms
            effects.append(LeftBehind(*ahead))

    def _send_presence(self, effects: list[MembershipEffect]) -> None:
        view = self._protocol.view
        self._heard_before = self._neighbours.heard_lately(self._now)
        heard = self._neighbours.willing(self._needed(), self._now)[: self._transport_config.members_max]
        controls = self._protocol.dag.received()
        presence = Presence(view.id, view.members, heard, controls, self._neighbours.progress)
        effects.append(Broadcast(self._datagram(presence)))
        is_pending = self._protocol.stage is not Stage.IDLE or self._protocol.dag.has_pending()
        period_ms = self.config.presence_pending_ms if is_pending or self._has_news else self.config.presence_ms
        self._has_news = False
        self._presence_at = self._now + period_ms
        self._repetition.forget_before(self._now - 10.0 * self.config.presence_ms)

    # Breaks

    def _break_with(self, machines: Iterable[Machine], cause: Cause, effects: list[MembershipEffect]) -> None:
        machines = list(machines)
        if machines:
            self._failed_joins.broke_with(machines, cause)
            self._execute(self._protocol.break_with(machines, cause), effects)

    def _break_with_older_incarnations(self, sender: Machine, effects: list[MembershipEffect]) -> None:
        """Breaks with older incarnations of the sender: a message of a newer one proves that they are dead."""
        older = [m for m in self._needed() if m.name == sender.name and m.incarnation < sender.incarnation]
        self._break_with(older, Cause.RESTARTED, effects)

    def _require_covers(self, effects: list[MembershipEffect]) -> None:
        """Requests the messages that we must have before pending control messages can enter the graph."""
        if self._protocol.view.id == self._lansis.view.id:  # else the next view is about to be installed
            for cover in self._protocol.covers_to_require():
                effects.extend(self._lansis.require(cover, self._now))

    # Helpers

    def _needed(self) -> MachineSet:
        """The machines with which this one is in a view or in a join."""
        return self._protocol.current | self._protocol.join_machines

    def _may_join(self, machines: MachineSet) -> bool:
        if self._protocol.stage is Stage.IDLE and not self._is_whole():
            # A member that is still in an earlier view would take the control messages that we send now, and
            # those they follow, for messages of its own view's survivors. It might then expel machines that join,
            # or deliver more than we did.
            return False
        ours = self._protocol.current | (self._protocol.join_machines - machines)
        if not self._is_room_for(ours | machines):
            return False
        return self._neighbours.are_mutual(sorted(ours), sorted(machines), self._now)

    def _can_succeed(self, join: Join) -> bool:
        """Whether nobody that the JOIN names, faults excepted, has left the view that it is named by."""
        for joining in join.sets:
            for machine in joining.machines.difference(join.faults):
                if machine == self.me:
                    if joining.view != self.view.id:
                        return False
                elif self._neighbours.has_left(machine, joining.view):
                    return False
        return True

    def _is_room_for(self, machines: MachineSet) -> bool:
        """Whether a view of these machines, only the newest incarnation of each name, is within the bounds."""
        newest = {machine.name: machine for machine in sorted(machines)}
        view = View(ViewId(SEQUENCE_MAX, *self.me), tuple(newest[name] for name in sorted(newest)))
        try:
            check_members(self.me, view, self._transport_config)
        except ValueError:
            return False
        return True

    def _is_whole(self) -> bool:
        """Whether every member is known to be in the current view."""
        view = self._protocol.view
        others = (machine for machine in view.members if machine != self.me)
        return all(self._neighbours.view_of(machine) == view.id for machine in others)

    def _datagram(self, group_frame: GroupFrame) -> Datagram:
        return Datagram(self.me, (Envelope(codec.encode(group_frame)),))

    def _drop(self, reason: Reason, sender: Machine, subject: str = "") -> Journal:
        self.counters[f"dropped_{reason}"] += 1
        return Journal(TransportEvent.DROPPED, subject, reason, {"machine": str(sender)})
