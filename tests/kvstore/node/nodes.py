"""The nodes of one cluster in one process, on real disks and sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from corel.config import CorelConfig
from corel.messages import MessageId
from corel.quorum import Roster
from corel.stages import Stage
from kvstore.node.restarting import RestartingDriver
from kvstore.store.operations import Put, Write
from kvstore.store.replies import Ack, Answer, Done
from kvstore.store.write_codec import encode_write
from tests.drivers import loopback_config

NEVER = float("inf")


class Nodes:
    """The nodes of one cluster, in one process. Needs a running event loop."""

    def __init__(self, names: str, port: int, directory: Path, log: CorelConfig | None = None) -> None:
        self._names = names
        self._port = port
        self._directory = directory
        self._log = log or CorelConfig()
        self.nodes: dict[str, RestartingDriver] = {}

    @classmethod
    async def in_primary(cls, names: str, port: int, directory: Path, log: CorelConfig | None = None) -> Self:
        """Starts all nodes of a new cluster, and returns them when they are a primary component."""
        nodes = cls(names, port, directory, log)
        for name in names:
            nodes.start(name)
        await nodes.primary(names)
        return nodes

    def start(
        self,
        name: str,
        bootstrap: bool = True,
        data: Path | None = None,
        roster: str | None = None,
        log: CorelConfig | None = None,
    ) -> RestartingDriver:
        config = loopback_config(
            name,
            self._names,
            data or self._directory / name,
            self._port,
            roster=Roster.of(roster or self._names),
            bootstrap=bootstrap,
            log=log or self._log,
        )
        node = self.nodes[name] = RestartingDriver(config)
        node.start()
        return node

    def put(self, name: str, value: bytes, ack: Ack = Ack.GREEN) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        store = self.nodes[name].running_store
        assert store is not None
        store.write(encode_write(Write((Put("key", value),))), ack, NEVER, answer.set_result)
        self.nodes[name].driver.dispatch_soon()
        return answer

    async def done(self, name: str, value: bytes) -> str:
        """Writes a value, waits until it is green, and returns the id of the write."""
        async with asyncio.timeout(20.0):
            answer = await self.put(name, value)
        assert isinstance(answer, Done)
        return answer.write_id

    def value(self, name: str) -> bytes | None:
        item = self.nodes[name].store.find("key")
        return None if item is None else item.value

    def green(self, name: str) -> list[MessageId]:
        """The green messages on the node's disk."""
        return [entry.id for entry in self.nodes[name].log.green(0, 1_000)]

    async def eventually(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20.0):
            while not condition():
                await asyncio.sleep(0.005)

    def incarnation(self, name: str) -> int:
        return self.nodes[name].driver.stack.me.incarnation

    async def primary(self, names: str) -> None:
        def is_primary(name: str) -> bool:
            log = self.nodes[name].driver.replica.log
            return log.stage is Stage.PRIMARY and len(log.view.members) == len(names)

        await self.eventually(lambda: all(map(is_primary, names)))

    async def close(self) -> None:
        for node in self.nodes.values():
            await node.close()
