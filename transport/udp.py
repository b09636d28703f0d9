"""The UDP sockets of a node; no other module of the transport has any.

There are three ways to reach every node: a broadcast address, a multicast group, or a list of peers, each sent its
own copy, for networks that forbid both. In all of them a node sends from a socket of its own, whose address
identifies it and is where unicasts reach it; in the first two it also listens on a socket that shares the group's
port with other nodes of the same computer.

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
OnArrivals: TypeAlias = Callable[[Arrivals], None]

RECEIVE_BUFFER_BYTES = 8 * 1_048_576
"""The size to request; `receive_buffer_bytes` says how much the kernel granted."""

SEND_BUFFER_BYTES = 4 * 1_048_576

DRAIN_DATAGRAMS_MAX = 128
"""Most datagrams read from a socket before the protocol processes them."""

DRAINS_MAX = 256
"""Most such batches that `drain` reads in a row, so that a flood cannot keep the node from ever acting."""

_DATAGRAM_BYTES_MAX = 65_536
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_ATTACH_FILTER = 26
_NETWORK_HEADER = 0xFFF0_0000
"""The offset by which a socket filter reaches the IP header."""


class Channel(Protocol):
    """What the driver needs of a network. `ChaosChannel` wraps one channel in another."""

    receive_buffer_bytes: int
    """How many bytes the kernel keeps of what has arrived and has not been read."""

    def listen(self, on_arrivals: OnArrivals) -> None:
        """Begins to hand over what arrives, in batches, on the running event loop."""

    def send(self, data: bytes) -> None:
        """Sends to every node."""

    def send_to(self, data: bytes, address: Address) -> None:
        """Sends to one node's own socket."""

    def drain(self) -> None:
        """Hands over everything that has arrived by now, without waiting for the event loop."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BroadcastMode:
    """One datagram to a broadcast address reaches every node of the network, or of this computer."""

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
    """The node's sockets: opened when this is built, and read from `listen` on."""

    def __init__(self, mode: Mode) -> None:
        self.counters: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_arrivals: OnArrivals = lambda arrivals: None
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

    def listen(self, on_arrivals: OnArrivals) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_arrivals = on_arrivals
        for opened in self._sockets:
            self._loop.add_reader(opened.fileno(), self._drain, opened)

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
            if self._loop is not None:
                with contextlib.suppress(ValueError):
                    self._loop.remove_reader(opened.fileno())
            opened.close()
        self._sockets.clear()

    def drain(self) -> None:
        """Hands over everything that has arrived by now, but for a flood (`DRAINS_MAX`)."""
        for opened in self._sockets:
            for _ in range(DRAINS_MAX):
                if not self._drain(opened):
                    break

    def _drain(self, opened: socket.socket) -> bool:
        """Reads a batch and hands it over; returns whether there may be more."""
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
    """Returns the parts of `host:port`; raises `ValueError` if it is not that."""
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is not an address: expected HOST:PORT, like 127.255.255.255:7400")
    return host, int(port)


def is_loopback(mode: Mode) -> bool:
    """Returns whether everything stays on this computer, where large datagrams are not fragmented."""
    if isinstance(mode, BroadcastMode):
        return mode.address[0].startswith("127.")
    if isinstance(mode, MulticastMode):
        return mode.interface.startswith("127.")
    return all(host.startswith("127.") or host == "localhost" for host, _ in mode.peers)


def _set_buffer(opened: socket.socket, force: int, option: int, size: int) -> None:
    """Sets the size of a buffer: beyond the system's limit if the process is privileged, otherwise within it."""
    try:
        opened.setsockopt(socket.SOL_SOCKET, force, size)
    except OSError:
        opened.setsockopt(socket.SOL_SOCKET, option, size)


def _filter_source(opened: socket.socket, source: Address) -> None:
    """Has the kernel drop what comes from this address: a node also receives what it broadcasts itself, and those
    copies would wake it for nothing. Where the kernel refuses, `_drain` drops them.

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
    """Returns this node's address on the network of the target."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        probe.connect(target)
        address: str = probe.getsockname()[0]
        return address
