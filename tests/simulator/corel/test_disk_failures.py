"""Simulated disks that fail: what they refuse, and what nodes on them do for the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corel.disk_errors import DamagedLog, DiskError, DiskFull, UnusableLog
from corel.stages import Stage
from corel.storage import Lines, LogWrite
from corel.trial_write import TRIAL_BYTES_MIN
from tests.corel.test_lmdb_log import A, lines, record
from tests.simulator.checkers import Violation
from tests.simulator.checkers.flapping import RETURNS_MAX, Flapping
from tests.simulator.corel.disk_failures import DiskFailure
from tests.simulator.corel.disk_space import DiskSpace, write_bytes
from tests.simulator.corel.memory_log import MemoryLog
from tests.simulator.corel.plan import CorelPlan, draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.membership.network_faults import NO_NETWORK_FAULTS
from tests.simulator.network import Weather


def calm_plan(*failures: DiskFailure, rate: float = 40.0) -> CorelPlan:
    """Three nodes on a network without faults that send messages all the time."""
    plan = draw_corel_plan(1, 3, 3)
    below = replace(
        plan.below,
        weather=Weather(),
        faults=(),
        network_faults=NO_NETWORK_FAULTS,
        messages_per_second=rate,
        starts_ms=(0.0, 0.0, 0.0),
    )
    return replace(
        plan,
        below=below,
        sync_ms=2.0,
        disk_faults=(),
        phase_faults=(),
        replacements=(),
        bootstrap=None,
        disk_failures=failures,
    )


class Scenario(CorelRun):
    """Three nodes, a, b and c, and what happens to their disks."""

    def __init__(self, *failures: DiskFailure) -> None:
        super().__init__(calm_plan(*failures))
        self.views: set[object] = set()
        """The views that a has had."""
        self._schedule_starts()
        self._schedule_faults()
        self.run_for(3_000.0)

    def run_for(self, duration_ms: float) -> None:
        end = self.world.now + duration_ms
        while self.world.now < end:
            self.world.run_until(self.world.now + 10.0)
            if self.processes["a"].group is not None:
                self.views.add(self.processes["a"].group.view.id)

    def green(self, node: str) -> int:
        return self.processes[node].machine_log.queue.green

    def ends_faults(self) -> None:
        self._heal()
        self._await_disks()

    def ends_well(self) -> None:
        self.ends_faults()
        self._demand(self._is_one_primary, "one primary component of all")
        self._is_sending = False
        self._demand(self._is_all_green, "everything green everywhere")
        self._finish()


def log_with(count: int) -> MemoryLog:
    log = MemoryLog(Lines(is_voter=True))
    for arrival in range(count):
        log.write(LogWrite((record(arrival, A, arrival + 1),), (), None, lines(arrival + 1)))
    return log


# What a disk refuses


def test_a_write_fits_if_it_does_not_exceed_the_capacity() -> None:
    log = log_with(2)
    write = LogWrite((record(2, A, 3),), (), None, lines(3))
    log.space.limit(write_bytes(write) - 1)
    with pytest.raises(DiskFull):
        log.write(write)
    assert len(log.messages) == 2, "nothing of it is there"
    log.space.limit(write_bytes(write))
    log.write(write)


def test_a_trial_needs_more_room_than_a_small_write_and_leaves_nothing() -> None:
    space = DiskSpace()
    space.take(1_000)
    for free_bytes, succeeds in (
        (0, False),
        (1_000, False),
        (TRIAL_BYTES_MIN, False),
        (2 * TRIAL_BYTES_MIN, True),
    ):
        space.limit(free_bytes)
        if succeeds:
            space.try_write()
        else:
            with pytest.raises(DiskFull):
                space.try_write()
        assert space.used_bytes == 1_000


def test_a_trial_is_as_large_as_what_was_refused() -> None:
    space = DiskSpace()
    space.limit(2 * TRIAL_BYTES_MIN)
    with pytest.raises(DiskFull):
        space.take(3 * TRIAL_BYTES_MIN)
    with pytest.raises(DiskFull):
        space.try_write()


def test_a_disk_that_has_to_be_opened_again_reads_and_writes_nothing_until_then() -> None:
    log = log_with(2)
    log.space.is_unusable = True
    for use in (log.load, log.space.try_write, lambda: log.body(0), lambda: log.space.take(1)):
        with pytest.raises(UnusableLog):
            use()
    log.space.can_be_opened = False
    with pytest.raises(UnusableLog):
        log.space.reopen_if_unusable()
    log.space.can_be_opened = True
    assert log.space.reopen_if_unusable()
    assert log.body(0) == b"body"


def test_an_error_is_over_after_as_many_writes_as_it_has() -> None:
    space = DiskSpace()
    space.failures = 2
    for _ in range(2):
        with pytest.raises(DiskError):
            space.take(1)
    space.take(1)


def test_a_rotten_record_is_an_error_wherever_it_is_read() -> None:
    log = log_with(3)
    log.rot(0.0)
    for use in (log.load, lambda: log.body(0)):
        with pytest.raises(DamagedLog):
            use()
    assert log.body(2) == b"body"


# What nodes do


def test_a_node_whose_disk_is_full_leaves_the_others_once_reads_and_comes_back_with_everything() -> None:
    scenario = Scenario(DiskFailure(1_500.0, "c", "full", for_ms=20_000.0, free_bytes=500))
    c = scenario.processes["c"]
    assert c.is_away
    assert isinstance(c.trouble, DiskFull)
    before, views = scenario.green("a"), len(scenario.views)
    scenario.run_for(10_000.0)
    assert scenario.green("a") > before + 200, "the others go on"
    assert len(scenario.views) == views, "and are not disturbed"
    assert c.is_away
    assert len(c.log.green(0, 10)) == 10, "it can be read"
    scenario.ends_well()
    assert scenario.coverage["returns to a disk"] == 1


def test_a_disk_that_takes_trials_and_refuses_writes_disturbs_the_others_less_and_less() -> None:
    scenario = Scenario()
    c = scenario.processes["c"]
    take = c.log.space.take

    def refuse(size: int) -> None:
        raise DiskFull("no room for this one")

    c.log.space.take = refuse  # type: ignore[method-assign]
    scenario.views.clear()
    scenario.run_for(60_000.0)
    assert scenario.coverage["returns to a disk"] == 5, "after 1, 2, 4, 8 and 16 seconds"
    assert len(scenario.views) <= 2 * (5 + 1) + 1
    c.log.space.take = take  # type: ignore[method-assign]
    scenario.ends_well()


def test_when_all_are_full_together_nothing_flaps_and_all_recover_when_there_is_room() -> None:
    scenario = Scenario(DiskFailure(1_500.0, "", "all full", for_ms=60_000.0))
    assert all(process.is_away for process in scenario.processes.values())
    scenario.run_for(20_000.0)
    assert all(process.is_away for process in scenario.processes.values())
    assert scenario.coverage["returns to a disk"] == 0
    scenario.ends_well()
    assert scenario.coverage["returns to a disk"] == 3


@pytest.mark.parametrize("kind", ["errors", "meta page", "files", "stall"])
def test_other_failures_make_a_node_leave_and_come_back(kind: str) -> None:
    failure = DiskFailure(1_500.0, "c", kind, for_ms=1_000.0, count=1)  # type: ignore[arg-type]
    scenario = Scenario(failure)
    scenario.run_for(6_000.0)
    if kind != "files":  # which are needed when a block of the clock is used up
        assert scenario.coverage["returns to a disk"] >= 1
    assert scenario.processes["c"].machine_log.stage is Stage.PRIMARY
    scenario.ends_well()


def test_a_disk_that_stalls_beyond_the_phase_of_faults_is_a_fault_until_its_node_is_back() -> None:
    """Seed 3550: a node started on a disk that stalled; half of the time to settle was over when it was back."""
    scenario = Scenario(DiskFailure(2_900.0, "b", "stall", 4_000.0))
    b = scenario.processes["b"]
    b.crash()
    b.start()
    assert not b.is_away, "it has not noticed"
    scenario.ends_faults()
    assert scenario.world.now > 8_900.0
    assert scenario.coverage["returns to a disk"] == 1
    assert not b.is_away
    scenario.ends_well()


def test_a_node_whose_log_is_rotten_stays_down_until_its_disk_is_replaced() -> None:
    scenario = Scenario(DiskFailure(1_500.0, "c", "rot", for_ms=1.0, place=1.0))
    scenario.run_for(3_000.0)
    assert scenario.coverage["disks found damaged"] == 1
    assert scenario.coverage["damaged disks replaced"] == 1
    assert scenario.processes["c"].machine_log.is_voter, "its vote is restored"
    scenario.ends_well()


def test_flapping_is_noticed() -> None:
    flapping = Flapping()
    for second in range(RETURNS_MAX):
        flapping.returned("a", 1, 1_000.0 * second)
    flapping.returned("a", 2, 3_000.0)  # another process
    flapping.returned("b", 1, 3_000.0)
    with pytest.raises(Violation, match="a came back 4 times"):
        flapping.returned("a", 1, 4_000.0)
