"""Lansis: reliable multicast in one broadcast domain (`transis-lansis`, section 3), as one sans-IO machine.

Inputs are `multicast`, `receive` and `tick`; each returns effects for the driver to execute in order.
`next_deadline` says when `tick` is wanted: at once after an input that changed something, so that a driver that
drains its socket before it ticks acknowledges, orders and delivers a whole burst in one go.

Where this differs from the paper:

- Packets carry an acknowledgement for every machine whose last unit changed, not only for the DAG's leaves
  (`dag` says why).
- An acknowledgement without data is a `Status` frame outside the DAG rather than an empty message in it: it
  is not acknowledged or retransmitted itself, so an idle network falls silent but for heartbeats. A machine
  that waits for a lost one solicits it.
- The agreed order is timestamp order (index of synchrony n) instead of ToTo, behind the same interface.
- Each member has a share of the window (`flow` says why).

One Lansis serves one view, and drops frames of other machines and other views. Membership ends it (`hold`,
`suspect`, `require`, `close`) and starts the next, which goes on with its clock, sequences and queue. A closed
one still answers requests of members that are not as far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from transport import codec
from transport.admission import Admission
from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.delivery import Delivery
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Effect,
    Event,
    Journal,
    Marked,
    Reason,
    Received,
    WindowStuck,
)
from transport.flow import FlowControl
from transport.messages import (
    ORDERED,
    Acks,
    Datagram,
    Frame,
    Machine,
    Message,
    Milliseconds,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)
from transport.ordering import LamportOrder
from transport.packing import SendQueue, into_datagrams
from transport.recovery import Answers, Requests
from transport.roundtrip import RoundTrip
from transport.waits import BreakWatch, Solicitation

_UNIT_ROOM_BYTES_MIN = 128
_AT_ONCE = float("-inf")


class QueueFull(Exception):
    """Too many messages wait to be sent. Wait for `Backpressure(full=False)` and try again."""


class MessageTooLarge(Exception):
    """The message exceeds `message_bytes_max`: split it above, or raise the bound on every member."""


class ViewOver(Exception):
    """The message was for a view that is ending or over. Say what is to be said in the next one."""


class Lansis:
    """One machine's transport in one view. `base` is the last unit of each member before it; `predecessor` the
    machine's transport in the view before, closed."""

    def __init__(
        self,
        me: Machine,
        view: View,
        config: TransportConfig,
        random: Random,
        now: Milliseconds,
        base: Mapping[Machine, int] | None = None,
        predecessor: Lansis | None = None,
    ) -> None:
        if me not in view.members:
            raise ValueError(f"{me} is not a member of view {view.id}")
        check_members(me, view, config)
        self.me = me
        self.view = view
        self.config = config
        self.counters: Counter[str] = Counter()
        self.clock = 0
        self._dag = CausalDag(me, view.members, config, base)
        self._delivery = Delivery(self._dag, LamportOrder(view.members), config)
        self._round_trip = RoundTrip(ceiling_ms=config.heartbeat_ms)
        self._timed: tuple[int, Milliseconds] | None = None
        """One of our ordered packets in flight and when it left: its acknowledgement measures the network."""
        self._waiting_since: Milliseconds | None = None
        """Since when ordered messages wait here: the end of that measures it too, for those who only listen."""
        self._admission = Admission(self._dag, config)
        self._requests = Requests(self._dag, config, random, self._round_trip)
        self._answers = Answers(self._dag, config, random, self._round_trip)
        self._flow = FlowControl(self._dag, config)
        self._queue = SendQueue(me, view.id, config)
        self._queue_full = False
        self._is_held = False
        self._acked: dict[Machine, int] = dict(base or {})
        """What our own packets have acknowledged: each acknowledgement travels in a packet once."""
        self._frozen_acks: dict[Machine, int] | None = None
        """What our statuses go on acknowledging while too much waits for delivery."""
        self._status_owed = False
        """Somebody waits for our acknowledgement, or our share of unacknowledged units has grown large."""
        self._is_mark_expected = False
        self._ack_owed = False
        """Agreed messages wait for our acknowledgement, which may wait for an expected mark to go with."""
        self._ack_due: Milliseconds | None = None
        """But not longer than this."""
        self._unacked_messages = 0
        self._unacked_bytes = 0
        self._unsettled = False
        """Something has arrived that `tick` has not looked at."""
        self._marks: tuple[int, ...] = ()
        self._solicited: tuple[Machine, ...] = ()
        self._heartbeat_at = now + config.heartbeat_ms * random.random()
        self._solicitation = Solicitation(config, self._round_trip)
        self._break_watch = BreakWatch(self._dag, self._delivery, config)
        self._blocked: Reason | None = None
        self.refused: list[tuple[Service, bytes]] = []
        """Messages that were for the predecessor's view only, and were not sent in it."""
        if predecessor is not None:
            self._succeed(predecessor)

    def _succeed(self, predecessor: Lansis) -> None:
        self.counters = predecessor.counters
        self.clock = predecessor.clock
        self._round_trip.take_over(predecessor._round_trip)
        self._queue, predecessor._queue = predecessor._queue, self._queue
        self._queue_full = predecessor._queue_full
        self.refused = self._queue.enter_view(self.view.id)
        self._status_owed = True  # the sooner everybody is heard in this view, the sooner it delivers

    # Inputs

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[Effect]:
        """Accepts a message for sending. It goes out with the next `tick` that the window allows, in whichever
        view that is; or, if one is given, in that one or not at all."""
        if view is not None and (view != self.view.id or self._is_held):
            raise ViewOver(f"view {view} is over or ending; the message was not sent")
        if len(payload) > self.config.message_bytes_max:
            raise MessageTooLarge(f"{len(payload)} bytes, at most {self.config.message_bytes_max} fit a message")
        if self._queue.is_full():
            raise QueueFull(f"{len(self._queue)} messages of {self._queue.bytes} bytes wait to be sent")
        self._queue.append(service, payload, is_bound=view is not None)
        if self._queue.is_full() and not self._queue_full:
            self._queue_full = True
            return [Backpressure(full=True)]
        return []

    def mark(self, marks: tuple[int, ...]) -> None:
        """The layer above has got so far with each member's messages, in the members' order: tells the others, at
        once. What is lost of that, the next status repeats."""
        if len(marks) != len(self.view.members):
            raise ValueError(f"{len(marks)} marks for {len(self.view.members)} members")
        self._marks = marks
        self._is_mark_expected = False
        self._status_owed = True

    def expect_mark(self) -> None:
        """The layer above will have more to tell in a moment: acknowledgements may wait for that."""
        self._is_mark_expected = True

    def solicit(self, machines: Iterable[Machine]) -> None:
        """The layer above waits for marks of these members, which may have been lost."""
        self._solicited = tuple(machines)
        self._status_owed = True

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[Effect]:
        """Takes in what another machine transmitted."""
        effects: list[Effect] = []
        sender = datagram.sender
        if sender == self.me:  # the driver gives us nothing of our own: somebody else goes by our name
            return [self._drop(Reason.MY_OWN_NAME, sender)]
        if sender not in self._dag.streams:
            return [self._drop(Reason.NOT_A_MEMBER, sender)]
        self._unsettled = True
        for frame in datagram.frames:
            if isinstance(frame, Packet):
                self._on_packet(frame, now, effects)
            elif isinstance(frame, Retransmission):
                self._answers.on_retransmission(frame.packet, sender, now)
                self._on_packet(frame.packet, now, effects, is_original=False)
            elif isinstance(frame, Status):
                self._on_status(sender, frame, effects)
            elif isinstance(frame, Nack):
                self._on_nack(sender, frame, now, effects)
            else:
                effects.append(self._drop(Reason.UNEXPECTED, sender))
        return effects

    def tick(self, now: Milliseconds) -> list[Effect]:
        """Does everything whose time has come. What others wait for goes out before we deliver in order."""
        effects: list[Effect] = []
        self._unsettled = False
        progress = self._settle_stability(now, effects)
        frames: list[Frame] = []
        if (self._queue or self._blocked or self._queue_full) and not self._is_held:
            self._send_queued(frames, now, effects)
        self._recover(frames, now, effects)
        self._acknowledge(frames, now)
        datagrams = into_datagrams(self.me, frames, self.config.datagram_bytes_max)
        effects.extend(Broadcast(datagram) for datagram in datagrams)
        if len(self._dag.streams) == 1:
            progress |= self._settle_stability(now, effects)  # nobody else will ever acknowledge
        self._dag.promise(self.me, self._dag.own.inserted_through, self.clock)
        delivered = self._deliver_in_order(now, effects)
        self._watch_backlog(delivered)
        is_waiting = bool(self._delivery.undelivered_count) or self._blocked is not None
        self._solicitation.watch(is_waiting, progress or bool(delivered), now)
        if suspects := self._break_watch.watch(self._blocked is not None, now):
            effects.append(WindowStuck(suspects))
            details: dict[str, object] = {"laggards": [str(machine) for machine in suspects]}
            effects.append(Journal(Event.STUCK, reason=self._blocked or Reason.BACKLOG, details=details))
        return effects

    def next_deadline(self) -> Milliseconds:
        """When `tick` is wanted at the latest; `-inf` for at once."""
        if self._unsettled or self._status_owed:
            return _AT_ONCE
        deadline = self._heartbeat_at
        if self._ack_owed:
            if self._ack_due is None:
                return _AT_ONCE
            deadline = min(deadline, self._ack_due)
        if self._queue and not self._is_held and self._flow.blocked() is None:
            deadline = min(deadline, self._flow.next_send_at)
        for other in (self._solicitation.deadline, self._break_watch.deadline):
            if other is not None and other < deadline:
                deadline = other
        return min(deadline, self._requests.next_deadline(), self._answers.next_deadline())

    # The end of the view

    def hold(self) -> None:
        """Sends no more messages: what waits, waits for the next view."""
        self._is_held = True
        self._blocked = None
        self._dag.is_ending = True
        self._unsettled = True

    def is_held(self) -> bool:
        return self._is_held

    def cover(self) -> Acks:
        """What is in the DAG."""
        return self._dag.inserted()

    def has(self, cover: Acks) -> bool:
        return self._dag.has(cover)

    def suspect(self, machines: Iterable[Machine]) -> None:
        """Of what these members sent, only what others have may still be taken in."""
        self._dag.suspect(machines)

    def require(self, cover: Acks, now: Milliseconds) -> list[Effect]:
        """A member that is not suspected has this in its DAG: takes it in, or asks for it."""
        effects: list[Effect] = []
        self._dag.require(cover)
        self._insert(self._dag.insert_pending(), effects)
        self._requests.look_for_gaps(now)
        return effects

    def close(self) -> list[Effect]:
        """Everything is here that the survivors have: delivers it, without waiting for anyone."""
        effects: list[Effect] = []
        delivered = self._delivery.settle() + self._delivery.close()
        if delivered:
            self._deliver(delivered, effects, is_closing=True)
        return effects

    def answer(self, nack: Nack, now: Milliseconds) -> None:
        """In a closed view: a slower survivor asks for this."""
        if nack.machine in self._dag.streams:
            self._answers.on_request(nack, now)

    def heard_answer(self, packet: Packet, transmitter: Machine, now: Milliseconds) -> None:
        """In a closed view: somebody else has answered."""
        self._answers.on_retransmission(packet, transmitter, now)

    def answers_due(self, now: Milliseconds) -> list[Effect]:
        """What `tick` is for an open view."""
        effects: list[Effect] = []
        frames: list[Frame] = []
        self._answer(frames, now, effects)
        effects += map(Broadcast, into_datagrams(self.me, frames, self.config.datagram_bytes_max))
        return effects

    def answers_deadline(self) -> Milliseconds:
        return self._answers.next_deadline()

    # What the operator and the checkers look at

    def window_bytes(self) -> tuple[int, int]:
        """The network window, which is the retransmission buffers: all of it, and our part of it."""
        return self._dag.buffered_bytes, self._dag.own.buffered_bytes

    def window_messages(self) -> tuple[int, int]:
        """The same in units."""
        return self._dag.buffered_messages, self._dag.own.buffered_messages

    def blocked(self) -> Reason | None:
        """Why what waits to be sent may not be sent."""
        return self._blocked

    def scheduled_answers(self) -> int:
        """Retransmissions that wait to be sent."""
        return len(self._answers)

    def received_through(self) -> dict[Machine, int]:
        """Per member, the last unit up to which everything is here, in the DAG or waiting to enter it."""
        return {machine: stream.received_through for machine, stream in self._dag.streams.items()}

    def pending_bytes(self) -> int:
        """The most that any one sender's packets take up while they wait for their predecessors."""
        return max([stream.pending_bytes for stream in self._dag.streams.values()])

    def undelivered_bytes(self) -> int:
        """Ordered messages whose turn has not come."""
        return self._delivery.undelivered_bytes

    def queued_messages(self) -> int:
        return len(self._queue)

    # Frames

    def _on_packet(
        self, packet: Packet, now: Milliseconds, effects: list[Effect], is_original: bool = True
    ) -> None:
        self.counters["packets_received"] += 1
        stream = self._dag.streams.get(packet.sender)
        if stream is None or packet.view != self.view.id:
            foreign = Reason.NOT_A_MEMBER if stream is None else Reason.OTHER_VIEW
            effects.append(self._drop(foreign, packet.sender, packet.id))
            return
        if stream.has(packet):
            self.counters["duplicates"] += 1
            return
        if (reason := self._admission.packet_objection(stream, packet, self.clock)) is not None:
            effects.append(self._drop(reason, packet.sender, packet.id))
            return
        # A Lamport clock rises above everything stored, by whatever route it came.
        self.clock = max(self.clock, packet.last_clock)
        if self.config.journal_messages:
            effects.append(Journal(Event.RECEIVED, packet.id, details={"clock": packet.clock}))
        if is_original:
            self._requests.on_original(packet)
        if messages := self._delivery.arrived(packet):
            self._deliver(messages, effects)
        self._insert(self._dag.store(packet), effects)
        self._requests.look_for_gaps(now)

    def _on_status(self, sender: Machine, status: Status, effects: list[Effect]) -> None:
        stream = self._dag.streams[sender]
        reason = self._admission.status_objection(stream, status, self.clock)
        if status.view != self.view.id:
            reason = Reason.OTHER_VIEW
        if reason is not None:
            effects.append(self._drop(reason, sender))
            return
        self._dag.acknowledge(sender, status.acks)
        self._dag.promise(sender, status.sequence, status.clock)
        self._flow.advertised(sender, status.window_bytes)
        if status.marks:
            effects.append(Marked(sender, status.marks))
        if self.me in status.solicit:
            self._status_owed = True

    def _on_nack(self, sender: Machine, nack: Nack, now: Milliseconds, effects: list[Effect]) -> None:
        if nack.machine not in self._dag.streams:
            effects.append(self._drop(Reason.NOT_A_MEMBER, sender, str(nack.machine)))
            return
        self._requests.on_request(nack, now)
        self._answers.on_request(nack, now)

    def _insert(self, packets: list[Packet], effects: list[Effect]) -> None:
        """Packets, ours or others', that have just entered the DAG."""
        received: list[Message] = []
        for packet in packets:
            deliverable, open_messages = self._delivery.inserted(packet)
            received += open_messages
            if deliverable:
                self._deliver(deliverable, effects)
            if packet.sender != self.me:
                self._owe_acknowledgement(packet)
        if received:
            effects.append(Received(tuple(received)))

    def _owe_acknowledgement(self, packet: Packet) -> None:
        """Ordered messages wait for us to be heard; others only fill the window until we acknowledge."""
        self._unacked_messages += len(packet.payloads)
        self._unacked_bytes += self._dag.cost_bytes(packet)
        fraction = self.config.ack_after_fraction
        if packet.service is Service.AGREED:
            self._ack_owed = True
        if (
            packet.service is Service.SAFE
            or self._unacked_messages >= fraction * self._flow.share_messages
            or self._unacked_bytes >= fraction * self._flow.share_bytes
        ):
            self._status_owed = True

    # The steps of a tick

    def _settle_stability(self, now: Milliseconds, effects: list[Effect]) -> bool:
        was_full = self._dag.is_full()
        stable = self._dag.take_stable()
        if self.config.journal_messages:
            effects.extend(Journal(Event.STABLE, packet.id) for packet in stable)
        if self._timed is not None and self._dag.own.stable_through >= self._timed[0]:
            self._round_trip.observe(now - self._timed[1])
            self._timed = None
        if (was_full and stable) or self._is_held:
            self._insert(self._dag.insert_pending(), effects)
        return bool(stable)

    def _send_queued(self, frames: list[Frame], now: Milliseconds, effects: list[Effect]) -> None:
        while self._queue and now >= self._flow.next_send_at:
            if self._flow.blocked() is not None:
                break
            packet = self._next_packet()
            frames.append(packet)
            self.counters["packets_sent"] += 1
            if self.config.journal_messages:
                details: dict[str, object] = {
                    "clock": packet.clock,
                    "service": packet.service.name.lower(),
                    "acks": [f"{machine}.{sequence}" for machine, sequence in packet.acks],
                    "bytes": packet.payload_bytes,
                }
                effects.append(Journal(Event.SENT, packet.id, details=details))
            if messages := self._delivery.arrived(packet):
                self._deliver(messages, effects)
            self._insert(self._dag.store(packet), effects)
            self._flow.sent(now)
            self._acknowledged()
            if self._timed is None and packet.service in ORDERED:
                self._timed = (packet.last_sequence, now)
        self._note_blocking(effects)
        if self._queue_full and self._queue.has_room():
            self._queue_full = False
            effects.append(Backpressure(full=False))

    def _next_packet(self) -> Packet:
        acks = tuple(
            (machine, stream.inserted_through)
            for machine, stream in self._dag.streams.items()
            if stream is not self._dag.own and stream.inserted_through > self._acked.get(machine, 0)
        )
        self._acked.update(acks)
        run = self._queue.take_run(acks, self._flow.units_allowed())
        packet = Packet(
            self.me,
            self.view.id,
            self._dag.own.inserted_through + 1,
            self.clock + 1,
            run.service,
            acks,
            run.payloads,
            run.fragment,
        )
        self.clock = packet.last_clock
        return packet

    def _note_blocking(self, effects: list[Effect]) -> None:
        blocked = self._flow.blocked() if self._queue else None
        if blocked is self._blocked:
            return
        self._blocked = blocked
        if self.config.journal_messages:
            event, reason = (Event.BLOCKED, blocked) if blocked else (Event.UNBLOCKED, Reason.WINDOW_OPEN)
            details: dict[str, object] = {"window_messages": self._dag.buffered_messages}
            effects.append(Journal(event, reason=reason, details=details))

    def _recover(self, frames: list[Frame], now: Milliseconds, effects: list[Effect]) -> None:
        self._requests.look_for_gaps(now)
        for nack in self._requests.due(now):
            frames.append(nack)
            self.counters["nacks_sent"] += 1
            details: dict[str, object] = {"ranges": [list(run) for run in nack.ranges]}
            reason = Reason.RETRY if nack.is_repeated else Reason.NEW
            effects.append(Journal(Event.NACKED, str(nack.machine), reason, details))
        self._answer(frames, now, effects)

    def _answer(self, frames: list[Frame], now: Milliseconds, effects: list[Effect]) -> None:
        for packet in self._answers.due(now):
            frames.append(Retransmission(packet))
            if packet.sender == self.me:
                self._timed = None  # what was lost and repaired says nothing about the network's speed
            self.counters["packets_retransmitted"] += 1
            effects.append(Journal(Event.RETRANSMITTED, packet.id, Reason.REQUESTED))

    def _acknowledge(self, frames: list[Frame], now: Milliseconds) -> None:
        """Sends a status if it is owed and nothing else carried the acknowledgements."""
        is_soliciting = self._solicitation.is_due(now)
        is_due = self._is_acknowledgement_due(now)
        if not (self._status_owed or is_due or is_soliciting or now >= self._heartbeat_at):
            return
        solicit, self._solicited = self._solicited, ()
        if is_soliciting:
            solicit = tuple(sorted({*solicit, *self._awaited()}))
            self._solicitation.sent(now)
        acks = self._all_acks() if self._frozen_acks is None else tuple(self._frozen_acks.items())
        own_sequence = self._dag.own.inserted_through
        window_bytes = self.config.window_bytes_max
        status = Status(self.view.id, self.clock, own_sequence, window_bytes, acks, solicit, self._marks)
        frames.append(status)
        self.counters["statuses_sent"] += 1
        self._heartbeat_at = now + self.config.heartbeat_ms
        self._acknowledged()

    def _is_acknowledgement_due(self, now: Milliseconds) -> bool:
        if not self._ack_owed:
            return False
        if self._ack_due is None:
            self._ack_due = now + self.config.ack_with_mark_ms if self._is_mark_expected else now
        return now >= self._ack_due

    def _all_acks(self) -> Acks:
        return tuple(
            (machine, stream.inserted_through)
            for machine, stream in self._dag.streams.items()
            if stream is not self._dag.own and stream.inserted_through
        )

    def _acknowledged(self) -> None:
        self._status_owed = self._ack_owed = False
        self._ack_due = None
        self._unacked_messages = 0
        self._unacked_bytes = 0

    def _deliver_in_order(self, now: Milliseconds, effects: list[Effect]) -> list[Message]:
        delivered = self._delivery.settle()
        if delivered:
            self._deliver(delivered, effects)
            if self._waiting_since is not None:
                self._round_trip.observe(now - self._waiting_since)
        if delivered or self._waiting_since is None:
            self._waiting_since = now if self._delivery.undelivered_count else None
        return delivered

    def _watch_backlog(self, delivered: list[Message]) -> None:
        """Stops acknowledging while too much waits for delivery: that is how the others are stopped too. What we
        deliver, and the next message, are acknowledged still, or nobody could ever deliver them safely."""
        is_backlogged = self._delivery.undelivered_bytes >= self.config.undelivered_bytes_max
        if is_backlogged != self._flow.is_backlogged:
            self._flow.is_backlogged = is_backlogged
            self._frozen_acks = dict(self._all_acks()) if is_backlogged else None
            self._status_owed = True
        if self._frozen_acks is None:
            return
        first = self._delivery.first_undelivered()
        for message in [*delivered, first] if first is not None else delivered:
            if message.sender != self.me and self._frozen_acks.get(message.sender, 0) < message.sequence:
                self._frozen_acks[message.sender] = message.sequence
                self._status_owed = True

    def _awaited(self) -> list[Machine]:
        awaited = dict.fromkeys(self._delivery.awaited())
        if self._blocked is not None:
            awaited.update(dict.fromkeys(self._dag.laggards(self._dag.streams)))
        awaited.pop(self.me, None)
        return list(awaited)

    def _deliver(self, messages: list[Message], effects: list[Effect], is_closing: bool = False) -> None:
        self.counters["messages_delivered"] += len(messages)
        effects.append(Delivered(tuple(messages), is_closing))
        if self.config.journal_messages:
            for message in messages:
                details: dict[str, object] = {
                    "service": message.service.name.lower(),
                    "timestamp": list(message.timestamp),
                }
                effects.append(Journal(Event.DELIVERED, message.id, details=details))

    def _drop(self, reason: Reason, sender: Machine, subject: str = "") -> Journal:
        """A peer's error: counted, journaled, forgotten."""
        self.counters[f"dropped_{reason}"] += 1
        return Journal(Event.DROPPED, subject, reason, {"sender": str(sender)})


def check_members(me: Machine, view: View, config: TransportConfig) -> None:
    """Raises `ValueError` if there are too many: frames that cannot be fragmented must fit a datagram, however
    much there is to acknowledge."""
    if len(view.members) > config.members_max:
        raise ValueError(f"{len(view.members)} members are more than members_max, {config.members_max}")
    acks = tuple((machine, 0) for machine in view.members)
    unit = codec.packet_overhead_bytes(me, view.id, acks) + _UNIT_ROOM_BYTES_MIN
    status = codec.frame_bytes(Status(view.id, 0, 0, 0, acks, view.members, (0,) * len(view.members)))
    needed = codec.datagram_overhead_bytes(me) + max(unit, status)
    if needed > config.datagram_bytes_max:
        raise ValueError(
            f"acknowledgements of {len(view.members)} members can take datagrams of {needed} bytes, but "
            f"datagram_bytes_max is {config.datagram_bytes_max}: raise it or shorten the names"
        )
