"""A node's journal in simulated time: what a real node would have written by when it is killed.

`Recorder` fills it as it fills `kvstore.node.journal`. The records and the files are the product's; only the
thread, which writes ten times a second, is simulated. A process that is killed loses what the thread had not
written, and may leave a torn line."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable
from math import floor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from kvstore.journal_schema import SCHEMA
from kvstore.node.journal import WRITE_PAUSE_S
from kvstore.node.journal_files import JournalFiles
from transport.messages import Machine

WRITE_PAUSE_MS = 1_000.0 * WRITE_PAUSE_S

TORN_SHARE = 0.25
"""How often a process that is killed with unwritten events leaves a part of a line."""

_BYTES_MAX = 1 << 30
_FILE_BYTES_MAX = 1 << 20

_encode = json.JSONEncoder(separators=(",", ":")).encode


class NodeClocks(NamedTuple):
    """What the clocks of one node's machine show when the run begins, in milliseconds."""

    monotonic_ms: float
    wall_ms: float


class _Event(NamedTuple):
    """Something that is to be written: what makes its records, or None where an incarnation begins."""

    at_ms: float
    make: Callable[..., Iterable[dict[str, Any]]] | None
    arguments: tuple[Any, ...]


class SimulatedJournal:
    """The journal of one process, from its start until it is killed or the run ends (`JournalPort`)."""

    lost = 0
    """No event is lost to a full queue or a full disk."""

    def __init__(
        self, directory: Path, clocks: NodeClocks, random: Random, now: Callable[[], float], loses: bool = True
    ) -> None:
        """`loses` says whether events are lost when the process is killed."""
        self._files = JournalFiles(directory, _BYTES_MAX, _FILE_BYTES_MAX, file_s=60.0)
        self._clocks = clocks
        self._random = random
        self._now = now
        self._loses = loses
        self._started_at = now()
        self._waiting: deque[_Event] = deque()
        self._head = ""

    # What a recorder calls

    def begin(self, me: Machine) -> None:
        self._waiting.append(_Event(self._now(), None, (me,)))

    def put(self, make: Callable[..., Iterable[dict[str, Any]]], *arguments: Any, weight: int = 1) -> None:
        self.settle()
        self._waiting.append(_Event(self._now(), make, arguments))

    # What the process around it calls

    def settle(self) -> None:
        """Writes what the thread has written by now. To be called before the process is stopped, too: the thread
        is stopped with it."""
        pauses = floor((self._now() - self._started_at) / WRITE_PAUSE_MS)
        self._write_before(self._started_at + pauses * WRITE_PAUSE_MS)

    def kill(self, is_stopped: bool) -> None:
        """Ends with the process, which may have been stopped before."""
        if not self._loses:
            self._write_before(float("inf"))
        elif not is_stopped:
            self.settle()
        if self._waiting and self._random.random() < TORN_SHARE:
            self._tear()
        self._abandon()

    def end(self, is_finished: bool) -> None:
        """Ends with the run. The last file is finished, as after an orderly stop, or still being written."""
        self._write_before(float("inf"))
        if is_finished:
            self._files.finish()
        else:
            self._abandon()

    # The thread

    def _write_before(self, at_ms: float) -> None:
        lines: list[str] = []
        while self._waiting and self._waiting[0].at_ms < at_ms:
            event = self._waiting.popleft()
            if event.make is None:
                self._append(lines)
                lines = []
                self._begin(*event.arguments)
            else:
                lines += self._lines(event)
        self._append(lines)

    def _begin(self, me: Machine) -> None:
        self._head = f'{{"version":{SCHEMA.version},"node":{_encode(me.name)},"incarnation":{me.incarnation},'
        self._files.begin(me.incarnation)

    def _lines(self, event: _Event) -> list[str]:
        assert event.make is not None
        monotonic_ms, wall_ms = self._clocks.monotonic_ms + event.at_ms, self._clocks.wall_ms + event.at_ms
        times = f'"monotonic_ms":{monotonic_ms:.3f},"wall_ms":{wall_ms:.3f},'
        return [f"{self._head}{times}{_encode(fields)[1:]}\n" for fields in event.make(*event.arguments)]

    def _append(self, lines: list[str]) -> None:
        if lines:
            self._files.append("".join(lines).encode(), self._now() / 1_000.0)

    def _tear(self) -> None:
        """Writes a part of the first line that is lost."""
        while self._waiting and self._waiting[0].make is None:
            self._begin(*self._waiting.popleft().arguments)
        lines = self._lines(self._waiting[0]) if self._waiting else []
        if lines:
            data = lines[0].encode()
            self._files.append(data[: self._random.randrange(1, len(data))], self._now() / 1_000.0)

    def _abandon(self) -> None:
        """Leaves the file as it is, as a process that is no more."""
        descriptor, self._files._descriptor = self._files._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
