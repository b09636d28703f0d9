"""The transport on a real network: a process per node, each on a host of its own, and datagrams that get lost.

What the processes logged is replayed, in the order of its times, into the simulator's checkers.
"""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import NoReturn, TypeAlias, cast

import pytest

from tests.network.lan import Lan, poll_until
from tests.network.worker import DELIVERED, RECEIVED, SENT, Load, Record
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
PORT = 7_400
PATIENCE_MS = 60_000
"""For a machine that is busy with other tests; a run takes a few seconds."""
PROJECT = Path(__file__).parents[2]

Logs: TypeAlias = dict[str, list[Record]]
Totals: TypeAlias = Counter[str]
"""All nodes' counters added up: `machine.nacks_sent`, `udp.datagrams_sent`, `kernel.RcvbufErrors`, ..."""


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(NAMES) as made:
        yield made


class Worker:
    """A node's process, and the files it writes to."""

    def __init__(self, lan: Lan, name: str, directory: Path, arguments: Sequence[str]) -> None:
        self.name = name
        self._out, self._err, self._log = (directory / f"{name}.{suffix}" for suffix in ("out", "err", "log"))
        command = [sys.executable, "-W", "error", "-m", "tests.network.worker", "--node", name]
        command += ["--roster", ",".join(lan.names), "--log", str(self._log), *arguments]
        with open(self._out, "w") as out, open(self._err, "w") as err:
            self.process: subprocess.Popen[str] = lan.spawn(
                name, command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True
            )

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: whoever waits for its answer will see that, and say why
            print(command, file=self.process.stdin, flush=True)

    def stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def has_said(self, line: str) -> bool:
        return line in self._out.read_text().splitlines()

    def answers(self) -> list[Counter[str]]:
        """One for each time it was asked for its counters."""
        lines = self._out.read_text().splitlines()
        return [Counter(json.loads(line)) for line in lines if line.startswith("{")]

    def log(self) -> list[Record]:
        with open(self._log) as lines:
            return list(map(Record.from_line, lines))

    def testimony(self) -> str:
        said, complained = self._out.read_text(), self._err.read_text()
        return f"--- {self.name}, exit status {self.process.poll()}, said:\n{said}and on stderr:\n{complained}"


class Cluster:
    """A worker on every host of the LAN."""

    def __init__(self, lan: Lan, directory: Path, load: Load, *arguments: str) -> None:
        self._load = load
        flags = [*load.as_arguments(), *arguments]
        self._workers = [Worker(lan, name, directory, flags) for name in lan.names]

    def run(self) -> Totals:
        """Until everyone has delivered everything, nobody keeps anything, and the logs have been checked."""
        try:
            self._wait(lambda worker: worker.has_said("ready"), "come up")
            self._tell("start")
            self._wait(lambda worker: worker.has_said("done"), "deliver everything")
            totals = self._wait_until_stable()
        finally:
            for worker in self._workers:
                worker.stop()
        self._wait(lambda worker: worker.process.poll() == 0, "end")
        sent = check_rules({worker.name: worker.log() for worker in self._workers})
        assert sent == {name: [service for service, _ in self._load.messages_of(name)] for name in sent}
        return totals

    def _wait_until_stable(self) -> Totals:
        asked = 0
        totals: Totals = Counter()

        def is_stable() -> bool:
            nonlocal asked, totals
            asked += 1
            self._tell("counters")
            self._wait(lambda worker: len(worker.answers()) == asked, "answer")
            totals = sum((worker.answers()[-1] for worker in self._workers), Counter[str]())
            return totals["state.window_bytes"] == 0

        if not poll_until(is_stable, PATIENCE_MS):
            self._fail(f"after {PATIENCE_MS} ms the nodes still keep messages to retransmit: {totals}")
        return totals

    def _tell(self, command: str) -> None:
        for worker in self._workers:
            worker.tell(command)

    def _wait(self, condition: Callable[[Worker], bool], what: str) -> None:
        def is_over() -> bool:
            return all(map(condition, self._workers)) or any(worker.process.poll() for worker in self._workers)

        if not poll_until(is_over, PATIENCE_MS) or not all(map(condition, self._workers)):
            laggards = [worker.name for worker in self._workers if not condition(worker)]
            self._fail(f"{', '.join(laggards)} did not {what}")

    def _fail(self, message: str) -> NoReturn:
        pytest.fail("\n".join([message, *(worker.testimony() for worker in self._workers)]))


def check_rules(logs: Logs) -> dict[str, list[Service]]:
    """The logs together break no rule; returns what each node sent."""
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


def assert_nobody_erred(totals: Totals) -> None:
    """All are correct members of one view, so a frame that somebody objected to would be a fault of ours."""
    errors = [name for name in totals if name.startswith(("machine.dropped_", "peer_errors."))]
    assert not errors, totals


@pytest.mark.parametrize("loss_percent", [0, 5, 20])
def test_broadcasts_arrive_everywhere_in_order(lan: Lan, tmp_path: Path, loss_percent: int) -> None:
    lan.set_loss(loss_percent)
    cluster = Cluster(lan, tmp_path, Load(seed=loss_percent), "--broadcast", f"{lan.broadcast_address}:{PORT}")
    totals = cluster.run()
    assert_nobody_erred(totals)
    if loss_percent:
        assert all(lan.drop_counts().values()), lan.drop_counts()
        assert_repaired(totals)
    else:
        assert not any(lan.drop_counts().values()), lan.drop_counts()


def test_a_multicast_group_does_as_well(lan: Lan, tmp_path: Path) -> None:
    lan.set_loss(5)
    totals = Cluster(lan, tmp_path, Load(seed=31), "--multicast", f"239.77.0.1:{PORT}").run()
    assert_nobody_erred(totals)
    assert all(lan.drop_counts().values()), lan.drop_counts()
    assert_repaired(totals)


def test_copies_to_each_peer_do_as_well(lan: Lan, tmp_path: Path) -> None:
    lan.set_loss(5)
    peers = ",".join(f"{lan.address(name)}:{PORT}" for name in lan.names)
    totals = Cluster(lan, tmp_path, Load(seed=32), "--peers", peers).run()
    assert_nobody_erred(totals)
    assert all(lan.drop_counts().values()), lan.drop_counts()
    assert_repaired(totals)


def test_a_burst_that_spills_from_the_receive_buffers_is_repaired(lan: Lan, tmp_path: Path) -> None:
    """The window is for buffers of megabytes, and the kernel keeps a dozen datagrams."""
    endless = Load(seed=33, burst=1_000_000)
    buffers = ("--window-bytes", str(4 * 1_048_576), "--receive-buffer-bytes", str(16_384))
    broadcast = ("--broadcast", f"{lan.broadcast_address}:{PORT}")
    totals = Cluster(lan, tmp_path, endless, *broadcast, *buffers).run()
    assert_nobody_erred(totals)
    assert totals["kernel.RcvbufErrors"] > 0, totals
    assert totals["state.waits_for_room"] > 0, totals
    assert_repaired(totals)


# Whether the replay shows the checkers what they must see: a story that is right, and ways to spoil it.

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
