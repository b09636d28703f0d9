"""Lansis: reliable multicast in one broadcast domain (`transis-lansis`, section 3), as one sans-IO machine.

Inputs are `multicast`, `receive` and `tick`; each returns effects for the driver to execute in order.
`next_deadline` says when `tick` is wanted: at once after an input that changed something, so that a driver that
drains its socket before it ticks acknowledges, orders and delivers a whole burst as one batch.

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
one still answers requests of members that lack some of its packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from transport import journal_lines
from transport.admission import Admission
from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.deadlines import AT_ONCE, Milliseconds
from transport.delivery import Delivery
from transport.effects import (
    Backpressure,
    Broadcast,
    Delivered,
    Journal,
    Marked,
    Reason,
    Received,
    TransportEffect,
    WindowStuck,
)
from transport.flow import FlowControl, FlowFigures
from transport.links import Links
from transport.messages import (
    Acks,
    Datagram,
    Frame,
    Machine,
    Message,
    Nack,
    Packet,
    Retransmission,
    Service,
    Status,
    View,
    ViewId,
)
from transport.ordering import LamportOrder
from transport.outgoing_acks import OwedAcks, OwnAcks
from transport.packing import SendQueue, check_members, into_datagrams
from transport.repair import Answers, Requests
from transport.roundtrip import RoundTrip, RoundTripMeter
from transport.waits import BreakWatch, Solicitation


class QueueFull(Exception):
    """Too many messages wait to be sent. Wait for `Backpressure(full=False)` and try again."""


class MessageTooLarge(Exception):
    """The message exceeds `message_bytes_max`: split it in the layer above, or raise the bound on every member."""


class ViewOver(Exception):
    """The message was bound to a view that is ending or over, and is not sent. Send one for the next view."""


class Lansis:
    """One machine's transport in one view. `base` is the last unit of each member before the view; `predecessor`
    is the machine's transport of the previous view, closed."""

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
        self._meter = RoundTripMeter(self._round_trip)
        self._admission = Admission(self._dag, config)
        self._requests = Requests(self._dag, config, random, self._round_trip)
        self._answers = Answers(self._dag, config, random, self._round_trip)
        self._flow = FlowControl(self._dag, config)
        self._queue = SendQueue(me, view.id, config)
        self._queue_full = False
        self._is_held = False
        self._own_acks = OwnAcks(self._dag, self._delivery, self._flow, config, base)
        self._owed_acks = OwedAcks(self._dag, self._flow, config)
        self._unsettled = False
        """Whether something has arrived that `tick` has not processed."""
        self._marks: tuple[int, ...] = ()
        self._links = Links(now)
        self._heartbeat_at = now + config.heartbeat_ms * random.random()
        self._solicitation = Solicitation(self._dag, self._delivery, config, self._round_trip)
        self._break_watch = BreakWatch(self._dag, self._delivery, config)
        self._blocked: Reason | None = None
        self.refused: list[tuple[Service, bytes]] = []
        """Messages that were bound to the predecessor's view, and were not sent in it."""
        if predecessor is not None:
            self._take_over(predecessor)

    def _take_over(self, predecessor: Lansis) -> None:
        self.counters = predecessor.counters
        self.clock = predecessor.clock
        self._links = predecessor._links
        self._round_trip.take_over(predecessor._round_trip)
        self._queue, predecessor._queue = predecessor._queue, self._queue
        self._queue_full = predecessor._queue_full
        self.refused = self._queue.enter_view(self.view.id)
        self._owed_acks.owe_ack()  # the sooner every member is heard in this view, the sooner it delivers

    @property
    def flow(self) -> FlowFigures:
        """How full the window and the queue before it are."""
        return FlowFigures(
            window_messages=self._dag.buffered_messages,
            window_messages_max=self.config.window_messages_max,
            window_bytes=self._dag.buffered_bytes,
            window_bytes_max=self._flow.window_bytes,
            queue_messages=len(self._queue),
            queue_messages_max=self.config.queue_messages_max,
            queue_bytes=self._queue.bytes,
            queue_bytes_max=self.config.queue_bytes_max,
            blocked=self._blocked,
            round_trip_ms=self._round_trip.smoothed_ms,
        )

    # Inputs

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[TransportEffect]:
        """Accepts a message for sending. The next `tick` in which the window allows it sends it, in whichever view
        that is; or, if `view` is given, in that view or not at all."""
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
        """Tells the other members, at once, up to which sequences the layer above has processed each member's
        messages, in the members' order. If that is lost, the next status repeats it."""
        if len(marks) != len(self.view.members):
            raise ValueError(f"{len(marks)} marks for {len(self.view.members)} members")
        self._marks = marks
        self._owed_acks.marked()

    def expect_mark(self) -> None:
        """Announces that the layer above will soon call `mark`: acknowledgements may wait for that."""
        self._owed_acks.expect_mark()

    def solicit(self, machines: Iterable[Machine]) -> None:
        """Asks these members to repeat their marks, which may have been lost: the layer above waits for them."""
        self._solicitation.request(machines)
        self._owed_acks.owe_status()

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[TransportEffect]:
        """Takes in a datagram that another machine transmitted."""
        effects: list[TransportEffect] = []
        sender = datagram.sender
        if sender == self.me:  # drivers filter out our own datagrams: another machine uses our name
            return [self._drop(Reason.MY_OWN_NAME, sender)]
        if sender not in self._dag.streams:
            return [self._drop(Reason.NOT_A_MEMBER, sender)]
        self._unsettled = True
        for frame in datagram.frames:
            if isinstance(frame, Packet):
                self._on_packet(sender, frame, now, effects)
            elif isinstance(frame, Retransmission):
                self._answers.on_retransmission(frame.packet, sender, now)
                self._on_packet(sender, frame.packet, now, effects, is_original=False)
            elif isinstance(frame, Status):
                self._on_status(sender, frame, effects)
            elif isinstance(frame, Nack):
                self._on_nack(sender, frame, now, effects)
            else:
                effects.append(self._drop(Reason.UNEXPECTED, sender))
        return effects

    def tick(self, now: Milliseconds) -> list[TransportEffect]:
        """Does everything that is due. What others wait for is sent before ordered messages are delivered here."""
        effects: list[TransportEffect] = []
        self._unsettled = False
        progress = self._settle_stability(now, effects)
        frames: list[Frame] = []
        if (self._queue or self._blocked or self._queue_full) and not self._is_held:
            self._send_queued(frames, now, effects)
        self._recover(frames, now, effects)
        self._acknowledge(frames, now)
        datagrams = into_datagrams(self.me, frames, self.config.datagram_bytes_max)
        effects.extend(Broadcast(datagram) for datagram in datagrams)
        effects.extend(self._links.reports(now))
        if len(self._dag.streams) == 1:
            progress |= self._settle_stability(now, effects)  # there is no other member to acknowledge
        self._dag.promise(self.me, self._dag.own.inserted_through, self.clock)
        delivered = self._deliver_in_order(now, effects)
        if self._own_acks.watch_backlog(delivered):
            self._owed_acks.owe_ack()
        is_waiting = bool(self._delivery.undelivered_count) or self._blocked is not None
        self._solicitation.watch(is_waiting, progress or bool(delivered), now)
        if suspects := self._break_watch.watch(self._blocked is not None, now):
            effects.append(WindowStuck(suspects))
            effects.append(journal_lines.stuck(suspects, self._blocked or Reason.BACKLOG))
        return effects

    def next_deadline(self) -> Milliseconds:
        """Returns when `tick` must be called at the latest."""
        if self._unsettled:
            return AT_ONCE
        deadline = min(self._heartbeat_at, self._owed_acks.deadline())
        if deadline == AT_ONCE:
            return AT_ONCE
        if self._queue and not self._is_held and self._flow.blocked() is None:
            deadline = min(deadline, self._flow.next_send_at)
        for other in (self._solicitation.deadline, self._break_watch.deadline):
            if other is not None and other < deadline:
                deadline = other
        return min(deadline, self._requests.next_deadline(), self._answers.next_deadline())

    # The end of the view

    def hold(self) -> None:
        """Stops sending messages: those in the queue wait for the next view."""
        self._is_held = True
        self._blocked = None
        self._dag.is_ending = True
        self._unsettled = True

    def is_held(self) -> bool:
        return self._is_held

    def cover(self) -> Acks:
        """Returns what is in the DAG: of each member, everything up to a sequence."""
        return self._dag.inserted()

    def has(self, cover: Acks) -> bool:
        """Returns whether all this is in the DAG."""
        return self._dag.has(cover)

    def suspect(self, machines: Iterable[Machine]) -> None:
        """Lets only those units of these members enter the DAG, from now on, that other members have."""
        self._dag.suspect(machines)

    def require(self, cover: Acks, now: Milliseconds) -> list[TransportEffect]:
        """Inserts what a machine that is not suspected has in its DAG, or requests what is missing of it."""
        effects: list[TransportEffect] = []
        self._dag.require(cover)
        self._insert(self._dag.insert_pending(), effects)
        self._requests.look_for_gaps(now)
        return effects

    def close(self) -> list[TransportEffect]:
        """Delivers the rest without waiting for any member: everything that the survivors have is here."""
        effects: list[TransportEffect] = []
        delivered = self._delivery.settle() + self._delivery.close()
        if delivered:
            self._deliver(delivered, effects, is_closing=True)
        return effects

    def answer(self, nack: Nack, now: Milliseconds) -> None:
        """In a closed view: schedules the answer to a request of a slower survivor."""
        if nack.machine in self._dag.streams:
            self._answers.on_request(nack, now)

    def heard_answer(self, packet: Packet, transmitter: Machine, now: Milliseconds) -> None:
        """In a closed view: notes that another machine has answered a request."""
        self._answers.on_retransmission(packet, transmitter, now)

    def answers_due(self, now: Milliseconds) -> list[TransportEffect]:
        """In a closed view, in place of `tick`: sends the answers that are due."""
        effects: list[TransportEffect] = []
        frames: list[Frame] = []
        self._answer(frames, now, effects)
        effects += map(Broadcast, into_datagrams(self.me, frames, self.config.datagram_bytes_max))
        return effects

    def answers_deadline(self) -> Milliseconds:
        """In a closed view: returns when `answers_due` must be called at the latest."""
        return self._answers.next_deadline()

    # What the operator and the checkers look at

    def window_bytes(self) -> tuple[int, int]:
        """Returns the network window, which is what the retransmission buffers hold: all of it, and our part."""
        return self._dag.buffered_bytes, self._dag.own.buffered_bytes

    def window_messages(self) -> tuple[int, int]:
        """Returns the same in units."""
        return self._dag.buffered_messages, self._dag.own.buffered_messages

    def blocked(self) -> Reason | None:
        """Returns why the messages in the queue may not be sent; None if there are none, or they may."""
        return self._blocked

    def scheduled_answers(self) -> int:
        """Returns how many retransmissions wait to be sent."""
        return len(self._answers)

    def received_through(self) -> dict[Machine, int]:
        """Returns, for each member, the last unit up to which all units are here, in the DAG or pending."""
        return {machine: stream.received_through for machine, stream in self._dag.streams.items()}

    def pending_bytes(self) -> int:
        """Returns the largest number of bytes that any one sender's pending packets take up."""
        return max([stream.pending_bytes for stream in self._dag.streams.values()])

    def undelivered_bytes(self) -> int:
        """Returns how many bytes the ordered messages take up that are not delivered yet."""
        return self._delivery.undelivered_bytes

    def queued_messages(self) -> int:
        return len(self._queue)

    # Frames

    def _on_packet(
        self,
        transmitter: Machine,
        packet: Packet,
        now: Milliseconds,
        effects: list[TransportEffect],
        is_original: bool = True,
    ) -> None:
        self.counters["packets_received"] += 1
        stream = self._dag.streams.get(packet.sender)
        if stream is None or packet.view != self.view.id:
            foreign = Reason.NOT_A_MEMBER if stream is None else Reason.OTHER_VIEW
            effects.append(self._drop(foreign, packet.sender, packet.id))
            return
        is_duplicate = stream.has(packet)
        self._links.arrived(transmitter, packet, is_original, is_duplicate)
        if is_duplicate:
            self.counters["duplicates"] += 1
            return
        if (reason := self._admission.packet_objection(stream, packet, self.clock)) is not None:
            effects.append(self._drop(reason, packet.sender, packet.id))
            return
        # A Lamport clock rises above everything stored, by whatever route it came.
        self.clock = max(self.clock, packet.last_clock)
        if self.config.journal_packets:
            effects.append(journal_lines.received(packet))
        if is_original:
            self._requests.on_original(packet)
        if messages := self._delivery.arrived(packet):
            self._deliver(messages, effects)
        self._insert(self._dag.store(packet), effects)
        self._requests.look_for_gaps(now)

    def _on_status(self, sender: Machine, status: Status, effects: list[TransportEffect]) -> None:
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
            self._owed_acks.owe_status()

    def _on_nack(self, sender: Machine, nack: Nack, now: Milliseconds, effects: list[TransportEffect]) -> None:
        if nack.machine not in self._dag.streams:
            effects.append(self._drop(Reason.NOT_A_MEMBER, sender, str(nack.machine)))
            return
        self._requests.on_request(nack, now)
        self._answers.on_request(nack, now)

    def _insert(self, packets: list[Packet], effects: list[TransportEffect]) -> None:
        """Hands upward the messages of packets that have just entered the DAG. Others' must be acknowledged."""
        received: list[Message] = []
        for packet in packets:
            deliverable, open_messages = self._delivery.inserted(packet)
            received += open_messages
            if deliverable:
                self._deliver(deliverable, effects)
            if packet.sender != self.me:
                self._owed_acks.inserted(packet)
        if received:
            effects.append(Received(tuple(received)))

    # The steps of a tick

    def _settle_stability(self, now: Milliseconds, effects: list[TransportEffect]) -> bool:
        was_full = self._dag.is_full()
        stable = self._dag.take_stable()
        if self.config.journal_packets:
            effects.extend(map(journal_lines.stable, stable))
        self._meter.stable(self._dag.own.stable_through, now)
        if (was_full and stable) or self._is_held:
            self._insert(self._dag.insert_pending(), effects)
        return bool(stable)

    def _send_queued(self, frames: list[Frame], now: Milliseconds, effects: list[TransportEffect]) -> None:
        while self._queue and now >= self._flow.next_send_at:
            if self._flow.blocked() is not None:
                break
            packet = self._next_packet()
            frames.append(packet)
            self.counters["packets_sent"] += 1
            if self.config.journal_packets:
                effects.append(journal_lines.sent(packet))
            if messages := self._delivery.arrived(packet):
                self._deliver(messages, effects)
            self._insert(self._dag.store(packet), effects)
            self._flow.sent(now)
            self._owed_acks.packet_sent()
            self._meter.sent(packet, now)
        self._note_blocking(effects)
        if self._queue_full and self._queue.has_room():
            self._queue_full = False
            effects.append(Backpressure(full=False))

    def _next_packet(self) -> Packet:
        acks = self._own_acks.take_new()
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

    def _note_blocking(self, effects: list[TransportEffect]) -> None:
        blocked = self._flow.blocked() if self._queue else None
        if blocked is self._blocked:
            return
        self._blocked = blocked
        if blocked is not None:
            self.counters[f"blocked_{blocked}"] += 1
        effects.append(journal_lines.blocked(blocked, self._dag.buffered_messages))

    def _recover(self, frames: list[Frame], now: Milliseconds, effects: list[TransportEffect]) -> None:
        self._requests.look_for_gaps(now)
        for nack in self._requests.due(now):
            frames.append(nack)
            self.counters["nacks_sent"] += 1
            self._links.requested(nack)
            effects.append(journal_lines.nacked(nack))
        self._answer(frames, now, effects)

    def _answer(self, frames: list[Frame], now: Milliseconds, effects: list[TransportEffect]) -> None:
        for packet in self._answers.due(now):
            frames.append(Retransmission(packet))
            if packet.sender == self.me:
                self._meter.retransmitted()
            self.counters["packets_retransmitted"] += 1
            effects.append(journal_lines.retransmitted(packet))

    def _acknowledge(self, frames: list[Frame], now: Milliseconds) -> None:
        """Sends a status if a mark, a solicitation or the answer to one, a heartbeat, or an acknowledgement that
        no packet has carried is due."""
        if not (self._owed_acks.is_due(now) or self._solicitation.is_due(now) or now >= self._heartbeat_at):
            return
        solicit = self._solicitation.take(self._blocked is not None, now)
        acks = self._own_acks.for_status()
        own_sequence = self._dag.own.inserted_through
        window_bytes = self.config.window_bytes_max
        status = Status(self.view.id, self.clock, own_sequence, window_bytes, acks, solicit, self._marks)
        frames.append(status)
        self.counters["statuses_sent"] += 1
        self._heartbeat_at = now + self.config.heartbeat_ms
        self._owed_acks.status_sent()

    def _deliver_in_order(self, now: Milliseconds, effects: list[TransportEffect]) -> list[Message]:
        delivered = self._delivery.settle()
        if delivered:
            self._deliver(delivered, effects)
        self._meter.delivered(bool(delivered), bool(self._delivery.undelivered_count), now)
        return delivered

    def _deliver(self, messages: list[Message], effects: list[TransportEffect], is_closing: bool = False) -> None:
        self.counters["messages_delivered"] += len(messages)
        effects.append(Delivered(tuple(messages), is_closing))
        if self.config.journal_packets:
            effects.extend(map(journal_lines.delivered, messages))

    def _drop(self, reason: Reason, sender: Machine, subject: str = "") -> Journal:
        """Counts a peer's error, and returns its line of the journal."""
        self.counters[f"dropped_{reason}"] += 1
        return journal_lines.dropped(reason, sender, subject)
