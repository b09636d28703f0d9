"""The driver on loopback: machines, sockets and clock together, in one process."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvstore.node.config import PRESETS
from kvstore.node.recorder import Recorder
from kvstore.node.synced_numbers import ClockFloor
from membership.effects import MembershipEvent, ViewChanged
from tests.drivers import MulticastDriver, on_loopback
from tests.journals import faults_of, journal_in, read_journal
from transport.chaos import Chaos
from transport.codec import VERSION
from transport.config import TransportConfig
from transport.effects import Delivered, Journal
from transport.lansis import QueueFull
from transport.messages import ORDERED, Datagram, Machine, Message, Service, View, ViewId
from transport.udp import BroadcastMode

VIEW = ViewId(1, "a", 1)


class Cluster:
    """Drivers in one process, in one view that never changes. Needs a running event loop."""

    def __init__(
        self, names: str, port: int, config: TransportConfig | None = None, has_chaos: bool = False
    ) -> None:
        self.view = View(VIEW, tuple(Machine(name, 1) for name in names))
        self.delivered: dict[str, list[Message]] = {name: [] for name in names}
        self.stuck: list[tuple[Machine, ...]] = []
        self.failures: list[Exception] = []
        self.nodes: dict[str, MulticastDriver] = {}
        for machine in self.view.members:
            node = MulticastDriver.in_view(
                machine,
                self.view,
                BroadcastMode(("127.255.255.255", port)),
                on_loopback(config or TransportConfig()),
                has_chaos=has_chaos,
                on_stopped=self.failures.append,
            )
            self.nodes[machine.name] = node.listen(
                Delivered=partial(_extend, self.delivered[machine.name]),
                WindowStuck=lambda stuck: self.stuck.append(stuck.laggards),
            )

    async def eventually(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not condition():
                await asyncio.sleep(0.002)

    async def delivered_everywhere(self, count: int) -> None:
        await self.eventually(lambda: all(len(messages) >= count for messages in self.delivered.values()))

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def _extend(messages: list[Message], delivered: Delivered) -> None:
    messages.extend(delivered.messages)


def order(messages: list[Message]) -> list[str]:
    return [message.id for message in messages if message.service in ORDERED]


def test_all_services_arrive_everywhere_and_in_one_order(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("abc", broadcast_port)
        for number in range(50):
            for node in cluster.nodes.values():
                node.multicast(Service(number % 4), b"%d" % number)
            await asyncio.sleep(0)
        await cluster.delivered_everywhere(150)
        orders = [order(messages) for messages in cluster.delivered.values()]
        assert len(orders[0]) == 72  # 24 of the 50 rounds are agreed or safe
        assert orders[0] == orders[1] == orders[2]
        cluster.close()

    asyncio.run(scenario())


def test_a_message_of_a_mebibyte_arrives(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        payload = bytes(range(256)) * 4_096
        cluster.nodes["a"].multicast(Service.SAFE, payload)
        await cluster.delivered_everywhere(1)
        assert cluster.delivered["b"][0].payload == payload
        cluster.close()

    asyncio.run(scenario())


def test_chaos_is_repaired(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("abc", broadcast_port, has_chaos=True)
        for node in cluster.nodes.values():
            node.chaos = Chaos(loss=0.2, duplication=0.1, jitter_ms=3.0)
        for number in range(100):
            cluster.nodes["abc"[number % 3]].multicast(Service.AGREED, b"%d" % number)
            await asyncio.sleep(0.001)
        await cluster.delivered_everywhere(100)
        orders = [order(messages) for messages in cluster.delivered.values()]
        assert orders[0] == orders[1] == orders[2]
        assert sum(node.transport.counters["packets_retransmitted"] for node in cluster.nodes.values()) > 0
        cluster.close()

    asyncio.run(scenario())


def test_a_delivery_may_multicast(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        remaining = 20

        def answer(delivered: Delivered) -> None:
            nonlocal remaining
            cluster.delivered["b"].extend(delivered.messages)
            for message in delivered.messages:
                if message.sender.name == "a" and remaining:
                    remaining -= 1
                    cluster.nodes["b"].multicast(Service.AGREED, b"answer")

        cluster.nodes["b"].reports.handlers["Delivered"] = answer
        for _ in range(20):
            cluster.nodes["a"].multicast(Service.AGREED, b"question")
        await cluster.delivered_everywhere(40)
        assert remaining == 0
        cluster.close()

    asyncio.run(scenario())


def test_backpressure_ends_when_the_window_moves(broadcast_port: int) -> None:
    async def scenario() -> None:
        config = TransportConfig(queue_messages_max=64, window_messages_max=32)
        cluster = Cluster("ab", broadcast_port, config)
        sender = cluster.nodes["a"]
        for number in range(64):
            sender.multicast(Service.AGREED, b"%d" % number)
        with pytest.raises(QueueFull):
            sender.multicast(Service.AGREED, b"one too many")
        await asyncio.gather(*(sender.send(Service.AGREED, b"%d" % number) for number in range(64, 500)))
        await cluster.delivered_everywhere(500)
        assert [int(message.payload) for message in cluster.delivered["b"]] == list(range(500))
        cluster.close()

    asyncio.run(scenario())


def test_a_failing_callback_stops_the_node_loudly(broadcast_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)

        def fail(delivered: Delivered) -> None:
            raise KeyError("the application is broken")

        broken = cluster.nodes["b"]
        broken.reports.handlers["Delivered"] = fail
        cluster.nodes["a"].multicast(Service.CAUSAL, b"x")
        await cluster.eventually(lambda: bool(cluster.failures))
        assert isinstance(cluster.failures[0], KeyError)
        with pytest.raises(RuntimeError, match="closed"):
            broken.multicast(Service.BASIC, b"y")
        cluster.close()

    asyncio.run(scenario())
    assert "the node stops" in caplog.text


def test_a_closed_node_is_silent(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        node = cluster.nodes["a"]
        node.reports.handlers["Delivered"] = lambda delivered: node.close()
        node.multicast(Service.BASIC, b"x")
        await cluster.eventually(lambda: node.is_closed)
        sent = node.transport.counters["statuses_sent"]
        await asyncio.sleep(0.25)  # more than two heartbeats
        assert node.transport.counters["statuses_sent"] == sent
        cluster.close()

    asyncio.run(scenario())


def test_after_a_pause_of_its_own_a_node_hears_the_others_first(broadcast_port: int) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port, TransportConfig(window_messages_max=16, stuck_after_ms=200.0))
        sender, receiver = cluster.nodes.values()
        for number in range(40):
            sender.multicast(Service.AGREED, b"%d" % number)
        sender._settle()  # its share of the window is on the network, and it waits for b
        receiver.channel.drain()  # b has acknowledged; a has not read that when the process is stopped
        time.sleep(0.5)
        sender._settle()
        assert cluster.stuck == []
        await cluster.delivered_everywhere(40)
        cluster.close()

    asyncio.run(scenario())


def test_the_clock_of_a_tick_is_not_before_what_was_drained_for_it(
    broadcast_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        sender, receiver = cluster.nodes.values()
        times: list[tuple[str, float]] = []
        receive, tick = receiver.stack.receive, receiver.stack.tick

        def noting_receive(datagram: Datagram, now: float) -> Sequence[Any]:
            times.append(("receive", now))
            return receive(datagram, now)

        def noting_tick(now: float) -> Sequence[Any]:
            times.append(("tick", now))
            return tick(now)

        monkeypatch.setattr(receiver.stack, "receive", noting_receive)
        monkeypatch.setattr(receiver.stack, "tick", noting_tick)
        sender.multicast(Service.AGREED, b"x")
        sender._settle()
        time.sleep(0.5)  # b's process pauses
        receiver._settle()
        assert [what for what, _ in times][:2] == ["receive", "tick"]
        assert times == sorted(times, key=lambda entry: entry[1])
        cluster.close()

    asyncio.run(scenario())


def test_a_node_that_cannot_be_leaves_nothing_open(broadcast_port: int) -> None:
    async def scenario() -> None:
        mode = BroadcastMode(("127.255.255.255", broadcast_port))
        with pytest.raises(ValueError, match="not a member"):
            MulticastDriver.in_view(Machine("x", 1), View(VIEW, (Machine("a", 1),)), mode)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as exclusive:
            exclusive.bind(("127.255.255.255", broadcast_port))  # fails if another socket has it

    asyncio.run(scenario())


def test_a_silent_member_is_reported_as_what_holds_the_window(broadcast_port: int) -> None:
    async def scenario() -> None:
        config = TransportConfig(window_messages_max=16, stuck_after_ms=50.0)
        cluster = Cluster("abc", broadcast_port, config)
        cluster.nodes["c"].close()
        for number in range(20):
            cluster.nodes["a"].multicast(Service.AGREED, b"%d" % number)
        await cluster.eventually(lambda: bool(cluster.stuck))
        assert cluster.stuck[0] == (Machine("c", 1),)
        assert cluster.delivered["b"] == []
        cluster.close()

    asyncio.run(scenario())


def test_noise_on_the_port_is_counted_and_logged_once(
    broadcast_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for _ in range(30):
                stranger.sendto(bytes((VERSION, 0)) + b"not for us at all", ("127.255.255.255", broadcast_port))
        peer_errors = cluster.nodes["a"].telemetry.peer_errors
        await cluster.eventually(lambda: peer_errors.counts.total() == 30)
        cluster.nodes["a"].multicast(Service.AGREED, b"still here")
        await cluster.delivered_everywhere(1)
        cluster.close()

    with caplog.at_level(logging.WARNING, "corelkv"):
        asyncio.run(scenario())
    lines = [record.message for record in caplog.records if "foreign_cluster" in record.message]
    assert len(lines) == 2  # one for each node, not for each datagram


def test_the_journal_tells_a_packet_s_life(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port, TransportConfig(journal_packets=True))
        journal = journal_in(tmp_path)
        cluster.nodes["a"].telemetry.journal = Recorder(journal, Machine("a", 1))
        cluster.nodes["a"].multicast(Service.SAFE, b"x")
        await cluster.delivered_everywhere(1)
        cluster.close()
        journal.stop()
        assert journal.join(10.0)

    asyncio.run(scenario())
    records = read_journal(tmp_path).records
    assert [fault for record in records for fault in faults_of(record)] == []
    life = [one["event"] for one in records if (one.get("machine"), one.get("first")) == ("a.1", 1)]
    assert life == ["packet_sent", "packet_stable", "packet_delivered"]
    assert [one["monotonic_ms"] for one in records] == sorted(one["monotonic_ms"] for one in records)


def test_the_window_fits_what_the_kernel_granted() -> None:
    assert TransportConfig().with_window_for(400_000).window_bytes_max == 200_000
    assert TransportConfig().with_window_for(10**9) == TransportConfig()
    loopback = PRESETS["loopback"].transport
    assert loopback.with_window_for(1).window_bytes_max > loopback.datagram_bytes_max


def test_a_view_is_not_shown_before_the_next_start_is_sure_to_begin_above_it(
    broadcast_port: int, tmp_path: Path
) -> None:
    async def scenario() -> None:
        me = Machine("a", 1)
        floors: list[int] = []
        mode = BroadcastMode(("127.255.255.255", broadcast_port))
        node = MulticastDriver.in_group(me, mode, clock_floor=ClockFloor(tmp_path))
        node.listen(ViewChanged=lambda changed: floors.append(on_disk()))
        clock = on_disk() + 1_000
        node._execute([ViewChanged(View(ViewId(clock, "b", 1), (me,)))])
        node.close()
        assert floors[0] > clock

    def on_disk() -> int:
        return ClockFloor(tmp_path).clock

    asyncio.run(scenario())


# Processes that have died


def test_the_others_learn_from_its_host_that_a_process_has_died(broadcast_port: int) -> None:
    async def scenario() -> None:
        mode = BroadcastMode(("127.255.255.255", broadcast_port))
        causes: dict[str, list[str]] = {name: [] for name in "abc"}
        nodes = {
            name: MulticastDriver.in_group(Machine(name, 1), mode, journal=SuspicionsOnly(causes[name])).listen()
            for name in "abc"
        }
        async with asyncio.timeout(20.0):
            while any(len(node.view.members) < 3 for node in nodes.values()):
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.3)
            nodes.pop("c").close()
            for suspicions in causes.values():
                suspicions.clear()
            while any(len(node.view.members) > 2 for node in nodes.values()):
                await asyncio.sleep(0.002)
        for node in nodes.values():
            node.close()
        assert "port_unreachable" in causes["a"] + causes["b"]
        assert "silent" not in causes["a"] + causes["b"]

    asyncio.run(scenario())


def test_what_waits_in_the_sockets_is_taken_in_before_a_refusal(
    broadcast_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        cluster = Cluster("ab", broadcast_port)
        node, dead = cluster.nodes["a"], cluster.nodes["b"]
        told: list[tuple[str, int]] = []
        received = node.udp.counters
        dead.multicast(Service.AGREED, b"first")
        await cluster.delivered_everywhere(1)
        monkeypatch.setattr(
            node.stack, "port_unreachable", lambda machine, now: told.append((machine.name, received.total()))
        )
        dead.udp.send(b"last")
        before = received.total()
        dead.close()
        node._on_port_unreachable([("127.0.0.1", 9)])  # nobody that we know
        assert told == []
        node._on_port_unreachable([dead.udp.own_address])
        assert [name for name, _ in told] == ["b"]
        assert told[0][1] > before
        cluster.close()
        node._on_port_unreachable([dead.udp.own_address])
        assert len(told) == 1

    asyncio.run(scenario())


class SuspicionsOnly(Recorder):
    """A journal that keeps the causes of suspicions in a list, and nothing on disk."""

    def __init__(self, causes: list[str]) -> None:
        self._causes = causes

    def entry(self, entry: Journal) -> None:
        if entry.event is MembershipEvent.SUSPECTED:
            self._causes.append(str(entry.reason))
