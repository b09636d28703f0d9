"""Two processes of one name in the simulated world: which one stops, and what the others do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corel.messages import Entry, MessageId, Stream
from corel.stages import Stage
from tests.simulator.checkers import Violation
from tests.simulator.checkers.reused_ids import ReusedIds
from tests.simulator.corel.process import CorelProcess
from tests.simulator.corel.run import CorelRun
from tests.simulator.corel.test_disk_failures import calm_plan
from tests.simulator.corel.twins import Twin
from transport.messages import ViewId


class Scenario(CorelRun):
    """Three nodes, a, b and c, in one primary component; then there is a second process of a's name, with an empty
    disk, beside b. `elder` is the first one."""

    def __init__(self, cut: tuple[str, ...] = ()) -> None:
        super().__init__(replace(calm_plan(), twin=Twin(3_000.0, "a", "a")))
        self._schedule_starts()
        self._schedule_faults()
        self.world.run_until(2_900.0)
        self.elder = self.processes["a"]
        if cut:
            self.cut(*cut)
        self.world.run_until(3_000.0)
        self.twin: CorelProcess = self.processes["a"]
        self.network.place(self.twin.address, "b")

    def run_for(self, duration_ms: float) -> None:
        self.world.run_until(self.world.now + duration_ms)

    def cut(self, *groups: str) -> None:
        self.network.partition(groups)

    def primary(self) -> set[str]:
        """Returns the addresses of the processes that are in a primary component."""
        everybody = (self.elder, *self.processes.values())
        return {
            one.address for one in everybody if one.replica is not None and one.machine_log.stage is Stage.PRIMARY
        }


def test_the_elder_stops_when_it_hears_its_twin_which_takes_its_place() -> None:
    run = Scenario()
    run.run_for(200.0)
    assert run.elder.is_stopped
    assert not run.twin.is_stopped
    run.run_for(3_000.0)
    assert run.primary() == {"a'", "b", "c"}
    assert run.twin.machine_log.is_voter


def test_an_elder_that_was_cut_off_stops_when_the_network_heals() -> None:
    run = Scenario(cut=("a", "bc"))
    run.run_for(3_000.0)
    assert run.primary() == {"a'", "b", "c"}
    assert not run.elder.is_stopped
    run.network.heal()
    run.run_for(200.0)
    assert run.elder.is_stopped
    assert run.primary() == {"a'", "b", "c"}


def test_a_node_that_has_heard_the_twin_is_in_no_component_with_the_elder() -> None:
    """Both have a's vote on their disks by now."""
    run = Scenario(cut=("a", "bc"))
    run.run_for(3_000.0)
    run.cut("ac", "b")
    run.run_for(3_000.0)
    assert run.elder.machine_log.is_voter
    assert run.twin.machine_log.is_voter
    assert run.primary() == {"a'", "b"}
    assert [one.name for one in run.processes["c"].machine_log.view.members] == ["c"]


def test_a_node_that_restarts_remembers_the_twin_on_its_disk() -> None:
    """In memory it has forgotten the twin, and is in a view with the elder, whose vote does not count."""
    run = Scenario(cut=("a", "bc"))
    run.run_for(3_000.0)
    run.cut("ac", "b")
    run.processes["c"].crash()
    run.processes["c"].start()
    run.run_for(3_000.0)
    assert [one.name for one in run.processes["c"].machine_log.view.members] == ["a", "c"]
    assert run.primary() == {"a'", "b"}


def entry(sequence: int, body: bytes) -> Entry:
    return Entry(MessageId(Stream("a", 1), sequence), sequence, ViewId(1, "a", 1), body)


def test_other_bodies_of_one_id_in_one_component_are_a_violation() -> None:
    ids = ReusedIds()
    first, second, other = entry(1, b"x"), entry(2, b"y"), entry(2, b"z")
    ids.check([{"a": [first, second], "b": [first]}, {"c": [first, other]}])
    with pytest.raises(Violation, match=r"another body of a\.1\.2 at 1"):
        ids.check([{"a": [first, second], "b": [first, other]}])


def test_ids_used_twice_are_counted_by_what_became_of_them() -> None:
    ids = ReusedIds()
    for one in (entry(1, b"x"), entry(2, b"x"), entry(2, b"y"), entry(3, b"x"), entry(3, b"y")):
        ids.sent(one)
    ids.acknowledged([entry(2, b"y"), entry(3, b"x")])
    ids.greened([entry(2, b"x"), entry(3, b"x")])
    assert ids.fates() == {"1 green, another one acknowledged": 1, "1 green, another one not acknowledged": 1}
