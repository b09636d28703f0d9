"""The four services (section 3.1, "Implementation of Services"): criteria that read the one DAG.

- **basic**: at once, when the packet arrives, whatever is missing before it. (A basic message that had to be
  fragmented waits until its fragments are in the DAG.)
- **causal**: when everything in its causal past has been delivered, messages of the ordered services included:
  an effect is not delivered before its cause, whichever of these three services the cause used. (A basic
  message that a member acted on before it was causally deliverable is the exception: it is not acknowledged
  before then.)
- **agreed**: when the order criterion has decided its place.
- **safe**: like agreed, and every member has acknowledged it.

Agreed and safe messages share one order and are delivered in it without exception, so a safe message that is
not acknowledged by all holds up the agreed ones behind it. A machine's own messages are delivered to it by the
same criteria.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count, repeat
from operator import itemgetter
from typing import NamedTuple

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.messages import Fragment, Machine, Message, Packet, Service
from transport.ordering import OrderCriterion


class _Held(NamedTuple):
    """Causal messages that wait for ordered ones of their past. `order` numbers them as they entered the DAG."""

    order: int
    past: dict[Machine, int]
    messages: list[Message]


class Delivery:
    """Turns packets into messages and says when each may be delivered."""

    def __init__(self, dag: CausalDag, criterion: OrderCriterion, config: TransportConfig) -> None:
        self._dag = dag
        self._criterion = criterion
        self._overhead_bytes = config.packet_overhead_bytes
        self._reassembly = {machine: Reassembly(config.message_bytes_max) for machine in dag.streams}
        self._ordered: deque[Message] = deque()
        """Messages whose place is known. They wait because the first is a safe message that is not stable yet."""
        self._past: dict[Machine, dict[Machine, int]] = {machine: {} for machine in dag.streams}
        """The causal past of each sender's last packet in the DAG."""
        self._undelivered: dict[Machine, deque[int]] = {machine: deque() for machine in dag.streams}
        """Sequences of ordered messages in the DAG that have not been delivered."""
        self._held: dict[tuple[Machine, int], list[_Held]] = {}
        """Causal messages that wait, each by one undelivered ordered message of its past."""
        self._held_count = 0
        self.delivered_count = 0
        """How many ordered messages have been delivered."""
        self.undelivered_count = 0
        self.undelivered_bytes = 0

    def arrived(self, packet: Packet) -> list[Message]:
        """Returns what can be delivered of a packet that has arrived, whether or not its predecessors have."""
        if packet.service is Service.BASIC and packet.fragment is None:
            return _messages(packet)
        return []

    def inserted(self, packet: Packet) -> tuple[list[Message], list[Message]]:
        """Takes a packet that entered the DAG; returns the messages to deliver now, and those yet to be
        ordered."""
        self._past[packet.sender].update(packet.acks)
        if packet.fragment is not None:
            messages = self._reassembly[packet.sender].add(packet, packet.fragment)
        elif packet.service is Service.BASIC:
            return [], []  # delivered on arrival
        else:
            messages = _messages(packet)
        if not messages:
            return [], []
        if packet.service is Service.BASIC:
            return messages, []
        if packet.service is Service.CAUSAL:
            return self._deliver_or_hold(packet, messages), []
        self._criterion.insert(packet, messages)
        self._undelivered[packet.sender].extend([message.sequence for message in messages])
        self._count(messages, 1)
        return [], messages

    def settle(self) -> list[Message]:
        """Returns what can be delivered, given what is now known of all members' clocks and acknowledgements."""
        for stream in self._dag.take_heard():
            self._criterion.heard(stream.machine, stream.heard_clock)
        if not self.undelivered_count:
            return []
        self._ordered.extend(self._criterion.release())
        return self._deliver_ordered(is_final=False)

    def close(self) -> list[Message]:
        """Returns everything that is left, in order: the view is over, and nothing more will enter the DAG."""
        self._ordered.extend(self._criterion.drain())
        return self._deliver_ordered(is_final=True)

    def _deliver_ordered(self, is_final: bool) -> list[Message]:
        delivered: list[Message] = []
        in_order: list[Message] = []
        streams = self._dag.streams
        while self._ordered:
            message = self._ordered[0]
            if (
                message.service is Service.SAFE
                and streams[message.sender].stable_through < message.sequence
                and not is_final
            ):
                break
            self._ordered.popleft()
            self._undelivered[message.sender].popleft()
            in_order.append(message)
            delivered.append(message)
            if self._held:
                delivered += self._release(self._held.pop((message.sender, message.sequence), []))
        self.delivered_count += len(in_order)
        self._count(in_order, -1)
        return delivered

    def first_undelivered(self) -> Message | None:
        """Returns the ordered message to be delivered next, as far as is known."""
        return self._ordered[0] if self._ordered else self._criterion.first()

    def awaited(self) -> list[Machine]:
        """Returns the members whose silence holds up the next ordered message."""
        if self._ordered:
            message = self._ordered[0]
            return [
                stream.machine
                for stream in self._dag.streams.values()
                if stream is not self._dag.own
                and stream.machine != message.sender
                and stream.acks.get(message.sender, 0) < message.sequence
            ]
        return self._criterion.awaited()

    def _count(self, messages: list[Message], sign: int) -> None:
        payload_bytes = sum([len(message.payload) for message in messages])
        self.undelivered_count += sign * len(messages)
        self.undelivered_bytes += sign * (payload_bytes + self._overhead_bytes * len(messages))

    def _deliver_or_hold(self, packet: Packet, messages: list[Message]) -> list[Message]:
        if not self.undelivered_count:
            return messages
        past = {**self._past[packet.sender], packet.sender: packet.sequence}
        self._held_count += 1
        return self._release([_Held(self._held_count, past, messages)])

    def _release(self, candidates: list[_Held]) -> list[Message]:
        """Returns the messages whose past has been delivered, in the order in which they entered the DAG, because
        one may be in another's past. The others wait for another message of their past."""
        released: list[Message] = []
        for held in sorted(candidates, key=itemgetter(0)):
            blocker = self._blocker(held.past)
            if blocker is None:
                released += held.messages
            else:
                self._held.setdefault(blocker, []).append(held)
        return released

    def _blocker(self, past: dict[Machine, int]) -> tuple[Machine, int] | None:
        """Returns an ordered message of this past that has not been delivered."""
        for machine, undelivered in self._undelivered.items():
            if undelivered and undelivered[0] <= past.get(machine, 0):
                return machine, undelivered[0]
        return None


class Reassembly:
    """Puts the fragments of one sender's messages together; they come in order, because the DAG is in order.

    A part that does not continue what is here, or makes it too large, is a peer's error: the message is dropped,
    and every member drops the same.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, packet: Packet, fragment: Fragment) -> list[Message]:
        """Returns the message that this fragment completes, if it does."""
        if fragment.part == 0:
            self._clear()
        if fragment.part != len(self._parts) or self._bytes + packet.payload_bytes > self._bytes_max:
            self._clear()
            return []
        self._parts.append(packet.payloads[0])
        self._bytes += packet.payload_bytes
        if not fragment.is_last:
            return []
        whole = b"".join(self._parts)
        self._clear()
        return [Message(packet.clock, packet.sender, packet.sequence, packet.service, packet.view, whole)]

    def _clear(self) -> None:
        self._parts = []
        self._bytes = 0


_make_message = partial(tuple.__new__, Message)
"""Makes a `Message` without calling a Python function, because it is called for every message at every member."""


def _messages(packet: Packet) -> list[Message]:
    fields = zip(
        count(packet.clock),
        repeat(packet.sender),
        count(packet.sequence),
        repeat(packet.service),
        repeat(packet.view),
        packet.payloads,
        strict=False,
    )
    return list(map(_make_message, fields))
