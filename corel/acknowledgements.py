"""Who has what on disk, in one view: the acknowledgements of Order Rule 1, as watermarks.

A member tells, for every member of the view, up to which of its messages everything is on the teller's disk. What
is told may get lost, as nothing follows it by itself; whoever waits for too long asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corel.messages import Entry
from transport.messages import Machine, Milliseconds, View

_NEVER = float("inf")
_AT_ONCE = float("-inf")
_SOLICIT_MS_MAX = 100.0


class Acknowledgements:
    """What one member of a view knows of everybody's disk, its own included."""

    def __init__(self, me: Machine, view: View, solicit_after_ms: Milliseconds) -> None:
        self._me = me
        self._view = view
        self.place = {member: place for place, member in enumerate(view.members)}
        """Of a member, in any list of marks."""
        self._marks = {member: [0] * len(view.members) for member in view.members}
        self._solicit_after_ms = solicit_after_ms
        self._solicit_ms = solicit_after_ms
        self._waits_since: Milliseconds | None = None
        self._has_progressed = False

    def heard(self, machine: Machine, marks: Sequence[int]) -> bool:
        """Whether that is news."""
        known = self._marks.get(machine)
        if known is None or all(new <= old for new, old in zip(marks, known, strict=True)):
            return False
        self._marks[machine] = [max(pair) for pair in zip(marks, known, strict=True)]
        return True

    def logged_here(self, points: Mapping[Machine, int]) -> tuple[int, ...]:
        """Our own disk has come so far. Returns what to tell the others."""
        own = self._marks[self._me]
        for machine, carrier in points.items():
            own[self.place[machine]] = max(own[self.place[machine]], carrier)
        return tuple(own)

    def everywhere(self) -> list[int]:
        """Up to where everybody has logged, by place."""
        return [min(column) for column in zip(*self._marks.values(), strict=True)]

    def by_all(self, machine: Machine) -> int:
        """Up to which of this member's messages everybody has logged."""
        place = self.place[machine]
        return min(marks[place] for marks in self._marks.values())

    def of(self, entry: Entry) -> tuple[Machine, ...]:
        """The members known to have logged a message of this view."""
        if not entry.carrier or entry.view != self._view.id:
            return ()
        place = self.place[entry.id.stream]
        return tuple(member for member in self._view.members if self._marks[member][place] >= entry.carrier)

    # Asking for them

    def progressed(self) -> None:
        """There is no reason to ask for now."""
        self._has_progressed = True

    def tick(self, now: Milliseconds, is_waiting: bool) -> tuple[Machine, ...]:
        """Whom to ask."""
        if not is_waiting:
            self._waits_since = None
        elif self._waits_since is None or self._has_progressed:
            self._waits_since, self._has_progressed = now, False
            self._solicit_ms = self._solicit_after_ms
        elif now >= self._waits_since + self._solicit_ms:
            self._waits_since = now
            self._solicit_ms = min(2.0 * self._solicit_ms, _SOLICIT_MS_MAX)
            ahead = [max(column) for column in zip(*self._marks.values(), strict=True)]
            return tuple(m for m in self._view.members if self._marks[m] != ahead and m != self._me)
        return ()

    def next_deadline(self, is_waiting: bool) -> Milliseconds:
        if not is_waiting:
            return _NEVER
        return _AT_ONCE if self._waits_since is None else self._waits_since + self._solicit_ms
