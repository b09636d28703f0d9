"""A simulated process: hosts a machine, executes its effects in the simulated world, and may stop or crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol

from tests.simulator.checkers import Violation
from tests.simulator.disk import Disk
from tests.simulator.network import Network
from tests.simulator.world import Action, World
from transport.effects import Backpressure, Broadcast, Delivered, Journal
from transport.messages import Datagram, Message

NEVER = float("inf")

TICKS_MAX = 1_000
"""A machine that wants more ticks than this in one instant would tick for ever."""


class Environment(NamedTuple):
    """What all processes of a run share."""

    world: World
    network: Network[Datagram]
    random: Random


class Machine(Protocol):
    """What a process hosts."""

    def receive(self, datagram: Datagram, now: float) -> Sequence[Any]: ...

    def tick(self, now: float) -> Sequence[Any]: ...

    def next_deadline(self) -> float: ...


class SimulatedProcess:
    """One node. The run decides what it does and what happens to it; subclasses start its machine."""

    inbox_datagrams_max: ClassVar[int]
    """How many datagrams wait for a stopped process: a socket's buffer is bounded too."""

    def __init__(self, name: str, environment: Environment) -> None:
        self.name = name
        self.disk = Disk(environment.random)
        self.machine: Machine | None = None
        self.is_backed_up = False
        self.paused_until = 0.0
        self.carry: Callable[[Datagram], Datagram] = lambda datagram: datagram
        """What sending does to a datagram: nothing, or a round through the codec."""
        self.on_delivered: Callable[[Message], None] = lambda message: None
        self.on_journal: Callable[[Journal], None] = lambda journal: None
        self._world, self._network, self._random = environment
        self._wakes_at = NEVER
        self._inbox: list[Datagram] = []

    def crash(self) -> None:
        self.machine = None
        self._inbox.clear()
        self._network.detach(self.name)
        self.disk.crash()

    def pause(self, duration_ms: float) -> None:
        """Stops the process: it sends and decides nothing meanwhile, and what arrives waits for it."""
        self.paused_until = max(self.paused_until, self._world.now + duration_ms)
        self._world.at(self.paused_until, self._resume)

    def is_paused(self) -> bool:
        return self._world.now < self.paused_until

    def pause_left_ms(self) -> float:
        return max(0.0, self.paused_until - self._world.now)

    def _attach(self, machine: Machine) -> None:
        """From now on, this machine takes the inputs."""
        self.machine = machine
        self._network.attach(self.name, self._on_datagram)
        self._wakes_at = NEVER

    def _resume(self) -> None:
        if self.is_paused():
            return  # it was stopped again
        waiting, self._inbox = self._inbox, []
        for datagram in waiting:
            self._on_datagram(datagram)
        self._wake_soon()

    def _is_postponed(self, action: Action) -> bool:
        """Whether the process is stopped; if so, the action is scheduled for when it continues."""
        if self.is_paused():
            self._world.at(self.paused_until, action)
            return True
        return False

    def _on_datagram(self, datagram: Datagram) -> None:
        if self.is_paused():
            if len(self._inbox) < self.inbox_datagrams_max:
                self._inbox.append(datagram)
        elif self.machine is not None:
            self._execute(self.machine.receive(datagram, self._world.now))
            self._wake_soon()

    def _wake_soon(self) -> None:
        """Ticks after everything else of this instant, as a driver does that drains its socket first."""
        if self.machine is not None:
            self._sleep_until(self._world.now)

    def _sleep_until(self, deadline: float) -> None:
        """Schedules a wake-up, unless an earlier one is scheduled already."""
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._world.at(deadline, lambda: self._wake(deadline))

    def _wake(self, scheduled: float) -> None:
        if scheduled != self._wakes_at or self.machine is None:  # an earlier wake-up has replaced this one
            return
        self._wakes_at = NEVER
        if self.is_paused():
            return
        ticks = 0
        while self.machine is not None and self.machine.next_deadline() <= self._world.now:
            self._execute(self.machine.tick(self._world.now))
            self._after_tick()
            ticks += 1
            if ticks > TICKS_MAX:
                raise Violation(f"{self.name} wants to act again and again without time passing")
        if self.machine is not None:
            self._sleep_until(self.machine.next_deadline())

    def _after_tick(self) -> None:
        """What a subclass does after each tick."""

    def _execute(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            self._execute_one(effect)

    def _execute_one(self, effect: Any) -> None:
        """Executes the effects that machines of every layer have."""
        if isinstance(effect, Broadcast):
            self._network.broadcast(self.name, self.carry(effect.datagram))
        elif isinstance(effect, Delivered):
            for message in effect.messages:
                self.on_delivered(message)
        elif isinstance(effect, Backpressure):
            self.is_backed_up = effect.full
        elif isinstance(effect, Journal):
            self.on_journal(effect)
