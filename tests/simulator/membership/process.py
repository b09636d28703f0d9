"""A simulated process that hosts a membership group, and may crash, pause, and come back as another
incarnation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from membership.config import MembershipConfig
from membership.effects import Refused, Unicast, ViewChanged
from membership.group import Group
from tests.simulator.process import Environment, SimulatedProcess
from transport import messages
from transport.config import TransportConfig
from transport.messages import Service, View

CLOCK_BLOCK = 1_000
"""How far ahead the clock's ceiling is synced; small, so that views cross it."""


class GroupProcess(SimulatedProcess):
    """One node. Its machine is the group, or what a subclass puts on top of it."""

    inbox_datagrams_max = 2_000

    def __init__(
        self,
        name: str,
        environment: Environment,
        membership: MembershipConfig,
        transport: TransportConfig,
        address: str | None = None,
    ) -> None:
        super().__init__(name, environment, address)
        self.group: Group | None = None
        self.me = messages.Machine(name, 0)
        self.on_view: Callable[[View], None] = lambda view: None
        self.on_refused: Callable[[tuple[tuple[Service, bytes], ...]], None] = lambda messages: None
        self._membership = membership
        self._transport = transport
        self._ceiling = 0
        self._heard: dict[messages.Machine, str] = {}
        """The machines of which datagrams have arrived, and the addresses that the last ones came from."""
        self._network.attach_refusals(self.address, self._on_refused)

    def start(self) -> None:
        incarnation = self.next_incarnation(int(self.disk.read("incarnation") or b"0"))
        self._ceiling = int(self.disk.read("clock") or b"1")
        clock = self._ceiling
        self.disk.write("incarnation", b"%d" % incarnation)
        self._reserve(clock)
        self.me = messages.Machine(self.name, incarnation)
        clock = max(clock, self.least_clock())
        self.group = Group(self.me, self._membership, self._transport, self._random, self._world.now, clock)
        self.is_backed_up = False
        self._heard.clear()
        self._attach(self.group)
        self.on_view(self.group.view)
        self._sleep_until(self.group.next_deadline())

    def crash(self) -> None:
        self.group = None
        super().crash()

    def is_up(self) -> bool:
        return self.group is not None and not self.is_paused()

    def multicast(self, service: Service, payload: bytes) -> None:
        assert self.group is not None
        self._execute(self.group.multicast(service, payload))
        self._wake_soon()

    def next_incarnation(self, last: int) -> int:
        return last + 1

    def least_clock(self) -> int:
        """The lowest value at which the clock may begin, whatever its record says."""
        return 1

    def take_in(self, datagram: messages.Datagram) -> None:
        self._heard[datagram.sender] = self.source_of(datagram)
        super().take_in(datagram)

    def source_of(self, datagram: messages.Datagram) -> str:
        """Returns the address that the datagram came from."""
        return datagram.sender.name

    def _on_refused(self, refusing: str) -> None:
        if self.group is None or self._is_postponed(partial(self._on_refused, refusing)):
            return
        for machine, address in self._heard.items():
            if address == refusing:
                self.group.port_unreachable(machine, self._world.now)
        self._wake_soon()

    def _reserve(self, clock: int) -> None:
        self._ceiling = clock + CLOCK_BLOCK
        self.disk.write("clock", b"%d" % self._ceiling)
        self.disk.sync()

    def _execute_one(self, effect: Any) -> None:
        if isinstance(effect, Unicast):
            target = self._heard.get(effect.target, effect.target.name)
            self._network.unicast(self.address, target, self._on_sent(effect.datagram))
        elif isinstance(effect, ViewChanged):
            if effect.view.id.clock >= self._ceiling:
                self._reserve(effect.view.id.clock)
            self.on_view(effect.view)
        elif isinstance(effect, Refused):
            self.on_refused(effect.messages)
        else:
            super()._execute_one(effect)
