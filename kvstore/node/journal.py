"""The journal's thread: encodes what has happened, one JSON object per line, and writes it in few, large writes.

The event loop only appends a small tuple to a bounded queue, without waking anybody: the thread looks ten times a
second. A journal that cannot keep up, or whose disk is full or stalls, loses events and counts them, and says so
in a `gap` record when it writes again; it never holds up or stops the node."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from kvstore.journal_schema import SCHEMA
from kvstore.node.journal_files import JournalFiles
from transport import Machine

logger = logging.getLogger("corelkv")

QUEUE_MESSAGES_MAX = 262_144
"""How many events may wait to be written, where an event counts as many times as it names messages. What one event
holds is some hundred bytes a message, so this bounds memory to some 50 MB while the disk stalls."""

WRITE_PAUSE_S = 0.1
"""How often the thread writes. A process that is killed loses what it has not written."""

WRITE_BYTES = 262_144
"""When so much is encoded, it is written before more is."""

TURN_RECORDS = 16
"""After so many records the thread offers the GIL to the event loop, which would otherwise wait for it up to the
interpreter's switch interval."""

COMPLAIN_S = 10.0
"""At most one log line in this time about events that could not be written."""

Fields: TypeAlias = dict[str, Any]
"""One record, but for the fields that all have. `event` comes first."""

Make: TypeAlias = Callable[..., Iterable[Fields]]
"""Makes the records of an event, in the thread."""

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class JournalWriter:
    """The journal of one process. `put` and `begin` are called on the event loop, or wherever, one at a time."""

    def __init__(self, files: JournalFiles, queue_messages_max: int = QUEUE_MESSAGES_MAX) -> None:
        self._files = files
        self._queue_messages_max = queue_messages_max
        self._queue: deque[tuple[Make | None, float, float, tuple[Any, ...], int]] = deque()
        self._put_weight = 0
        """Of everything ever queued. Only `put` changes it, and only the thread `_taken_weight`: no lock."""
        self._taken_weight = 0
        self._lost_to_queue = 0
        self._lost_to_disk = 0
        self._lost_told = 0
        """How many of the lost events a `gap` record has told of."""
        self._head = ""
        """The beginning of every record."""
        self._complained_at = float("-inf")
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="corelkv-journal", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many events were not written, because the queue or the disk was full."""
        return self._lost_to_queue + self._lost_to_disk

    def begin(self, me: Machine) -> None:
        """Begins the journal of an incarnation: what follows is of this machine."""
        self._queue.append((None, 0.0, 0.0, (me,), 0))

    def put(self, make: Make, *arguments: Any, weight: int = 1) -> None:
        """Queues an event that happens now. `make` is called with the arguments in the thread; what they refer to
        must not change meanwhile, nor hold much memory. `weight` is how many messages they name."""
        if self._put_weight - self._taken_weight >= self._queue_messages_max:
            self._lost_to_queue += 1
            return
        self._put_weight += weight
        self._queue.append((make, time.monotonic(), time.time(), arguments, weight))

    def stop(self) -> None:
        """Ends the thread when it has written what is queued. Does not wait for it: its disk may be stuck."""
        self._is_stopping = True
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Waits for the thread to end; returns whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    # In the thread

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(WRITE_PAUSE_S)
            self._write_queued()
        self._write_queued()  # what came while it wrote
        self._attempt(self._files.finish)

    def _write_queued(self) -> None:
        lines: list[str] = []
        events = size = since_turn = 0
        while self._queue:
            make, monotonic, wall, arguments, weight = self._queue.popleft()
            if make is None:
                self._write(lines, events)
                lines, events, size = [], 0, 0
                self._begin(*arguments)
                continue
            times = f'"monotonic_ms":{monotonic * 1_000.0:.3f},"wall_ms":{wall * 1_000.0:.3f},'
            events += 1
            for fields in make(*arguments):
                line = f"{self._head}{times}{_encode(fields)[1:]}\n"
                lines.append(line)
                size += len(line)
                since_turn += 1
                if since_turn >= TURN_RECORDS:
                    since_turn = 0
                    time.sleep(0.0)
            self._taken_weight += weight
            if size >= WRITE_BYTES:
                self._write(lines, events)
                lines, events, size = [], 0, 0
        self._write(lines, events)
        self._attempt(lambda: self._files.finish_if_old(time.monotonic()))

    def _begin(self, me: Machine) -> None:
        name = json.dumps(me.name)
        self._head = f'{{"version":{SCHEMA.version},"node":{name},"incarnation":{me.incarnation},'
        self._attempt(lambda: self._files.begin(me.incarnation))

    def _write(self, lines: list[str], events: int) -> None:
        if not lines:
            return
        lost = self.lost
        if lost > self._lost_told:
            lines.insert(0, self._gap(lost - self._lost_told))
        if self._attempt(lambda: self._files.append("".join(lines).encode(), time.monotonic())):
            self._lost_told = lost
        else:
            self._lost_to_disk += events

    def _gap(self, count: int) -> str:
        times = f'"monotonic_ms":{time.monotonic() * 1_000.0:.3f},"wall_ms":{time.time() * 1_000.0:.3f},'
        return f'{self._head}{times}"event":"gap","count":{count}}}\n'

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Takes a step that needs the disk; returns whether it succeeded."""
        try:
            step()
        except OSError as error:
            now = time.monotonic()
            if now - self._complained_at >= COMPLAIN_S:
                self._complained_at = now
                logger.warning(
                    "the journal cannot be written, and loses events (%d so far): %s. Make room, or mend it.",
                    self.lost,
                    error,
                )
            return False
        return True
