"""The log over a membership: what belongs to a view that is over is not sent in the next."""

from __future__ import annotations

from random import Random

from corel.config import CorelConfig
from corel.corel import Corel
from corel.effects import Mark, Multicast, Persist, Solicit
from corel.quorum import Roster
from corel.replica import Replica, ReplicaEffect
from corel.storage import Lines
from membership.config import MembershipConfig
from membership.effects import LeftBehind
from membership.group import Group
from membership.messages import NO_PROGRESS, Progress
from tests.simulator.corel.memory_log import MemoryLog
from transport.config import TransportConfig
from transport.messages import Machine, ViewId

A, B = Machine("a", 1), Machine("b", 1)
OVER = ViewId(0, "a", 1)


class Watched(Group):
    """A group that records the marks and requests that it is asked to send."""

    def __init__(self) -> None:
        super().__init__(A, MembershipConfig(), TransportConfig(), Random(1), 0.0)
        self.told: list[object] = []
        self.progress = NO_PROGRESS

    def mark(self, marks: tuple[int, ...]) -> None:
        self.told.append(marks)

    def expect_mark(self) -> None:
        self.told.append("a mark will follow")

    def solicit(self, machines: object) -> None:
        self.told.append(machines)

    def report_progress(self, progress: Progress) -> None:
        super().report_progress(progress)
        self.progress = progress


def replica(committed: int = 0) -> tuple[Replica, Watched]:
    group, log = Watched(), MemoryLog(Lines(is_voter=True, committed=committed, attempted=committed))
    return Replica(group, Corel(A, group.view, Roster.of("ab"), CorelConfig(), log.load(), log)), group


def test_marks_and_requests_of_the_current_view_are_told() -> None:
    made, group = replica()
    made._from_log([Mark((1,), group.view.id), Solicit((B,), group.view.id)])
    assert group.told == [(1,), (B,)]


def test_marks_and_requests_of_a_view_that_is_over_are_not() -> None:
    made, group = replica()
    made._from_log([Mark((1, 2), OVER), Solicit((B,), OVER)])
    assert group.told == []


def test_a_mark_is_announced_while_a_message_is_on_its_way_to_disk() -> None:
    made, group = replica()

    def finish_writes(effects: list[ReplicaEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                finish_writes(made.persisted(effect.token))

    finish_writes(made.start())
    finish_writes(made.tick(1.0))
    assert made.log.is_open
    group.told.clear()
    _, effects = made.submit(b"x")
    effects += made.tick(2.0)
    assert group.told == ["a mark will follow"]
    finish_writes(effects)
    assert group.told == ["a mark will follow", (2,)], "its state was the first"
    assert not made.log.will_mark


def test_payloads_of_a_view_that_is_over_are_not_sent() -> None:
    made, group = replica()
    made._from_log([Multicast(b"of the last view", OVER)])
    assert group.lansis.queued_messages() == 0
    made._from_log([Multicast(b"of this one", group.view.id)])
    assert group.lansis.queued_messages() == 1


def test_heartbeats_are_told_how_far_the_log_has_got_before_they_are_sent() -> None:
    made, group = replica(committed=7)
    made.start()
    assert group.progress == NO_PROGRESS
    made.tick(group.next_deadline())
    assert group.progress == made.log.progress == Progress(epoch=15, decided=0, line=0, known=0, floor=0)


def test_who_was_left_behind_is_a_matter_for_the_layers_above() -> None:
    made, _ = replica()
    left_behind = LeftBehind(B, Progress(9, 9, 400, 400, 100))
    assert made._from_group([left_behind]) == [left_behind]
