"""Which machines have left: their heartbeats name another view than the one that we count on.

A member that is in another view, while no change is pending here, may still take us along, so it has some time. In
a change we give up at once on a machine that we wait for and that is in a view without us: it cannot agree any
more, and everybody who has agreed would wait with us until `response_ms` is over. This decides only when we break
with a machine, which the protocol allows at any time.
"""

from __future__ import annotations

from membership.config import MembershipConfig
from membership.neighbours import Neighbours
from membership.protocol import MembershipProtocol
from transport import Machine, Milliseconds


class Departures:
    """Since when each machine that we count on has been in another view."""

    def __init__(self, protocol: MembershipProtocol, neighbours: Neighbours, config: MembershipConfig) -> None:
        self._protocol = protocol
        self._neighbours = neighbours
        self._config = config
        self._departed_since: dict[Machine, Milliseconds] = {}
        self._escaped_since: dict[Machine, Milliseconds] = {}

    def from_view(self, now: Milliseconds) -> list[Machine]:
        """Returns the members whose heartbeats have named another view for `departed_ms`."""
        view = self._protocol.view
        departed = [
            machine
            for machine in view.members
            if machine != self._protocol.me and self._neighbours.view_of(machine) not in (None, view.id)
        ]
        self._departed_since = {machine: self._departed_since.get(machine, now) for machine in departed}
        return [m for m, since in self._departed_since.items() if now - since >= self._config.departed_ms]

    def from_change(self, now: Milliseconds) -> list[Machine]:
        """Returns the machines whose agreement we await in vain: for `escaped_ms` their heartbeats have named a
        later view than the change does, and one without us. A later view with us is the one that we are agreeing
        on: what we still lack of that agreement is on its way."""
        protocol, neighbours = self._protocol, self._neighbours
        named = {machine: view for view, joining in protocol.sets.items() for machine in joining.machines}
        escaped = []
        for machine in sorted(protocol.awaited()):
            presence = neighbours.presence_of(machine)
            has_left = neighbours.has_left(machine, named.get(machine, protocol.view.id))
            if presence is not None and has_left and protocol.me not in presence.members:
                escaped.append(machine)
        self._escaped_since = {machine: self._escaped_since.get(machine, now) for machine in escaped}
        return [m for m, since in self._escaped_since.items() if now - since >= self._config.escaped_ms]

    def clear(self) -> None:
        self._departed_since.clear()
        self._escaped_since.clear()
