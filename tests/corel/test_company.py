"""Whether a write waits a moment for more messages."""

from __future__ import annotations

from corel.company import Company
from corel.config import CorelConfig
from corel.effects import Persist
from corel.log_writer import LogWriter
from corel.message_queue import MessageQueue
from corel.storage import Lines
from corel.trust import Trust
from transport.messages import Machine

A, B, C = (Machine(name, 1) for name in "abc")
NEVER = float("inf")


def test_without_company_nothing_waits() -> None:
    company = Company(2.0)
    assert not company.must_wait({A})
    company.wrote({A})
    assert not company.must_wait({A})
    assert not company.must_wait({A, B})
    assert company.next_deadline() == NEVER


def test_a_write_waits_for_those_who_had_messages_in_the_last() -> None:
    company = Company(2.0)
    company.wrote({A, B})
    assert company.must_wait({A})
    assert company.must_wait({A, C})
    assert not company.must_wait({A, B})
    assert not company.must_wait(set()), "of nobody's messages"


def test_it_does_not_wait_for_long() -> None:
    company = Company(2.0)
    company.wrote({A, B})
    assert company.must_wait({A})
    assert company.next_deadline() < 10.0
    company.tick(10.0)
    assert company.next_deadline() == 12.0
    company.tick(11.9)
    assert company.must_wait({A})
    company.tick(12.0)
    assert not company.must_wait({A})
    assert company.next_deadline() == NEVER


def test_who_did_not_come_is_not_expected_again() -> None:
    company = Company(2.0)
    company.wrote({A, B})
    company.wrote({A})
    assert not company.must_wait({A})


def test_a_write_of_nobodys_messages_changes_nothing() -> None:
    company = Company(2.0)
    company.wrote({A, B})
    company.wrote(set())
    assert company.must_wait({A})


def test_without_patience_nothing_waits() -> None:
    company = Company(0.0)
    company.wrote({A, B})
    assert not company.must_wait({A})


def test_where_they_come_at_another_pace_fewer_and_fewer_writes_wait() -> None:
    """b has a message in every second write of a's."""
    company = Company(2.0)
    waited = 0
    for turn in range(400):
        now = 10.0 * turn
        if company.must_wait({A}):
            waited += 1
            company.tick(now)
            company.tick(now + 2.0)
            assert not company.must_wait({A})
        company.wrote({A})
        company.wrote({A, B})
    assert waited < 20


# Trust


def refusals(trust: Trust) -> int:
    """How often it is not given before it is."""
    count = 0
    while not trust.is_given():
        count += 1
    return count


def test_each_disappointment_in_a_row_costs_twice_as_much_trust() -> None:
    trust = Trust()
    seen = [refusals(trust)]
    for _ in range(8):
        trust.disappointed()
        seen.append(refusals(trust))
    assert seen == [0, 1, 3, 7, 15, 31, 63, 63, 63]


def test_when_it_was_justified_all_is_forgiven() -> None:
    trust = Trust()
    for _ in range(5):
        trust.disappointed()
    refusals(trust)
    trust.justified()
    trust.disappointed()
    assert refusals(trust) == 1


# In the log


def second_write_of_one() -> LogWriter:
    """Both had messages in the first write; the second is of a's alone."""
    writer = LogWriter(MessageQueue(), Lines(), CorelConfig(company_ms=2.0))
    writer.reach(A, 1)
    writer.reach(B, 1)
    first = next_write(writer)
    assert first is not None
    writer.completed(first.token, will_stay_open=False)
    writer.reach(A, 2)
    return writer


def next_write(writer: LogWriter, may_wait: bool = True) -> Persist | None:
    return writer.next_write(0, 0, True, may_wait)


def test_the_log_waits_for_company_and_then_writes_all() -> None:
    writer = second_write_of_one()
    assert next_write(writer) is None
    writer.reach(B, 2)
    persist = next_write(writer)
    assert persist is not None
    assert writer.completed(persist.token, will_stay_open=False).points == {A: 2, B: 2}


def test_the_log_stops_waiting_when_it_is_time() -> None:
    writer = second_write_of_one()
    assert next_write(writer) is None
    writer.tick(10.0)
    assert writer.next_deadline() == 12.0
    writer.tick(12.0)
    assert next_write(writer) is not None


def test_a_recovery_does_not_wait() -> None:
    assert next_write(second_write_of_one(), may_wait=False) is not None


def test_what_is_to_be_said_after_the_write_does_not_wait() -> None:
    writer = second_write_of_one()
    assert next_write(writer) is None
    writer.then(lambda effects: None)
    assert next_write(writer) is not None
