"""What the plans draw of the faults that were added later, and that a run makes them happen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.event_loop import Cpu
from tests.simulator.membership.network_faults import Gust, NetworkFaults, SlowLink, Stop, draw_network_faults
from tests.simulator.membership.plan import MembershipPlan, draw_membership_plan
from tests.simulator.membership.run import MembershipRun
from tests.simulator.network import Weather

NODES = ("a", "b", "c")


def plan_with(faults: NetworkFaults, weather: Weather | None = None) -> MembershipPlan:
    plan = draw_membership_plan(1, 3, 3)
    return replace(
        plan,
        starts_ms=(0.0, 0.0, 0.0),
        duration_ms=3_000.0,
        faults=(),
        weather=weather or Weather(delay_ms=1.0),
        messages_per_second=60.0,
        network_faults=faults,
    )


def test_every_fault_is_drawn_in_a_part_of_the_seeds() -> None:
    drawn = [draw_network_faults(seed, NODES, 3_000.0) for seed in range(1, 401)]
    for kind in ("cpus", "storm", "slow_links", "stops"):
        assert 50 < sum(bool(getattr(faults, kind)) for faults in drawn) < 160
    assert 50 < sum(draw_membership_plan(seed, 3, 3).weather.late > 0.0 for seed in range(1, 401)) < 160


def test_faults_are_over_when_the_network_is_healed() -> None:
    for seed in range(1, 201):
        faults = draw_network_faults(seed, NODES, 3_000.0)
        assert all(gust.at_ms <= 3_000.0 for gust in faults.storm)
        assert all(link.at_ms < 3_000.0 for link in faults.slow_links)
        assert all(stop.at_ms < 3_000.0 for stop in faults.stops)


@pytest.mark.parametrize(
    ("faults", "weather", "what"),
    [
        (NetworkFaults(cpus=(("a", Cpu.per_datagram(500.0, 100)),)), None, "cpu: datagrams that waited"),
        (NetworkFaults(storm=(Gust(1_000.0, (("a", "b"), ("b", "c"))),)), None, "one-way cuts in storms"),
        (NetworkFaults(slow_links=(SlowLink(0.0, "a", "b", 50.0),)), None, "datagrams on slow links"),
        (NetworkFaults(stops=(Stop(500.0, "a", 0, 50.0),)), None, "stops between two effects"),
        (NetworkFaults(), Weather(delay_ms=1.0, late=0.02, late_ms_max=900.0), "late datagrams"),
    ],
)
def test_a_run_makes_a_fault_happen_counts_it_and_passes(
    faults: NetworkFaults, weather: Weather | None, what: str
) -> None:
    run = MembershipRun(plan_with(faults, weather))
    run.run()
    assert run.coverage[what] > 0


def test_machines_stay_slow_and_all_else_ends_with_the_faults() -> None:
    cpu = Cpu.per_datagram(5_000.0, 100)
    faults = NetworkFaults(cpus=(("a", cpu),), slow_links=(SlowLink(0.0, "a", "b", 50.0),))
    run = MembershipRun(plan_with(faults, Weather(delay_ms=1.0, late=0.02)))
    run.run()
    before = run.coverage.copy()
    run.world.run_until(run.world.now + 20_000.0)
    after = run.coverage - before
    assert set(after) == {"cpu: datagrams that waited"}
