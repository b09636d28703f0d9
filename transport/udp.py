"""The UDP sockets of a node; no other module of the transport has any.

There are three ways to reach every node: a broadcast address, a multicast group, or a list of peers, each sent its
own copy, for networks that forbid both. In all of them a node sends from a socket of its own, whose address
identifies it and is where unicasts reach it; in the first two it also listens on a socket that shares the group's
port with other nodes of the same computer.

Losing a datagram is allowed, raising is not: what cannot be sent or received is counted, and the protocol
repairs it.

A computer that runs refuses a datagram to a port at which no process listens, with an ICMP message. On Linux these
are collected (`IP_RECVERR`), and the addresses that refused are reported: the process at such an address was dead
when the datagram arrived there. Broadcasts and multicasts are never refused, and a computer refuses some six at
once and then one a second, so the absence of a refusal says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Address: TypeAlias = tuple[str, int]
Arrivals: TypeAlias = Sequence[tuple[bytes, Address]]
OnArrivals: TypeAlias = Callable[[Arrivals], None]
OnPortUnreachable: TypeAlias = Callable[[Collection[Address]], None]

RECEIVE_BUFFER_BYTES = 8 * 1_048_576
"""The size to request; `receive_buffer_bytes` says how much the kernel granted."""

SEND_BUFFER_BYTES = 4 * 1_048_576

DRAIN_DATAGRAMS_MAX = 128
"""Most datagrams read from a socket before the protocol processes them."""

DRAIN_SECONDS_MAX = 0.05
"""After this, `drain` begins no further batch. A node that is sent more than it can handle never finds its socket
empty, and has to send heartbeats all the same. A number of datagrams is no bound on that: how long they take
depends on the machine."""

ERRORS_MAX = 128
"""Most ICMP errors read in a row. The kernel wakes us again for what is left."""

_DATAGRAM_BYTES_MAX = 65_536
_IP_RECVERR = 11
_EXTENDED_ERROR = struct.Struct("=IBBBB")
"""The beginning of the kernel's `sock_extended_err`: the error's number, its origin, the ICMP type and code."""
_EXTENDED_ERROR_BYTES = 512
_ORIGIN_ICMP = 2
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_ATTACH_FILTER = 26
_NETWORK_HEADER = 0xFFF0_0000
"""The offset by which a socket filter reaches the IP header."""


class Channel(Protocol):
    """What the driver needs of a network. `ChaosChannel` wraps one channel in another."""

    receive_buffer_bytes: int
    """How many bytes the kernel keeps of what has arrived and has not been read."""

    counters: Counter[str]
    """What has been sent and received, and what failed."""

    def listen(self, on_arrivals: OnArrivals, on_port_unreachable: OnPortUnreachable = lambda _: None) -> None:
        """Begins to hand over what arrives, in batches, on the running event loop; and the addresses that refused
        what was sent there, because no process listens at them."""

    def send(self, data: bytes) -> None:
        """Sends to every node."""

    def send_to(self, data: bytes, address: Address) -> None:
        """Sends to one node's own socket."""

    def drain(self) -> None:
        """Hands over what has arrived by now, without waiting for the event loop, unless it takes long."""

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
        self._on_port_unreachable: OnPortUnreachable = lambda addresses: None
        self._unreachable: set[Address] = set()
        """What refused datagrams and has not been reported yet."""
        self._own_events: select.epoll | None = None
        """Watches our own socket for the event loop: uvloop ceases to watch a socket that has an error pending."""
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

    def listen(self, on_arrivals: OnArrivals, on_port_unreachable: OnPortUnreachable = lambda _: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_arrivals = on_arrivals
        self._on_port_unreachable = on_port_unreachable
        if sys.platform == "linux":
            self._own.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            self._own_events = select.epoll()
            self._own_events.register(self._own.fileno(), select.EPOLLIN)
        for opened in self._sockets:
            self._loop.add_reader(self._events_of(opened), self._drain, opened)

    def send(self, data: bytes) -> None:
        for target in self._targets:
            self.send_to(data, target)

    def send_to(self, data: bytes, address: Address) -> None:
        try:
            try:
                self._own.sendto(data, address)
            except OSError:
                if not self._read_errors():
                    raise
                self._own.sendto(data, address)  # what had failed was an earlier datagram: this one was not sent
            self.counters["datagrams_sent"] += 1
        except OSError as error:  # a full buffer (ENOBUFS, EAGAIN), a filtered or vanished route: a loss
            self.counters[f"send_errors_{error.errno}"] += 1

    def close(self) -> None:
        for opened in self._sockets:
            if self._loop is not None:
                with contextlib.suppress(ValueError):
                    self._loop.remove_reader(self._events_of(opened))
            opened.close()
        self._sockets.clear()
        if self._own_events is not None:
            self._own_events.close()

    def drain(self) -> None:
        """Hands over what has arrived by now: at least a batch of each socket, and all if that does not take long
        (`DRAIN_SECONDS_MAX`)."""
        end = time.monotonic() + DRAIN_SECONDS_MAX
        for opened in self._sockets:
            while self._drain(opened) and time.monotonic() < end:
                pass

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
                if not self._read_errors():
                    break
                continue
            if address != own_address:
                arrivals.append((data, address))
        else:
            is_empty = False
        if arrivals:
            self.counters["datagrams_received"] += len(arrivals)
            self._on_arrivals(arrivals)
        elif is_empty and opened is self._own:
            self._read_errors()  # of those that no call has reported; unread ones would wake us again and again
        return not is_empty

    def _events_of(self, opened: socket.socket) -> int:
        """Returns the descriptor that the event loop watches for a socket."""
        events = self._own_events if opened is self._own else None
        return opened.fileno() if events is None else events.fileno()

    def _read_errors(self) -> int:
        """Reads the errors that datagrams met on their way, returns how many there were, and lets refusals be
        reported by a later turn of the event loop: the caller may be in the middle of something."""
        if self._own_events is None:
            return 0
        for count in range(ERRORS_MAX):
            try:
                _, ancillary, _, address = self._own.recvmsg(0, _EXTENDED_ERROR_BYTES, socket.MSG_ERRQUEUE)
            except OSError:  # there are no more
                return count
            for level, kind, content in ancillary:
                if (level, kind) == (socket.IPPROTO_IP, _IP_RECVERR):
                    number, origin, *_ = _EXTENDED_ERROR.unpack_from(content)
                    self.counters[f"network_errors_{number}"] += 1
                    if (number, origin) == (errno.ECONNREFUSED, _ORIGIN_ICMP):
                        self._note_unreachable(address)
        return ERRORS_MAX

    def _note_unreachable(self, address: Address) -> None:
        if not self._unreachable and self._loop is not None:
            self._loop.call_soon(self._report_unreachable)
        self._unreachable.add(address)

    def _report_unreachable(self) -> None:
        addresses, self._unreachable = self._unreachable, set()
        if self._sockets:
            self._on_port_unreachable(addresses)

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
