"""Every checker accepts a history that keeps its property, and catches a planted one that does not."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulator.checkers import Violation
from tests.simulator.checkers.agreed_order import AgreedOrder
from tests.simulator.checkers.bounded_buffers import BoundedBuffers
from tests.simulator.checkers.causal_order import CausalOrder
from tests.simulator.checkers.no_duplicates import NoDuplicates
from tests.simulator.checkers.no_loss import NoLoss
from tests.simulator.checkers.received_once import ReceivedOnce
from tests.simulator.checkers.safe_received import SafeReceived
from tests.simulator.checkers.stuck_reported import StuckReported
from transport.config import TransportConfig
from transport.effects import Reason
from transport.lansis import Lansis
from transport.messages import Machine, Message, Service, View, ViewId

NODES = ("a", "b", "c")
VIEW = View(ViewId(1, "a", 1), tuple(Machine(name, 1) for name in NODES))
BASIC, CAUSAL, AGREED, SAFE = Service


def message(sender: str, clock: int = 1, service: Service = AGREED) -> Message:
    return Message(clock, Machine(sender, 1), clock, service, VIEW.id, b"")


def machine(name: str = "a") -> Lansis:
    return Lansis(Machine(name, 1), VIEW, TransportConfig(), Random(1), 0.0)


# Causal order


def cause_and_effect(cause: Service, effect: Service) -> CausalOrder:
    """`a` has sent a:0, `b` has delivered it and then sent b:0."""
    checker = CausalOrder(NODES)
    checker.sent("a", 0, cause)
    checker.delivered("b", "a", 0, message("a", 1, cause))
    checker.sent("b", 0, effect)
    return checker


def test_causal_order_accepts_an_effect_after_its_cause() -> None:
    checker = cause_and_effect(AGREED, CAUSAL)
    checker.delivered("c", "a", 0, message("a", 1))
    checker.delivered("c", "b", 0, message("b", 2, CAUSAL))


@pytest.mark.parametrize("effect", [CAUSAL, AGREED, SAFE])
def test_causal_order_catches_an_effect_before_its_cause(effect: Service) -> None:
    checker = cause_and_effect(AGREED, effect)
    with pytest.raises(Violation, match="c delivered b:0 having 0 messages of a, but its past has 1"):
        checker.delivered("c", "b", 0, message("b", 2, effect))


def test_causal_order_catches_a_gap_in_one_senders_messages() -> None:
    checker = CausalOrder(NODES)
    checker.sent("a", 0, CAUSAL)
    checker.sent("a", 1, CAUSAL)
    with pytest.raises(Violation, match="c delivered a:1 having 0 messages of a"):
        checker.delivered("c", "a", 1, message("a", 2, CAUSAL))


def test_causal_order_catches_a_missing_cause_of_a_cause() -> None:
    checker = cause_and_effect(CAUSAL, CAUSAL)
    for node in "ac":
        checker.delivered(node, "a", 0, message("a", 1, CAUSAL))
    checker.delivered("c", "b", 0, message("b", 2, CAUSAL))
    checker.sent("c", 0, CAUSAL)
    with pytest.raises(Violation, match="a delivered c:0 having 0 messages of b"):
        checker.delivered("a", "c", 0, message("c", 3, CAUSAL))


def test_causal_order_asks_nothing_of_basic_messages() -> None:
    checker = cause_and_effect(BASIC, CAUSAL)
    checker.delivered("c", "b", 0, message("b", 2, CAUSAL))
    checker.delivered("c", "a", 0, message("a", 1, BASIC))


# Agreed order


def test_agreed_order_accepts_one_order_that_some_have_seen_less_of() -> None:
    checker = AgreedOrder()
    for node in "ab":
        checker.delivered(node, "a", 0, message("a", 1))
        checker.delivered(node, "b", 0, message("b", 1, SAFE))
    checker.delivered("c", "a", 0, message("a", 1))


def test_agreed_order_catches_two_orders() -> None:
    checker = AgreedOrder()
    checker.delivered("a", "a", 0, message("a", 1))
    checker.delivered("a", "b", 0, message("b", 2))
    with pytest.raises(Violation, match="at place 0 b delivered"):
        checker.delivered("b", "b", 0, message("b", 2))


def test_agreed_order_catches_a_skipped_message() -> None:
    checker = AgreedOrder()
    for clock in (1, 2, 3):
        checker.delivered("a", "a", clock - 1, message("a", clock))
    checker.delivered("b", "a", 0, message("a", 1))
    with pytest.raises(Violation, match="at place 1 b delivered"):
        checker.delivered("b", "a", 2, message("a", 3))


def test_agreed_order_catches_an_order_against_the_timestamps() -> None:
    checker = AgreedOrder()
    checker.delivered("a", "b", 0, message("b", 2))
    with pytest.raises(Violation, match="not in timestamp order"):
        checker.delivered("a", "a", 0, message("a", 2))


def test_agreed_order_ignores_the_services_that_have_none() -> None:
    checker = AgreedOrder()
    for clock, service in ((5, CAUSAL), (2, BASIC), (1, CAUSAL)):
        checker.delivered("a", "b", clock, message("b", clock, service))


# Safe


def test_safe_received_accepts_what_every_member_has() -> None:
    checker = SafeReceived(NODES)
    for node in NODES:
        checker.received(node, "a", 0, message("a", 1, SAFE))
    checker.delivered("b", "a", 0, message("a", 1, SAFE))


def test_safe_received_catches_what_one_member_lacks() -> None:
    checker = SafeReceived(NODES)
    for node in "ab":
        checker.received(node, "a", 0, message("a", 1, SAFE))
    with pytest.raises(Violation, match="b delivered safe a:0, which c does not have"):
        checker.delivered("b", "a", 0, message("a", 1, SAFE))


def test_safe_received_asks_nothing_of_agreed_messages() -> None:
    SafeReceived(NODES).delivered("b", "a", 0, message("a", 1, AGREED))


# Duplicates


def test_no_duplicates_accepts_one_delivery_at_each_node() -> None:
    checker = NoDuplicates()
    for node in NODES:
        checker.delivered(node, "a", 0, message("a", 1))
        checker.delivered(node, "a", 1, message("a", 2))


def test_no_duplicates_catches_the_second_delivery() -> None:
    checker = NoDuplicates()
    checker.delivered("b", "a", 0, message("a", 1))
    with pytest.raises(Violation, match="b delivered a:0 twice"):
        checker.delivered("b", "a", 0, message("a", 1))


# Loss


def test_no_loss_accepts_when_all_have_delivered_all() -> None:
    checker = NoLoss()
    for node in "ab":
        checker.delivered(node, "a", 0, message("a", 1))
        checker.delivered(node, "b", 0, message("b", 1, BASIC))
    checker.finished({"a": machine("a"), "b": machine("b")}, {"a": [AGREED], "b": [BASIC]})


def test_no_loss_catches_what_one_never_delivered() -> None:
    checker = NoLoss()
    checker.delivered("a", "a", 0, message("a", 1))
    with pytest.raises(Violation, match="b never delivered AGREED a:0"):
        checker.finished({"a": machine("a"), "b": machine("b")}, {"a": [AGREED]})


def test_after_a_crash_no_loss_demands_equal_dags_only() -> None:
    checker = NoLoss()
    checker.crashed("c")
    checker.finished({"a": machine("a"), "b": machine("b")}, {"a": [AGREED]})


def test_after_a_crash_no_loss_catches_what_one_live_member_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = NoLoss()
    checker.crashed("c")
    live = {"a": machine("a"), "b": machine("b")}
    monkeypatch.setattr(live["b"], "received_through", lambda: {Machine("a", 1): 5})
    with pytest.raises(Violation, match=r"a has received .*, b .*5"):
        checker.finished(live, {})


# Received


def test_received_once_accepts_what_comes_in_order_and_before_its_delivery() -> None:
    checker = ReceivedOnce(NODES)
    checker.sent("a", 0, CAUSAL)
    for number in (1, 2):
        checker.sent("a", number, AGREED)
        checker.received("b", "a", number, message("a", number))
    checker.delivered("b", "a", 1, message("a", 1))


@pytest.mark.parametrize(
    ("numbers", "complaint"), [((0, 0), "was offered a:0, the next"), ((1,), "was offered a:1")]
)
def test_received_once_catches_repetitions_and_gaps(numbers: tuple[int, ...], complaint: str) -> None:
    checker = ReceivedOnce(NODES)
    for number in range(3):
        checker.sent("a", number, AGREED)
    for number in numbers[:-1]:
        checker.received("b", "a", number, message("a"))
    with pytest.raises(Violation, match=complaint):
        checker.received("b", "a", numbers[-1], message("a"))


def test_received_once_catches_an_effect_before_its_cause() -> None:
    checker = ReceivedOnce(NODES)
    checker.sent("a", 0, AGREED)
    checker.received("b", "a", 0, message("a"))
    checker.delivered("b", "a", 0, message("a"))
    checker.sent("b", 0, AGREED)
    with pytest.raises(Violation, match="before what a sent in its past"):
        checker.received("c", "b", 0, message("b"))


def test_received_once_catches_a_delivery_that_was_not_offered() -> None:
    checker = ReceivedOnce(NODES)
    checker.sent("a", 0, SAFE)
    with pytest.raises(Violation, match="was not offered before"):
        checker.delivered("b", "a", 0, message("a", 1, SAFE))


# Stuck


def blocked_machine(monkeypatch: pytest.MonkeyPatch) -> Lansis:
    blocked = machine()
    monkeypatch.setattr(blocked, "blocked", lambda: Reason.SHARE_USED)
    return blocked


def test_stuck_reported_accepts_a_report_that_names_the_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = StuckReported()
    checker.crashed("c")
    checker.stuck("a", (Machine("c", 1),))
    checker.finished({"a": blocked_machine(monkeypatch), "b": machine("b")}, {})


@pytest.mark.parametrize(
    ("crashed", "blamed", "complaint"),
    [((), (), "though everything"), (("c",), (), "not said by whom"), (("c",), ("b", "c"), r"blames \['b'\]")],
)
def test_stuck_reported_catches_silence_and_false_accusation(
    monkeypatch: pytest.MonkeyPatch, crashed: tuple[str, ...], blamed: tuple[str, ...], complaint: str
) -> None:
    checker = StuckReported()
    for name in crashed:
        checker.crashed(name)
    if blamed:
        checker.stuck("a", tuple(Machine(name, 1) for name in blamed))
    with pytest.raises(Violation, match=complaint):
        checker.finished({"a": blocked_machine(monkeypatch)}, {})


# Bounds


def test_bounded_buffers_accepts_a_machine_within_its_bounds() -> None:
    loaded = machine()
    for _ in range(loaded.config.queue_messages_max):
        loaded.multicast(AGREED, bytes(100))
    BoundedBuffers().stepped("a", loaded)
    loaded.tick(1.0)
    BoundedBuffers().stepped("a", loaded)


@pytest.mark.parametrize(
    ("buffer", "content", "complaint"),
    [
        ("pending_bytes", 5 * 1_048_576, "bytes of one sender pending"),
        ("window_bytes", (400_000, 400_000), "more than its share of the window"),
        ("window_bytes", (5 * 1_048_576, 0), "a buffers 5242880 bytes, more than 4194304"),
        ("window_messages", (3_000, 3_000), "a has 3000 units in flight"),
        ("scheduled_answers", 4_097, "about to retransmit 4097 packets"),
        ("undelivered_bytes", 90 * 1_048_576, "a keeps 94371840 bytes undelivered"),
        ("queued_messages", 16_385, "a queues 16385 messages"),
    ],
)
def test_bounded_buffers_catches_each_buffer_above_its_bound(
    monkeypatch: pytest.MonkeyPatch, buffer: str, content: object, complaint: str
) -> None:
    overfull = machine()
    monkeypatch.setattr(overfull, buffer, lambda: content)
    with pytest.raises(Violation, match=complaint):
        BoundedBuffers().stepped("a", overfull)
