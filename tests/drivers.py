"""The product's driver over a part of the stack, for tests and benchmarks of the layers below the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Self

from corel.corel import Corel
from corel.lmdb_log import LmdbLog
from corel.quorum import Roster
from corel.replica import ReplicaEffect
from kvstore.node.config import PRESETS, NodeConfig, preset_for
from kvstore.node.driver import Disk, Driver
from kvstore.node.journal import JournalWriter
from kvstore.node.lmdb_tree import LmdbTree
from kvstore.node.machines import NoStore
from kvstore.node.recorder import Recorder
from kvstore.node.restarting import FLUSH_SECONDS
from kvstore.node.stack import build_stack
from kvstore.node.synced_numbers import ClockFloor, next_incarnation
from kvstore.node.telemetry import Telemetry
from membership.config import MembershipConfig
from membership.group import Group
from tests.journals import journal_in
from transport.chaos import Chaos, ChaosChannel
from transport.codec import Codec
from transport.config import TransportConfig
from transport.effects import Backpressure, Journal
from transport.lansis import Lansis, QueueFull
from transport.messages import Machine, Service, View, ViewId
from transport.udp import Channel, Mode, UdpChannel

OnStopped = Callable[[Exception], None]


class Reports(NoStore):
    """Takes the place of the store: hands each kind of report to the function that a test gave for it."""

    def __init__(self, **handlers: Callable[[Any], None]) -> None:
        """Takes functions by the name of the report: `Reports(Delivered=...)`."""
        self.handlers = handlers

    def handle(self, report: ReplicaEffect) -> None:
        handler = self.handlers.get(type(report).__name__)
        if handler is not None:
            handler(report)


class OneView(Lansis):
    """The transport of a view that never changes, whoever dies."""

    def port_unreachable(self, machine: Machine, now: float) -> None: ...


class MulticastDriver(Driver):
    """A group, or one view's transport, without a log: messages are delivered, and nothing is kept of them."""

    stack: OneView | Group

    @classmethod
    def in_view(
        cls, me: Machine, view: View, mode: Mode, transport: TransportConfig | None = None, **options: Any
    ) -> Self:
        """Opens the transport of one view, whose members never change. Options are those of `in_group`."""
        return cls._open(mode, transport, lambda fitted: OneView(me, view, fitted, Random(), _now_ms()), **options)

    @classmethod
    def in_group(
        cls, me: Machine, mode: Mode, transport: TransportConfig | None = None, clock: int = 1, **options: Any
    ) -> Self:
        """Opens a group. Options are `cluster`, `on_stopped` and `clock_floor` as the driver takes them, a
        `journal`, and `has_chaos` for a network into which faults can be injected."""
        return cls._open(
            mode,
            transport,
            lambda fitted: Group(me, MembershipConfig(), fitted, Random(), _now_ms(), clock),
            **options,
        )

    @classmethod
    def _open(
        cls,
        mode: Mode,
        transport: TransportConfig | None,
        build: Callable[[TransportConfig], OneView | Group],
        cluster: str = "corelkv",
        has_chaos: bool = False,
        journal: Recorder | None = None,
        **options: Any,
    ) -> Self:
        codec = Codec(cluster, b"")
        udp = UdpChannel(mode)
        channel: Channel = ChaosChannel(udp, codec, Random()) if has_chaos else udp
        try:
            stack = build(
                (transport or PRESETS[preset_for(mode)].transport).with_window_for(udp.receive_buffer_bytes)
            )
        except BaseException:
            channel.close()
            raise
        driver = cls(stack, channel, codec, telemetry=Telemetry(stack.me, journal), **options)
        driver.udp = udp
        return driver

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.udp: UdpChannel
        self.reports = Reports()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def listen(self, **handlers: Callable[[Any], None]) -> Self:
        """Starts the driver, which hands reports to these functions (`Delivered=...`)."""
        self.reports.handlers = {**handlers, "Backpressure": self._on_backpressure}
        self.start(self.reports)
        return self

    @property
    def view(self) -> View:
        return self.stack.view

    @property
    def transport(self) -> Lansis:
        """The transport of the current view."""
        return self.stack.lansis if isinstance(self.stack, Group) else self.stack

    @property
    def chaos(self) -> Chaos:
        assert isinstance(self.channel, ChaosChannel)
        return self.channel.chaos

    @chaos.setter
    def chaos(self, chaos: Chaos) -> None:
        assert isinstance(self.channel, ChaosChannel)
        self.channel.chaos = chaos

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> None:
        """Accepts a message for sending; raises `QueueFull` when too many wait. If a view is given, the message is
        sent in that view only; raises `ViewOver` if it is over."""
        self._check_open()
        self.execute(self.stack.multicast(service, payload, view))

    async def room(self) -> None:
        """Waits until `multicast` accepts more; other waiting tasks may be quicker."""
        await self._has_room.wait()

    async def send(self, service: Service, payload: bytes) -> None:
        """Multicasts a message, as soon as the queue is not full."""
        while True:
            await self.room()
            try:
                return self.multicast(service, payload)
            except QueueFull:
                self._has_room.clear()

    def _on_backpressure(self, backpressure: Backpressure) -> None:
        if backpressure.full:
            self._has_room.clear()
        else:
            self._has_room.set()


class JournalTap(Recorder):
    """A journal that also hands its entries to a test."""

    def __init__(self, journal: JournalWriter, me: Machine, tap: Callable[[Journal], None]) -> None:
        super().__init__(journal, me)
        self._tap = tap

    def entry(self, entry: Journal) -> None:
        self._tap(entry)
        super().entry(entry)


class LogDriver:
    """A node's log on its disk, with nothing above it: tests decide what the bodies of messages are."""

    def __init__(
        self,
        config: NodeConfig,
        on_stopped: OnStopped = lambda error: None,
        on_journal: Callable[[Journal], None] = lambda entry: None,
    ) -> None:
        codec = Codec(config.cluster, config.roster.digest())
        self.machine = Machine(config.node, next_incarnation(config.data))
        self.disk = LmdbLog(config.data, config.cluster, config.node, config.bootstrap, config.log.map_bytes)
        clock_floor = ClockFloor(config.data)
        channel = UdpChannel(config.mode)
        now = _now_ms()
        stack = build_stack(config, self.machine, self.disk, clock_floor.clock, channel.receive_buffer_bytes, now)
        self._journal = journal_in(config.data / "journal") if config.journal else None
        journal = None if self._journal is None else JournalTap(self._journal, self.machine, on_journal)
        disk = Disk(self.disk, LmdbTree(self.disk, config.log.messages_kept), config.log.sync_stall_ms)
        self.log: Corel = stack.log
        self.driver = Driver(
            stack, channel, codec, on_stopped, clock_floor, disk, Telemetry(self.machine, journal)
        )
        self.submit = self.driver.submit

    def start(self, **handlers: Callable[[Any], None]) -> Self:
        """Starts the driver, which hands reports to these functions (`Greened=...`)."""
        self.driver.start(Reports(**handlers))
        return self

    @property
    def writes(self) -> int:
        """How many writes to disk have been made."""
        assert self.driver.writer is not None
        return self.driver.writer.writes

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Stops when everything that is green is marked so on disk."""
        assert self.driver.writer is not None
        await self.driver.flush(seconds)
        self.driver.close()
        if not self.driver.writer.join(seconds):
            raise TimeoutError(f"the writer did not end within {seconds} s")
        if self._journal is not None:
            self._journal.stop()
        self.disk.close()


def loopback_config(name: str, names: str, data: Path, port: int, **settings: Any) -> NodeConfig:
    """Returns the settings of one node of a new cluster on this machine; `names` are one letter each."""
    defaults = {
        "cluster": f"test-{port}",
        "broadcast": ("127.255.255.255", port),
        "preset": "loopback",
        "transport": PRESETS["loopback"].transport,
        "roster": Roster.of(names),
        "bootstrap": True,
        "journal": False,
    }
    return NodeConfig(node=name, data=data, **{**defaults, **settings})


def on_loopback(transport: TransportConfig) -> TransportConfig:
    """Returns the config with the datagram size of the loopback preset."""
    return replace(transport, datagram_bytes_max=PRESETS["loopback"].transport.datagram_bytes_max)


def _now_ms() -> float:
    return time.monotonic() * 1_000.0
