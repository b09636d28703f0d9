"""How far this node's clock has come, on disk: a restarted node begins above it.

View ids are timestamps, so they ascend across restarts if clocks do. The clock is not written for every tick: a
block of it is reserved ahead, and only a view beyond the block makes the next reservation, before it is reported.
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
        """There is a view of this clock. Blocks for a sync when the block is used up."""
        if clock >= self._reserved:
            self._reserved = clock + CLOCK_BLOCK
            write_number(self._path, self._reserved)
