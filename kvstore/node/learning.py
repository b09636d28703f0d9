"""How a node that lacks much takes over the state of another (decision 28): from whom, how fast, and what comes
next.

While the node is left behind, it asks the nodes that may be ahead, one after the other: for a snapshot of the
state, table by table and chunk by chunk, then for the green messages after it, which are applied to the copy as
they arrive. When less is missing than is retransmitted inside a view, it switches to the copy and starts again.
All this time it goes on in its own view with its own disk; only the switch is an interruption.

An error of a source is not an error of this node: it asks the same source again, which may still have the
snapshot open, then the next, and begins from the front after a pause. Only a chunk that is staged already is not
fetched again from the same snapshot; a snapshot of another source begins anew. If this node's own disk refuses
what was fetched, no other source helps: it waits longer, and the source need not keep the snapshot open for that.
There is no clock, thread, network or disk here:
`Surroundings` has them, real or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from corel import NotAhead
from corel.disk_errors import DiskError

ATTEMPTS_MAX = 3
"""How often in a row a source is asked that does not answer, before the next one is. More of them wait out a
longer fault of the network, with what was fetched so far; fewer find a source that lives sooner."""

RETRY_SECONDS = 0.25
"""The pause before a source is asked again. Each further one is twice as long."""

PAUSE_SECONDS = 1.0
"""The pause when no source could be used."""

PAUSE_SECONDS_MAX = 30.0
"""The longest pause. Each further one is twice as long as the last, unless something was fetched in between."""

DISK_PAUSE_SECONDS = 30.0
"""The pause after this node's own disk refused what was fetched: somebody has to make room first."""


class SourceError(Exception):
    """A source could not be reached, or refused, or answered with something that makes no sense. The message says
    which."""


class SnapshotGone(SourceError):
    """The source no longer has the snapshot, or not the messages after it: what is staged cannot be completed."""


class Hindrance(StrEnum):
    """Why a node could not learn."""

    NO_URLS = "no_urls"
    """It does not know where to ask."""
    SOURCE = "source"
    """The source failed."""
    NOT_AHEAD = "not_ahead"
    """The source is of no use to this node."""
    DISK = "disk"
    """This node's own disk failed."""


class Phase(StrEnum):
    """What a node that learns is doing."""

    ASKING = "asking"
    """It looks for a node that hands out its state, or pauses after errors."""
    STATE = "state"
    MESSAGES = "messages"
    SWITCHING = "switching"


@dataclass(frozen=True, slots=True)
class LearningStatus:
    """How far a node is that takes over the state of another."""

    source: str
    """The node that it was last asked of; empty if there is none to ask."""
    phase: Phase
    bytes: int = 0
    """How much of the state has been fetched."""
    total_bytes: int = 0
    """How large all of it is; 0 while that is not known."""
    line: int = 0
    """How many green messages the copy covers."""
    target: int = 0
    """How many the source has."""


class Opened(NamedTuple):
    """A snapshot that a source has open for this node."""

    line: int
    """How many green messages its state covers."""
    target: int
    """How many green messages the source has."""
    bytes: int
    """How much of it is staged already, from before an error or a restart."""
    total_bytes: int


class Fetched(NamedTuple):
    """A page of green messages, which has been applied to the copy."""

    line: int
    target: int
    """How many green messages the source has now."""
    bytes: int
    is_whole: bool
    """Whether the page goes as far as the source's disk did. The copy can only be used as of such a page."""


class Surroundings(Protocol):
    """What a node that learns has at hand. What it does with a source raises `SourceError` if the source fails,
    `NotAhead` if it is of no use to this node, and `DiskError` if this node's own disk fails."""

    def now(self) -> float:
        """Returns the time in seconds."""

    async def sleep(self, seconds: float) -> None: ...

    def is_left_behind(self) -> bool:
        """Whether this node is still out of reach of others, as far as it has heard lately."""

    def sources(self) -> Sequence[str]:
        """Returns the nodes that can be asked, the most promising first."""

    async def open(self, source: str) -> Opened:
        """Goes on with what is staged if it is of a snapshot that this source still has open; else has it open
        one, and drops what is staged."""

    async def fetch_chunk(self) -> int:
        """Fetches and stages the next part of the state; returns its size in bytes, 0 if there is no more."""

    async def fetch_messages(self) -> Fetched:
        """Fetches the green messages that follow what the copy has, as many as fit into a page, and applies
        them."""

    async def switch(self) -> None:
        """Ends the incarnation, and begins the next one on the copy, with this node's own messages that are not
        green."""

    def began(self, source: str, opened: Opened) -> None:
        """Tells that the transfer from this source has begun, or goes on."""

    def switched(self, status: LearningStatus, seconds: float) -> None:
        """Tells that the node has taken over, and how long it took."""

    def cannot_learn(self, source: str, hindrance: Hindrance, reason: str) -> None:
        """Says why this source, or any at all if it is empty, could not be used."""


class Pacing:
    """Keeps what is fetched below a rate. What was not fetched in time is not made up for."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def pause_after(self, size: int, now: float) -> float:
        """Returns how many seconds to wait after this many bytes."""
        self._free_at = max(self._free_at, now) + size / self._bytes_per_s
        return self._free_at - now


class Learning:
    """The transfers of one node. `reach` is how many messages the others would retransmit to it inside a view."""

    def __init__(self, bytes_per_s: int, reach: int) -> None:
        self._pacing = Pacing(bytes_per_s)
        self._reach = reach
        self._has_fetched = False
        self.status: LearningStatus | None = None
        """None while the node does not learn."""
        self.fetched_bytes = 0
        """How much was fetched in all transfers together."""

    async def run(self, node: Surroundings) -> bool:
        """Returns when the node has taken over a state, or is no longer left behind; returns whether it has."""
        pause = PAUSE_SECONDS
        began_at = node.now()
        try:
            while node.is_left_behind():
                self._has_fetched = False
                try:
                    if await self._learn_from_any(node):
                        if self.status is not None:
                            node.switched(self.status, node.now() - began_at)
                        return True
                except DiskError as error:
                    node.cannot_learn("", Hindrance.DISK, f"this node's own disk does not take the copy: {error}")
                    await self._wait(node, DISK_PAUSE_SECONDS)
                    continue
                if self._has_fetched:
                    pause = PAUSE_SECONDS
                await self._wait(node, pause)
                pause = min(2.0 * pause, PAUSE_SECONDS_MAX)
            return False
        finally:
            self.status = None

    async def _wait(self, node: Surroundings, seconds: float) -> None:
        if self.status is not None:
            self.status = LearningStatus(self.status.source, Phase.ASKING)
        if node.is_left_behind():
            await node.sleep(seconds)

    async def _learn_from_any(self, node: Surroundings) -> bool:
        """Asks every source in turn; returns whether the node has taken over the state of one."""
        sources = node.sources()
        if not sources:
            self.status = LearningStatus("", Phase.ASKING)
            reason = "it does not know where to ask. Set urls to the HTTP addresses of all nodes, and restart it"
            node.cannot_learn("", Hindrance.NO_URLS, reason)
        for source in sources:
            if not node.is_left_behind():
                return False
            try:
                if await self._learn_from(source, node):
                    return True
            except SourceError as error:
                node.cannot_learn(source, Hindrance.SOURCE, str(error))
            except NotAhead as error:
                node.cannot_learn(source, Hindrance.NOT_AHEAD, str(error))
        return False

    async def _learn_from(self, source: str, node: Surroundings) -> bool:
        """Asks one source, again if it fails; raises what it failed with last."""
        failures = 0
        while True:
            fetched_before = self.fetched_bytes
            try:
                return await self._transfer(source, node)
            except SourceError as error:
                has_progressed = self.fetched_bytes > fetched_before and not isinstance(error, SnapshotGone)
                failures = 1 if has_progressed else failures + 1
                if failures >= ATTEMPTS_MAX or not node.is_left_behind():
                    raise
                node.cannot_learn(source, Hindrance.SOURCE, f"{error}. It is asked again")
                await node.sleep(RETRY_SECONDS * 2.0 ** (failures - 1))

    async def _transfer(self, source: str, node: Surroundings) -> bool:
        self.status = LearningStatus(source, Phase.ASKING)
        opened = await node.open(source)
        node.began(source, opened)
        total_bytes, line, target = opened.total_bytes, opened.line, opened.target
        staged = opened.bytes
        self.status = LearningStatus(source, Phase.STATE, staged, total_bytes, line, target)
        while size := await node.fetch_chunk():
            staged += size
            self.status = LearningStatus(source, Phase.STATE, staged, total_bytes, line, target)
            await self._pace(size, node)
            if not node.is_left_behind():
                return False
        while True:
            page = await node.fetch_messages()
            self.status = LearningStatus(source, Phase.MESSAGES, staged, total_bytes, page.line, page.target)
            await self._pace(page.bytes, node)
            if page.is_whole and page.target - page.line <= self._reach // 2:
                break
            if page.line == line:
                raise SourceError(f"it has {page.target} green messages, and sends none after {line}")
            line = page.line
        if not node.is_left_behind():
            return False
        self.status = LearningStatus(source, Phase.SWITCHING, staged, total_bytes, page.line, page.target)
        await node.switch()
        return True

    async def _pace(self, size: int, node: Surroundings) -> None:
        self.fetched_bytes += size
        self._has_fetched = self._has_fetched or size > 0
        pause = self._pacing.pause_after(size, node.now())
        if pause > 0.0:
            await node.sleep(pause)
