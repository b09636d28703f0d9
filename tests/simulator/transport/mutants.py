"""The simulator finds bugs: a mutant is the real transport with one line made wrong, and some seed must notice.

`breaks` names what may notice first: a checker, the transport layer's own checks of payloads, datagram sizes and
incarnations, or an exception in a machine.

Not here, because no seed is likely to notice: a member with too many undelivered messages that stops nobody,
packets of one sender kept without bound, and the largest receive buffer deciding the window. Unit tests do.

Not here, because they are no bugs: ordering by clock alone before a stable sort over members in order; a fragment
taken whatever its part (the DAG is in order); a promise to ourselves one too high (nobody's clock is above that
of a packet we have); own packets kept out of full buffers (a full window stops us before).

Not here, because nothing notices them yet: fragments in the wrong order behind the first (padding is all one
byte); the largest advertised window used instead of the smallest (all nodes of a plan have the same); those not
named whose silence holds up delivery but not sending; whatever costs only time, such as not soliciting, unless it
has a directed test.
"""

from __future__ import annotations

from tests.simulator.mutation import Edit, Mutant, what_breaks
from tests.simulator.transport.plan import draw_plan
from tests.simulator.transport.process import Process
from tests.simulator.transport.run import TransportRun
from tests.transport import test_marks
from transport import codec
from transport.dag import CausalDag, PacketStream
from transport.delivery import Delivery, Reassembly
from transport.flow import FlowControl
from transport.lansis import Lansis
from transport.ordering import LamportOrder
from transport.outgoing_acks import OwedAcks, OwnAcks
from transport.packing import SendQueue
from transport.repair import Answers, Requests
from transport.waits import Solicitation

SEEDS_MAX = 60
"""A test run looks at so many seeds for each."""

NO_HEARTBEAT = (
    Edit(Lansis, "__init__", "now + config.heartbeat_ms * random.random()", 'float("inf")'),
    Edit(Lansis, "_acknowledge", "now + self.config.heartbeat_ms", 'float("inf")'),
)

MUTANTS = [
    # The DAG
    Mutant(
        "a packet enters without what it acknowledges",
        ("causal_order", "received_once"),
        (Edit(CausalDag, "_may_enter", "inserted_through < sequence", "inserted_through < 0"),),
    ),
    Mutant(
        "a pending packet is stored again",
        ("KeyError", "no_duplicates", "bounded_buffers"),
        (
            Edit(PacketStream, "has", " or packet.sequence in self.pending", ""),
            Edit(PacketStream, "fits_between", "if place < len(self.pending_sequences)", "if False"),
        ),
    ),
    Mutant(
        "one acknowledgement makes stable",
        ("no_loss", "safe_received"),
        (Edit(CausalDag, "take_stable", "min(through,", "max(through,"),),
    ),
    Mutant(
        "what is in the DAG leaves the buffer",
        ("no_loss",),
        (Edit(CausalDag, "take_stable", "last_sequence <= through", "last_sequence <= stream.inserted_through"),),
    ),
    Mutant(
        "a promise counts before what precedes it",
        ("agreed_order", "no_loss"),
        (Edit(CausalDag, "promise", "if sequence > stream.inserted_through", "if False"),),
    ),
    Mutant(
        "a newcomer overtakes the pending",
        ("no_loss",),
        (Edit(CausalDag, "store", "(stream is self.own or not self._waiting) and ", ""),),
    ),
    Mutant(
        "full buffers take in more",
        ("bounded_buffers",),
        (Edit(CausalDag, "_may_enter", "self.is_full()", "False"),),
        first_seed=290,
        nodes=(3, 9),
    ),
    Mutant(
        "buffers that were full stay shut",
        ("no_loss",),
        (Edit(Lansis, "_settle_stability", "was_full and stable", "False"),),
        first_seed=760,
        nodes=(3, 9),
    ),
    # Clocks and order
    Mutant(
        "the order is decided by the furthest member",
        ("agreed_order",),
        (Edit(LamportOrder, "release", "min(self._heard", "max(self._heard"),),
    ),
    Mutant(
        "the order is decided one clock too early",
        ("agreed_order",),
        (Edit(LamportOrder, "release", "min(self._heard.values())", "min(self._heard.values()) + 1"),),
    ),
    Mutant(
        "released messages are not sorted",
        ("agreed_order",),
        (Edit(LamportOrder, "release", "released.sort()", "pass"),),
    ),
    Mutant(
        "receiving does not raise the clock",
        ("no_loss", "agreed_order"),
        (Edit(Lansis, "_on_packet", "max(self.clock, packet.last_clock)", "self.clock"),),
    ),
    Mutant(
        "a status promises one clock too many",
        ("agreed_order", "no_loss"),
        (Edit(Lansis, "_acknowledge", "self.clock, own_sequence", "self.clock + 1, own_sequence"),),
    ),
    # Delivery
    Mutant(
        "safe messages do not wait to be stable",
        ("safe_received",),
        (
            Edit(
                Delivery, "_deliver_ordered", "streams[message.sender].stable_through < message.sequence", "False"
            ),
        ),
    ),
    Mutant(
        "causal messages do not wait for ordered causes",
        ("causal_order",),
        (Edit(Delivery, "_deliver_or_hold", "if not self.undelivered_count", "if True"),),
        first_seed=15,
    ),
    Mutant(
        "the latest cause is overlooked",
        ("causal_order",),
        (Edit(Delivery, "_blocker", "undelivered[0] <= past", "undelivered[0] < past"),),
        first_seed=25,
    ),
    Mutant(
        "a message's past is only its sender's",
        ("causal_order",),
        (Edit(Delivery, "inserted", "self._past[packet.sender].update(packet.acks)", "pass"),),
        first_seed=25,
    ),
    Mutant(
        "basic messages are delivered on arrival and again",
        ("no_duplicates",),
        (Edit(Delivery, "inserted", "return [], []  # delivered on arrival", "return _messages(packet), []"),),
    ),
    Mutant(
        "fragments are put together backwards",
        ("transport.run", "ValueError"),
        (Edit(Reassembly, "add", "self._parts.append(", "self._parts.insert(0, "),),
    ),
    # Recovery and acknowledgements
    Mutant(
        "only the sender answers",
        ("no_loss",),
        (Edit(Answers, "on_request", "not is_ours and not nack.is_repeated", "not is_ours"),),
        first_seed=120,
    ),
    Mutant(
        "what was answered once is never answered again",
        ("no_loss",),
        (Edit(Answers, "_expire_answered", "if at > horizon", "if True"),),
    ),
    Mutant(
        "a request is not repeated",
        ("no_loss",),
        (Edit(Requests, "_retry_ms", "min(doubled_ms, self._config.nack_retry_ms_max)", "NEVER"),),
    ),
    Mutant(
        "nobody mentions a last message that was lost",
        ("no_loss",),
        NO_HEARTBEAT,
        first_seed=25,
    ),
    Mutant(
        "neither heartbeats nor solicitations",
        ("no_loss",),
        (*NO_HEARTBEAT, Edit(Solicitation, "watch", "now + self._wait_ms", "None")),
    ),
    Mutant(
        "acknowledging what is only known to exist",
        ("no_loss", "safe_received"),
        (Edit(OwnAcks, "_all", "(machine, stream.inserted_through)", "(machine, stream.known_through)"),),
    ),
    Mutant(
        "packets acknowledge nothing",
        ("causal_order", "received_once"),
        (Edit(OwnAcks, "take_new", "stream.inserted_through > self._sent.get(machine, 0)", "False"),),
    ),
    Mutant(
        "a packet clears the debt of a mark",
        (),
        (Edit(OwedAcks, "packet_sent", "self._is_ack_due =", "self._is_status_owed = self._is_ack_due ="),),
        test=test_marks.test_a_mark_is_sent_in_the_tick_in_which_a_packet_leaves,
    ),
    Mutant(
        "a packet is the answer to a solicitation of marks",
        (),
        (
            Edit(
                Lansis,
                "_on_status",
                "if self.me in status.solicit:\n        self._owed_acks.owe_status()",
                "if self.me in status.solicit:\n        self._owed_acks.owe_ack()",
            ),
        ),
        test=test_marks.test_a_solicited_member_repeats_its_marks_though_a_packet_leaves,
    ),
    Mutant(
        "a packet takes the place of a solicitation",
        (),
        (Edit(Lansis, "solicit", "self._owed_acks.owe_status()", "self._owed_acks.owe_ack()"),),
        test=test_marks.test_members_are_solicited_though_a_packet_leaves,
    ),
    # Sending
    Mutant(
        "a share of the window is no bound",
        ("bounded_buffers",),
        (
            Edit(
                FlowControl,
                "blocked",
                "own.buffered_bytes + self._largest_packet_bytes > self.share_bytes",
                "False",
            ),
        ),
    ),
    Mutant(
        "the queue is never full",
        ("bounded_buffers",),
        (Edit(SendQueue, "is_full", "len(self._waiting) >= self._config.queue_messages_max", "False"),),
        first_seed=15,
    ),
    Mutant(
        "a full queue tells nobody",
        ("QueueFull",),
        (Edit(Lansis, "multicast", "return [Backpressure(full=True)]", "pass"),),
        first_seed=15,
    ),
    Mutant(
        "packets mix services",
        ("transport.run",),
        (Edit(SendQueue, "take_run", "next_service is not service or ", ""),),
    ),
    Mutant(
        "packets outgrow their datagrams",
        ("transport.run", "bounded_buffers"),
        (Edit(SendQueue, "take_run", " or free_bytes < 0", ""),),
    ),
    Mutant(
        "fragments travel without their numbers",
        ("transport.run", "ValueError"),
        (Edit(codec, "_packet_to_list", "*(packet.fragment or ()),", ""),),
    ),
    # Restarts
    Mutant(
        "a restart keeps its incarnation",
        ("transport.run",),
        (Edit(Process, "start", 'int(stored or b"0") + 1', 'max(int(stored or b"0"), 1)'),),
    ),
    Mutant(
        "an incarnation is used before it is synced",
        ("transport.run",),
        (Edit(Process, "start", "self.disk.sync()", "pass"),),
    ),
    Mutant(
        "a machine that is no member is listened to",
        ("KeyError",),
        (Edit(Lansis, "receive", "if sender not in self._dag.streams", "if False"),),
    ),
    # What the layer above is told
    Mutant(
        "large messages end with their first fragment",
        ("transport.run",),
        (Edit(SendQueue, "_take_fragment", "self._offset == len(payload)", "True"),),
    ),
    Mutant(
        "backpressure never ends",
        ("transport.run",),
        (Edit(Lansis, "_send_queued", "self._queue_full and self._queue.has_room()", "False"),),
        first_seed=15,
    ),
    Mutant(
        "messages are reported as received twice",
        ("received_once",),
        (Edit(Lansis, "_insert", "received += open_messages", "received += open_messages * 2"),),
    ),
    Mutant(
        "messages are reported as received against causal order",
        ("received_once",),
        (Edit(Lansis, "_insert", "received += open_messages", "received[:0] = open_messages"),),
    ),
    Mutant(
        "a stuck window is not reported",
        ("stuck_reported",),
        (Edit(Lansis, "tick", "effects.append(WindowStuck(suspects))", "pass"),),
    ),
    Mutant(
        "a packet exceeds the share in messages",
        ("bounded_buffers",),
        (Edit(FlowControl, "units_allowed", " - self._dag.own.buffered_messages", ""),),
    ),
    Mutant(
        "answers have no bound",
        ("bounded_buffers",),
        (Edit(Answers, "on_request", "len(self._scheduled) >= self._config.answers_max", "False"),),
    ),
    Mutant(
        "a member with a backlog acknowledges nothing at all",
        ("stuck_reported", "no_loss", "transport.run"),
        (Edit(OwnAcks, "watch_backlog", "[*delivered, first] if first is not None else delivered", "[]"),),
        first_seed=95,
    ),
]


def broken_property(seed: int, nodes: tuple[int, int]) -> str | None:
    return what_breaks(lambda: TransportRun(draw_plan(seed, *nodes)).run())
