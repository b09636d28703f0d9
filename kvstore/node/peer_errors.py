"""Peers' errors: each is counted, and logged at a bounded rate."""

from __future__ import annotations

import logging
import time
from collections import Counter
from enum import StrEnum

from transport import AT_ONCE

logger = logging.getLogger("corelkv")

LOG_SECONDS = 10.0
"""At most one log line in this time for each kind of error; the line says how many there were."""


class PeerErrors:
    """The errors of one node's peers."""

    def __init__(self) -> None:
        self.counts: Counter[StrEnum] = Counter()
        self._logged: dict[StrEnum, tuple[float, int]] = {}

    def note(self, reason: StrEnum, what: str) -> int:
        """Counts an error. Returns, if it was logged, which is seldom when there are many, how many there were
        since the last that was; else 0."""
        self.counts[reason] += 1
        now = time.monotonic()
        last_at, last_count = self._logged.get(reason, (AT_ONCE, 0))
        if now - last_at < LOG_SECONDS:
            return 0
        count = self.counts[reason]
        self._logged[reason] = (now, count)
        logger.warning("dropped %d datagrams or frames (%s), the last %s", count - last_count, reason, what)
        return count - last_count
