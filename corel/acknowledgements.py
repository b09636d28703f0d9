"""Which member has which messages on disk, in one view: the acknowledgements of Order Rule 1, as watermarks.

A member reports, for every member of the view, up to which of that member's messages everything is on its own
disk. A report may be lost and need not be followed by another, so a node that has waited too long asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from corel.messages import Entry
from transport import AT_ONCE, NEVER, Machine, Milliseconds, View

_SOLICIT_MS_MAX = 100.0


class Acknowledgements:
    """What one member of a view knows of the disks of all members, its own included."""

    def __init__(self, me: Machine, view: View, solicit_after_ms: Milliseconds) -> None:
        self._me = me
        self._view = view
        self.place = {member: place for place, member in enumerate(view.members)}
        """The index of each member in any list of marks."""
        self._marks = {member: [0] * len(view.members) for member in view.members}
        self._solicit_after_ms = solicit_after_ms
        self._solicit_ms = solicit_after_ms
        self._waits_since: Milliseconds | None = None
        self._has_progressed = False

    def heard(self, machine: Machine, marks: Sequence[int]) -> bool:
        """Takes in a member's marks. Returns whether they say more than was known."""
        known = self._marks.get(machine)
        if known is None or all(new <= old for new, old in zip(marks, known, strict=True)):
            return False
        self._marks[machine] = [max(pair) for pair in zip(marks, known, strict=True)]
        return True

    def logged_here(self, points: Mapping[Machine, int]) -> tuple[int, ...]:
        """Records how far this node's own disk has come. Returns the marks to report to the other members."""
        own = self._marks[self._me]
        for machine, carrier in points.items():
            own[self.place[machine]] = max(own[self.place[machine]], carrier)
        return tuple(own)

    def everywhere(self) -> list[int]:
        """Returns, for each member by its place, up to which of its messages every member has logged."""
        return [min(column) for column in zip(*self._marks.values(), strict=True)]

    def by_all(self, machine: Machine) -> int:
        """Returns up to which of this member's messages every member has logged."""
        place = self.place[machine]
        return min(marks[place] for marks in self._marks.values())

    def of(self, entry: Entry) -> tuple[Machine, ...]:
        """Returns the members known to have logged a message; none if it is not of this view."""
        if not entry.carrier or entry.view != self._view.id:
            return ()
        place = self.place[entry.id.stream]
        return tuple(member for member in self._view.members if self._marks[member][place] >= entry.carrier)

    # Soliciting

    def progressed(self) -> None:
        """Notes that there was progress: the wait before asking begins anew."""
        self._has_progressed = True

    def tick(self, now: Milliseconds, is_waiting: bool) -> tuple[Machine, ...]:
        """Returns the members to ask: once the wait has been too long, those whose marks are not the highest
        known. Each further wait is twice as long, up to a maximum."""
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
            return NEVER
        return AT_ONCE if self._waits_since is None else self._waits_since + self._solicit_ms
