"""The transport on a real network: a process per node, each on a host of its own, and datagrams that get lost.

What the processes recorded is replayed, in the order of its times, into the simulator's checkers.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from tests.network import cluster
from tests.network.cluster import PORT, Cluster
from tests.network.lan import Lan, poll_until
from tests.network.transport_member import DELIVERED, RECEIVED, SENT, Load, Record
from tests.simulator.checkers import Checker, Violation
from tests.simulator.checkers.agreed_order import AgreedOrder
from tests.simulator.checkers.causal_order import CausalOrder
from tests.simulator.checkers.no_duplicates import NoDuplicates
from tests.simulator.checkers.no_loss import NoLoss
from tests.simulator.checkers.safe_received import SafeReceived
from transport.lansis import Lansis
from transport.messages import Machine, Message, Service, ViewId

NAMES = ("a", "b", "c", "d")
VIEW = ViewId(1, "a", 1)

Logs: TypeAlias = dict[str, list[Record]]
Totals: TypeAlias = Counter[str]
"""All nodes' counters added up: `machine.nacks_sent`, `udp.datagrams_sent`, `kernel.RcvbufErrors`, ..."""


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(NAMES) as made:
        yield made


class Worker(cluster.Member[Record]):
    """A node, and its answers on stdout."""

    module = "transport_member"

    def __init__(self, lan: Lan, name: str, directory: Path, arguments: Sequence[str]) -> None:
        super().__init__(lan, name, directory, Record.from_line)
        self.start("--roster", ",".join(lan.names), *arguments)

    def has_failed(self) -> bool:
        return bool(self.process.poll())  # no scenario here kills it

    def answers(self) -> list[Counter[str]]:
        """Returns its counters, as it said them each time it was asked."""
        return [Counter(json.loads(line)) for line in self.said() if line.startswith("{")]


class Workers(Cluster[Worker]):
    """A worker on every host of the LAN."""

    timeout_ms = 60_000
    """A run takes a few seconds."""

    def __init__(self, lan: Lan, directory: Path, load: Load, *arguments: str) -> None:
        flags = [*load.as_arguments(), *arguments]
        super().__init__(lan, directory, {name: Worker(lan, name, directory, flags) for name in lan.names})
        self._load = load

    def run(self) -> Totals:
        """Waits until every node has delivered everything and buffers nothing, and checks the records."""
        self._wait_all_said("ready", "all come up")
        self._begin("start")
        self._tell_all("start")
        self._wait_all_said("done", "all deliver everything")
        totals = self._wait_until_stable()
        self._end_all()
        sent = check_rules({name: worker.records for name, worker in self._members.items()})
        assert sent == {name: [service for service, _ in self._load.messages_of(name)] for name in sent}
        return totals

    def _wait_until_stable(self) -> Totals:
        asked = 0
        totals: Totals = Counter()
        workers = self._members.values()

        def is_stable() -> bool:
            nonlocal asked, totals
            asked += 1
            self._tell_all("counters")
            self._wait(lambda: all(len(worker.answers()) == asked for worker in workers), "all answer")
            totals = sum((worker.answers()[-1] for worker in workers), Counter[str]())
            return totals["state.window_bytes"] == 0

        if not poll_until(is_stable, self.timeout_ms):
            raise self._failure(f"after {self.timeout_ms} ms the nodes still buffer messages: {totals}")
        return totals


def check_rules(logs: Logs) -> dict[str, list[Service]]:
    """Raises `Violation` unless the records of all nodes together keep every rule; returns what each node sent."""
    checkers: list[Checker] = [CausalOrder(logs), AgreedOrder(), SafeReceived(logs), NoDuplicates(), NoLoss()]
    sent: dict[str, list[Service]] = {name: [] for name in logs}
    for record in heapq.merge(*logs.values(), key=attrgetter("at_ns")):
        assert record.is_intact, record
        if record.event == SENT:
            assert record.number == len(sent[record.node])
            sent[record.node].append(record.service)
        for checker in checkers:
            replay(record, checker)
    # Of the machines, which ended with their processes, NoLoss wants only the names unless some have crashed.
    live = cast(Mapping[str, Lansis], logs)
    for checker in checkers:
        checker.finished(live, sent)
    return sent


def replay(record: Record, checker: Checker) -> None:
    node, sender, number = record.node, record.sender, record.number
    message = Message(record.clock, Machine(sender, 1), record.sequence, record.service, VIEW, b"")
    if record.event == SENT:
        checker.sent(node, number, record.service)
    elif record.event == RECEIVED:
        checker.received(node, sender, number, message)
    else:
        assert record.event == DELIVERED, record
        checker.delivered(node, sender, number, message)


def assert_repaired(totals: Totals) -> None:
    assert totals["machine.nacks_sent"] > 0, totals
    assert totals["machine.packets_retransmitted"] > 0, totals


def assert_no_errors(totals: Totals) -> None:
    """All are correct members of one view, so a frame that any of them rejects would be a fault of ours."""
    errors = [name for name in totals if name.startswith(("machine.dropped_", "peer_errors."))]
    assert not errors, totals


@pytest.mark.parametrize("loss_percent", [0, 5, 20])
def test_broadcasts_arrive_everywhere_in_order(lan: Lan, tmp_path: Path, loss_percent: int) -> None:
    lan.set_loss(loss_percent)
    workers = Workers(lan, tmp_path, Load(seed=loss_percent), "--broadcast", f"{lan.broadcast_address}:{PORT}")
    totals = workers.run()
    assert_no_errors(totals)
    if loss_percent:
        assert all(lan.drop_counts().values()), lan.drop_counts()
        assert_repaired(totals)
    else:
        assert not any(lan.drop_counts().values()), lan.drop_counts()


def test_a_multicast_group_does_as_well(lan: Lan, tmp_path: Path) -> None:
    lan.set_loss(5)
    totals = Workers(lan, tmp_path, Load(seed=31), "--multicast", f"239.77.0.1:{PORT}").run()
    assert_no_errors(totals)
    assert all(lan.drop_counts().values()), lan.drop_counts()
    assert_repaired(totals)


def test_copies_to_each_peer_do_as_well(lan: Lan, tmp_path: Path) -> None:
    lan.set_loss(5)
    peers = ",".join(f"{lan.address(name)}:{PORT}" for name in lan.names)
    totals = Workers(lan, tmp_path, Load(seed=32), "--peers", peers).run()
    assert_no_errors(totals)
    assert all(lan.drop_counts().values()), lan.drop_counts()
    assert_repaired(totals)


def test_a_burst_that_spills_from_the_receive_buffers_is_repaired(lan: Lan, tmp_path: Path) -> None:
    """The window is fitted to buffers of megabytes, and the kernel keeps a dozen datagrams."""
    endless = Load(seed=33, burst=1_000_000)
    buffers = ("--window-bytes", str(4 * 1_048_576), "--receive-buffer-bytes", str(16_384))
    broadcast = ("--broadcast", f"{lan.broadcast_address}:{PORT}")
    totals = Workers(lan, tmp_path, endless, *broadcast, *buffers).run()
    assert_no_errors(totals)
    assert totals["kernel.RcvbufErrors"] > 0, totals
    assert totals["state.waits_for_room"] > 0, totals
    assert_repaired(totals)


# Whether the replay shows the checkers what they must see: a story that is right, and ways to make it wrong.

STORY = """
a sent a:0 AGREED 0
a received a:0 AGREED 1
b received a:0 AGREED 1
a delivered a:0 AGREED 1
b delivered a:0 AGREED 1
b sent b:0 SAFE 0
b received b:0 SAFE 2
a received b:0 SAFE 2
a delivered b:0 SAFE 2
b delivered b:0 SAFE 2
b sent b:1 BASIC 0
b delivered b:1 BASIC 3
a delivered b:1 BASIC 3
"""


def read_story(story: str) -> Logs:
    logs: Logs = {"a": [], "b": []}
    for at_ns, line in enumerate(story.split("\n")[1:-1]):
        node, event, identity, service, clock = line.split()
        sender, number = identity.split(":")
        logs[node].append(Record(at_ns, event, node, sender, int(number), Service[service], int(clock)))
    return logs


def test_a_right_story_is_accepted() -> None:
    assert check_rules(read_story(STORY)) == {"a": [Service.AGREED], "b": [Service.SAFE, Service.BASIC]}


@pytest.mark.parametrize(
    ("right", "wrong", "violation"),
    [
        ("a delivered b:1 BASIC 3\n", "", "a never delivered BASIC b:1"),
        ("a delivered b:1 BASIC 3\n", "a delivered b:1 BASIC 3\n" * 2, "a delivered b:1 twice"),
        ("a delivered b:0 SAFE 2\n", "a delivered b:0 SAFE 9\n", "at place 1 b delivered"),
        ("b received b:0 SAFE 2\n", "a delivered b:0 SAFE 2\n", "which a does not have"),
        ("a delivered a:0 AGREED 1\n", "", "a delivered b:0 having 0 messages of a"),
    ],
)
def test_a_spoiled_story_is_refused(right: str, wrong: str, violation: str) -> None:
    assert right in STORY
    with pytest.raises(Violation, match=violation):
        check_rules(read_story(STORY.replace(right, wrong)))
