"""Whether a write waits a moment for more messages."""

from __future__ import annotations

from corel.config import CorelConfig
from corel.effects import Persist
from corel.log_writer import LogWriter
from corel.message_queue import MessageQueue
from corel.messages import NO_IDENTITY, NO_VIEW
from corel.storage import Lines, Primaries
from corel.write_gathering import WriteGathering
from transport.messages import Machine

A, B, C = (Machine(name, 1) for name in "abc")
NEVER = float("inf")


def test_a_member_by_itself_never_waits() -> None:
    gathering = WriteGathering(2.0)
    assert not gathering.must_wait({A})
    gathering.wrote({A})
    assert not gathering.must_wait({A})
    assert not gathering.must_wait({A, B})
    assert gathering.next_deadline() == NEVER


def test_a_write_waits_for_those_who_had_messages_in_the_last() -> None:
    gathering = WriteGathering(2.0)
    gathering.wrote({A, B})
    assert gathering.must_wait({A})
    assert gathering.must_wait({A, C})
    assert not gathering.must_wait({A, B})
    assert not gathering.must_wait(set()), "of nobody's messages"


def test_it_does_not_wait_for_long() -> None:
    gathering = WriteGathering(2.0)
    gathering.wrote({A, B})
    assert gathering.must_wait({A})
    assert gathering.next_deadline() < 10.0
    gathering.tick(10.0)
    assert gathering.next_deadline() == 12.0
    gathering.tick(11.9)
    assert gathering.must_wait({A})
    gathering.tick(12.0)
    assert not gathering.must_wait({A})
    assert gathering.next_deadline() == NEVER


def test_who_did_not_come_is_not_expected_again() -> None:
    gathering = WriteGathering(2.0)
    gathering.wrote({A, B})
    gathering.wrote({A})
    assert not gathering.must_wait({A})


def test_a_write_of_nobodys_messages_changes_nothing() -> None:
    gathering = WriteGathering(2.0)
    gathering.wrote({A, B})
    gathering.wrote(set())
    assert gathering.must_wait({A})


def test_with_a_wait_of_zero_nothing_waits() -> None:
    gathering = WriteGathering(0.0)
    gathering.wrote({A, B})
    assert not gathering.must_wait({A})


def test_where_they_come_at_another_pace_fewer_and_fewer_writes_wait() -> None:
    """b has a message in every second write of a's."""
    gathering = WriteGathering(2.0)
    waited = 0
    for turn in range(400):
        now = 10.0 * turn
        if gathering.must_wait({A}):
            waited += 1
            gathering.tick(now)
            gathering.tick(now + 2.0)
            assert not gathering.must_wait({A})
        gathering.wrote({A})
        gathering.wrote({A, B})
    assert waited < 20


# In the log


def second_write_of_one() -> LogWriter:
    """Both members had messages in the first write; the second write has messages of a only."""
    writer = LogWriter(MessageQueue(), Lines(), CorelConfig(write_gather_ms=2.0))
    writer.touch()
    writer.reach(A, 1)
    writer.reach(B, 1)
    first = next_write(writer)
    assert first is not None
    writer.completed(first.token, will_stay_open=False)
    writer.touch()
    writer.reach(A, 2)
    return writer


def next_write(writer: LogWriter, may_wait: bool = True) -> Persist | None:
    return writer.next_write(Primaries(0, 0, NO_VIEW, NO_IDENTITY, True), may_wait)


def test_the_log_waits_for_the_others_and_then_writes_all() -> None:
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
