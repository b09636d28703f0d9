"""A simulated process works, waits and stops as it is told to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.simulator.event_loop import Cpu
from tests.simulator.network import Network, Weather
from tests.simulator.process import NEVER, Environment, SimulatedProcess
from tests.simulator.run import datagram_bytes
from tests.simulator.world import World
from transport.effects import Broadcast
from transport.messages import Datagram, Machine
from transport.udp import DRAIN_DATAGRAMS_MAX, DRAIN_SECONDS_MAX

CPU = Cpu(received_ms=2.0, sent_ms=1.0, frame_ms=0.0, step_ms=0.5, socket_datagrams_max=3)


class Scripted:
    """A machine that notes its inputs, ticks when it is told to, and has the same effects each time."""

    def __init__(self, world: World) -> None:
        self.effects: list[Any] = []
        self.inputs: list[tuple[float, str]] = []
        self.deadline = NEVER
        self._world = world

    def receive(self, datagram: Datagram, now: float) -> Sequence[Any]:
        self.inputs.append((now, str(datagram.sender.incarnation)))
        return list(self.effects)

    def tick(self, now: float) -> Sequence[Any]:
        self.inputs.append((now, "tick"))
        self.deadline = NEVER
        return list(self.effects)

    def next_deadline(self) -> float:
        return self.deadline


class Noting(SimulatedProcess):
    """Notes the effects that it executes."""

    inbox_datagrams_max = 10

    def __init__(self, environment: Environment) -> None:
        super().__init__("a", environment)
        self.scripted = Scripted(environment.world)
        self.executed: list[tuple[float, Any]] = []
        self.counts: Counter[str] = Counter()
        self.count = lambda what: self.counts.update([what])
        self._attach(self.scripted)

    def act(self, what: str) -> None:
        if not self._is_postponed(lambda: self.act(what)):
            self.executed.append((self._world.now, what))

    def wake_at(self, deadline: float) -> None:
        self.scripted.deadline = deadline
        self._sleep_until(deadline)

    def _execute_one(self, effect: Any) -> None:
        self.executed.append((self._world.now, effect))
        super()._execute_one(effect)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def network(world: World) -> Network[Datagram]:
    return Network(world, Random(1), Weather(delay_ms=1.0), datagram_bytes)


@pytest.fixture
def process(world: World, network: Network[Datagram]) -> Noting:
    return Noting(Environment(world, network, Random(1)))


def datagram(number: int) -> Datagram:
    return Datagram(Machine("b", number), ())


def send(network: Network[Datagram], *numbers: int) -> None:
    for number in numbers:
        network.broadcast("b", datagram(number))


# Work that takes time


def test_datagrams_wait_while_the_process_is_busy_and_spill_when_the_buffer_is_full(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.limit_cpu(CPU)
    send(network, 1, 2, 3, 4, 5, 6)
    world.run_until(100.0)
    assert process.scripted.inputs == [(1.0, "1"), (3.0, "2"), (5.0, "3"), (7.0, "4")]
    assert process.counts == {"cpu: datagrams that waited": 3, "cpu: datagrams spilled": 2}


def test_without_costs_everything_is_handled_when_it_arrives(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    send(network, 1, 2, 3, 4, 5, 6)
    world.run_until(100.0)
    assert [time for time, _ in process.scripted.inputs] == [1.0] * 6


def test_sending_takes_time_too(world: World, network: Network[Datagram], process: Noting) -> None:
    process.limit_cpu(CPU)
    process.scripted.effects = [Broadcast(datagram(7)), Broadcast(datagram(8))]
    send(network, 1, 2)
    world.run_until(100.0)
    assert process.scripted.inputs == [(1.0, "1"), (5.0, "2")]


def test_a_tick_waits_for_the_datagrams_that_have_arrived_and_other_inputs_for_the_tick(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.limit_cpu(CPU)
    process.wake_at(2.0)
    send(network, 1, 2)
    world.at(1.5, lambda: process.act("a write is on disk"))
    world.run_until(100.0)
    assert process.scripted.inputs == [(1.0, "1"), (3.0, "2"), (5.0, "tick")]
    assert process.executed == [(5.5, "a write is on disk")]


def test_other_inputs_get_their_turn_however_many_datagrams_arrive(world: World, process: Noting) -> None:
    process.limit_cpu(CPU._replace(socket_datagrams_max=10_000))
    for number in range(5_000):
        world.at(0.1 * number, lambda: process._on_datagram(datagram(1)))
    process.when_free(lambda: None)
    process.act("a request")
    world.run_until(500.0)
    assert [what for _, what in process.executed] == ["a request"]


def test_a_process_ticks_however_many_datagrams_arrive(world: World, process: Noting) -> None:
    process.limit_cpu(CPU._replace(socket_datagrams_max=100))
    for number in range(20_000):
        world.at(0.5 * number, lambda: process._on_datagram(datagram(1)))
    for at in range(0, 10_000, 100):
        world.at(float(at), lambda: process.wake_at(world.now))
    world.run_until(10_000.0)
    ticks = [at for at, what in process.scripted.inputs if what == "tick"]
    batch_ms = DRAIN_DATAGRAMS_MAX * CPU.received_ms
    assert max(later - at for at, later in pairwise(ticks)) <= 2.0 * batch_ms + 1_000.0 * DRAIN_SECONDS_MAX
    assert process.counts["cpu: overdue ticks that waited for datagrams"] > 10


def test_a_crash_ends_all_work_and_the_next_start_works_again(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.limit_cpu(CPU)
    send(network, 1, 2, 3)
    world.at(2.0, lambda: process.act("never"))
    world.at(2.5, process.crash)
    world.run_until(50.0)
    assert process.scripted.inputs == [(1.0, "1")]
    process._attach(process.scripted)
    send(network, 4)
    world.run_until(100.0)
    assert process.scripted.inputs[1:] == [(51.0, "4")]
    assert process.executed == []


def test_a_stopped_process_works_on_when_it_continues(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.limit_cpu(CPU)
    send(network, 1, 2)
    world.at(2.0, lambda: process.pause(20.0))
    world.run_until(100.0)
    assert process.scripted.inputs == [(1.0, "1"), (22.0, "2")]


# Stops between two effects


@pytest.mark.parametrize("is_slow", [False, True])
def test_what_is_left_of_a_list_is_executed_when_the_process_continues_before_anything_else(
    world: World, network: Network[Datagram], process: Noting, is_slow: bool
) -> None:
    if is_slow:
        process.limit_cpu(CPU)
    process.scripted.effects = ["x", "y", "z"]
    process.stop_after_effects, process.stop_ms = 1, 30.0
    send(network, 1, 2)
    world.at(10.0, lambda: process.act("a request"))
    world.run_until(100.0)
    assert process.executed[:3] == [(1.0, "x"), (1.0, "y"), (31.0, "z")]
    assert sorted(str(what) for _, what in process.executed[3:]) == ["a request", "x", "y", "z"]
    assert process.scripted.inputs == [(1.0, "1"), (31.0, "2")]
    assert process.counts["stops between two effects"] == 1


def test_the_last_effect_of_a_list_is_no_place_between_two(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.scripted.effects = ["x"]
    process.stop_after_effects, process.stop_ms = 0, 30.0
    send(network, 1)
    world.run_until(10.0)
    assert not process.is_paused()
    process.scripted.effects = ["y", "z"]
    process.wake_at(12.0)
    world.run_until(20.0)
    assert process.executed == [(1.0, "x"), (12.0, "y")]
    assert process.is_paused()


def test_what_is_left_of_a_list_is_never_executed_after_a_crash(
    world: World, network: Network[Datagram], process: Noting
) -> None:
    process.scripted.effects = ["x", "y"]
    process.stop_after_effects, process.stop_ms = 0, 30.0
    send(network, 1)
    world.at(10.0, process.crash)
    world.run_until(100.0)
    assert process.executed == [(1.0, "x")]
