"""Which machines have to back off: those that joined and were gone soon, or were to join and did not, and that we
ourselves have found silent, without an answer, or stuck.

What others report of a machine does not count: they make it back off themselves. If every machine took over the
reports of all others, one bad link would make whole views refuse each other, and for longer each time.
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.config import MembershipConfig
from membership.stages import Cause, Installed
from transport import AT_ONCE, Machine, Milliseconds, View

_OWN_EVIDENCE = frozenset((Cause.SILENT, Cause.UNRESPONSIVE, Cause.STUCK))


class FailedJoins:
    """When each member joined, and with whom we have broken in the change that is under way."""

    def __init__(self, me: Machine, config: MembershipConfig) -> None:
        self._me = me
        self._config = config
        self._joined_at: dict[Machine, Milliseconds] = {}
        self._blamed: set[Machine] = set()

    def broke_with(self, machines: Iterable[Machine], cause: Cause) -> None:
        if cause in _OWN_EVIDENCE:
            self._blamed.update(machines)

    def change_ended(self) -> None:
        self._blamed.clear()

    def installed(self, old: View, installed: Installed, now: Milliseconds) -> list[Machine]:
        """Returns the machines that have to back off now that this view follows the old one."""
        members = installed.view.members
        horizon = now - self._config.short_lived_ms
        gone = [m for m in old.members if m not in members and self._joined_at.get(m, AT_ONCE) > horizon]
        gone += installed.absent
        stayed = {m: self._joined_at.get(m, now) for m in members if m in old.members}
        self._joined_at = {m: stayed.get(m, now) for m in members if m != self._me}
        return [machine for machine in gone if machine in self._blamed]
