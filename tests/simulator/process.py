"""A simulated process: hosts a machine, executes its effects in the simulated world, and may stop or crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Protocol

from tests.simulator.checkers import Violation
from tests.simulator.disk import Disk
from tests.simulator.event_loop import Cpu, EventLoop
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

    def __init__(self, name: str, environment: Environment, address: str | None = None) -> None:
        self.name = name
        self.address = address or name
        """What the network calls the process's host: its name, unless there are two processes of that name."""
        self.disk = Disk(environment.random)
        self.machine: Machine | None = None
        self.is_backed_up = False
        self.paused_until = 0.0
        self.carry: Callable[[Datagram], Datagram] = lambda datagram: datagram
        """What sending does to a datagram: nothing, or a round through the codec."""
        self.on_delivered: Callable[[Message], None] = lambda message: None
        self.on_journal: Callable[[Journal], None] = lambda journal: None
        self.count: Callable[[str], None] = lambda what: None
        """Counts what happened to the process."""
        self.stop_after_effects: int | None = None
        """After how many more effects it is stopped in the middle of a list of them, if it is."""
        self.stop_ms = 0.0
        """For how long it is stopped then."""
        self._loop: EventLoop | None = None
        """Makes work take time; without it, work takes none."""
        self._rest: Sequence[Any] = ()
        """The effects that a process which was stopped in the middle of a list has not executed."""
        self._world, self._network, self._random = environment
        self._wakes_at = NEVER
        self._inbox: list[Datagram] = []

    def crash(self) -> None:
        self.machine = None
        self._forget_inputs()
        if self._loop is not None:
            self._loop.clear()
        self._network.detach(self.address)
        self.disk.crash()

    def pause(self, duration_ms: float) -> None:
        """Stops the process: it sends and decides nothing meanwhile, and what arrives waits for it."""
        self.paused_until = max(self.paused_until, self._world.now + duration_ms)
        self._world.at(self.paused_until, self._resume)

    def limit_cpu(self, cpu: Cpu) -> None:
        """Makes the process's work take time from now on."""
        self._loop = EventLoop(self._world, cpu, self, lambda what: self.count(what))

    def when_free(self, action: Action) -> None:
        """Runs an action as soon as the process is not busy, unless it crashes before."""
        if not self._is_queued(action):
            action()

    @property
    def held_up_until(self) -> float:
        """Until when the process cannot do, or could not have done, what was due: it was stopped, or busy."""
        return max(self.paused_until, self._loop.busy_until if self._loop is not None else 0.0)

    def is_paused(self) -> bool:
        return self._world.now < self.paused_until

    def pause_left_ms(self) -> float:
        return max(0.0, self.paused_until - self._world.now)

    def _attach(self, machine: Machine) -> None:
        """From now on, this machine takes the inputs."""
        self.machine = machine
        self._network.attach(self.address, self._on_datagram)
        self._wakes_at = NEVER

    def _forget_inputs(self) -> None:
        """Forgets what the machine has not taken in, and what it has decided and not done."""
        self._inbox.clear()
        self._rest = ()
        if self._loop is not None:
            self._loop.forget_datagrams()

    def _resume(self) -> None:
        if self.is_paused():
            return  # it was stopped again
        rest, self._rest = self._rest, ()
        if rest:
            self._execute(rest, may_stop=True)
        if self._loop is not None:
            self._loop.proceed()
        waiting, self._inbox = self._inbox, []
        for datagram in waiting:
            self._on_datagram(datagram)
        self._wake_soon()

    def _is_postponed(self, action: Action) -> bool:
        """Whether the process is stopped or busy; if so, the action is scheduled for when it continues."""
        if self.is_paused():
            self._world.at(self.paused_until, action)
            return True
        return self._is_queued(action)

    def _is_queued(self, action: Action) -> bool:
        """Whether the process is busy; if so, the action waits for its turn. If not, it takes its time now."""
        if self._loop is None:
            return False
        if self._loop.is_busy():
            self._loop.later(action)
            return True
        self._loop.acted()
        return False

    def _on_datagram(self, datagram: Datagram) -> None:
        if self._loop is not None:
            self._loop.datagram(datagram)
        elif self.is_paused():
            if len(self._inbox) < self.inbox_datagrams_max:
                self._inbox.append(datagram)
        else:
            self.take_in(datagram)
            self._wake_soon()

    # What an event loop needs

    def take_in(self, datagram: Datagram) -> None:
        if self.machine is not None:
            self._execute(self.machine.receive(datagram, self._world.now), may_stop=True)

    def tick(self) -> None:
        if self.machine is not None:
            self._execute(self.machine.tick(self._world.now), may_stop=True)
            self._after_tick()

    def next_deadline(self) -> float:
        return self.machine.next_deadline() if self.machine is not None else NEVER

    def sleep_until(self, deadline: float) -> None:
        self._sleep_until(deadline)

    # Time

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
        if self._loop is not None:
            self._loop.proceed()
            return
        ticks = 0
        while not self.is_paused():
            deadline = self.next_deadline()
            if deadline > self._world.now:
                self._sleep_until(deadline)
                return
            self.tick()
            ticks += 1
            if ticks > TICKS_MAX:
                raise Violation(f"{self.name} wants to act again and again without time passing")

    def _after_tick(self) -> None:
        """What a subclass does after each tick."""

    def _execute(self, effects: Sequence[Any], may_stop: bool = False) -> None:
        """Executes effects in their order. If it may, the process is stopped between two of them when that is due,
        and executes the rest when it continues, before anything else."""
        for place, effect in enumerate(effects, start=1):
            self._execute_one(effect)
            if may_stop and place < len(effects) and self._is_stopped_here():
                self._rest = effects[place:]
                return

    def _is_stopped_here(self) -> bool:
        """Counts an effect, and stops the process if it was the last one before it is due to be stopped."""
        if self.stop_after_effects is None:
            return False
        self.stop_after_effects -= 1
        if self.stop_after_effects >= 0:
            return False
        self.stop_after_effects = None
        self.count("stops between two effects")
        self.pause(self.stop_ms)
        return True

    def _execute_one(self, effect: Any) -> None:
        """Executes the effects that machines of every layer have."""
        if isinstance(effect, Broadcast):
            self._network.broadcast(self.address, self._on_sent(effect.datagram))
        elif isinstance(effect, Delivered):
            for message in effect.messages:
                self.on_delivered(message)
        elif isinstance(effect, Backpressure):
            self.is_backed_up = effect.full
        elif isinstance(effect, Journal):
            self.on_journal(effect)

    def _on_sent(self, datagram: Datagram) -> Datagram:
        """Returns what leaves the process when it sends this."""
        if self._loop is not None:
            self._loop.sent(datagram)
        return self.carry(datagram)
