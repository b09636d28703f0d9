"""A simulated process: hosts one machine, executes its effects against the simulated world, and may crash."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulator.checkers import Violation
from tests.simulator.disk import Disk
from tests.simulator.network import Network
from tests.simulator.world import World
from transport.config import TransportConfig
from transport.effects import Backpressure, Broadcast, Delivered, Effect, Journal, Received, WindowStuck
from transport.lansis import Lansis
from transport.messages import Datagram, Machine, Message, Service, View, ViewId

INBOX_DATAGRAMS_MAX = 500
"""How many datagrams wait for a process that is stopped."""

TICKS_MAX = 1_000
"""A machine that wants more ticks than this in one instant will never be content."""

_INCARNATION_FILE = "incarnation"


class Process:
    """One node. Restarting makes a new incarnation, read from and synced to its disk before it is used."""

    def __init__(self, name: str, world: World, network: Network[Datagram], disk: Disk, random: Random) -> None:
        self.name = name
        self.disk = disk
        self.machine: Lansis | None = None
        self.is_backed_up = False
        self.carry: Callable[[Datagram], Datagram] = lambda datagram: datagram
        """What sending does to a datagram: nothing, or a round through the codec."""
        self.on_received: Callable[[Message], None] = lambda message: None
        self.on_delivered: Callable[[Message], None] = lambda message: None
        self.on_stuck: Callable[[tuple[Machine, ...]], None] = lambda laggards: None
        self.on_step: Callable[[Lansis], None] = lambda machine: None
        self.on_journal: Callable[[Journal], None] = lambda journal: None
        self._world = world
        self._network = network
        self._random = random
        self._wakes_at = float("inf")
        self._paused_until = 0.0
        self._inbox: list[Datagram] = []

    def start(self, view: View, config: TransportConfig) -> Machine:
        stored = self.disk.read(_INCARNATION_FILE)
        incarnation = int(stored or b"0") + 1
        self.disk.write(_INCARNATION_FILE, str(incarnation).encode())
        self.disk.sync()
        me = Machine(self.name, incarnation)
        if me not in view.members:  # a restarted machine is not the member it was
            view = View(ViewId(view.id.clock + incarnation, *me), (me,))
        self.machine = Lansis(me, view, config, self._random, self._world.now)
        self._network.attach(self.name, self._on_datagram)
        self._wakes_at = float("inf")
        self._sleep_until(self.machine.next_deadline())
        return me

    def crash(self) -> None:
        self.machine = None
        self._inbox.clear()
        self._network.detach(self.name)
        self.disk.crash()

    def pause(self, duration_ms: float) -> None:
        """Stops the process. What it sends and decides meanwhile is nothing; what arrives waits for it."""
        self._paused_until = max(self._paused_until, self._world.now + duration_ms)
        self._world.at(self._paused_until, self._resume)

    def is_paused(self) -> bool:
        return self._world.now < self._paused_until

    def _resume(self) -> None:
        if self.is_paused():
            return  # it was stopped again
        waiting, self._inbox = self._inbox, []
        for datagram in waiting:
            self._on_datagram(datagram)
        self._settle_soon()

    def multicast(self, service: Service, payload: bytes) -> None:
        assert self.machine is not None
        self._execute(self.machine.multicast(service, payload))
        self._settle_soon()

    def _on_datagram(self, datagram: Datagram) -> None:
        if self.is_paused():
            if len(self._inbox) < INBOX_DATAGRAMS_MAX:  # a socket's buffer is not endless either
                self._inbox.append(datagram)
        elif self.machine is not None:
            self._execute(self.machine.receive(datagram, self._world.now))
            self._settle_soon()

    def _settle_soon(self) -> None:
        """Ticks after everything else of this instant, as a driver does that drains its socket first."""
        self._sleep_until(self._world.now)

    def _sleep_until(self, deadline: float) -> None:
        """Schedules a wake-up, unless an earlier one is scheduled already."""
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._world.at(deadline, lambda: self._wake(deadline))

    def _wake(self, scheduled: float) -> None:
        machine = self.machine
        if scheduled != self._wakes_at or machine is None:  # an earlier wake-up has replaced this one
            return
        self._wakes_at = float("inf")
        if self.is_paused():
            return
        ticks = 0
        while (deadline := machine.next_deadline()) <= self._world.now:
            self._execute(machine.tick(self._world.now))
            self.on_step(machine)
            ticks += 1
            if ticks == TICKS_MAX:
                raise Violation(f"{self.name} wants to act again and again without time passing")
        self._sleep_until(deadline)

    def _execute(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast):
                self._network.broadcast(self.name, self.carry(effect.datagram))
            elif isinstance(effect, Delivered):
                for message in effect.messages:
                    self.on_delivered(message)
            elif isinstance(effect, Received):
                for message in effect.messages:
                    self.on_received(message)
            elif isinstance(effect, Backpressure):
                self.is_backed_up = effect.full
            elif isinstance(effect, WindowStuck):
                self.on_stuck(effect.laggards)
            elif isinstance(effect, Journal):
                self.on_journal(effect)
