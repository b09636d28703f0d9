"""How much a node does: samples of the last minutes, one each second, for the charts of the console.

The node takes them whether or not anybody looks, so that a console shows the last minutes when it is opened. A
sample costs some microseconds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from itertools import islice

from api.answers import to_json
from kvstore.node import Node

SAMPLE_SECONDS = 1.0
SAMPLES_MAX = 300
"""Five minutes."""


class Figures:
    """The last samples of a node."""

    def __init__(self, node: Node) -> None:
        self.count = 0
        """How many samples have been taken."""
        self._node = node
        self._samples: deque[str] = deque(maxlen=SAMPLES_MAX)
        self._last = (time.monotonic(), 0)

    async def run(self) -> None:
        """Takes samples until it is cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self.take()

    def take(self) -> None:
        now, summary = time.monotonic(), self._node.metrics.summary()
        seconds, writes = now - self._last[0], summary.operations_green - self._last[1]
        self._last = (now, summary.operations_green)
        sample = {
            "time_ms": round(time.time() * 1_000.0),
            "writes_per_s": round(writes / seconds, 1) if seconds > 0.0 else 0.0,
            "time_to_green_ms": _rounded(summary.time_to_green_p50_ms),
            "time_to_green_p99_ms": _rounded(summary.time_to_green_p99_ms),
            "sync_ms": _rounded(summary.sync_p50_ms),
            "sync_p99_ms": _rounded(summary.sync_p99_ms),
            "red": summary.red_backlog,
            "loop_lag_ms": _rounded(summary.loop_lag_ms),
        }
        self._samples.append(to_json(sample))
        self.count += 1

    def after(self, number: int) -> str:
        """Returns the samples that are kept and came after this many, as JSON."""
        new = min(self.count - number, len(self._samples))
        return f"[{','.join(islice(self._samples, len(self._samples) - new, None))}]"


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)
