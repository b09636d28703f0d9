"""What a node measures of itself: the lives of messages, changes of the group, and counters that never go back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from corel.disk_errors import DiskFull
from corel.effects import StageChanged
from corel.message_queue import MessageQueue
from corel.messages import Entry, MessageId
from corel.stages import Cause, Stage
from corel.storage import Lines, LogWrite, Record
from kvstore.node.families import single
from kvstore.node.group_figures import GroupFigures
from kvstore.node.message_times import MessageTimeHistograms, MessageTimes
from kvstore.node.metrics import Metrics
from kvstore.store.replies import Failed
from membership.effects import MembershipEvent
from membership.stages import CHANGE_CAUSES
from membership.stages import Cause as MembershipCause
from membership.stages import Stage as MembershipStage
from tests.kvstore.node.nodes import Nodes
from transport.effects import Journal
from transport.messages import Machine, View, ViewId

A, B = Machine("a", 1), Machine("b", 1)
VIEW = ViewId(1, "a", 1)


def entry(machine: Machine, sequence: int, primary: int = 1) -> Entry:
    made = Entry(MessageId(machine, sequence), sequence, VIEW, b"")
    made.primary = primary
    return made


def write_of(*entries: Entry) -> LogWrite:
    records = tuple(Record(place, one.id, 1, VIEW, one.primary, b"") for place, one in enumerate(entries))
    return LogWrite(records, (), None, Lines())


# The lives of messages


def test_only_own_messages_are_timed_from_submission_to_each_line() -> None:
    histograms = MessageTimeHistograms()
    times = MessageTimes(A, histograms)
    times.submitted(1, now=10.0)
    times.writing(write_of(entry(B, 1), entry(A, 1)))
    times.written(now=10.5)
    times.settled([entry(B, 1), entry(A, 1)], now=11.0)
    times.greened([entry(B, 1), entry(A, 1)], now=12.0)
    found = [(one.count, one.sum) for one in (histograms.logged, histograms.yellow, histograms.green)]
    assert found == [(1, 0.5), (1, 1.0), (1, 2.0)]
    assert histograms.merged.count == 0


def test_red_messages_are_never_yellow_and_are_timed_apart() -> None:
    histograms = MessageTimeHistograms()
    times = MessageTimes(A, histograms)
    for sequence in (1, 2):
        times.submitted(sequence, now=0.0)
    times.settled([entry(A, 1, primary=0), entry(A, 2, primary=0)], now=1.0)
    times.greened([entry(A, 1, primary=0), entry(A, 2, primary=0)], now=600.0)
    assert histograms.yellow.count == histograms.green.count == 0
    assert (histograms.merged.count, histograms.merged.sum) == (2, 1_200.0)


def test_a_write_without_own_messages_logs_none() -> None:
    histograms = MessageTimeHistograms()
    times = MessageTimes(A, histograms)
    times.submitted(1, now=0.0)
    times.writing(write_of(entry(B, 7)))
    times.written(now=1.0)
    assert histograms.logged.count == 0


# The group


def stage_entry(stage: MembershipStage, cause: MembershipCause) -> Journal:
    return Journal(MembershipEvent.STAGE, "", cause, {"stage": str(stage)})


def entered(stage: Stage, cause: Cause, clock: int) -> StageChanged:
    return StageChanged(stage, cause, ViewId(clock, "a", 1), 0, 0, 0, 0, 0)


def view(clock: int, members: tuple[Machine, ...], transitional: tuple[Machine, ...]) -> View:
    return View(ViewId(clock, "a", 1), members, transitional)


def test_a_view_is_counted_under_what_began_the_change() -> None:
    group = GroupFigures()
    group.membership_event(stage_entry(MembershipStage.FAULTS, MembershipCause.SILENT))
    group.membership_event(stage_entry(MembershipStage.GATHERING, MembershipCause.ATTEMPT_RECEIVED))
    group.view_changed(view(2, (A,), (A,)), now=1.0)
    group.membership_event(stage_entry(MembershipStage.IDLE, MembershipCause.ASSENTED))
    group.membership_event(stage_entry(MembershipStage.GATHERING, MembershipCause.FOREIGN_HEARD))
    group.membership_event(stage_entry(MembershipStage.IDLE, MembershipCause.NOBODY_ANSWERED))
    group.membership_event(stage_entry(MembershipStage.GATHERING, MembershipCause.INVITED))
    group.view_changed(view(3, (A, B), (A,)), now=2.0)
    assert group.view_changes == {"silent": 1, "invited": 1}


def test_a_merge_lasts_from_the_view_with_new_members_to_the_primary_component() -> None:
    group = GroupFigures()
    group.begin(now=0.0)
    group.stage_changed(entered(Stage.PRIMARY, Cause.COMMITTED_BY_ALL, 1), now=3.0)
    assert group.seconds_without_primary(now=9.0) == 0.0
    group.membership_event(stage_entry(MembershipStage.GATHERING, MembershipCause.INVITED))
    group.view_changed(view(2, (A, B), (A,)), now=10.0)
    group.stage_changed(entered(Stage.RECOVERING, Cause.VIEW_CHANGED, 2), now=10.0)
    assert group.seconds_without_primary(now=10.5) == 0.5
    group.stage_changed(entered(Stage.PRIMARY, Cause.COMMITTED_BY_ALL, 2), now=12.0)
    assert (group.merges.count, group.merges.sum) == (1, 2.0)
    assert (group.outages.count, group.outages.sum) == (2, 5.0)
    assert group.primary_losses == {"invited": 1}


def test_a_merge_without_a_majority_is_no_merge_to_a_primary_component() -> None:
    group = GroupFigures()
    group.view_changed(view(2, (A, B), (A,)), now=0.0)
    group.stage_changed(entered(Stage.NON_PRIMARY, Cause.NO_MAJORITY, 2), now=1.0)
    group.view_changed(view(3, (A,), (A,)), now=5.0)
    group.stage_changed(entered(Stage.PRIMARY, Cause.COMMITTED_BY_ALL, 3), now=6.0)
    assert group.merges.count == 0


def test_a_stage_is_counted_once_although_it_is_reported_twice() -> None:
    group = GroupFigures()
    for _ in range(2):  # the second time because the node is bound to a generation now
        group.stage_changed(entered(Stage.ESTABLISHING, Cause.MAJORITY, 1), now=0.0)
    assert group.stage_changes == {("establishing", "majority"): 1}


# Counters


def test_counters_go_on_where_the_last_incarnation_ended() -> None:
    metrics = Metrics()
    first, second = Counter(nacks_sent=5), Counter(nacks_sent=0)
    metrics.begin(lambda: first, MessageQueue(), now=0.0)
    first["nacks_sent"] = 7
    metrics.begin(lambda: second, MessageQueue(), now=1.0)
    second["nacks_sent"] = 1
    assert metrics.counts()["nacks_sent"] == 8
    assert metrics.incarnations == 2


def test_known_values_of_a_label_are_there_before_they_are_counted() -> None:
    found = single({"silent": 2, "new": 1}, CHANGE_CAUSES)
    assert found["silent",] == 2
    assert found["stuck",] == 0
    assert found["new",] == 1


def test_a_node_that_comes_back_counts_on(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise DiskFull("the disk is full. Make room.")

    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node = nodes.nodes["a"]
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: len(nodes.green("a")) == 1)  # else it becomes green once more
        statuses = node.metrics.counts()["statuses_sent"]
        with monkeypatch.context() as patch:
            patch.setattr(node.log, "write", refuse)
            assert isinstance(await nodes.put("a", b"lost"), Failed)
        assert node.metrics.group.primary_losses == {"away": 1}
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        await nodes.done("a", b"again")
        metrics = node.metrics
        assert (metrics.incarnations, metrics.disk_failures) == (2, {"DiskFull": 1})
        assert metrics.counts()["statuses_sent"] >= statuses
        summary = metrics.summary()
        assert (summary.writes_green, summary.writes_failed) == (2, 1)
        assert summary.operations_green == summary.messages_green == 2
        assert summary.time_to_green_p99_ms is not None
        assert summary.sync_p50_ms is not None
        await nodes.close()

    asyncio.run(scenario())
