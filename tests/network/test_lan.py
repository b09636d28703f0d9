"""The test LAN itself: datagrams arrive, are lost and are cut as asked, and nothing outlives its owner."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from . import lan as lan_module
from .lan import Lan, LanError, poll_until, require_lan_tools

PORT = 7_700
GROUP = "239.77.0.1"
SO_RCVBUFFORCE = 33  # Linux's number; Python's socket module has no name for it.
RECEIVE_BUFFER_BYTES = 16 << 20
TIMEOUT_MS = 10_000

# A socket stays in the namespace it was made in, wherever it is used: a short-lived process on the host makes
# it and hands it over, and the tests then need no further processes to talk.
MAKE_SOCKET = """
import socket, sys
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
with socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"."], [made.fileno()])
"""

OWNER = """
import json, signal, sys
sys.path.insert(0, sys.argv[1])
from lan import Lan
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] == "own-handler":
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(7))
lan = Lan(["a", "b"]).__enter__()
child = lan.spawn("a", ["sleep", "600"])
print(json.dumps({"namespaces": lan.namespaces, "child_pid": child.pid}), flush=True)
if sys.argv[2] != "forget":
    child.wait()
"""

OpenSocket = Callable[[Lan, str], socket.socket]


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(["a", "b", "c"]) as made:
        yield made


@pytest.fixture
def open_socket() -> Iterator[OpenSocket]:
    """Opens a UDP socket on a host, bound to PORT and able to hold thousands of datagrams."""
    with ExitStack() as stack:

        def open_on(lan: Lan, name: str) -> socket.socket:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                channel = str(theirs.fileno())
                lan.spawn(name, [sys.executable, "-c", MAKE_SOCKET, channel], pass_fds=[theirs.fileno()])
                theirs.close()
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
            opened = stack.enter_context(socket.socket(fileno=descriptors[0]))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            # The plain option is capped by a machine-wide limit; root may go beyond it.
            opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            opened.bind(("", PORT))
            opened.settimeout(TIMEOUT_MS / 1_000)
            return opened

        yield open_on


@pytest.fixture
def start_owner() -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]]:
    """Starts a process that owns a LAN, and returns it with what it said about that LAN."""
    with ExitStack() as stack:

        def start(mode: str = "wait") -> tuple[subprocess.Popen[str], dict[str, Any]]:
            command = [sys.executable, "-c", OWNER, str(Path(__file__).parent), mode]
            owner = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
            stack.callback(owner.terminate)  # SIGKILL would leave its namespaces behind.
            return owner, json.loads(first_line(owner))

        yield start


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process.stdout as output:
        return output.readline()


def namespaces_left(namespaces: list[str] | tuple[str, ...]) -> list[str]:
    listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    existing = [line.split()[0] for line in listing.splitlines()]
    return [namespace for namespace in namespaces if namespace in existing]


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def drain(receiver: socket.socket) -> int:
    """Takes the datagrams that are waiting, and returns how many there were."""
    receiver.setblocking(False)
    received = 0
    while True:
        try:
            receiver.recv(100)
        except BlockingIOError:
            return received
        received += 1


def test_a_broadcast_reaches_every_other_host(lan: Lan, open_socket: OpenSocket) -> None:
    sockets = {name: open_socket(lan, name) for name in lan.names}
    sockets["a"].sendto(b"hello", (lan.broadcast_address, PORT))
    for name in ("b", "c"):
        assert sockets[name].recvfrom(100) == (b"hello", (lan.address("a"), PORT))


def test_a_multicast_reaches_the_members_of_its_group(lan: Lan, open_socket: OpenSocket) -> None:
    sockets = {name: open_socket(lan, name) for name in lan.names}
    for name in ("b", "c"):
        membership = socket.inet_aton(GROUP) + socket.inet_aton(lan.address(name))
        sockets[name].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    sockets["a"].sendto(b"hello", (GROUP, PORT))
    assert [sockets[name].recv(100) for name in ("b", "c")] == [b"hello", b"hello"]


def test_two_lans_with_the_same_names_do_not_meet(lan: Lan, open_socket: OpenSocket) -> None:
    with Lan(lan.names) as other:
        sender, receiver = open_socket(lan, "a"), open_socket(other, "b")
        sender.sendto(b"elsewhere", (lan.broadcast_address, PORT))
        open_socket(other, "a").sendto(b"here", (other.address("b"), PORT))
        assert receiver.recv(100) == b"here"


def test_loss_drops_its_share_and_counts_it(lan: Lan, open_socket: OpenSocket) -> None:
    sent = 2_000
    sender, receiver = open_socket(lan, "a"), open_socket(lan, "b")
    lan.set_loss(20, ["b"])
    for _ in range(sent):
        sender.sendto(b"x", (lan.address("b"), PORT))
    received = 0

    def all_accounted_for() -> bool:
        nonlocal received
        received += drain(receiver)
        return received + lan.drop_counts()["b"] == sent

    assert poll_until(all_accounted_for, TIMEOUT_MS), (received, lan.drop_counts())
    # Nine standard deviations either side: the kernel's dice cannot be seeded.
    assert 0.12 * sent <= lan.drop_counts()["b"] <= 0.28 * sent
    assert (lan.drop_counts()["a"], lan.drop_counts()["c"]) == (0, 0)


def test_loss_and_cuts_are_independent(lan: Lan, open_socket: OpenSocket) -> None:
    sender, receiver = open_socket(lan, "a"), open_socket(lan, "b")
    lan.set_loss(100)
    lan.cut([["a"], ["b", "c"]])
    sender.sendto(b"cut", (lan.address("b"), PORT))
    lan.heal()
    sender.sendto(b"lost", (lan.address("b"), PORT))
    assert poll_until(lambda: lan.drop_counts() == {"a": 0, "b": 1, "c": 0}, TIMEOUT_MS)
    lan.set_loss(0)
    sender.sendto(b"arrives", (lan.address("b"), PORT))
    assert receiver.recv(100) == b"arrives"
    assert lan.drop_counts()["b"] == 1


def test_a_host_never_loses_its_own_broadcast(lan: Lan, open_socket: OpenSocket) -> None:
    sender = open_socket(lan, "a")
    lan.set_loss(100)
    sender.sendto(b"mine", (lan.broadcast_address, PORT))
    assert sender.recv(100) == b"mine"


# A datagram sent after healing takes the same path as one sent before: which of them is received first tells
# whether the cut one got through, without waiting for something that must not come.


def test_a_cut_parts_the_groups_both_ways_until_healed(lan: Lan, open_socket: OpenSocket) -> None:
    a, b, c = (open_socket(lan, name) for name in lan.names)
    lan.cut([["a", "b"], ["c"]])
    a.sendto(b"cut", (lan.address("c"), PORT))
    c.sendto(b"cut", (lan.address("a"), PORT))
    a.sendto(b"same side", (lan.address("b"), PORT))
    assert b.recv(100) == b"same side"
    lan.heal()
    a.sendto(b"healed", (lan.address("c"), PORT))
    c.sendto(b"healed", (lan.address("a"), PORT))
    assert (a.recv(100), c.recv(100)) == (b"healed", b"healed")


def test_a_new_cut_replaces_the_old_one(lan: Lan, open_socket: OpenSocket) -> None:
    a, b, c = (open_socket(lan, name) for name in lan.names)
    lan.cut([["a"], ["b", "c"]])
    lan.cut([["a", "b"], ["b", "c"]])
    a.sendto(b"cut", (lan.address("c"), PORT))
    a.sendto(b"shared", (lan.address("b"), PORT))
    b.sendto(b"shared", (lan.address("c"), PORT))
    assert (b.recv(100), c.recv(100)) == (b"shared", b"shared")


def test_a_one_way_cut_leaves_the_way_back(lan: Lan, open_socket: OpenSocket) -> None:
    a, b, c = (open_socket(lan, name) for name in lan.names)
    lan.cut_one_way("a", "b")
    lan.cut_one_way("c", "b")
    a.sendto(b"cut", (lan.address("b"), PORT))
    c.sendto(b"cut", (lan.address("b"), PORT))
    b.sendto(b"way back", (lan.address("a"), PORT))
    assert a.recv(100) == b"way back"
    lan.heal()
    a.sendto(b"healed", (lan.address("b"), PORT))
    assert b.recv(100) == b"healed"


def test_one_way_cuts_replace_those_there_were(lan: Lan, open_socket: OpenSocket) -> None:
    a, b, c = (open_socket(lan, name) for name in lan.names)
    lan.cut_one_way("c", "b")
    lan.set_one_way_cuts([("a", "b"), ("a", "c"), ("b", "c")])
    for target in ("b", "c"):
        a.sendto(b"cut", (lan.address(target), PORT))
    b.sendto(b"cut", (lan.address("c"), PORT))
    b.sendto(b"way back", (lan.address("a"), PORT))
    c.sendto(b"no longer cut", (lan.address("b"), PORT))
    assert (a.recv(100), b.recv(100)) == (b"way back", b"no longer cut")
    lan.set_one_way_cuts([])
    a.sendto(b"healed", (lan.address("c"), PORT))
    assert c.recv(100) == b"healed"


def test_leaving_removes_processes_and_namespaces_even_on_an_error() -> None:
    with pytest.raises(RuntimeError, match="the body fails"), Lan(["a", "b"]) as lan:  # noqa: PT012
        process = lan.spawn("a", ["sleep", "600"])
        assert len(namespaces_left(lan.namespaces)) == 3
        raise RuntimeError("the body fails")
    assert process.returncode == -signal.SIGTERM
    assert namespaces_left(lan.namespaces) == []
    lan.close()


def test_leaving_ends_stubborn_stopped_and_runaway_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lan_module, "TERMINATE_GRACE_MS", 1_000)
    with Lan(["a"]) as lan:
        shell = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 600; done"]
        stubborn = lan.spawn("a", shell, stdout=subprocess.PIPE, text=True)
        assert first_line(stubborn) == "ready\n"
        stopped = lan.spawn("a", ["sleep", "600"])
        os.kill(stopped.pid, signal.SIGSTOP)
        shell = ["sh", "-c", "setsid sleep 600 & echo $!"]
        runaway = lan.spawn("a", shell, stdout=subprocess.PIPE, text=True)
        runaway_pid = int(first_line(runaway))
        assert runaway.wait() == 0
    assert (stubborn.returncode, stopped.returncode) == (-signal.SIGKILL, -signal.SIGTERM)
    assert poll_until(lambda: not is_running(runaway_pid), TIMEOUT_MS)


@pytest.mark.parametrize(
    ("mode", "signum", "exit_status"),
    [
        ("wait", signal.SIGTERM, -signal.SIGTERM),
        ("wait", signal.SIGINT, -signal.SIGINT),
        ("own-handler", signal.SIGTERM, 7),
        ("forget", None, 0),
    ],
)
def test_an_owner_cleans_up_however_it_ends(
    start_owner: Callable[..., Any], mode: str, signum: signal.Signals | None, exit_status: int
) -> None:
    owner, made = start_owner(mode)
    if signum is not None:
        assert namespaces_left(made["namespaces"]) == made["namespaces"]
        owner.send_signal(signum)
    assert owner.wait(TIMEOUT_MS / 1_000) == exit_status
    assert namespaces_left(made["namespaces"]) == []
    assert not is_running(made["child_pid"])


def test_the_next_lan_sweeps_what_a_killed_owner_left(start_owner: Callable[..., Any]) -> None:
    dead_owner, left = start_owner()
    _, living = start_owner()
    dead_owner.kill()
    dead_owner.wait()
    with Lan(["a"]):
        assert namespaces_left(left["namespaces"]) == []
        assert poll_until(lambda: not is_running(left["child_pid"]), TIMEOUT_MS)
        assert namespaces_left(living["namespaces"]) == living["namespaces"]
        assert is_running(living["child_pid"])


def test_a_forked_child_leaves_the_lan_alone(lan: Lan) -> None:
    child_pid = os.fork()
    if child_pid == 0:
        lan.close()
        os._exit(0)
    os.waitpid(child_pid, 0)
    assert namespaces_left(lan.namespaces) == list(lan.namespaces)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(LanError, match=r"root.*`ip`.*`nft`.*apt-get install iproute2 nftables"):
        require_lan_tools()


@pytest.mark.parametrize("names", [[], ["a", "a"], ["sw"], ["A"], ["a/b"]])
def test_unusable_host_names_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="distinct names"):
        Lan(names)


def test_an_unknown_host_is_refused(lan: Lan) -> None:
    with pytest.raises(ValueError, match="no host 'd'; this LAN has a, b, c"):
        lan.cut([["a"], ["d"]])
