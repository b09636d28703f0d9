"""Nodes that lack much, in the simulated world: they learn beside the view, whatever fails meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corel.stages import Stage
from tests.simulator.checkers import Violation
from tests.simulator.checkers.learned_seldom import LEARNED_MAX, LearnedSeldom
from tests.simulator.corel.run import CorelRun
from tests.simulator.corel.test_disk_failures import calm_plan
from tests.simulator.corel.truncation import Truncation

CALM = Truncation(
    lag=0,
    every_ms=0.0,
    slow_share=1.0,
    catch_up_share=1.0,
    damaged_share=0.0,
    killed_share=0.0,
    full_share=0.0,
    restart_ms=1.0,
)


class Scenario(CorelRun):
    """Three nodes, a, b and c, of which c was cut off for two seconds, in which more became green than a view
    retransmits. The load has ended since."""

    def __init__(self, truncation: Truncation = CALM) -> None:
        plan = calm_plan()
        config = replace(plan.config, recovery_messages_max=5, messages_kept=10)
        super().__init__(replace(plan, config=config, truncation=truncation))
        self._schedule_starts()
        self.run_for(2_000.0)
        self.network.partition(["ab", "c"])
        self.run_for(2_000.0)
        self._is_sending = False
        self.run_for(100.0)
        self.network.heal()

    def run_for(self, duration_ms: float) -> None:
        self.world.run_until(self.world.now + duration_ms)

    def run_until_counted(self, what: str) -> None:
        assert self.world.run_until(self.world.now + 60_000.0, stop=lambda: bool(self.coverage[what])), what

    def ends_well(self) -> None:
        self._heal()
        self._await_disks()
        self._demand(self._is_one_primary, "one primary component of all")
        self._demand(self._is_all_green, "everything green everywhere")
        self._finish()


def test_a_node_that_was_cut_off_for_long_takes_over_the_state_and_joins() -> None:
    scenario = Scenario()
    views = {scenario.processes[name].machine_log.view.id for name in "ab"}
    scenario.run_until_counted("learning: learned")
    assert views == {scenario.processes[name].machine_log.view.id for name in "ab"}, "the others go on"
    scenario.ends_well()
    assert scenario.processes["c"].log.lines.cut > 0
    assert scenario.coverage["learning: learned, with messages of its own that are not green"] == 1


def test_it_goes_on_with_another_source_when_the_first_dies() -> None:
    scenario = Scenario()
    scenario.run_until_counted("learning: begun")
    learner = scenario._learning._learners["c"]  # type: ignore[union-attr]
    source = learner._staged_from
    assert source is not None
    source.crash()
    scenario.run_until_counted("learning: the source died")
    scenario.world.after(3_000.0, source.start)
    scenario.run_until_counted("learning: learned")
    scenario.ends_well()


@pytest.mark.parametrize(
    ("truncation", "what"),
    [
        (replace(CALM, damaged_share=0.5), "learning: the snapshot is damaged"),
        (replace(CALM, killed_share=1.0), "learning: killed while it learns"),
        (replace(CALM, full_share=1.0), "learning: DiskFull when it switched"),
    ],
)
def test_it_learns_in_the_end_whatever_failed(truncation: Truncation, what: str) -> None:
    scenario = Scenario(truncation)
    scenario.run_until_counted(what)
    scenario.ends_well()
    assert scenario.coverage["learning: learned"] == 1
    assert scenario.processes["c"].machine_log.stage is Stage.PRIMARY


def test_learned_seldom_catches_a_node_that_takes_over_again_and_again() -> None:
    seldom = LearnedSeldom()
    for _ in range(10):
        seldom.learned("a")
    seldom.becomes_quiet()
    for _ in range(LEARNED_MAX):
        seldom.learned("a")
        seldom.learned("b")
    with pytest.raises(Violation, match="a takes over a state for the 4th time"):
        seldom.learned("a")
