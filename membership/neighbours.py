"""Who is out there, and who hears whom: from everybody's heartbeats, foreign machines' too.

A join is attempted only between views all of whose members hear each other, both ways, and have for a while. Links
that are one-way or not transitive then leave a stable set of views, in each of which every pair hears each other,
instead of views that merge and break for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.config import MembershipConfig
from membership.messages import Machines, Presence
from transport.messages import Machine, Milliseconds, ViewId


class _Neighbour:
    __slots__ = ("heard_at", "heard_by_it", "presence")

    def __init__(self, now: Milliseconds) -> None:
        self.heard_at = now
        self.presence: Presence | None = None
        self.heard_by_it: frozenset[Machine] = frozenset()


class Neighbours:
    """Every machine heard lately."""

    def __init__(self, me: Machine, config: MembershipConfig) -> None:
        self._me = me
        self._config = config
        self._neighbours: dict[Machine, _Neighbour] = {}
        self._newest: dict[str, int] = {me.name: me.incarnation}
        self._mutual_since: dict[ViewId, Milliseconds] = {}
        self._back_off: dict[Machine, tuple[float, Milliseconds]] = {}
        """How long a machine has to wait, and until when."""

    def heard(self, machine: Machine, now: Milliseconds) -> bool:
        """A datagram of this machine is here. Returns whether it is that machine's newest incarnation."""
        neighbour = self._neighbours.get(machine)
        if neighbour is not None:
            neighbour.heard_at = now
            return True
        newest = self._newest.get(machine.name, -1)
        if machine.incarnation < newest:
            return False
        self._newest[machine.name] = machine.incarnation
        self._neighbours.pop(Machine(machine.name, newest), None)
        self._neighbours[machine] = _Neighbour(now)
        if len(self._neighbours) > self._config.machines_max:
            quietest = min(self._neighbours, key=lambda other: self._neighbours[other].heard_at)
            del self._neighbours[quietest]
            self._newest.pop(quietest.name, None)
        return True

    def heard_at(self, machine: Machine) -> Milliseconds:
        """When a datagram of this machine last came; never, if it is not known."""
        neighbour = self._neighbours.get(machine)
        return neighbour.heard_at if neighbour is not None else float("-inf")

    def update(self, machine: Machine, presence: Presence) -> None:
        neighbour = self._neighbours.get(machine)
        if neighbour is not None:
            neighbour.presence = presence
            neighbour.heard_by_it = frozenset(presence.heard)

    def heard_lately(self, now: Milliseconds) -> Machines:
        horizon = now - self._config.suspect_after_ms
        return tuple(sorted(m for m, neighbour in self._neighbours.items() if neighbour.heard_at >= horizon))

    def view_of(self, machine: Machine) -> ViewId | None:
        """The view it last said it was in."""
        neighbour = self._neighbours.get(machine)
        return neighbour.presence.view if neighbour is not None and neighbour.presence is not None else None

    def presence_of(self, machine: Machine) -> Presence | None:
        neighbour = self._neighbours.get(machine)
        return neighbour.presence if neighbour is not None else None

    def are_mutual(self, ours: Iterable[Machine], theirs: Iterable[Machine], now: Milliseconds) -> bool:
        """Whether everybody of one side hears everybody of the other, as far as they have said, and nobody has to
        wait after a failed join."""
        theirs = list(theirs)
        lately = frozenset(self.heard_lately(now))
        for foreign in theirs:
            if self._newest.get(foreign.name) != foreign.incarnation or self._is_waiting(foreign, now):
                return False
            for member in ours:
                if not (self._hears(member, foreign, lately) and self._hears(foreign, member, lately)):
                    return False
        return bool(theirs)

    def joinable(self, members: frozenset[Machine], now: Milliseconds) -> list[ViewId]:
        """The foreign views that have been mutual with ours for long enough."""
        views: dict[ViewId, Machines] = {}
        lately = self.heard_lately(now)
        for machine in lately:
            presence = self._neighbours[machine].presence
            if machine not in members and presence is not None and members.isdisjoint(presence.members):
                views[presence.view] = presence.members
        mutual = {view: now for view, machines in views.items() if self._is_whole(view, machines, members, now)}
        self._mutual_since = {view: self._mutual_since.get(view, since) for view, since in mutual.items()}
        stable_ms = self._config.foreign_stable_ms
        return [view for view, since in self._mutual_since.items() if now - since >= stable_ms]

    def penalize(self, machines: Iterable[Machine], now: Milliseconds) -> None:
        """These joined and were gone at once, or never came: they have to wait, longer each time."""
        for machine in machines:
            last_ms, until = self._back_off.get(machine, (0.0, float("-inf")))
            wait_ms = self._config.back_off_ms
            if now < until + 10.0 * last_ms:
                wait_ms = min(2.0 * last_ms, self._config.back_off_ms_max)
            self._back_off[machine] = (wait_ms, now + wait_ms)
        if len(self._back_off) > self._config.machines_max:
            self._back_off = {m: entry for m, entry in self._back_off.items() if entry[1] > now}

    def _is_whole(self, view: ViewId, machines: Machines, members: frozenset[Machine], now: Milliseconds) -> bool:
        """Whether all its members say that they are in it, and are mutual with all of ours."""
        return all(self.view_of(machine) == view for machine in machines) and self.are_mutual(
            members, machines, now
        )

    def _is_waiting(self, machine: Machine, now: Milliseconds) -> bool:
        return now < self._back_off.get(machine, (0.0, float("-inf")))[1]

    def _hears(self, listener: Machine, speaker: Machine, lately: frozenset[Machine]) -> bool:
        if listener == self._me:
            return speaker in lately
        if listener not in lately:
            return False
        return speaker in self._neighbours[listener].heard_by_it
