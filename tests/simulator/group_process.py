"""A simulated process that hosts a membership group, and may crash, pause, and come back as another
incarnation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from membership.config import MembershipConfig
from membership.effects import Refused, Unicast, ViewChanged
from membership.group import Group
from tests.simulator.checkers import Violation
from tests.simulator.disk import Disk
from tests.simulator.network import Network
from tests.simulator.world import World
from transport import messages
from transport.config import TransportConfig
from transport.effects import Backpressure, Broadcast, Delivered, Journal
from transport.messages import Datagram, Message, Service, View

INBOX_DATAGRAMS_MAX = 2_000
TICKS_MAX = 1_000
CLOCK_BLOCK = 1_000
"""How far ahead the clock's ceiling is synced; small, so that views cross it."""


class Machine(Protocol):
    """What a process hosts."""

    def receive(self, datagram: Datagram, now: float) -> Sequence[Any]: ...

    def tick(self, now: float) -> Sequence[Any]: ...

    def next_deadline(self) -> float: ...


class GroupProcess:
    """One node. What it is told to do, and what happens to it, the run decides."""

    def __init__(
        self,
        name: str,
        world: World,
        network: Network[Datagram],
        random: Random,
        membership: MembershipConfig,
        transport: TransportConfig,
    ) -> None:
        self.name = name
        self.disk = Disk(random)
        self.group: Group | None = None
        self.machine: Machine | None = None
        """What takes the inputs: the group, or what a subclass puts on top of it."""
        self.me = messages.Machine(name, 0)
        self.is_backed_up = False
        self.carry: Callable[[Datagram], Datagram] = lambda datagram: datagram
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_delivered: Callable[[Message], None] = lambda message: None
        self.on_refused: Callable[[tuple[tuple[Service, bytes], ...]], None] = lambda messages: None
        self.on_journal: Callable[[Journal], None] = lambda journal: None
        self._world = world
        self._network = network
        self._random = random
        self._membership = membership
        self._transport = transport
        self._ceiling = 0
        self._wakes_at = float("inf")
        self._paused_until = 0.0
        self._inbox: list[Datagram] = []

    def start(self) -> None:
        incarnation = int(self.disk.read("incarnation") or b"0") + 1
        self._ceiling = int(self.disk.read("clock") or b"1")
        clock = self._ceiling
        self.disk.write("incarnation", b"%d" % incarnation)
        self._reserve(clock)
        self.me = messages.Machine(self.name, incarnation)
        clock = max(clock, self.least_clock())
        self.group = Group(self.me, self._membership, self._transport, self._random, self._world.now, clock)
        self.machine = self.group
        self.is_backed_up = False
        self._network.attach(self.name, self._on_datagram)
        self._wakes_at = float("inf")
        self.on_view(self.group.view)
        self._sleep_until(self.group.next_deadline())

    def crash(self) -> None:
        self.group = self.machine = None
        self._inbox.clear()
        self._network.detach(self.name)
        self.disk.crash()

    def pause(self, duration_ms: float) -> None:
        self._paused_until = max(self._paused_until, self._world.now + duration_ms)
        self._world.at(self._paused_until, self._resume)

    def is_paused(self) -> bool:
        return self._world.now < self._paused_until

    def pause_left_ms(self) -> float:
        return max(0.0, self._paused_until - self._world.now)

    def is_up(self) -> bool:
        return self.group is not None and not self.is_paused()

    def multicast(self, service: Service, payload: bytes) -> None:
        assert self.group is not None
        self._execute(self.group.multicast(service, payload))
        self._sleep_until(self._world.now)

    def _reserve(self, clock: int) -> None:
        self._ceiling = clock + CLOCK_BLOCK
        self.disk.write("clock", b"%d" % self._ceiling)
        self.disk.sync()

    def _resume(self) -> None:
        if self.is_paused():
            return
        waiting, self._inbox = self._inbox, []
        for datagram in waiting:
            self._on_datagram(datagram)
        self._sleep_until(self._world.now)

    def _on_datagram(self, datagram: Datagram) -> None:
        if self.is_paused():
            if len(self._inbox) < INBOX_DATAGRAMS_MAX:
                self._inbox.append(datagram)
        elif self.machine is not None:
            self._execute(self.machine.receive(datagram, self._world.now))
            self._sleep_until(self._world.now)

    def _sleep_until(self, deadline: float) -> None:
        if deadline < self._wakes_at:
            self._wakes_at = deadline
            self._world.at(deadline, lambda: self._wake(deadline))

    def _wake(self, scheduled: float) -> None:
        if scheduled != self._wakes_at or self.machine is None:
            return
        self._wakes_at = float("inf")
        if self.is_paused():
            return
        ticks = 0
        while self.machine is not None and self.machine.next_deadline() <= self._world.now:
            self._execute(self.machine.tick(self._world.now))
            ticks += 1
            if ticks > TICKS_MAX:
                raise Violation(f"{self.me} wants to tick for ever")
        if self.machine is not None:
            self._sleep_until(self.machine.next_deadline())

    def least_clock(self) -> int:
        """Where the clock must begin at the least, whatever its record says."""
        return 1

    def _execute(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            self._execute_one(effect)

    def _execute_one(self, effect: Any) -> None:
        if isinstance(effect, Broadcast):
            self._network.broadcast(self.name, self.carry(effect.datagram))
        elif isinstance(effect, Unicast):
            self._network.unicast(self.name, effect.target.name, self.carry(effect.datagram))
        elif isinstance(effect, Delivered):
            for message in effect.messages:
                self.on_delivered(message)
        elif isinstance(effect, ViewChanged):
            if effect.view.id.clock >= self._ceiling:
                self._reserve(effect.view.id.clock)
            self.on_view(effect.view)
        elif isinstance(effect, Refused):
            self.on_refused(effect.messages)
        elif isinstance(effect, Backpressure):
            self.is_backed_up = effect.full
        elif isinstance(effect, Journal):
            self.on_journal(effect)
