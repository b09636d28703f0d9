"""A node with a log, on real disks and sockets: it greens, restarts, leaves when its disk fails, comes back."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corel.config import CorelConfig
from corel.corel import Stage
from corel.effects import Greened
from corel.messages import MessageId
from corel.quorum import Roster
from corel.storage import Write
from corel.store import DiskFull, StalledDisk, Store, StoreError
from kvstore.node import Upward
from kvstore.participant import Away, Participant, ParticipantConfig
from transport.effects import Reason
from transport.udp import BroadcastMode


class Nodes:
    """Participants of one process. Needs a running event loop."""

    def __init__(self, names: str, port: int, directory: Path, corel: CorelConfig | None = None) -> None:
        self.green: dict[str, list[MessageId]] = {name: [] for name in names}
        self.errors: list[StoreError] = []
        self._names = names
        self._port = port
        self._directory = directory
        self._corel = corel or CorelConfig()
        self.participants: dict[str, Participant] = {}

    def start(
        self, name: str, is_new_cluster: bool = True, data: Path | None = None, roster: str | None = None
    ) -> Participant:
        config = ParticipantConfig(
            node=name,
            roster=Roster.of(roster or self._names),
            data=data or self._directory / name,
            mode=BroadcastMode(("127.255.255.255", self._port)),
            cluster=f"test-{self._port}",
            is_new_cluster=is_new_cluster,
            corel=self._corel,
        )

        def on_greened(greened: Greened) -> None:
            self.green[name][greened.position :] = [entry.id for entry in greened.entries]

        upward = Upward(greened=on_greened, disk_failed=self.errors.append)
        self.participants[name] = Participant(config, upward)
        return self.participants[name]

    async def eventually(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not condition():
                await asyncio.sleep(0.005)

    async def primary(self, names: str) -> None:
        def is_primary(name: str) -> bool:
            log = self.participants[name].node.log
            return log is not None and log.stage is Stage.PRIMARY and len(log.view.members) == len(names)

        await self.eventually(lambda: all(map(is_primary, names)))

    async def close(self) -> None:
        for participant in self.participants.values():
            await participant.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)], check=True)
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def test_three_nodes_green_the_same_order(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path)
        for name in "abc":
            nodes.start(name)
        await nodes.primary("abc")
        sent = [nodes.participants[name].submit(b"%d" % number) for number in range(20) for name in "abc"]
        await nodes.eventually(lambda: all(len(green) == 60 for green in nodes.green.values()))
        assert nodes.green["a"] == nodes.green["b"] == nodes.green["c"]
        assert sorted(nodes.green["a"]) == sorted(sent)
        await nodes.close()
        stores = [Store(tmp_path / name, f"test-{broadcast_port}", name) for name in "abc"]
        assert all([entry.id for entry in store.green(0, 100)] == nodes.green["a"] for store in stores)
        for store in stores:
            store.close()

    asyncio.run(scenario())


def test_what_was_green_is_green_after_all_have_restarted(broadcast_port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path)
        for name in "abc":
            nodes.start(name)
        await nodes.primary("abc")
        first = nodes.participants["a"].submit(b"before")
        await nodes.eventually(lambda: all(green == [first] for green in nodes.green.values()))
        await nodes.close()
        for name in "abc":
            nodes.start(name, is_new_cluster=False)
        await nodes.primary("abc")
        second = nodes.participants["b"].submit(b"after")
        await nodes.eventually(lambda: all(green == [first, second] for green in nodes.green.values()))
        assert second.stream.incarnation == 2
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_whose_disk_is_full_leaves_keeps_what_it_has_and_comes_back(
    broadcast_port: int, small_disk: Path
) -> None:
    async def scenario() -> None:
        nodes = Nodes("a", broadcast_port, small_disk)
        data = small_disk / "a"
        participant = nodes.start("a", data=data)
        await nodes.primary("a")
        logged = participant.submit(b"first")
        await nodes.eventually(lambda: len(participant.store.green(0, 1)) == 1)
        (small_disk / "filler").write_bytes(bytes(1_500_000))
        participant.submit(bytes(900_000))
        await nodes.eventually(lambda: bool(nodes.errors))
        assert isinstance(nodes.errors[0], DiskFull)
        with pytest.raises(Away, match="Make room"):
            participant.submit(b"refused")
        assert participant.store.green(0, 1)[0].body == b"first"
        (small_disk / "filler").unlink()
        await nodes.eventually(lambda: participant.trouble is None)
        await nodes.primary("a")
        again = participant.submit(b"again")
        await nodes.eventually(lambda: nodes.green["a"] == [logged, again])
        await nodes.close()

    asyncio.run(scenario())


def test_others_go_on_without_a_node_whose_disk_stalls_and_it_catches_up(
    broadcast_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path, CorelConfig(sync_stall_ms=300.0))
        for name in "abc":
            nodes.start(name)
        await nodes.primary("abc")
        store, works = nodes.participants["c"].store, threading.Event()
        write = store.write

        def stalling(item: Write, also: Callable[[Any], None] | None) -> None:
            works.wait(20.0)
            write(item, also)

        monkeypatch.setattr(store, "write", stalling)
        nodes.participants["a"].submit(b"x")
        await nodes.eventually(lambda: len(nodes.green["a"]) == 1)
        assert isinstance(nodes.errors[0], StalledDisk)
        await nodes.primary("ab")
        works.set()
        await nodes.primary("abc")
        await nodes.eventually(lambda: nodes.green["c"] == nodes.green["a"])
        await nodes.close()

    asyncio.run(scenario())


def test_a_node_told_of_another_roster_stays_outside_and_does_not_hold_up_the_others(
    broadcast_port: int, tmp_path: Path
) -> None:
    async def story() -> None:
        nodes = Nodes("abc", broadcast_port, tmp_path)
        odd = nodes.start("c", roster="abcd")
        nodes.start("a")
        nodes.start("b")
        await nodes.primary("ab")
        written = nodes.participants["a"].submit(b"x")
        await nodes.eventually(lambda: nodes.green["b"] == [written])
        assert len(odd.node.view.members) == 1
        assert odd.node.peer_errors.counts[Reason.OTHER_ROSTER] > 0
        await nodes.close()

    asyncio.run(story())
