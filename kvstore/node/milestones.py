"""The last milestones of a node: its views, its stages, and the phases of establishing a primary component.

They are what people look at when they ask what has just happened. The journal has them too, with everything else,
but in files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from corel import CorelEvent
from membership import MembershipEvent
from transport import Journal

MILESTONES_MAX = 256
"""How many are kept: some twenty changes of the view."""

_KEPT = frozenset[str](
    {
        MembershipEvent.SUSPECTED,
        MembershipEvent.VIEW,
        CorelEvent.STAGE,
        CorelEvent.STATES_EXCHANGED,
        CorelEvent.RETRANSMITTING,
        CorelEvent.MERGED,
        CorelEvent.DEMOTED,
        CorelEvent.ATTEMPTED,
        CorelEvent.COMMITTED,
        CorelEvent.ABORTED,
        CorelEvent.VOTER,
        CorelEvent.CONTRADICTED,
        CorelEvent.VOTE_DOUBTED,
    }
)


class Milestone(NamedTuple):
    number: int
    """Counts from 1 since the process started."""
    time_ms: float
    """By the wall clock."""
    event: str
    view: str
    reason: str
    details: Mapping[str, object]


class Milestones:
    """The last milestones of all incarnations in this process."""

    def __init__(self) -> None:
        self.count = 0
        """How many there have been, those that are no longer kept too."""
        self._kept: deque[Milestone] = deque(maxlen=MILESTONES_MAX)

    def note(self, entry: Journal) -> None:
        """Keeps an entry of the journal if it is a milestone."""
        if entry.event in _KEPT:
            self.count += 1
            now_ms = time.time() * 1_000.0
            details = {name: value for name, value in entry.details.items() if name != "ids"}  # may be many
            self._kept.append(
                Milestone(self.count, now_ms, str(entry.event), entry.id, str(entry.reason), details)
            )

    def after(self, number: int) -> list[Milestone]:
        """Returns those that are kept and came after the one of this number."""
        new = min(self.count - number, len(self._kept))
        return list(islice(self._kept, len(self._kept) - new, None)) if new > 0 else []
