"""A machine that is sent more than it can handle is slow, and not gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulator.corel.generations import Replacement
from tests.simulator.corel.plan import draw_corel_plan
from tests.simulator.corel.run import CorelRun
from tests.simulator.event_loop import Cpu
from tests.simulator.membership.network_faults import SLOW_MACHINE, NetworkFaults


@pytest.mark.parametrize("socket_datagrams_max", [100, 250])
def test_a_slow_machine_joins_although_the_others_send_more_than_it_can_handle(socket_datagrams_max: int) -> None:
    """No window holds the others back for a machine that is not in their view. This is seed 6025 without its
    faults, but for the disk of the slow machine, which is replaced while the others are at work."""
    plan = draw_corel_plan(6025, 3, 9)
    cpus = tuple(
        (name, Cpu.per_datagram(150.0 * (SLOW_MACHINE if name == "f" else 1.0), socket_datagrams_max))
        for name in plan.below.nodes
    )
    below = replace(plan.below, faults=(), network_faults=NetworkFaults(cpus=cpus))
    replacements = (Replacement(500.0, "f", 300.0),)
    run = CorelRun(replace(plan, below=below, disk_faults=(), disk_failures=(), replacements=replacements))
    run.run()
    assert run.coverage["disks replaced"] == 1
    assert run.coverage["cpu: overdue ticks that waited for datagrams"] > 0


def test_messages_that_a_slow_machine_lacks_do_not_each_wait_for_it() -> None:
    """Seed 7785: of seven machines one is five times slower, and takes 10.5 ms for a batch of one message."""
    plan = draw_corel_plan(7785, 3, 9)
    assert (plan.config.batch_bytes_max, plan.config.batches_ahead_max) == (300, 8)
    CorelRun(plan).run()
