"""A node that takes part in the log as long as its disk works.

Green waits for every member's disk, so a node whose disk is full or stalls leaves the others (trap 8). It keeps
its store open for reading, tries its disk again and again, and when a write succeeds comes back as if restarted:
a new incarnation that has read its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from corel.config import CorelConfig
from corel.messages import MessageId
from corel.quorum import Roster
from corel.store import Store, StoreError
from kvstore.journal import JournalWriter
from kvstore.node import LogConfig, Node, NodeConfig, Upward
from membership.config import MembershipConfig
from membership.floor import ClockFloor
from transport.chaos import Chaos
from transport.config import TransportConfig
from transport.incarnation import IncarnationError, next_incarnation
from transport.messages import Machine
from transport.udp import Mode, UdpError

log = logging.getLogger("corelkv")

FLUSH_SECONDS = 2.0
"""How long an orderly stop waits for the disk."""

RETRY_SECONDS = 1.0
"""Between attempts to write to a disk that failed."""


class Away(Exception):
    """The node has left the others because of its disk, and takes nothing. The message says what is wrong."""


@dataclass(frozen=True, slots=True)
class ParticipantConfig:
    """Who the node is, where its disk is, and how it reaches the others."""

    node: str
    roster: Roster
    data: Path
    mode: Mode
    cluster: str = "corelkv"
    is_new_cluster: bool = False
    """Only on the very first start of a new cluster: an empty disk may vote, and incarnations count from 1."""
    transport: TransportConfig = field(default_factory=TransportConfig)
    membership: MembershipConfig = field(default_factory=MembershipConfig)
    corel: CorelConfig = field(default_factory=CorelConfig)
    datagram_bytes_max: int | None = None
    with_chaos: bool = False


class Participant:
    """Use it on the event loop that runs it."""

    def __init__(
        self,
        config: ParticipantConfig,
        upward: Upward,
        journal: Path | None = None,
        on_started: Callable[[Node], None] = lambda node: None,
        on_opened: Callable[[Store], None] = lambda store: None,
    ) -> None:
        if config.node not in config.roster.weights:
            raise ValueError(f"node {config.node} is not in the roster {', '.join(config.roster.weights)}")
        self._config = config
        self._upward = replace(upward, disk_failed=self._on_disk_failed)
        self._on_failed = upward.disk_failed
        self._on_started = on_started
        self._journal_directory = journal
        self._return: asyncio.Task[None] | None = None
        self._is_closing = False
        self.store = Store(config.data, config.cluster, config.node, config.is_new_cluster)
        self.trouble: StoreError | None = None
        """Why the node is away; None while it takes part."""
        try:
            on_opened(self.store)
            self.node = self._start(Chaos())
        except BaseException:
            self.store.close()
            raise

    def submit(self, body: bytes) -> MessageId:
        """Accepts a message for the log; raises `Away` or `TooMuch`."""
        if self.trouble is not None:
            raise Away(str(self.trouble))
        return self.node.submit(body)

    async def close(self) -> None:
        """Stops, when the write under way has ended."""
        self._is_closing = True
        if self._return is not None:
            self._return.cancel()
            await asyncio.wait([self._return], timeout=FLUSH_SECONDS)
        await self.node.flush(FLUSH_SECONDS)
        self.node.close()
        with contextlib.suppress(TimeoutError):  # a stalled disk: the process ends without it
            await asyncio.wait_for(self._writer_ended(), FLUSH_SECONDS)
            self.store.close()

    def _start(self, chaos: Chaos) -> Node:
        config = self._config
        incarnation = next_incarnation(config.data, config.is_new_cluster)
        node_config = NodeConfig(
            machine=Machine(config.node, incarnation),
            mode=config.mode,
            cluster=config.cluster,
            transport=config.transport,
            membership=config.membership,
            clock_floor=ClockFloor(config.data),
            datagram_bytes_max=config.datagram_bytes_max,
            with_chaos=config.with_chaos,
            log=LogConfig(self.store, config.roster, config.corel),
        )
        directory = self._journal_directory
        journal = None if directory is None else JournalWriter(directory, config.node)
        node = Node(node_config, self._upward, journal)
        if node.chaos is not None:
            node.chaos.chaos = chaos
        try:
            self._on_started(node)
        except BaseException:
            node.close()
            raise
        return node

    def _on_disk_failed(self, error: StoreError) -> None:
        self.trouble = error
        if self._is_closing:
            return
        self._return = asyncio.get_running_loop().create_task(self._come_back())
        self._on_failed(error)

    async def _come_back(self) -> None:
        await self._writer_ended()
        while True:
            try:
                probe = asyncio.get_running_loop().run_in_executor(None, self.store.probe)
                await asyncio.shield(probe)
                chaos = self.node.chaos.chaos if self.node.chaos is not None else Chaos()
                self.node = self._start(chaos)
            except (StoreError, UdpError, IncarnationError, OSError) as error:
                log.warning("still away: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            except asyncio.CancelledError:
                with contextlib.suppress(StoreError):
                    await probe  # the store is not closed under it
                raise
            except Exception as error:
                log.critical("the node cannot come back: %s", error, exc_info=error)
                self._upward.failed(error)
                return
            else:
                log.info("the disk takes writes again")
                self.trouble = None
                return

    async def _writer_ended(self) -> None:
        while self.node.writer is not None and self.node.writer.is_alive():
            await asyncio.sleep(0.02)
