"""A warning before the disk is full: in the node's status, and in its log at a bounded rate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from corel.lmdb_log import DiskUsage, LmdbLog

logger = logging.getLogger("corelkv")

WARNING_SHARE = 0.8
"""How much of the map or of the file system may be in use without a warning. A lower share leaves more time to
act; a higher one warns of fewer disks that are merely well used."""

CHECK_SECONDS = 10.0
"""How often a node looks at its disk by itself."""

WARN_SECONDS = 3_600.0
"""At most one log line in this time for each warning."""


def warnings_of(usage: DiskUsage) -> Mapping[str, str]:
    """Returns what is soon full, with a sentence that says what to do."""
    found = {}
    if usage.used_bytes >= WARNING_SHARE * usage.map_bytes:
        found["map"] = (
            f"The log and the state have {_share(usage.used_bytes, usage.map_bytes)} of log.map_bytes "
            f"({usage.used_bytes:,} of {usage.map_bytes:,} bytes). Raise it on every node and restart them one by "
            "one, before no node takes writes any more."
        )
    taken = usage.file_system_bytes - usage.free_bytes
    if usage.file_system_bytes and taken >= WARNING_SHARE * usage.file_system_bytes:
        found["file_system"] = (
            f"The file system of the data directory is {_share(taken, usage.file_system_bytes)} full "
            f"({usage.free_bytes:,} bytes are free). Make room, before this node takes no writes any more."
        )
    return found


def _share(part: int, whole: int) -> str:
    return f"{100 * part // whole} %"


class DiskWatch:
    """Looks at one node's disk now and then, on its event loop."""

    def __init__(self, log: LmdbLog) -> None:
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._warned_at: dict[str, float] = {}

    def start(self) -> None:
        self.check(time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(CHECK_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self, now: float) -> None:
        """Logs the warnings that have not been logged for a while, and frees what readers that died had used."""
        self._log.forget_dead_readers()
        for what, sentence in warnings_of(self._log.usage()).items():
            if now - self._warned_at.get(what, -WARN_SECONDS) >= WARN_SECONDS:
                self._warned_at[what] = now
                logger.warning("%s", sentence)
