"""Sockets: the only module that has any.

Three ways to reach everybody: a broadcast address, a multicast group, or a list of peers, each sent its own
copy, for networks that forbid both. In all of them a node sends from a socket of its own, whose address says
who it is and where unicasts reach it; in the first two it also listens on a socket that shares the group's port
with other nodes of the same machine.

Losing a datagram is allowed, raising is not: what cannot be sent or received is counted, and the protocol
repairs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Address: TypeAlias = tuple[str, int]
Arrivals: TypeAlias = Sequence[tuple[bytes, Address]]

RECEIVE_BUFFER_BYTES = 8 * 1_048_576
"""Asked for; the kernel grants what it will (`receive_buffer_bytes` says how much)."""

SEND_BUFFER_BYTES = 4 * 1_048_576

DRAIN_DATAGRAMS_MAX = 128
"""Most datagrams taken from a socket before the protocol gets to work on them."""

DRAINS_MAX = 256
"""Most such batches taken in a row after a pause, lest a flood keep us from ever acting."""

_DATAGRAM_BYTES_MAX = 65_536
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_ATTACH_FILTER = 26
_NETWORK_HEADER = 0xFFF0_0000
"""The offset by which a socket filter reaches the IP header."""


class Channel(Protocol):
    """What the protocol's driver needs of a network. `ChaosChannel` wraps one in another."""

    def send(self, data: bytes) -> None:
        """To everybody."""

    def send_to(self, data: bytes, address: Address) -> None:
        """To one node's own socket."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BroadcastMode:
    """One datagram to a broadcast address reaches every node of the network, or of this machine."""

    address: Address


@dataclass(frozen=True, slots=True)
class MulticastMode:
    """One datagram to a group reaches every node that joined it, as far as `hops` routers away."""

    group: Address
    interface: str = "0.0.0.0"
    hops: int = 1


@dataclass(frozen=True, slots=True)
class PeersMode:
    """A copy to each of a list of nodes. `own` is where this one listens."""

    own: Address
    peers: tuple[Address, ...]


Mode: TypeAlias = BroadcastMode | MulticastMode | PeersMode


class UdpError(Exception):
    """The sockets cannot be opened as configured. The message says what to do."""


class UdpChannel:
    """The node's sockets on a running event loop. `on_arrivals` gets what was received, in batches."""

    def __init__(
        self, mode: Mode, loop: asyncio.AbstractEventLoop, on_arrivals: Callable[[Arrivals], None]
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._loop = loop
        self._on_arrivals = on_arrivals
        self._sockets: list[socket.socket] = []
        try:
            self._own = self._open_own(mode)
            self._targets = self._open_targets(mode)
        except OSError as error:
            self.close()
            raise UdpError(f"cannot open UDP sockets for {mode}: {error}") from error
        self.own_address: Address = self._own.getsockname()
        for opened in self._sockets:
            if opened is not self._own:
                _filter_source(opened, self.own_address)
        self.receive_buffer_bytes = min(map(_receive_buffer_bytes, self._sockets))
        for opened in self._sockets:
            loop.add_reader(opened.fileno(), self._drain, opened)

    def send(self, data: bytes) -> None:
        for target in self._targets:
            self.send_to(data, target)

    def send_to(self, data: bytes, address: Address) -> None:
        try:
            self._own.sendto(data, address)
            self.counters["datagrams_sent"] += 1
        except OSError as error:  # a full buffer (ENOBUFS, EAGAIN), a filtered or vanished route: a loss
            self.counters[f"send_errors_{error.errno}"] += 1

    def close(self) -> None:
        for opened in self._sockets:
            with contextlib.suppress(ValueError):
                self._loop.remove_reader(opened.fileno())
            opened.close()
        self._sockets.clear()

    def drain(self) -> None:
        """Takes in everything that has arrived, as far as the buffers go."""
        for opened in self._sockets:
            for _ in range(DRAINS_MAX):
                if not self._drain(opened):
                    break

    def _drain(self, opened: socket.socket) -> bool:
        """Takes in a batch; returns whether there may be more."""
        arrivals: list[tuple[bytes, Address]] = []
        own_address = self.own_address
        is_empty = True
        for _ in range(DRAIN_DATAGRAMS_MAX):
            try:
                data, address = opened.recvfrom(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                break
            except OSError as error:  # an ICMP error of something sent earlier, for example
                self.counters[f"receive_errors_{error.errno}"] += 1
                break
            if address != own_address:
                arrivals.append((data, address))
        else:
            is_empty = False
        if arrivals:
            self.counters["datagrams_received"] += len(arrivals)
            self._on_arrivals(arrivals)
        return not is_empty

    def _open_own(self, mode: Mode) -> socket.socket:
        own = self._open()
        if isinstance(mode, PeersMode):
            own.bind(mode.own)
        elif isinstance(mode, BroadcastMode):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            own.bind((_address_towards(mode.address), 0))
        else:
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, mode.hops)
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            if mode.interface != "0.0.0.0":
                own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(mode.interface))
                own.bind((mode.interface, 0))
            else:
                own.bind((_address_towards(mode.group), 0))
        return own

    def _open_targets(self, mode: Mode) -> tuple[Address, ...]:
        if isinstance(mode, PeersMode):
            return tuple(peer for peer in mode.peers if peer != mode.own)
        shared = self._open()
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if isinstance(mode, BroadcastMode):
            shared.bind(mode.address)
            return (mode.address,)
        shared.bind(mode.group)
        request = struct.pack(
            "4s4s", socket.inet_aton(mode.group[0]), socket.inet_aton(self._own.getsockname()[0])
        )
        shared.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        return (mode.group,)

    def _open(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sockets.append(opened)
        opened.setblocking(False)
        _set_buffer(opened, _SO_RCVBUFFORCE, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        _set_buffer(opened, _SO_SNDBUFFORCE, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return opened


def parse_address(text: str) -> Address:
    """`host:port`."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is not an address: expected HOST:PORT, like 127.255.255.255:7400")
    return host, int(port)


def is_loopback(mode: Mode) -> bool:
    """Whether everything stays on this machine, where large datagrams are not fragmented."""
    if isinstance(mode, BroadcastMode):
        return mode.address[0].startswith("127.")
    if isinstance(mode, MulticastMode):
        return mode.interface.startswith("127.")
    return all(host.startswith("127.") or host == "localhost" for host, _ in mode.peers)


def _set_buffer(opened: socket.socket, force: int, option: int, size: int) -> None:
    """Beyond the system's limit where we are privileged to, else as far as it goes."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, force, size)
    except OSError:
        opened.setsockopt(socket.SOL_SOCKET, option, size)


def _filter_source(opened: socket.socket, source: Address) -> None:
    """Has the kernel drop what comes from this address: of what everybody sends to everybody, our own copies
    would otherwise wake us for nothing. Where it will not, `_drain` does.

    A classic BPF program: accept unless the IP source address and the UDP source port are those given.
    """
    load_source_address = (0x20, 0, 0, _NETWORK_HEADER + 12)
    load_source_port = (0x28, 0, 0, 0)
    accept, drop = (0x06, 0, 0, 0xFFFF_FFFF), (0x06, 0, 0, 0)
    (address,) = struct.unpack("!I", socket.inet_aton(source[0]))
    program = [
        load_source_address,
        (0x15, 0, 3, address),  # not equal: on to accept
        load_source_port,
        (0x15, 0, 1, source[1]),
        drop,
        accept,
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    with contextlib.suppress(OSError):
        argument = struct.pack("HP", len(program), ctypes.addressof(code))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, argument)


def _receive_buffer_bytes(opened: socket.socket) -> int:
    return opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def _address_towards(target: Address) -> str:
    """Our address on the network where the target is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address
