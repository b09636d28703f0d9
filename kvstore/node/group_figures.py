"""How often the group changes, why, and how long a node is without a primary component because of that."""

from __future__ import annotations

from collections import Counter

from corel import Stage, StageChanged
from kvstore.histogram import Histogram
from membership import MembershipEvent
from transport import Journal, View, ViewId

CHANGE_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""Bounds for what takes a second or two when all is well, and as long as a partition when it is not."""

_START = "start"
_AWAY = "away"
_IDLE = "idle"


class GroupFigures:
    """Counts of one node, over all its incarnations. Reasons are those of the journal."""

    def __init__(self) -> None:
        self.view_changes: Counter[str] = Counter()
        """By what made this node look for another view."""
        self.primary_losses: Counter[str] = Counter()
        """By the same, or `away` if this node left because of its disk."""
        self.stage_changes: Counter[tuple[str, str]] = Counter()
        """By stage and cause."""
        self.suspicions: Counter[str] = Counter()
        """By cause."""
        self.stuck_windows = 0
        self.merges = Histogram(CHANGE_SECONDS)
        """From a view with new members to a primary component."""
        self.outages = Histogram(CHANGE_SECONDS)
        """From the loss of a primary component, or the start, to the next primary component."""
        self._reason: str | None = None
        """What began the change of view that is under way."""
        self._stage_and_view: tuple[Stage, ViewId] | None = None
        self._is_primary = False
        self._without_primary_since: float | None = None
        self._merging_since: float | None = None

    def begin(self, now: float) -> None:
        """Begins an incarnation. Times are in seconds."""
        self._reason = self._merging_since = self._stage_and_view = None
        if self._without_primary_since is None:
            self._without_primary_since = now

    def end(self, now: float) -> None:
        """Ends an incarnation, whose disk failed."""
        if self._is_primary:
            self._lose_primary(_AWAY, now)

    def membership_event(self, entry: Journal) -> None:
        if entry.event is MembershipEvent.SUSPECTED:
            self.suspicions[str(entry.reason)] += 1
        elif entry.event is MembershipEvent.STAGE:
            if entry.details["stage"] == _IDLE:
                self._reason = None
            elif self._reason is None:
                self._reason = str(entry.reason)

    def view_changed(self, view: View, now: float) -> None:
        self.view_changes[self._reason or _START] += 1
        if len(view.members) > len(view.transitional) and self._merging_since is None:
            self._merging_since = now

    def stage_changed(self, change: StageChanged, now: float) -> None:
        if (change.stage, change.view) != self._stage_and_view:  # else the node is bound to a generation now
            self._stage_and_view = (change.stage, change.view)
            self.stage_changes[str(change.stage), str(change.cause)] += 1
        is_primary = change.stage is Stage.PRIMARY
        if is_primary and not self._is_primary:
            self._gain_primary(now)
        elif self._is_primary and not is_primary:
            self._lose_primary(self._reason or _START, now)
        if change.stage is Stage.NON_PRIMARY:
            self._merging_since = None

    def _gain_primary(self, now: float) -> None:
        self._is_primary = True
        if self._without_primary_since is not None:
            self.outages.observe(now - self._without_primary_since)
        if self._merging_since is not None:
            self.merges.observe(now - self._merging_since)
        self._without_primary_since = self._merging_since = None

    def _lose_primary(self, reason: str, now: float) -> None:
        self._is_primary = False
        self.primary_losses[reason] += 1
        self._without_primary_since = now

    def seconds_without_primary(self, now: float) -> float:
        since = self._without_primary_since
        return 0.0 if since is None else now - since
