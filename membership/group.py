"""The machine of this layer: the membership protocol in time, over one transport per view.

It hands datagrams to the transport of the view they belong to, heartbeats, watches who falls silent and who
appears, repeats control messages that somebody lacks, and when the protocol has agreed on a view closes one
transport and opens the next. Messages of a view we are about to install are kept for it; messages of views just
closed are kept for members that still need them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from membership import codec
from membership.closed_views import ClosedViews
from membership.config import MembershipConfig
from membership.detector import FailureDetector
from membership.early_frames import EarlyFrames, view_of
from membership.effects import ChangeStarted, Effect, Event, Refused, Unicast, ViewChanged
from membership.messages import Attempt, Control, Letter, Presence, Probe, ProbeReply
from membership.neighbours import Neighbours
from membership.protocol import (
    BrokenInvariant,
    Cause,
    Emitted,
    Entered,
    Installed,
    MachineSet,
    MembershipProtocol,
    Output,
    Stage,
    Suspected,
)
from membership.repetition import Repetition
from transport import effects as transport
from transport.codec import DecodeError
from transport.config import TransportConfig
from transport.effects import Broadcast, Journal, Reason, WindowStuck
from transport.lansis import Lansis, check_members
from transport.messages import (
    SEQUENCE_MAX,
    Acks,
    Datagram,
    Envelope,
    Frame,
    Machine,
    Milliseconds,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)

_NEVER = float("inf")
_AT_ONCE = float("-inf")


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
            me, alone, self._plane, self._may_join, self._is_room_for, config.control_log_max
        )
        self._detector = FailureDetector(config, now)
        self._neighbours = Neighbours(me, config)
        self._repetition = Repetition(self._protocol, config, random)
        self._closed = ClosedViews(config)
        self._early = EarlyFrames(config)
        self._presence_at = now + config.presence_ms * random.random()
        self._attempt_at = now
        self._alpha_at = _NEVER
        self._response_at = _NEVER
        self._departed_since: dict[Machine, Milliseconds] = {}
        self._joined_at: dict[Machine, Milliseconds] = {}
        self._probes = 0
        self._is_eager = False
        """Whether something happened that heartbeats should tell at once."""

    # What the layer above sees

    @property
    def view(self) -> View:
        return self._protocol.view

    @property
    def stage(self) -> Stage:
        return self._protocol.stage

    @property
    def counters(self) -> Counter[str]:
        return self._lansis.counters

    @property
    def lansis(self) -> Lansis:
        """The transport of the current view."""
        return self._lansis

    @property
    def protocol(self) -> MembershipProtocol:
        return self._protocol

    def is_changing(self) -> bool:
        return self._protocol.is_ending_view()

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[Effect]:
        return list(self._lansis.multicast(service, payload, view))

    def mark(self, marks: tuple[int, ...]) -> None:
        self._lansis.mark(marks)

    def expect_mark(self) -> None:
        self._lansis.expect_mark()

    def solicit(self, machines: Iterable[Machine]) -> None:
        self._lansis.solicit(machines)

    # Inputs

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[Effect]:
        self._now = now
        sender = datagram.sender
        if sender.name == self.me.name:  # of which there can be only one at a time
            return [self._drop(Reason.MY_OWN_NAME, sender)]
        if not self._neighbours.heard(sender, now):
            return [self._drop(Reason.OLD_INCARNATION, sender)]
        effects: list[Effect] = []
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
            self._prove_dead(sender, effects)
        return effects

    def tick(self, now: Milliseconds) -> list[Effect]:
        self._now = now
        effects: list[Effect] = []
        if now >= self._detector.deadline:
            self._look_for_silence(effects)
        if now >= self._alpha_at:
            self._alpha_at = _NEVER
            self._execute(self._protocol.alpha_expired(), effects)
        if now >= self._response_at:
            self._response_at = _NEVER
            self._break_with(self._protocol.awaited(), Cause.UNRESPONSIVE, effects)
        self._tick_transport(effects)
        if now >= self._presence_at:
            self._look_around(effects)
            self._send_presence(effects)
        for control in self._repetition.due(now):
            self.counters["controls_resent"] += 1
            effects.append(Broadcast(self._datagram(control)))
            effects.append(Journal(Event.CONTROL_RESENT, control.id, Reason.REQUESTED))
        return effects

    def next_deadline(self) -> Milliseconds:
        deadline = self._lansis.next_deadline()
        if deadline == _AT_ONCE:
            return deadline
        deadline = min(deadline, self._detector.deadline, self._presence_at, self._alpha_at, self._response_at)
        return min(deadline, self._closed.next_deadline(), self._repetition.next_deadline())

    # Frames

    def _sort_out(self, sender: Machine, frame: Frame, effects: list[Effect]) -> Frame | None:
        """Takes what is ours; returns what is for the transport of the current view."""
        if isinstance(frame, Envelope):
            try:
                self._on_letter(sender, codec.decode(frame.body), effects)
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

    def _on_letter(self, sender: Machine, letter: Letter, effects: list[Effect]) -> None:
        if isinstance(letter, Control):
            self._on_control(letter, effects)
        elif isinstance(letter, Presence):
            self._on_presence(sender, letter)
        elif isinstance(letter, Probe):
            effects.append(Unicast(sender, self._datagram(ProbeReply(letter.number))))
        else:
            self._detector.probe_answered(sender)

    def _on_control(self, control: Control, effects: list[Effect]) -> None:
        sender = control.sender
        self._repetition.transmitted(control, self._now)
        if (reason := self._objection(control)) is not None:
            effects.append(self._drop(reason, sender, control.id))
            return
        if sender not in self._protocol.dag.streams and self._neighbours.view_of(sender) != control.view:
            return  # an invitation, but to a view that is over
        self._lansis.clock = max(self._lansis.clock, control.clock)
        self._execute(self._protocol.offer(control), effects)
        self._is_eager = True
        if self._protocol.dag.has_pending():
            self._require_covers(effects)
            self._execute(self._protocol.advance(), effects)

    def _objection(self, control: Control) -> Reason | None:
        """What makes a control message a peer's error."""
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
        self._neighbours.update(sender, presence)
        if sender not in self._protocol.suspects:
            self._repetition.offer(sender, dict(presence.controls), self._now)
        if self._closed and self._is_whole():
            self._closed.clear()  # when everybody is in the current view, nobody needs earlier ones

    # The protocol's outputs

    def _execute(self, outputs: list[Output], effects: list[Effect]) -> None:
        for output in outputs:
            if isinstance(output, Emitted):
                self._send_control(output.control, effects)
            elif isinstance(output, Suspected):
                # Also if they are strangers: what we were to have because of a JOIN of theirs, nobody may have.
                self._lansis.suspect(output.machines)
                self._require_covers(effects)
                details: dict[str, object] = {"machines": list(map(str, output.machines))}
                effects.append(Journal(Event.SUSPECTED, str(self.view.id), output.cause, details))
            elif isinstance(output, Installed):
                self._install(output, effects)
            else:
                self._on_entered(output, effects)
        if any(isinstance(output, Installed) for output in outputs):
            self._execute(self._protocol.advance(), effects)
            return
        self._detector.watch_only(
            sorted(
                self._protocol.current.union(self._protocol.join_machines) - self._protocol.suspects - {self.me}
            ),
            self._now,
        )

    def _send_control(self, control: Control, effects: list[Effect]) -> None:
        ends_view = not isinstance(control.body, Attempt)
        if ends_view and not self._lansis.is_held():
            self._lansis.hold()
            effects.append(ChangeStarted(self._lansis.view))
        if ends_view:
            self._response_at = self._now + self.config.response_ms
        self._repetition.transmitted(control, self._now)
        self._is_eager = True
        effects.append(Broadcast(self._datagram(control)))
        effects.append(Journal(Event.CONTROL_SENT, control.id, Reason.NEW, _describe(control)))

    def _on_entered(self, entered: Entered, effects: list[Effect]) -> None:
        self._alpha_at = self._now + self.config.alpha_ms if entered.stage is Stage.GATHERING else _NEVER
        if entered.stage in (Stage.FAULTS, Stage.COMMITTED):
            self._response_at = self._now + self.config.response_ms
        if entered.stage is Stage.IDLE:
            self._response_at = _NEVER
            self._departed_since.clear()
            if entered.cause is Cause.NOBODY_ANSWERED:
                self._attempt_at = self._now + self.config.attempt_again_ms * (1.0 + self._random.random())
                self._early.clear()
        details: dict[str, object] = {"stage": str(entered.stage), "accept": list(map(str, entered.accept))}
        effects.append(Journal(Event.STAGE, str(self.view.id), entered.cause, details))

    def _install(self, installed: Installed, effects: list[Effect]) -> None:
        old, view = self._lansis, installed.view
        if (here := dict(old.cover())) != installed.covered:
            raise BrokenInvariant(f"{self.me} has {here} at the end of {old.view.id}, not {installed.covered}")
        effects.extend(old.close())
        self._closed.add(old, self._now)
        self._lansis = Lansis(
            self.me, view, self._transport_config, self._random, self._now, installed.expected, old
        )
        self._plane.lansis = self._lansis
        effects.append(ViewChanged(view))
        if self._lansis.refused:
            effects.append(Refused(tuple(self._lansis.refused)))
        details: dict[str, object] = {
            "members": list(map(str, view.members)),
            "transitional": list(map(str, view.transitional)),
            "electors": [control.id for control in installed.electors],
        }
        effects.append(Journal(Event.VIEW, str(view.id), Cause.ASSENTED, details))
        self._judge_joins(old.view, installed, effects)
        self._is_eager = True
        for sender, frame in self._early.take(view.id):
            effects.extend(self._lansis.receive(Datagram(sender, (frame,)), self._now))

    def _judge_joins(self, old: View, installed: Installed, effects: list[Effect]) -> None:
        """Whoever has just joined and is gone already, or was to join and did not, has to wait."""
        view = installed.view
        horizon = self._now - self.config.short_lived_ms
        gone = [m for m in old.members if m not in view.members and self._joined_at.get(m, _AT_ONCE) > horizon]
        gone += installed.absent
        self._joined_at = {m: self._joined_at.get(m, self._now) for m in view.members if m != self.me}
        for machine in view.members:
            if machine not in old.members and machine != self.me:
                self._joined_at[machine] = self._now
        if gone:
            self._neighbours.penalize(gone, self._now)
            details: dict[str, object] = {"machines": list(map(str, gone))}
            effects.append(Journal(Event.BACKED_OFF, str(view.id), Cause.SILENT, details))

    # Time

    def _look_for_silence(self, effects: list[Effect]) -> None:
        for machine in self._detector.watched():
            self._detector.heard(machine, self._neighbours.heard_at(machine))
        silent, probed = self._detector.look(self._now)
        for machine in probed:
            self._probes += 1
            effects.append(Unicast(machine, self._datagram(Probe(self._probes))))
            effects.append(Journal(Event.PROBED, str(machine), Cause.SILENT))
        self._break_with(silent, Cause.SILENT, effects)

    def _tick_transport(self, effects: list[Effect]) -> None:
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

    def _look_around(self, effects: list[Effect]) -> None:
        """With every heartbeat: has a member left us, is there somebody to join?"""
        protocol = self._protocol
        joinable = self._neighbours.joinable(protocol.current, self._now)
        if protocol.stage is not Stage.IDLE:
            return
        self._break_with(self._departed(), Cause.DEPARTED, effects)
        is_time = self._now >= self._attempt_at and self._is_whole()
        if joinable and is_time and protocol.stage is Stage.IDLE:
            self._execute(protocol.attempt(), effects)

    def _departed(self) -> list[Machine]:
        """Members that have been in another view for a while."""
        view = self._protocol.view
        since: dict[Machine, Milliseconds] = {}
        for machine in view.members:
            if machine != self.me and self._neighbours.view_of(machine) not in (None, view.id):
                since[machine] = self._departed_since.get(machine, self._now)
        self._departed_since = since
        return [m for m, at in since.items() if self._now - at >= self.config.departed_ms]

    def _send_presence(self, effects: list[Effect]) -> None:
        view = self._protocol.view
        heard = self._neighbours.heard_lately(self._now)[: self._transport_config.members_max]
        presence = Presence(view.id, view.members, heard, self._protocol.dag.positions())
        effects.append(Broadcast(self._datagram(presence)))
        is_pending = self._protocol.stage is not Stage.IDLE or self._protocol.dag.has_pending()
        period_ms = self.config.presence_pending_ms if is_pending or self._is_eager else self.config.presence_ms
        self._is_eager = False
        self._presence_at = self._now + period_ms
        self._repetition.forget_before(self._now - 10.0 * self.config.presence_ms)

    # Breaks

    def _break_with(self, machines: Iterable[Machine], cause: Cause, effects: list[Effect]) -> None:
        machines = list(machines)
        if machines:
            self._execute(self._protocol.break_with(machines, cause), effects)

    def _prove_dead(self, sender: Machine, effects: list[Effect]) -> None:
        """A message of a newer incarnation proves the older one dead."""
        known = self._protocol.current | self._protocol.join_machines
        older = [m for m in known if m.name == sender.name and m.incarnation < sender.incarnation]
        self._break_with(older, Cause.RESTARTED, effects)

    def _require_covers(self, effects: list[Effect]) -> None:
        """What waits at the graph's door names messages that we must have first."""
        if self._protocol.view.id == self._lansis.view.id:  # else the next view is about to be installed
            for cover in self._protocol.covers_to_require():
                effects.extend(self._lansis.require(cover, self._now))

    # Small things

    def _may_join(self, machines: MachineSet) -> bool:
        if self._protocol.stage is Stage.IDLE and not self._is_whole():
            # A member that still is in an earlier view would take what we say now, and what that follows, for
            # messages of its own view's survivors: it may expel those who join, or deliver more than we did.
            return False
        ours = self._protocol.current | (self._protocol.join_machines - machines)
        if not self._is_room_for(ours | machines):
            return False
        return self._neighbours.are_mutual(sorted(ours), sorted(machines), self._now)

    def _is_room_for(self, machines: MachineSet) -> bool:
        """Whether so many machines can be in one view at all."""
        newest = {machine.name: machine for machine in sorted(machines)}
        view = View(ViewId(SEQUENCE_MAX, *self.me), tuple(newest[name] for name in sorted(newest)))
        try:
            check_members(self.me, view, self._transport_config)
        except ValueError:
            return False
        return True

    def _is_whole(self) -> bool:
        """Whether everybody is known to be in the current view."""
        view = self._protocol.view
        others = (machine for machine in view.members if machine != self.me)
        return all(self._neighbours.view_of(machine) == view.id for machine in others)

    def _datagram(self, letter: Letter) -> Datagram:
        return Datagram(self.me, (Envelope(codec.encode(letter)),))

    def _drop(self, reason: Reason, sender: Machine, subject: str = "") -> Journal:
        self.counters[f"dropped_{reason}"] += 1
        return Journal(transport.Event.DROPPED, subject, reason, {"sender": str(sender)})


def _describe(control: Control) -> dict[str, object]:
    body = control.body
    if isinstance(body, Attempt):
        return {"kind": "attempt", "machines": sorted(map(str, body.joining.machines))}
    kind = type(body).__name__.lower()
    return {"kind": kind, "faults": list(map(str, body.faults)), "clock": control.clock}
