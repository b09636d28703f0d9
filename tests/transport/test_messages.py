"""What is sent: each value is checked when it is built, and has the names and the order of the paper."""

from __future__ import annotations

from random import Random

import pytest

from tests.transport.harness import VIEW, A, B, C, packet
from transport.messages import ORDERED, Fragment, Machine, Message, Nack, Packet, Service, Timestamp, View, ViewId


def message(clock: int, sender: Machine) -> Message:
    return Message(clock, sender, 17, Service.AGREED, VIEW, b"")


def test_names_of_machines_messages_and_packets() -> None:
    assert str(Machine("a", 3)) == "a.3"
    assert str(ViewId(9, "a", 3)) == "9.a.3"
    assert message(9, Machine("a", 3)).id == "a.3.17"
    assert packet("a", 17).id == "a.1.17"
    assert packet("a", 17, payloads=[b"x"] * 13).id == "a.1.17-29"


def test_messages_compare_as_their_timestamps_do() -> None:
    ordered = [
        message(1, B),
        message(2, Machine("a", 1)),
        message(2, Machine("a", 2)),
        message(2, Machine("b", 1)),
        message(3, A),
    ]
    shuffled = Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled) == ordered
    assert sorted(shuffled, key=lambda message: message.timestamp) == ordered
    assert ordered[2].timestamp == Timestamp(2, "a", 2)


def test_view_ids_ascend_as_timestamps_do() -> None:
    ordered = [ViewId(1, "b", 1), ViewId(2, "a", 1), ViewId(2, "a", 2), ViewId(2, "b", 1), ViewId(10, "a", 1)]
    assert sorted(Random(1).sample(ordered, len(ordered))) == ordered


def test_services_are_in_the_order_of_the_delay_they_cost() -> None:
    assert list(Service) == [Service.BASIC, Service.CAUSAL, Service.AGREED, Service.SAFE]
    assert ORDERED == (Service.AGREED, Service.SAFE)


def test_a_packet_describes_its_run() -> None:
    run = packet("a", 5, clock=20, payloads=[b"", b"12", b"345"])
    assert (run.last_sequence, run.last_clock, run.payload_bytes) == (7, 22, 5)


def test_packets_are_equal_by_what_they_carry() -> None:
    assert packet("a", 1) == packet("a", 1)
    assert packet("a", 1) != packet("a", 1, acks={"b": 1})
    assert packet("a", 1) != packet("a", 1, payloads=[b"y"])


def test_a_packet_without_units_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one unit"):
        packet("a", 1, payloads=[])


@pytest.mark.parametrize(("sequence", "clock"), [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_sequences_and_clocks_count_from_one(sequence: int, clock: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        Packet(A, VIEW, sequence, clock, Service.BASIC, (), (b"x",))


@pytest.mark.parametrize("part", [-1, 4, 5])
def test_a_fragment_follows_as_many_units_as_parts(part: int) -> None:
    assert packet("a", 4, fragment=Fragment(3, False))
    with pytest.raises(ValueError, match=f"part {part} cannot be unit 4"):
        packet("a", 4, fragment=Fragment(part, False))


def test_a_fragment_travels_alone_and_is_not_empty() -> None:
    for payloads in ([b"x", b"y"], [b""]):
        with pytest.raises(ValueError, match="one unit, and not an empty one"):
            packet("a", 4, payloads=payloads, fragment=Fragment(0, False))


@pytest.mark.parametrize("ranges", [((0, 1),), ((3, 2),), ((1, 2), (2, 3)), ((5, 6), (1, 2)), ((1, 9), (4, 5))])
def test_ranges_that_do_not_ascend_are_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="must ascend"):
        Nack(A, ranges, False)


def test_ranges_that_ascend_are_accepted() -> None:
    assert Nack(A, ((1, 1), (2, 2), (5, 9)), True).ranges[-1] == (5, 9)


def test_a_view_has_members_in_the_order_of_their_names() -> None:
    assert View(VIEW, (A, B, C)).members == (A, B, C)
    with pytest.raises(ValueError, match="at least one member"):
        View(VIEW, ())
    with pytest.raises(ValueError, match="distinct names in order"):
        View(VIEW, (B, A))
    with pytest.raises(ValueError, match="distinct names in order"):
        View(VIEW, (Machine("a", 1), Machine("a", 2)))


def test_a_machine_that_no_datagram_can_name_is_not_a_member() -> None:
    for name in ("", "n" * 65, "é" * 33):
        with pytest.raises(ValueError, match="name"):
            View(VIEW, (Machine(name, 1),))
