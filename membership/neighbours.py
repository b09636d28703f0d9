"""Which machines are in reach and which of them hear each other, as heartbeats of members and foreign ones say.

A join is attempted only between views all of whose members hear each other, both ways, and have for a while. Links
that are one-way or not transitive then leave a stable set of views, in each of which every pair hears each other,
instead of views that merge and break for ever.

A machine that has to back off is also left out of what our heartbeats say we hear. It then knows that we would not
answer, and neither it nor its members ask in vain.

A machine whose log is far behind ours, or ours behind its, is treated in the same way: all members of a view would
wait until the one that is behind has caught up, so it is brought up outside the view first. Members are not parted
by this.
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.config import MembershipConfig
from membership.messages import NO_PROGRESS, Machines, Presence, Progress
from transport import NEVER, Machine, Milliseconds, ViewId

_HEARTBEATS = 5.0
"""A machine is in reach as long as one of so many heartbeats arrives. The suspicion time may be shorter, because a
silent machine is probed before it is suspected; machines that are not members are not probed, and a join between
many would seldom come about on a network that loses datagrams if each of them had to be heard more often."""


class _Neighbour:
    __slots__ = ("heard_at", "heard_by_it", "presence")

    def __init__(self, now: Milliseconds) -> None:
        self.heard_at = now
        self.presence: Presence | None = None
        self.heard_by_it: frozenset[Machine] = frozenset()


class Neighbours:
    """The machines that have been heard, and what their last heartbeats said."""

    def __init__(self, me: Machine, config: MembershipConfig) -> None:
        self._me = me
        self._config = config
        self.progress = NO_PROGRESS
        """How far the layer above has got at this machine."""
        self._neighbours: dict[Machine, _Neighbour] = {}
        self._newest: dict[str, int] = {me.name: me.incarnation}
        self._mutual_since: dict[ViewId, Milliseconds] = {}
        self._back_off: dict[Machine, tuple[float, Milliseconds]] = {}
        """How long a machine has to back off, and until when."""

    def heard(self, machine: Machine, now: Milliseconds) -> bool:
        """Notes that a datagram of this machine has arrived. Returns False if it is of an older incarnation."""
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
        """When the last datagram of this machine arrived; minus infinity if the machine is not known."""
        neighbour = self._neighbours.get(machine)
        return neighbour.heard_at if neighbour is not None else float("-inf")

    def update(self, machine: Machine, presence: Presence) -> bool:
        """Takes a heartbeat. One of an earlier view than the last, which the network has delayed, says nothing
        that is still so. Returns whether the machine's view, or whom it hears, has changed."""
        neighbour = self._neighbours.get(machine)
        if neighbour is None or self.has_left(machine, presence.view):
            return False
        last = neighbour.presence
        neighbour.presence = presence
        if last is not None and (last.view, last.heard) == (presence.view, presence.heard):
            return False
        neighbour.heard_by_it = frozenset(presence.heard)
        return True

    def heard_lately(self, now: Milliseconds) -> Machines:
        """Returns the machines that have been heard within `suspect_after_ms`, or five heartbeats."""
        horizon = now - max(self._config.suspect_after_ms, _HEARTBEATS * self._config.presence_ms)
        return tuple(sorted(m for m, neighbour in self._neighbours.items() if neighbour.heard_at >= horizon))

    def view_of(self, machine: Machine) -> ViewId | None:
        """The view that the machine's last heartbeat named; None if there was no heartbeat."""
        neighbour = self._neighbours.get(machine)
        return neighbour.presence.view if neighbour is not None and neighbour.presence is not None else None

    def has_left(self, machine: Machine, view: ViewId) -> bool:
        """Whether the machine's heartbeat names a later view than this. One that names an earlier view says only
        that a newer heartbeat has not arrived yet."""
        named = self.view_of(machine)
        return named is not None and named > view

    def willing(self, needed: frozenset[Machine], now: Milliseconds) -> Machines:
        """Returns the machines that have been heard lately, but not those that have to back off or are out of
        reach: a heartbeat that leaves them out tells them not to ask. `needed` are not left out: with those we are
        in a view or a join."""
        return tuple(m for m in self.heard_lately(now) if m in needed or not self._is_refused(m, now))

    def furthest_ahead(self, needed: frozenset[Machine], now: Milliseconds) -> tuple[Machine, Progress] | None:
        """Returns the machine that has got furthest of those that were heard lately and that this one is behind,
        `needed` excepted, and how far it has got; None if there is none."""
        ahead = [
            (machine, progress)
            for machine in self.heard_lately(now)
            if machine not in needed
            and (progress := self._progress_of(machine)) is not None
            and self.progress.is_behind(progress)
        ]
        return max(ahead, key=lambda item: (item[1].epoch, item[1].line), default=None)

    def presence_of(self, machine: Machine) -> Presence | None:
        neighbour = self._neighbours.get(machine)
        return neighbour.presence if neighbour is not None else None

    def are_mutual(self, ours: Iterable[Machine], theirs: Iterable[Machine], now: Milliseconds) -> bool:
        """Whether every machine of one side and every machine of the other hear each other, as far as their
        heartbeats say, and are in reach of each other, and none of the other side has to back off after a failed
        join."""
        theirs = list(theirs)
        lately = frozenset(self.heard_lately(now))
        for foreign in theirs:
            if self._newest.get(foreign.name) != foreign.incarnation or self._is_waiting(foreign, now):
                return False
            for member in ours:
                if not (self._hears(member, foreign, lately) and self._hears(foreign, member, lately)):
                    return False
                if self._are_out_of_reach(member, foreign):
                    return False
        return bool(theirs)

    def joinable(self, members: frozenset[Machine], now: Milliseconds) -> list[ViewId]:
        """Returns the foreign views whose members and ours have heard each other for `foreign_stable_ms`."""
        views: dict[ViewId, Machines] = {}
        lately = self.heard_lately(now)
        for machine in lately:
            presence = self._neighbours[machine].presence
            if machine not in members and presence is not None and members.isdisjoint(presence.members):
                views[presence.view] = presence.members
        mutual = {view: now for view, machines in views.items() if self._is_whole(view, machines, members, now)}
        self._mutual_since = {view: self._mutual_since.get(view, since) for view, since in mutual.items()}
        return [view for view in self._mutual_since if self._stable_at(view) <= now]

    def next_joinable_at(self, now: Milliseconds) -> Milliseconds:
        """When the next foreign view will be joinable, if the members of both keep hearing each other."""
        return min([at for at in map(self._stable_at, self._mutual_since) if at > now], default=NEVER)

    def back_off(self, machines: Iterable[Machine], now: Milliseconds) -> None:
        """Makes machines back off that joined and were gone soon, or were to join and did not. Each back-off of a
        machine is longer than its last, unless that is long past."""
        for machine in machines:
            last_ms, until = self._back_off.get(machine, (0.0, float("-inf")))
            wait_ms = self._config.back_off_ms
            if now < until + 10.0 * last_ms:
                wait_ms = min(2.0 * last_ms, self._config.back_off_ms_max)
            self._back_off[machine] = (wait_ms, now + wait_ms)
        if len(self._back_off) > self._config.machines_max:
            self._back_off = {m: entry for m, entry in self._back_off.items() if entry[1] > now}

    def _is_whole(self, view: ViewId, machines: Machines, members: frozenset[Machine], now: Milliseconds) -> bool:
        """Whether all members of the foreign view say that they are in it, and they and all of ours hear each
        other."""
        return all(self.view_of(machine) == view for machine in machines) and self.are_mutual(
            members, machines, now
        )

    def _stable_at(self, view: ViewId) -> Milliseconds:
        return self._mutual_since[view] + self._config.foreign_stable_ms

    def _is_waiting(self, machine: Machine, now: Milliseconds) -> bool:
        return now < self._back_off.get(machine, (0.0, float("-inf")))[1]

    def _is_refused(self, machine: Machine, now: Milliseconds) -> bool:
        """Whether we would not join this machine now, even if it hears us."""
        return self._is_waiting(machine, now) or self._are_out_of_reach(self._me, machine)

    def _are_out_of_reach(self, member: Machine, foreign: Machine) -> bool:
        """Whether one of the two is too far behind the other. If nothing is known of a machine yet, it is in
        reach."""
        here, there = self._progress_of(member), self._progress_of(foreign)
        return here is not None and there is not None and not here.is_in_reach_of(there)

    def _progress_of(self, machine: Machine) -> Progress | None:
        """How far the layer above has got at a machine, as its last heartbeat says; None if there was none."""
        if machine == self._me:
            return self.progress
        presence = self.presence_of(machine)
        return presence.progress if presence is not None else None

    def _hears(self, listener: Machine, speaker: Machine, lately: frozenset[Machine]) -> bool:
        if listener == self._me:
            return speaker in lately
        if listener not in lately:
            return False
        return speaker in self._neighbours[listener].heard_by_it
