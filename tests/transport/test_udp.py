"""The sockets, on loopback: three ways to reach every node, own datagrams ignored, errors survived."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from transport.udp import (
    DRAIN_DATAGRAMS_MAX,
    DRAIN_SECONDS_MAX,
    Address,
    Arrivals,
    BroadcastMode,
    Mode,
    MulticastMode,
    PeersMode,
    UdpChannel,
    UdpError,
    is_loopback,
    parse_address,
)


class Host:
    """A channel and what has arrived on it."""

    def __init__(self, mode: Mode) -> None:
        self.arrived: list[tuple[bytes, Address]] = []
        self.channel = UdpChannel(mode)
        self.unreachable: list[Address] = []
        self.channel.listen(self._on_arrivals, self.unreachable.extend)

    def _on_arrivals(self, arrivals: Arrivals) -> None:
        self.arrived.extend(arrivals)

    def payloads(self) -> list[bytes]:
        return [data for data, _ in self.arrived]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():
            await asyncio.sleep(0.001)


def modes(kind: str, port: int, count: int) -> list[Mode]:
    if kind == "broadcast":
        return [BroadcastMode(("127.255.255.255", port))] * count
    if kind == "multicast":
        return [MulticastMode(("239.77.0.1", port), interface="127.0.0.1")] * count
    addresses = tuple(("127.0.0.1", _free_port()) for _ in range(count))
    return [PeersMode(own, addresses) for own in addresses]


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("kind", ["broadcast", "multicast", "peers"])
def test_everybody_but_the_sender_gets_a_copy(kind: str, broadcast_port: int) -> None:
    async def scenario() -> None:
        hosts = [Host(mode) for mode in modes(kind, broadcast_port, 3)]
        hosts[0].channel.send(b"hello")
        hosts[1].channel.send(b"there")
        await eventually(lambda: len(hosts[2].arrived) == 2 and hosts[0].arrived != [] != hosts[1].arrived)
        assert hosts[0].payloads() == [b"there"]
        assert hosts[1].payloads() == [b"hello"]
        assert hosts[2].payloads() == [b"hello", b"there"]
        for host in hosts:
            host.channel.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["broadcast", "multicast", "peers"])
def test_the_source_address_reaches_one_node_alone(kind: str, broadcast_port: int) -> None:
    async def scenario() -> None:
        hosts = [Host(mode) for mode in modes(kind, broadcast_port, 3)]
        hosts[0].channel.send(b"question")
        await eventually(lambda: hosts[1].arrived != [] != hosts[2].arrived)
        _, address = hosts[1].arrived[0]
        assert address == hosts[0].channel.own_address
        hosts[1].channel.send_to(b"answer", address)
        await eventually(lambda: hosts[0].arrived != [])
        assert hosts[0].payloads() == [b"answer"]
        assert hosts[2].payloads() == [b"question"]
        for host in hosts:
            host.channel.close()

    asyncio.run(scenario())


def test_send_errors_are_counted_not_raised(broadcast_port: int) -> None:
    async def scenario() -> None:
        host = Host(BroadcastMode(("127.255.255.255", broadcast_port)))
        host.channel.send(bytes(70_000))
        assert host.channel.counters[f"send_errors_{errno.EMSGSIZE}"] == 1
        host.channel.close()
        host.channel.send(b"after close")
        assert host.channel.counters[f"send_errors_{errno.EBADF}"] == 1
        host.channel.close()

    asyncio.run(scenario())


def test_a_full_send_buffer_is_a_loss(broadcast_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullSocket:
        def sendto(self, data: bytes, address: Address) -> int:
            raise OSError(errno.ENOBUFS, "No buffer space available")

        def recvmsg(self, *sizes: int) -> None:
            raise BlockingIOError

    async def scenario() -> None:
        host = Host(BroadcastMode(("127.255.255.255", broadcast_port)))
        monkeypatch.setattr(host.channel, "_own", FullSocket())
        host.channel.send(b"x")
        assert host.channel.counters[f"send_errors_{errno.ENOBUFS}"] == 1
        host.channel.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("kind", ["broadcast", "multicast", "peers"])
def test_the_address_of_a_process_that_has_died_is_reported_and_the_socket_goes_on(
    kind: str, run: Callable[[Coroutine[None, None, None]], None], broadcast_port: int
) -> None:
    async def scenario() -> None:
        near, far, dead = (Host(mode) for mode in modes(kind, broadcast_port, 3))
        address = dead.channel.own_address
        dead.channel.close()
        for round_number in (1, 2):
            near.channel.send_to(b"probe", address)
            await eventually(lambda: address in near.unreachable)
            near.unreachable.clear()
            far.channel.send_to(b"question", near.channel.own_address)
            await eventually(lambda: len(near.arrived) == round_number)  # noqa: B023
        near.channel.send_to(b"last", far.channel.own_address)
        await eventually(lambda: b"last" in far.payloads())
        assert far.unreachable == []
        near.channel.close()
        far.channel.close()

    run(scenario())


def test_what_is_sent_after_a_refused_datagram_is_not_lost_with_it(broadcast_port: int) -> None:
    async def scenario() -> None:
        near, far, dead = (Host(mode) for mode in modes("broadcast", broadcast_port, 3))
        dead.channel.close()
        for _ in range(20):
            near.channel.send_to(b"refused", dead.channel.own_address)
            near.channel.send_to(b"arrives", far.channel.own_address)
        assert near.channel.counters["datagrams_sent"] == 40
        await eventually(lambda: far.payloads() == [b"arrives"] * 20 and near.unreachable != [])
        assert near.channel.counters[f"network_errors_{errno.ECONNREFUSED}"] == 20
        near.channel.close()
        far.channel.close()

    asyncio.run(scenario())


def test_refusals_do_not_keep_arrivals_from_being_drained(broadcast_port: int) -> None:
    async def scenario() -> None:
        near, far, dead = (Host(mode) for mode in modes("broadcast", broadcast_port, 3))
        dead.channel.close()
        far.channel.send_to(b"waits", near.channel.own_address)
        near.channel.send_to(b"refused", dead.channel.own_address)
        near.channel.drain()
        assert near.payloads() == [b"waits"]
        assert near.unreachable == []  # not in the middle of what the caller does
        await eventually(lambda: near.unreachable == [dead.channel.own_address])
        near.channel.send_to(b"refused", dead.channel.own_address)
        near.channel.drain()
        near.channel.close()
        await asyncio.sleep(0.01)
        assert len(near.unreachable) == 1
        far.channel.close()

    asyncio.run(scenario())


def test_draining_ends_although_more_arrives_than_can_be_handled(broadcast_port: int) -> None:
    async def scenario() -> None:
        slow, fast = (Host(mode) for mode in modes("broadcast", broadcast_port, 2))
        batches = 0

        def handle(arrivals: Arrivals) -> None:
            nonlocal batches
            batches += 1
            time.sleep(0.01)
            flood()

        def flood() -> None:
            for _ in range(DRAIN_DATAGRAMS_MAX):
                fast.channel.send_to(b"x", slow.channel.own_address)

        slow.channel.listen(handle)
        flood()
        fast.channel.send(b"x")  # to the other socket, which has its turn all the same
        slow.channel.drain()
        assert 2 <= batches <= 1 + 100 * DRAIN_SECONDS_MAX
        assert slow.channel.counters["datagrams_received"] % DRAIN_DATAGRAMS_MAX == 1
        slow.channel.close()
        fast.channel.close()

    asyncio.run(scenario())


def test_draining_takes_in_all_batches_that_do_not_take_long(broadcast_port: int) -> None:
    async def scenario() -> None:
        near, far = (Host(mode) for mode in modes("broadcast", broadcast_port, 2))
        count = DRAIN_DATAGRAMS_MAX + 10
        for _ in range(count):
            far.channel.send_to(b"x", near.channel.own_address)
        near.channel.drain()
        assert len(near.arrived) == count
        near.channel.close()
        far.channel.close()

    asyncio.run(scenario())


def test_buffers_are_as_large_as_the_kernel_grants(broadcast_port: int) -> None:
    async def scenario() -> int:
        host = Host(BroadcastMode(("127.255.255.255", broadcast_port)))
        granted = host.channel.receive_buffer_bytes
        host.channel.close()
        return granted

    default = int(Path("/proc/sys/net/core/rmem_default").read_text())
    assert asyncio.run(scenario()) > default


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    async def scenario() -> None:
        own = ("127.0.0.1", _free_port())
        first = Host(PeersMode(own, (own,)))
        with pytest.raises(UdpError, match="cannot open UDP sockets"):
            Host(PeersMode(own, (own,)))
        first.channel.close()

    asyncio.run(scenario())


def test_addresses() -> None:
    assert parse_address("10.0.0.255:7400") == ("10.0.0.255", 7400)
    for wrong in ("10.0.0.255", ":7400", "host:", "host:port", "host:0", "host:70000"):
        with pytest.raises(ValueError, match="expected HOST:PORT"):
            parse_address(wrong)
    assert is_loopback(BroadcastMode(("127.255.255.255", 1)))
    assert not is_loopback(BroadcastMode(("10.0.0.255", 1)))
    assert not is_loopback(PeersMode(("127.0.0.1", 1), (("127.0.0.1", 1), ("10.0.0.1", 1))))
    assert not is_loopback(MulticastMode(("239.0.0.1", 1)))
