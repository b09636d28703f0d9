"""The window: what each machine may have unacknowledged, and how the pause between packets grows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.transport.harness import machine, packet
from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.effects import Reason
from transport.flow import FlowControl

SMALL = TransportConfig(window_messages_max=30, packet_overhead_bytes=0)


def flow_of(names: str, config: TransportConfig = SMALL) -> tuple[CausalDag, FlowControl]:
    dag = CausalDag(machine(names[0]), map(machine, names), config)
    return dag, FlowControl(dag, config)


def fill(dag: CausalDag, sender: str, units: int, size: int = 1) -> None:
    """Adds this many units of the sender to the DAG, not stable."""
    following = dag.streams[machine(sender)].inserted_through + 1
    dag.store(packet(sender, following, payloads=[bytes(size)] * units))


def test_an_empty_window_blocks_nothing_and_delays_nothing() -> None:
    _, flow = flow_of("abc")
    assert flow.fullness() == 0.0
    assert flow.blocked() is None
    flow.sent(now=5.0)
    assert flow.next_send_at <= 5.0


def test_a_machine_may_use_its_share_and_no_more() -> None:
    dag, flow = flow_of("abc")
    assert flow.units_allowed() == 10
    fill(dag, "a", 9)
    assert flow.blocked() is None
    assert flow.units_allowed() == 1
    fill(dag, "a", 1)
    assert flow.blocked() is Reason.SHARE_USED


def test_the_share_counts_bytes_too_and_always_leaves_room_for_a_packet() -> None:
    config = replace(SMALL, datagram_bytes_max=1_000, window_bytes_max=18_000, packet_overhead_bytes=1_000)
    dag, flow = flow_of("abc", config)
    for _ in range(3):
        assert flow.blocked() is None
        fill(dag, "a", 1, size=500)  # with what it costs, a quarter of the share
    assert flow.blocked() is Reason.SHARE_USED  # the next could be larger


def test_a_share_smaller_than_a_packet_is_one_packet() -> None:
    dag, flow = flow_of("abcd", TransportConfig(window_bytes_max=2_500))
    assert flow.blocked() is None
    fill(dag, "a", 1, size=1_000)
    assert flow.blocked() is Reason.SHARE_USED


def test_the_smallest_window_of_any_member_counts() -> None:
    dag, flow = flow_of("abc", TransportConfig(window_bytes_max=900_000))
    fill(dag, "a", 1, size=50_000)
    assert flow.blocked() is None
    flow.advertised(machine("b"), 2_000_000)
    assert flow.share_bytes == 300_000
    flow.advertised(machine("c"), 90_000)
    assert flow.share_bytes == 30_000
    assert flow.blocked() is Reason.SHARE_USED
    flow.advertised(machine("c"), 900_000)
    assert flow.blocked() is None


def test_a_window_that_bears_nothing_still_lets_one_packet_through() -> None:
    _, flow = flow_of("abc")
    flow.advertised(machine("b"), 0)
    assert flow.blocked() is None
    assert flow.fullness() == 0.0


def test_with_too_much_undelivered_nobody_sends() -> None:
    _, flow = flow_of("abc")
    flow.is_backlogged = True
    assert flow.blocked() is Reason.BACKLOG
    flow.is_backlogged = False
    assert flow.blocked() is None


def test_what_others_have_sent_fills_the_window_not_our_share() -> None:
    dag, flow = flow_of("abc")
    fill(dag, "b", 20)
    assert flow.blocked() is None
    assert flow.units_allowed() == 10
    fill(dag, "c", 10)
    assert flow.fullness() == 1.0
    assert flow.blocked() is Reason.WINDOW_FULL


def test_the_shares_of_all_fill_the_window_and_never_more() -> None:
    config = TransportConfig()
    for count in (1, 2, 3, 7, 64):
        names = [chr(ord("A") + number) for number in range(count)]
        _, flow = flow_of("".join(names), config)
        assert 0 < flow.units_allowed() * count <= config.window_messages_max


def test_in_a_window_smaller_than_the_view_everyone_may_still_send_one() -> None:
    _, flow = flow_of("abcd", replace(SMALL, window_messages_max=2))
    assert flow.units_allowed() == 1
    assert flow.blocked() is None


def test_what_becomes_stable_opens_the_share_again() -> None:
    dag, flow = flow_of("ab")
    fill(dag, "a", 15)
    assert flow.blocked() is Reason.SHARE_USED
    dag.acknowledge(machine("b"), ((machine("a"), 15),))
    dag.take_stable()
    assert flow.blocked() is None
    assert flow.units_allowed() == 15


def test_the_pause_grows_from_none_to_its_greatest() -> None:
    dag, flow = flow_of("ab", replace(SMALL, window_messages_max=100, send_delay_ms_max=2.0))
    pauses = []
    for _ in range(10):
        fill(dag, "b", 10)
        now = 1_000.0 + flow.next_send_at
        flow.sent(now)
        pauses.append(max(0.0, flow.next_send_at - now))
    assert pauses[:5] == [0.0] * 5  # nothing up to half of the window
    assert all(shorter < longer for shorter, longer in pairwise(pauses[4:]))
    assert pauses[-1] == pytest.approx(2.0)


def test_a_window_filled_beyond_its_size_does_not_make_the_pause_longer_still() -> None:
    dag, flow = flow_of("ab", replace(SMALL, send_delay_ms_max=2.0))
    fill(dag, "b", 90)
    flow.sent(now=10.0)
    assert flow.next_send_at == pytest.approx(12.0)
