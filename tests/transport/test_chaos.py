"""The chaos layer does to datagrams what it is configured to do, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.transport.harness import VIEW
from transport.chaos import Chaos, ChaosChannel
from transport.codec import Codec
from transport.messages import Datagram, Machine, Status
from transport.udp import Address, Arrivals, OnArrivals, OnPortUnreachable

CODEC = Codec("test")
ADDRESSES: dict[str, Address] = {"b": ("127.0.0.1", 2), "c": ("127.0.0.1", 3)}


class RecordingChannel:
    receive_buffer_bytes = 1_048_576

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.broadcast: list[bytes] = []
        self.unicast: list[tuple[bytes, Address]] = []
        self.is_closed = False

    def send(self, data: bytes) -> None:
        self.broadcast.append(data)

    def send_to(self, data: bytes, address: Address) -> None:
        self.unicast.append((data, address))

    def listen(self, on_arrivals: OnArrivals, on_port_unreachable: OnPortUnreachable = lambda _: None) -> None:
        self.on_arrivals = on_arrivals
        self.on_port_unreachable = on_port_unreachable

    def drain(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """A chaos channel around a recording one. Needs a running event loop."""

    def __init__(self, chaos: Chaos | None = None) -> None:
        self.arrived: list[str] = []
        self.inner = RecordingChannel()
        self.outer = ChaosChannel(self.inner, CODEC, Random(7), chaos)
        self.unreachable: list[Address] = []
        self.outer.listen(self._deliver, self.unreachable.extend)

    def _deliver(self, arrivals: Arrivals) -> None:
        self.arrived.extend(CODEC.sender(data).name for data, _ in arrivals)

    def receive(self, *names: str) -> None:
        self.inner.on_arrivals([(datagram(name), ADDRESSES[name]) for name in names])


def datagram(name: str) -> bytes:
    return CODEC.encode(Datagram(Machine(name, 1), (Status(VIEW, 1, 0, 65_536, ()),)))


def test_without_chaos_everything_passes() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.receive("b", "c", "b")
        bench.outer.send(b"x")
        assert bench.arrived == ["b", "c", "b"]
        assert bench.inner.broadcast == [b"x"]

    asyncio.run(scenario())


def test_drop_from_named_peers() -> None:
    async def scenario() -> None:
        bench = Bench(Chaos(drop_from=frozenset("b")))
        bench.receive("b", "c", "b")
        assert bench.arrived == ["c"]

    asyncio.run(scenario())


def test_drop_to_named_peers_sends_the_others_their_copies() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.receive("b", "c")
        bench.outer.chaos = Chaos(drop_to=frozenset("b"))
        bench.outer.send(b"x")
        bench.outer.send_to(b"y", ADDRESSES["b"])
        bench.outer.send_to(b"z", ADDRESSES["c"])
        assert bench.inner.broadcast == []
        assert bench.inner.unicast == [(b"x", ADDRESSES["c"]), (b"z", ADDRESSES["c"])]

    asyncio.run(scenario())


def test_loss_and_duplication_are_shares() -> None:
    async def scenario() -> None:
        lossy = Bench(Chaos(loss=0.3))
        lossy.receive(*["b"] * 1_000)
        assert 620 < len(lossy.arrived) < 780
        doubling = Bench(Chaos(duplication=0.3))
        doubling.receive(*["b"] * 1_000)
        assert 1_220 < len(doubling.arrived) < 1_380

    asyncio.run(scenario())


def test_delay_holds_back_and_close_drops_what_is_held() -> None:
    async def scenario() -> None:
        bench = Bench(Chaos(delay_ms=5.0))
        bench.receive("b")
        assert bench.arrived == []
        async with asyncio.timeout(5.0):
            while not bench.arrived:
                await asyncio.sleep(0.001)
        bench.receive("c")
        bench.outer.close()
        assert bench.inner.is_closed
        await asyncio.sleep(0.02)  # longer than the delay: what was held would have arrived by now
        assert bench.arrived == ["b"]
        bench.outer.send(b"x")
        assert bench.inner.broadcast == []

    asyncio.run(scenario())


def test_who_is_dropped_is_not_reported_unreachable() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.receive("b", "c")
        bench.inner.on_port_unreachable([ADDRESSES["b"]])
        assert bench.unreachable == [ADDRESSES["b"]]
        bench.outer.chaos = Chaos(drop_from=frozenset("b"))
        bench.inner.on_port_unreachable(ADDRESSES.values())
        bench.outer.chaos = Chaos(drop_to=frozenset("b"))
        bench.inner.on_port_unreachable(ADDRESSES.values())
        assert bench.unreachable == [ADDRESSES["b"], ADDRESSES["c"], ADDRESSES["c"]]

    asyncio.run(scenario())


def test_refusals_are_lost_and_delayed_like_datagrams() -> None:
    async def scenario() -> None:
        bench = Bench(Chaos(loss=1.0))
        bench.inner.on_port_unreachable([ADDRESSES["b"]])
        bench.outer.chaos = Chaos(delay_ms=5.0)
        bench.inner.on_port_unreachable([ADDRESSES["c"]])
        assert bench.unreachable == []
        async with asyncio.timeout(5.0):
            while not bench.unreachable:
                await asyncio.sleep(0.001)
        assert bench.unreachable == [ADDRESSES["c"]]
        bench.inner.on_port_unreachable([ADDRESSES["b"]])
        bench.outer.close()
        await asyncio.sleep(0.02)  # longer than the delay
        assert bench.unreachable == [ADDRESSES["c"]]

    asyncio.run(scenario())


def test_undecodable_datagrams_pass_for_the_driver_to_judge() -> None:
    async def scenario() -> None:
        received: list[bytes] = []
        inner = RecordingChannel()
        outer = ChaosChannel(inner, CODEC, Random(7))
        outer.listen(lambda arrivals: received.extend(data for data, _ in arrivals))
        inner.on_arrivals([(b"noise", ("127.0.0.1", 9))])
        assert received == [b"noise"]

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [{"loss": 1.5}, {"duplication": -0.1}, {"delay_ms": -1.0}])
def test_impossible_chaos_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probability|negative"):
        Chaos(**wrong)  # type: ignore[arg-type]
