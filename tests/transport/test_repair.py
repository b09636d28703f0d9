"""Requests for what was lost, and answers to others: which machine sends them, when, and how often."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from tests.transport.harness import A, B, C, machine, packet
from transport.codec import Codec
from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.messages import NAME_BYTES_MAX, Datagram, Machine, Nack, Packet
from transport.repair import Answers, Requests
from transport.roundtrip import RoundTrip

CONFIG = TransportConfig()
NEVER = float("inf")


class Steady(Random):
    """Draws the same number every time: 0 makes every delay its shortest."""

    def __init__(self, drawn: float) -> None:
        super().__init__(0)
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


class Member:
    """The requests and answers of `a`, with its DAG."""

    def __init__(self, config: TransportConfig = CONFIG, drawn: float = 0.0, names: str = "abc") -> None:
        self.dag = CausalDag(A, map(machine, names), config)
        self.round_trip = RoundTrip(ceiling_ms=100.0)
        self.requests = Requests(self.dag, config, Steady(drawn), self.round_trip)
        self.answers = Answers(self.dag, config, Steady(drawn), self.round_trip)

    def store(self, *packets: Packet, now: float = 0.0) -> None:
        for arrived in packets:
            self.dag.store(arrived)
            self.requests.look_for_gaps(now)

    def lose(self, sender: str, sequence: int, now: float = 0.0) -> None:
        """Adds the next packet of the sender, of which the one before is missing."""
        self.store(packet(sender, sequence + 1), now=now)

    def request_after(self, since: float) -> tuple[float, Nack]:
        """Returns how long after `since` the next request is due, and the request."""
        due = self.requests.next_deadline()
        assert self.requests.due(due - 0.01) == []
        [nack] = self.requests.due(due)
        return due - since, nack

    def asked(self, *ranges: tuple[int, int], of: str = "a", repeated: bool = False, now: float = 0.0) -> None:
        nack = Nack(machine(of), ranges, repeated)
        self.requests.on_request(nack, now)
        self.answers.on_request(nack, now)

    def is_quiet(self) -> bool:
        return self.answers.next_deadline() == NEVER


# Requests


@pytest.mark.parametrize(("drawn", "delay_ms"), [(0.0, 1.0), (0.5, 1.5), (0.999, 1.999)])
def test_a_gap_is_asked_for_after_once_to_twice_the_delay(drawn: float, delay_ms: float) -> None:
    member = Member(drawn=drawn)
    member.lose("b", 1, now=10.0)
    waited, nack = member.request_after(10.0)
    assert waited == pytest.approx(delay_ms)
    assert nack == Nack(B, ((1, 1),), is_repeated=False)


def test_what_was_merely_late_is_not_asked_for() -> None:
    member = Member()
    member.lose("b", 1)
    member.store(packet("b", 1), now=0.9)
    assert member.requests.next_deadline() == NEVER
    assert member.requests.is_idle()
    assert member.requests.due(50.0) == []


def test_an_unanswered_request_is_repeated_with_growing_pauses_up_to_the_longest() -> None:
    member = Member()
    member.lose("b", 1)
    now, nack = member.request_after(0.0)
    assert not nack.is_repeated
    pauses = []
    for _ in range(7):
        pause, nack = member.request_after(now)
        assert nack == Nack(B, ((1, 1),), is_repeated=True)
        pauses.append(pause)
        now += pause
    assert pauses == pytest.approx([6.0, 12.0, 24.0, 48.0, 96.0, 100.0, 100.0])


def test_a_request_is_not_repeated_before_an_answer_can_have_come() -> None:
    member = Member()
    for _ in range(100):
        member.round_trip.observe(40.0)
    member.lose("b", 1)
    asked_at, _ = member.request_after(0.0)
    pause, _ = member.request_after(asked_at)
    assert pause == pytest.approx(40.0)


def test_a_later_gap_of_the_same_sender_is_a_new_one() -> None:
    member = Member()
    member.lose("b", 1)
    member.request_after(0.0)
    member.store(packet("b", 1), packet("b", 4), now=3.0)
    waited, nack = member.request_after(3.0)
    assert waited == pytest.approx(1.0)
    assert nack == Nack(B, ((3, 3),), is_repeated=False)


def test_what_is_found_missing_later_is_asked_for_by_itself() -> None:
    member = Member()
    member.lose("b", 1)
    member.request_after(0.0)
    member.store(packet("b", 5), packet("b", 9), now=2.0)
    assert member.requests.due(3.0) == [Nack(B, ((3, 4), (6, 8)), is_repeated=False)]
    assert member.requests.due(7.0) == [Nack(B, ((1, 1), (3, 4), (6, 8)), is_repeated=True)]


def test_gaps_of_several_senders_are_asked_for_separately() -> None:
    member = Member()
    member.lose("b", 1)
    member.lose("c", 1)
    assert [nack.machine for nack in member.requests.due(1.0)] == [B, C]


def test_what_waits_for_another_stream_is_not_asked_for() -> None:
    member = Member()
    member.store(packet("c", 1, acks={"b": 1}))
    assert member.requests.due(1.0) == [Nack(B, ((1, 1),), is_repeated=False)]


def test_a_request_names_no_more_runs_than_it_may() -> None:
    member = Member(replace(CONFIG, nack_ranges_max=3))
    for sequence in range(2, 40, 2):
        member.store(packet("b", sequence))
    assert member.requests.due(1.0) == [Nack(B, ((1, 1), (3, 3), (5, 5)), is_repeated=False)]


def test_a_request_too_large_for_a_datagram_is_made_in_several() -> None:
    member = Member(replace(CONFIG, datagram_bytes_max=256))
    for sequence in range(2, 60, 2):
        member.store(packet("b", sequence))
    nacks = member.requests.due(1.0)
    assert len(nacks) > 1
    assert [run for nack in nacks for run in nack.ranges] == [(lost, lost) for lost in range(1, 59, 2)]
    longest = Machine("n" * NAME_BYTES_MAX, 2**62)
    for nack in nacks:
        widest = tuple((first + 2**62, last + 2**62) for first, last in nack.ranges)
        assert len(Codec("any").encode(Datagram(longest, (Nack(longest, widest, True),)))) <= 256


def test_when_nothing_more_can_be_kept_only_what_comes_next_is_asked_for() -> None:
    member = Member(replace(CONFIG, datagram_bytes_max=600, window_bytes_max=2_000))
    member.store(packet("b", 9_000), packet("b", 9_002))
    [nack] = member.requests.due(1.0)
    [(first, last)] = nack.ranges
    assert first == 1
    assert last < 1_000
    member.store(packet("b", 1, payloads=[b"x"] * last), now=2.0)
    [nack] = member.requests.due(10.0)
    assert nack.ranges[0][0] == last + 1


def test_hearing_another_ask_for_the_same_postpones_our_request() -> None:
    member = Member()
    member.lose("b", 1)
    member.asked((1, 4), of="b", now=0.5)
    assert member.requests.due(6.4) == []
    assert member.requests.due(6.5) == [Nack(B, ((1, 1),), is_repeated=True)]  # it was the other's request


@pytest.mark.parametrize(("of", "asked_for"), [("b", (2, 4)), ("c", (1, 4))])
def test_hearing_another_ask_for_something_else_postpones_nothing(of: str, asked_for: tuple[int, int]) -> None:
    member = Member()
    member.lose("b", 1)
    member.asked(asked_for, of=of, now=0.5)
    assert len(member.requests.due(1.0)) == 1


# Waiting for what is only reordered


def gap_wait_ms(member: Member, sequence: int, now: float, is_late: bool) -> float:
    """Returns how long a new gap waits at this sequence; what fills it was late, or lost and sent again."""
    member.lose("b", sequence, now=now)
    waited, _ = member.request_after(now)
    if is_late:
        member.requests.on_original(packet("b", sequence))
    member.store(packet("b", sequence), now=now + waited)
    return waited


def test_needless_requests_lengthen_the_wait_up_to_the_most() -> None:
    member = Member()
    waits = [gap_wait_ms(member, 2 * number + 1, now=100.0 * number, is_late=True) for number in range(8)]
    assert waits[:2] == pytest.approx([1.0, 2.0])
    assert all(earlier <= later for earlier, later in pairwise(waits))
    assert waits[-1] == pytest.approx(20.0, rel=0.1)


def test_the_wait_returns_to_what_is_configured_when_requests_are_needed() -> None:
    member = Member()
    gap_wait_ms(member, 1, now=0.0, is_late=True)
    waits = [gap_wait_ms(member, 2 * number + 3, now=100.0 * number, is_late=False) for number in range(20)]
    assert waits[0] == pytest.approx(2.0)
    assert waits[-1] == pytest.approx(1.0)


def test_what_arrives_before_it_was_asked_for_does_not_change_the_wait() -> None:
    member = Member()
    member.store(packet("b", 3))
    member.requests.on_original(packet("b", 1))
    member.store(packet("b", 1), now=0.5)
    assert member.requests.delay_ms == 1.0


def test_what_was_not_asked_for_does_not_change_the_wait() -> None:
    member = Member()
    member.lose("b", 1)
    member.request_after(0.0)
    member.requests.on_original(packet("b", 3))
    member.requests.on_original(packet("c", 1))
    assert member.requests.delay_ms == 1.0


# Answers


def test_the_sender_answers_a_first_request_at_once() -> None:
    member = Member()
    ours = [packet("a", sequence) for sequence in (1, 2, 3)]
    member.store(*ours)
    member.asked((2, 3), now=5.0)
    assert member.answers.next_deadline() == 5.0
    assert member.answers.due(5.0) == ours[1:]
    assert member.answers.due(5.0) == []
    assert member.is_quiet()


def test_a_holder_does_not_answer_a_first_request() -> None:
    member = Member()
    member.store(packet("b", 1))
    member.asked((1, 1), of="b")
    assert member.is_quiet()


@pytest.mark.parametrize(("drawn", "delay_ms"), [(0.0, 2.0), (0.999, 6.0)])
def test_any_holder_answers_a_repeated_request_after_a_while(drawn: float, delay_ms: float) -> None:
    member = Member(drawn=drawn)
    theirs = packet("b", 1)
    member.store(theirs)
    member.asked((1, 1), of="b", repeated=True, now=10.0)
    assert member.answers.due(10.0 + 0.99 * delay_ms) == []
    assert member.answers.due(10.0 + delay_ms) == [theirs]


def test_a_holder_of_what_is_still_pending_answers_too() -> None:
    member = Member()
    pending = packet("b", 5)
    member.store(pending)
    member.asked((5, 5), of="b", repeated=True)
    assert member.answers.due(2.0) == [pending]


def test_on_a_slow_network_holders_wait_longer_for_each_other() -> None:
    member = Member()
    member.round_trip.observe(30.0)
    member.store(packet("b", 1))
    member.asked((1, 1), of="b", repeated=True)
    assert member.answers.next_deadline() == pytest.approx(15.0)


def test_a_holder_keeps_quiet_when_it_hears_an_answer() -> None:
    member = Member()
    theirs = packet("b", 1)
    member.store(theirs)
    member.asked((1, 1), of="b", repeated=True)
    member.answers.on_retransmission(theirs, machine("c"), now=1.0)
    assert member.answers.due(50.0) == []
    member.asked((1, 1), of="b", repeated=True, now=3.9)  # another asked before it heard the answer
    assert member.is_quiet()


def test_what_was_just_sent_again_is_held_and_then_sent_once_more_if_asked_for() -> None:
    member = Member()
    ours = packet("a", 1)
    member.store(ours)
    member.asked((1, 1), now=0.0)
    assert member.answers.due(0.0) == [ours]
    member.asked((1, 1), now=2.9)
    assert member.answers.due(2.9) == []
    member.asked((1, 1), now=3.0)
    assert member.answers.due(3.0) == [ours]


def test_what_another_has_just_sent_again_is_held_too() -> None:
    member = Member()
    theirs = packet("b", 1)
    member.store(theirs)
    member.answers.on_retransmission(theirs, machine("c"), now=1.0)
    member.asked((1, 1), of="b", repeated=True, now=2.0)  # overtaken by the answer
    assert member.is_quiet()


def test_the_senders_own_answer_silences_no_other_holder() -> None:
    member = Member()
    theirs = packet("b", 1)
    member.store(theirs)
    member.asked((1, 1), of="b", repeated=True)
    member.answers.on_retransmission(theirs, machine("b"), now=1.0)  # which the asker may be unable to hear
    assert member.answers.due(50.0) == [theirs]


def test_a_run_is_sent_again_once_however_many_of_its_units_are_asked_for() -> None:
    member = Member()
    run = packet("a", 1, payloads=[b"x"] * 9)
    member.store(run)
    member.asked((1, 2), (4, 4), (7, 9))
    member.asked((5, 5))
    assert member.answers.due(0.0) == [run]


def test_answers_go_out_lowest_first() -> None:
    member = Member()
    ours = [packet("a", sequence) for sequence in range(1, 6)]
    member.store(*ours)
    member.asked((4, 5))
    member.asked((1, 2))
    assert member.answers.due(0.0) == [ours[0], ours[1], ours[3], ours[4]]


def test_answers_go_out_no_faster_than_the_rate() -> None:
    member = Member(replace(CONFIG, retransmit_bytes_per_ms=1_000, packet_overhead_bytes=400))
    small, large = [bytes(100)], [bytes(2_100)]
    ours = [packet("a", sequence, payloads=large if sequence == 3 else small) for sequence in range(1, 11)]
    member.store(*ours)
    member.asked((1, 10))
    assert member.answers.due(0.0) == ours[:2]
    assert member.answers.next_deadline() == pytest.approx(1.0)
    assert member.answers.due(0.9) == []
    assert member.answers.due(1.0) == ours[2:3]
    assert member.answers.due(3.4) == []
    assert member.answers.due(3.5) == ours[3:5]


def test_what_has_become_stable_is_not_sent_again() -> None:
    member = Member(names="ab")
    member.store(packet("a", 1), packet("a", 2))
    member.asked((1, 2))
    member.dag.acknowledge(B, ((A, 1),))
    member.dag.take_stable()
    assert [answer.sequence for answer in member.answers.due(0.0)] == [2]


def test_no_more_answers_wait_than_are_allowed() -> None:
    member = Member(replace(CONFIG, answers_max=5))
    member.store(*(packet("a", sequence) for sequence in range(1, 21)))
    member.asked((1, 20))
    assert [answer.sequence for answer in member.answers.due(0.0)] == [1, 2, 3, 4, 5]


def test_a_request_for_what_nobody_sent_is_no_trouble() -> None:
    member = Member()
    member.asked((1, 2**62), repeated=True)
    assert member.is_quiet()
