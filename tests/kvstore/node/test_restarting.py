"""Nodes on real disks and sockets: they make writes green, restart, leave when their disk fails, and come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from corel import Lines, NotAhead, OutOfReach, Record
from corel.config import CorelConfig
from corel.disk_errors import DamagedLog, DiskError, DiskFull, StalledDisk, UnusableLog, damaged
from corel.lmdb_log import LmdbLog
from corel.storage import LogWrite
from kvstore.node.back_off import BACK_OFF_SECONDS
from kvstore.node.restarting import RestartingDriver
from kvstore.node.snapshot_format import DamagedSnapshot
from kvstore.node.synced_numbers import ClockFloor
from kvstore.store.replies import Accepted, Ack, Done, Failed, Trouble
from tests.failing_disk import refuse_meta_writes
from tests.kvstore.node.nodes import Nodes
from transport import Machine
from transport.effects import Reason


def test_three_nodes_green_the_same_order(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("abc", broadcast_port, tmp_path)
        answers = await asyncio.gather(
            *(nodes.put(name, b"%d" % number) for number in range(20) for name in "abc")
        )
        assert all(isinstance(answer, Done) for answer in answers)
        await nodes.close()
        logs = [LmdbLog(tmp_path / name, f"test-{broadcast_port}", name) for name in "abc"]
        orders = [[entry.id for entry in log.green(0, 100)] for log in logs]
        assert orders[0] == orders[1] == orders[2]
        sent = {answer.write_id.rpartition(".")[0] for answer in answers if isinstance(answer, Done)}
        assert sorted(map(str, orders[0])) == sorted(sent)
        for log in logs:
            log.close()

    asyncio.run(scenario())


def test_what_was_green_is_green_after_all_have_restarted(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("abc", broadcast_port, tmp_path)
        started = {name: nodes.incarnation(name) for name in "abc"}
        first = await nodes.done("a", b"before")
        await nodes.close()
        for name in "abc":
            nodes.start(name, bootstrap=False)
        await nodes.primary("abc")
        assert [nodes.value(name) for name in "abc"] == [b"before"] * 3
        second = await nodes.done("b", b"after")
        assert (first, second) == (f"a.{started['a']}.1.0", f"b.{nodes.incarnation('b')}.1.0")
        assert nodes.incarnation("b") > started["b"]
        await nodes.eventually(lambda: [nodes.value(name) for name in "abc"] == [b"after"] * 3)
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_whose_disk_is_full_leaves_keeps_what_it_has_and_comes_back(
    broadcast_port: int, small_disk: Path
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, small_disk)
        node = nodes.nodes["a"]
        started = nodes.incarnation("a")
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: len(nodes.green("a")) == 1)
        (small_disk / "filler").write_bytes(bytes(1_500_000))
        lost = await nodes.put("a", bytes(900_000))
        assert isinstance(lost, Failed)
        assert lost.trouble is Trouble.UNDECIDED
        assert isinstance(node.trouble, DiskFull)
        assert "Make room" in str(node.trouble)
        assert node.running_store is None, "it takes no requests"
        assert nodes.value("a") == b"first", "and answers reads"
        (small_disk / "filler").unlink()
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        assert await nodes.done("a", b"again") == f"a.{nodes.incarnation('a')}.1.0"
        assert nodes.incarnation("a") > started
        assert nodes.value("a") == b"again"
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_whose_disk_refuses_a_meta_page_opens_its_log_again_answers_reads_and_comes_back(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node = nodes.nodes["a"]
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: node.store.green.unwritten == 0)
        trials: list[None] = []
        try_write = node.log.try_write

        def refused_twice() -> None:
            trials.append(None)
            if len(trials) <= 2:
                refuse_meta_writes(tmp_path / "a")  # the environment that was opened last
            try_write()

        monkeypatch.setattr(node.log, "try_write", refused_twice)
        refuse_meta_writes(tmp_path / "a")
        assert isinstance(await nodes.put("a", b"lost"), Failed)
        assert isinstance(node.trouble, DiskError)
        for attempt in (1, 2):
            await nodes.eventually(lambda: len(trials) == attempt and is_readable(node))  # noqa: B023
            assert nodes.value("a") == b"first"
        await nodes.eventually(lambda: node.trouble is None)
        assert len(trials) == 3
        await nodes.primary("a")
        assert nodes.value("a") == b"first"
        await nodes.done("a", b"again")
        assert nodes.value("a") == b"again"
        await nodes.eventually(lambda: node.store.green.unwritten == 0)
        assert len(nodes.green("a")) == 2
        await nodes.close()

    asyncio.run(scenario())


def is_readable(node: RestartingDriver) -> bool:
    try:
        node.store.find("key")
    except UnusableLog:
        return False
    return True


def test_a_read_that_meets_the_failed_disk_first_makes_the_node_leave_not_stop(
    broadcast_port: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node = nodes.nodes["a"]
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: node.store.green.unwritten == 0)
        refuse_meta_writes(tmp_path / "a")
        with pytest.raises(DiskFull):
            node.log.try_write()
        node.driver._guard(lambda: node.store.find("other") and None)  # as the store does when it applies
        assert isinstance(node.trouble, UnusableLog)
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        await nodes.done("a", b"again")
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_whose_disk_refuses_the_clock_floor_leaves_and_comes_back(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node = nodes.nodes["a"]
        await nodes.done("a", b"first")
        with monkeypatch.context() as patch:
            patch.setattr(ClockFloor, "raise_above", _no_space)
            await nodes.eventually(lambda: isinstance(node.trouble, DiskError))
            assert "the clock floor cannot be written" in str(node.trouble)
            assert nodes.value("a") == b"first", "it answers reads"
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        await nodes.done("a", b"again")
        await nodes.close()

    asyncio.run(scenario())


def _no_space(floor: ClockFloor, clock: int) -> None:
    raise OSError(ENOSPC, "No space left on device")


def test_others_go_on_without_a_node_whose_disk_stalls_and_it_catches_up(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("abc", broadcast_port, tmp_path, CorelConfig(sync_stall_ms=300.0))
        log, works = nodes.nodes["c"].log, threading.Event()
        write = log.write

        def stalling(item: LogWrite, also: Callable[[Any], None] | None) -> None:
            works.wait(20.0)
            write(item, also)

        monkeypatch.setattr(log, "write", stalling)
        await nodes.done("a", b"x")
        assert isinstance(nodes.nodes["c"].trouble, StalledDisk)
        await nodes.primary("ab")
        works.set()
        await nodes.primary("abc")
        await nodes.eventually(lambda: nodes.value("c") == b"x")
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_told_of_another_roster_stays_outside_and_does_not_hold_up_the_others(
    broadcast_port: int, tmp_path: Path
) -> None:
    async def story() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path)
        odd = nodes.start("c", roster="abcd")
        nodes.start("a")
        nodes.start("b")
        await nodes.primary("ab")
        await nodes.done("a", b"x")
        await nodes.eventually(lambda: nodes.value("b") == b"x")
        assert len(odd.driver.stack.view.members) == 1
        assert odd.driver.telemetry.peer_errors.counts[Reason.OTHER_ROSTER] > 0
        assert isinstance(await nodes.put("c", b"y", Ack.RED), Accepted)
        await nodes.close()

    asyncio.run(story())


def test_a_node_that_finds_its_log_damaged_stays_away_and_answers_reads(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk would take a trial write, so it would come back, meet the damage, and leave again."""

    async def scenario() -> None:
        nodes = await Nodes.in_primary("abc", broadcast_port, tmp_path)
        node, started = nodes.nodes["c"], nodes.incarnation("c")
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: nodes.value("c") == b"first")
        with monkeypatch.context() as patch:
            patch.setattr(LmdbLog, "write", _find_damage_at(node.log, LmdbLog.write))
            await nodes.done("a", b"second")
            await nodes.eventually(lambda: isinstance(node.trouble, DamagedLog))
        await asyncio.sleep(BACK_OFF_SECONDS + 1.0)
        assert isinstance(node.trouble, DamagedLog)
        assert nodes.incarnation("c") == started
        assert nodes.value("c") == b"first"
        await nodes.done("b", b"third")
        await nodes.close()

    asyncio.run(scenario())


def _find_damage_at(damaged_log: LmdbLog, write: Callable[..., None]) -> Callable[..., None]:
    """Returns a `write` that finds this log damaged."""

    def write_or_raise(log: LmdbLog, *arguments: Any) -> None:
        if log is damaged_log:
            raise damaged(log.directory, "as a test says")
        write(log, *arguments)

    return write_or_raise


def test_a_node_that_lacks_what_the_others_have_truncated_starts_again_and_keeps_its_data(
    broadcast_port: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node, started = nodes.nodes["a"], nodes.incarnation("a")
        await nodes.done("a", b"first")
        node.driver.fail(OutOfReach([node.driver.stack.me], [Machine("b", 1)]))
        assert "truncated" in str(node.trouble)
        assert node.running_store is None
        assert nodes.value("a") == b"first", "it answers reads"
        await nodes.eventually(lambda: node.trouble is None)
        await nodes.primary("a")
        assert nodes.incarnation("a") > started
        assert await nodes.done("a", b"again")
        await nodes.close()

    asyncio.run(scenario())


class Copy:
    """A copy that cannot be completed."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.is_closed = False

    def finish_learning(self, own: Lines, own_messages: list[Record]) -> Lines:
        assert own.green == 1
        raise self._error

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("error", [NotAhead("it is not"), DamagedSnapshot("it is damaged"), DiskFull("no room")])
def test_a_node_whose_switch_fails_goes_on_with_its_old_disk(
    broadcast_port: int, tmp_path: Path, error: Exception
) -> None:
    async def scenario() -> None:
        nodes = await Nodes.in_primary("a", broadcast_port, tmp_path)
        node, started, copy = nodes.nodes["a"], nodes.incarnation("a"), Copy(error)
        await nodes.done("a", b"first")
        await nodes.eventually(lambda: len(nodes.green("a")) == 1)
        with pytest.raises(type(error)):
            await node.switch(copy)  # type: ignore[arg-type]
        assert (copy.is_closed, node.trouble) == (True, None)
        await nodes.primary("a")
        assert nodes.incarnation("a") > started
        assert nodes.value("a") == b"first"
        await nodes.done("a", b"again")
        await nodes.close()

    asyncio.run(scenario())
