"""A simulated process that hosts one view's transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulator.process import Environment, SimulatedProcess
from transport.config import TransportConfig
from transport.effects import Received, WindowStuck
from transport.lansis import Lansis
from transport.messages import Machine, Message, Service, View, ViewId

_INCARNATION_FILE = "incarnation"


class Process(SimulatedProcess):
    """One node. Restarting makes a new incarnation, read from and synced to its disk before it is used."""

    inbox_datagrams_max = 500
    machine: Lansis | None

    def __init__(self, name: str, environment: Environment) -> None:
        super().__init__(name, environment)
        self.on_received: Callable[[Message], None] = lambda message: None
        self.on_stuck: Callable[[tuple[Machine, ...]], None] = lambda laggards: None
        self.on_step: Callable[[Lansis], None] = lambda machine: None

    def start(self, view: View, config: TransportConfig) -> Machine:
        stored = self.disk.read(_INCARNATION_FILE)
        incarnation = int(stored or b"0") + 1
        self.disk.write(_INCARNATION_FILE, str(incarnation).encode())
        self.disk.sync()
        me = Machine(self.name, incarnation)
        if me not in view.members:  # a restarted machine is not the member it was
            view = View(ViewId(view.id.clock + incarnation, *me), (me,))
        machine = Lansis(me, view, config, self._random, self._world.now)
        self._attach(machine)
        self._sleep_until(machine.next_deadline())
        return me

    def multicast(self, service: Service, payload: bytes) -> None:
        assert self.machine is not None
        self._execute(self.machine.multicast(service, payload))
        self._wake_soon()

    def _after_tick(self) -> None:
        assert self.machine is not None
        self.on_step(self.machine)

    def _execute_one(self, effect: Any) -> None:
        if isinstance(effect, Received):
            for message in effect.messages:
                self.on_received(message)
        elif isinstance(effect, WindowStuck):
            self.on_stuck(effect.laggards)
        else:
            super()._execute_one(effect)
