"""A LAN on one machine: a network namespace per host, joined by a bridge in a namespace of its own.

    with Lan(["a", "b", "c"]) as lan:
        node = lan.spawn("a", ["corelkv", ...])
        lan.set_loss(20)
        lan.cut([["a", "b"], ["c"]])

Loss and cuts are nftables rules in the receivers, because `tc netem` needs a kernel module that many machines
lack. They change atomically on each host, one host after the other. The root namespace gets no interface, so
no traffic can leave the LAN.

Namespaces are named `ckv<owner pid>x<counter>-<host>`. The pid keeps parallel test workers apart and lets a
new Lan tell the leftovers of a killed owner from the namespaces of a living one.
"""

import atexit
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Self

SUBNET = "10.77.0"
SWITCH = "sw"
TERMINATE_GRACE_MS = 2_000
"""How long a process may take to obey SIGTERM; more suits slow shutdowns, but a stuck one delays `close`."""
LINK_READY_MS = 5_000
POLL_INTERVAL_MS = 5

_HOST_NAME = re.compile(rf"(?!{SWITCH}$)[a-z0-9][a-z0-9_-]*")
_NAMESPACE_NAME = re.compile(r"(?P<run_id>ckv(?P<owner_pid>\d+)x\d+)-.+")


class LanError(RuntimeError):
    """The LAN could not be built, changed or removed; the message says what failed and why."""


def require_lan_tools() -> None:
    """Raise a LanError that names everything a Lan needs and this process lacks."""
    missing = [] if os.geteuid() == 0 else ["root (run the tests as root)"]
    missing += [f"the `{tool}` command" for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        remedy = "get the commands with: apt-get install iproute2 nftables"
        raise LanError(f"a test LAN needs {' and '.join(missing)}; {remedy}")


def poll_until(condition: Callable[[], bool], within_ms: int) -> bool:
    """Wait for the condition; False if it still does not hold when the time is up."""
    deadline_ns = time.monotonic_ns() + within_ms * 1_000_000
    while not condition():
        if time.monotonic_ns() > deadline_ns:
            return False
        time.sleep(POLL_INTERVAL_MS / 1_000)
    return True


@dataclass(frozen=True, slots=True)
class _Filter:
    """What one host refuses to receive."""

    own_address: str
    loss_percent: int = 0
    deaf_to: frozenset[str] = frozenset()

    def as_transaction(self) -> str:
        """The nft commands that turn any earlier filter into this one, leaving the loss counter as it is."""
        commands = [
            "add table ip lan",
            "add counter ip lan loss",
            "add chain ip lan input { type filter hook input priority filter; policy accept; }",
            "flush chain ip lan input",
        ]
        # Cuts come first, so that the loss counter counts nothing that a cut had stopped anyway.
        if self.deaf_to:
            commands.append(f"add rule ip lan input ip saddr {{ {', '.join(sorted(self.deaf_to))} }} drop")
        # A host gets its own broadcasts back through eth0 too, but no wire carried them that could lose them.
        # nft refuses `< 100`, hence `<=`.
        if self.loss_percent:
            datagram = f"iifname eth0 ip saddr != {self.own_address} meta l4proto udp"
            chance = f"numgen random mod 100 <= {self.loss_percent - 1}"
            commands.append(f"add rule ip lan input {datagram} {chance} counter name loss drop")
        return "\n".join(commands)


class Lan:
    """Hosts on one Ethernet segment, with addresses 10.77.0.1, 10.77.0.2, ... in the order of their names."""

    broadcast_address = f"{SUBNET}.255"
    _counter = itertools.count()

    def __init__(self, names: Sequence[str]) -> None:
        if not 1 <= len(set(names)) == len(names) <= 254 or not all(map(_HOST_NAME.fullmatch, names)):
            raise ValueError(f"not 1 to 254 distinct names of a-z, 0-9, _ and - besides {SWITCH!r}: {names}")
        self.names = tuple(names)
        self._owner_pid = os.getpid()
        self.run_id = f"ckv{self._owner_pid}x{next(Lan._counter)}"
        self.namespaces = tuple(f"{self.run_id}-{name}" for name in (SWITCH, *names))
        self._filters = {name: _Filter(f"{SUBNET}.{number}") for number, name in enumerate(names, start=1)}
        self._spawned: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        require_lan_tools()
        _open_lans.append(self)
        try:
            _catch_signals()
            _remove_namespaces(filter(_is_leftover, _existing_namespaces()))
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was spawned and delete the namespaces; harmless when repeated."""
        # A forked child inherits this object, the exit hook and the signal handlers, but not the LAN.
        if os.getpid() != self._owner_pid:
            return
        _end(lambda: [process.pid for process in self._spawned if not _has_exited(process)], os.killpg)
        for process in self._spawned:
            process.poll()
        _remove_namespaces(self.namespaces)
        if self in _open_lans:
            _open_lans.remove(self)

    def address(self, name: str) -> str:
        """The IPv4 address of one host."""
        return self._filter(name).own_address

    def spawn(self, name: str, argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[Any]:
        """Start a command on a host, in a session of its own; `close` ends it and all its descendants."""
        self._filter(name)
        command = ["ip", "netns", "exec", f"{self.run_id}-{name}", *argv]
        process: subprocess.Popen[Any] = subprocess.Popen(command, start_new_session=True, **popen_kwargs)
        self._spawned.append(process)
        return process

    def set_loss(self, percent: int, hosts: Iterable[str] | None = None) -> None:
        """Make these hosts (or all) drop this share of the UDP datagrams that reach them from other hosts."""
        if not 0 <= percent <= 100:
            raise ValueError(f"loss is a percentage from 0 to 100, not {percent}")
        chosen = {name: self._filter(name) for name in (self.names if hosts is None else hosts)}
        for name, before in chosen.items():
            self._install(name, replace(before, loss_percent=percent))

    def drop_counts(self) -> dict[str, int]:
        """Datagrams that each host has lost to `set_loss` since the LAN was built; cuts do not count."""
        counts = {}
        for name in self.names:
            _, entry = json.loads(self._run_on(name, "nft --json list counter ip lan loss"))["nftables"]
            counts[name] = int(entry["counter"]["packets"])
        return counts

    def cut(self, groups: Iterable[Iterable[str]]) -> None:
        """Replace all cuts: two hosts in groups talk only if they share one; a host in none talks to all."""
        sides = [frozenset(map(self.address, group)) for group in groups]
        everyone = frozenset[str]().union(*sides)
        for name, before in self._filters.items():
            own_sides = [side for side in sides if before.own_address in side]
            self._deafen(name, everyone.difference(*own_sides) if own_sides else frozenset())

    def cut_one_way(self, source: str, target: str) -> None:
        """Besides the cuts there are, drop what `source` sends to `target`, and not the reverse."""
        self._deafen(target, self._filter(target).deaf_to | {self.address(source)})

    def set_one_way_cuts(self, links: Iterable[tuple[str, str]]) -> None:
        """Replace all cuts: drop what the source of each link sends to its target, and not the reverse."""
        deaf_to: dict[str, set[str]] = {name: set() for name in self.names}
        for source, target in links:
            self._filter(target)
            deaf_to[target].add(self.address(source))
        for name, addresses in deaf_to.items():
            self._deafen(name, frozenset(addresses))

    def heal(self) -> None:
        """Remove all cuts; loss stays."""
        self.cut([])

    def _filter(self, name: str) -> _Filter:
        if name not in self._filters:
            raise ValueError(f"no host {name!r}; this LAN has {', '.join(self.names)}")
        return self._filters[name]

    def _deafen(self, name: str, deaf_to: frozenset[str]) -> None:
        before = self._filter(name)
        if deaf_to != before.deaf_to:
            self._install(name, replace(before, deaf_to=deaf_to))

    def _install(self, name: str, wanted: _Filter) -> None:
        self._run_on(name, "nft -f -", wanted.as_transaction())
        self._filters[name] = wanted

    def _run_on(self, name: str, command: str, stdin: str = "") -> str:
        return _run(f"ip netns exec {self.run_id}-{name} {command}", stdin)

    def _build(self) -> None:
        _run("ip -batch -", "\n".join(f"netns add {namespace}" for namespace in self.namespaces))
        # Snooping would hold multicast back from hosts whose membership report the bridge has not seen yet.
        wiring = ["link add br0 type bridge stp_state 0 mcast_snooping 0", "link set br0 up"]
        for number, name in enumerate(self.names, start=1):
            wiring.append(f"link add port{number} type veth peer name eth0 netns {self.run_id}-{name}")
            wiring.append(f"link set port{number} master br0 up")
        self._run_on(SWITCH, "ip -batch -", "\n".join(wiring))
        for name, unfiltered in self._filters.items():
            setup = [
                "link set lo up",
                # Cuts know only IPv4 sources, so a link-local IPv6 address would be a way around them.
                "link set eth0 addrgenmode none",
                f"addr add {unfiltered.own_address}/24 broadcast {self.broadcast_address} dev eth0",
                "link set eth0 up",
                "route add 239.0.0.0/8 dev eth0",
            ]
            self._run_on(name, "ip -batch -", "\n".join(setup))
            self._install(name, unfiltered)
        if not poll_until(self._is_linked, LINK_READY_MS):
            raise LanError(f"the links of {self.run_id} did not come up within {LINK_READY_MS} ms")

    def _is_linked(self) -> bool:
        """Whether every wire carries frames; before that, the kernel drops what is sent without an error."""
        ports = json.loads(self._run_on(SWITCH, "ip -json -details link show master br0"))
        if any(port["linkinfo"]["info_slave_data"]["state"] != "forwarding" for port in ports):
            return False
        ends = (json.loads(self._run_on(name, "ip -json link show eth0")) for name in self.names)
        return all(end[0]["operstate"] == "UP" for end in ends)


_open_lans: list[Lan] = []
_previous_handlers: dict[int, Any] = {}


@atexit.register
def _close_all() -> None:
    # An exit stack goes on to the next Lan when one fails, and raises at the end.
    with ExitStack() as stack:
        for lan in _open_lans:
            stack.callback(lan.close)


def _catch_signals() -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows handlers only there; the exit hook and the next owner's sweep remain.
    for signum in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(signum)
        # Once is enough: a later handler may chain to ours, and chaining back to it would never end.
        if signum not in _previous_handlers and previous not in (signal.SIG_IGN, None):
            _previous_handlers[signum] = previous
            signal.signal(signum, _on_signal)


def _on_signal(signum: int, frame: FrameType | None) -> None:
    try:
        _close_all()
    finally:
        previous = _previous_handlers[signum]
        if callable(previous):
            previous(signum, frame)
        else:
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)


def _is_leftover(namespace: str) -> bool:
    """Whether its owner died without cleaning up."""
    match = _NAMESPACE_NAME.fullmatch(namespace)
    if match is None:
        return False
    # A dead owner's pid may have come round to this process.
    if int(match["owner_pid"]) == os.getpid():
        return match["run_id"] not in [lan.run_id for lan in _open_lans]
    return not os.path.exists(f"/proc/{match['owner_pid']}")


def _existing_namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip netns list").splitlines()]


def _remove_namespaces(namespaces: Iterable[str]) -> None:
    present = sorted(set(namespaces).intersection(_existing_namespaces()))
    # Processes that left their group, or outlived its leader, would keep a deleted namespace alive unnamed.
    _end(lambda: _pids_inside(present), os.kill)
    try:
        _run("ip -force -batch -", "\n".join(f"netns delete {namespace}" for namespace in present))
    except LanError:
        # Another owner may be sweeping the same leftovers: what counts is that they are gone.
        if not set(present).isdisjoint(_existing_namespaces()):
            raise


def _pids_inside(namespaces: Sequence[str]) -> list[int]:
    # A namespace that another owner has just swept is an error to `ip`, and empty to us.
    listings = [subprocess.run(["ip", "netns", "pids", name], capture_output=True) for name in namespaces]
    return [int(pid) for listing in listings for pid in listing.stdout.split()]


def _has_exited(process: subprocess.Popen[Any]) -> bool:
    # Unlike `poll`, this leaves the zombie, so that its pid still names its group and no other. And it
    # takes no lock, which a `process.wait()` that our signal handler interrupted would hold for ever.
    try:
        options = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return process.returncode is not None or os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:
        return True


def _end(find_living: Callable[[], list[int]], send: Callable[[int, int], None]) -> None:
    # SIGCONT lets a process that a test had stopped obey SIGTERM at once.
    for signums in ((signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)):
        for target, signum in itertools.product(find_living(), signums):
            with suppress(ProcessLookupError):
                send(target, signum)
        if poll_until(lambda: not find_living(), TERMINATE_GRACE_MS):
            return


def _run(command: str, stdin: str = "") -> str:
    outcome = subprocess.run(command.split(), input=stdin, capture_output=True, text=True)
    if outcome.returncode != 0:
        raise LanError(f"`{command}` failed: {outcome.stderr.strip()}\n{stdin}")
    return outcome.stdout
