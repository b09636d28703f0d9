"""How far this node's clock has come, on disk: a restarted node begins above it.

Timestamps of messages and ids of views then ascend across restarts. The clock is not written for every tick: a
block of it is reserved ahead, and the next before anything leaves that is beyond it.
"""

from __future__ import annotations

from pathlib import Path

from transport.incarnation import IncarnationError, read_number, write_number

CLOCK_BLOCK = 2**24
"""Larger is written less often; every restart skips up to this much of the clock."""

_FILE = "clock"


class ClockFloor:
    """The reservation of one data directory, which must exist."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        try:
            self._reserved = read_number(self._path) or 1
        except ValueError as error:
            raise IncarnationError(
                f"{error}. If other nodes of the cluster run, remove the file: this node will take the clock over "
                "from them when it joins, but its views until then may be numbered below earlier ones."
            ) from None
        self.clock = self._reserved
        """Where to begin: above every view this node has had."""

    def raise_above(self, clock: int) -> None:
        """Something of this clock is about to leave. Blocks for a sync when the block is used up."""
        if clock >= self._reserved:
            self._reserved = clock + CLOCK_BLOCK
            write_number(self._path, self._reserved)
