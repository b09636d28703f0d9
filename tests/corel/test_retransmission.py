"""Cutting what is to be sent into batches, and merging what several members send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corel.codec import COPY_OVERHEAD_BYTES
from corel.messages import Copy
from corel.retransmission import Merge, batches
from tests.corel.builders import copy, machine, names
from tests.transport.strategies import thorough

A, B, C = (machine(name) for name in "abc")


def test_a_batch_takes_as_many_as_fit() -> None:
    room = 2 * (COPY_OVERHEAD_BYTES + 4)
    copies = [copy(f"a{number}", number) for number in range(1, 6)]
    assert [names(batch) for batch in batches(copies, room)] == ["a1 a2", "a3 a4", "a5"]


def test_a_batch_has_at_least_one_however_large() -> None:
    copies = [copy("a1", 1), copy("a2", 2, b"x" * 10_000), copy("a3", 3, None)]
    assert [names(batch) for batch in batches(copies, 1)] == ["a1", "a2", "a3"]
    assert list(batches([], 1)) == []


def test_the_least_timestamp_comes_first_once_all_have_been_heard() -> None:
    merge = Merge([A, B])
    assert merge.add(A, [copy("a1", 1), copy("a2", 4)], carrier=7, is_last=False) == []
    merged = merge.add(B, [copy("b1", 2), copy("b2", 3)], carrier=9, is_last=False)
    assert names(item.copy for item in merged) == "a1 b1 b2"
    merged = merge.add(B, [copy("b3", 5)], carrier=10, is_last=True)
    assert names(item.copy for item in merged) == "a2"
    assert not merge.is_done()
    merged = merge.add(A, [copy("a3", 6)], carrier=8, is_last=True)
    assert names(item.copy for item in merged) == "b3 a3"
    assert merge.is_done()


def test_a_payload_is_logged_when_its_last_copy_is() -> None:
    merge = Merge([A])
    merged = merge.add(A, [copy("a1", 1), copy("c1", 2), copy("a2", 3)], carrier=7, is_last=True)
    assert [(item.sender, item.carrier) for item in merged] == [(A, 0), (A, 0), (A, 7)]


def test_who_has_finished_or_was_never_to_send_is_not_expected() -> None:
    merge = Merge([A, B])
    merge.add(A, [copy("a1", 1)], carrier=1, is_last=True)
    assert [merge.expects(sender) for sender in (A, B, C)] == [False, True, False]


@st.composite
def deals(draw: st.DrawFn) -> list[tuple[int, list[Copy], bool]]:
    """Up to twenty messages, each retransmitted by one of three members, in batches, interleaved in any way."""
    hands: list[list[Copy]] = [[], [], []]
    for clock in range(1, draw(st.integers(1, 20)) + 1):
        hands[draw(st.integers(0, 2))].append(copy(f"a{clock}", clock))
    payloads: list[list[tuple[int, list[Copy], bool]]] = []
    for sender, hand in enumerate(hands):
        size = draw(st.integers(1, 4))
        parts = [hand[start : start + size] for start in range(0, len(hand), size)]
        payloads.append([(sender, part, part is parts[-1]) for part in parts])
    dealt: list[tuple[int, list[Copy], bool]] = []
    while any(payloads):
        sender = draw(st.sampled_from([number for number, left in enumerate(payloads) if left]))
        dealt.append(payloads[sender].pop(0))
    return dealt


@thorough
@given(deals())
def test_merging_is_in_timestamp_order_at_every_moment_and_complete_in_the_end(
    deal: list[tuple[int, list[Copy], bool]],
) -> None:
    senders = [A, B, C]
    merge = Merge(sorted({senders[sender] for sender, _, _ in deal}))
    clocks: list[int] = []
    carriers: list[int] = []
    for carrier, (sender, part, is_last) in enumerate(deal, 1):
        assert not merge.is_done()
        for merged in merge.add(senders[sender], part, carrier, is_last):
            clocks.append(merged.copy.clock)
            carriers += [merged.carrier] if merged.carrier else []
    assert clocks == sorted(clocks) == list(range(1, len(clocks) + 1))
    assert sorted(carriers) == list(range(1, len(deal) + 1))
    assert merge.is_done()


def test_nobody_is_waited_for_whose_messages_are_all_there() -> None:
    merge = Merge([A, B])
    merge.add(A, [copy("a1", 1)], carrier=1, is_last=True)
    merged = merge.add(B, [copy("b1", 2)], carrier=1, is_last=False)
    assert names(item.copy for item in merged) == "a1 b1"


@pytest.mark.parametrize("count", [1, 3])
def test_a_merge_of_nothing_yet_is_not_done(count: int) -> None:
    assert not Merge([A, B, C][:count]).is_done()
