"""The machines that have declared this one faulty: in the view in which they did, they will not join it again."""

from __future__ import annotations

from collections.abc import Iterable

from membership.messages import Control
from transport import Machine, ViewId

ACCUSERS_MAX = 256
"""How many of them are remembered. Any machine can declare us faulty, so there must be a bound."""


class Accusers:
    def __init__(self, me: Machine) -> None:
        self._me = me
        self._views: dict[Machine, ViewId] = {}
        """The view in which each of them declared us faulty."""

    def note(self, control: Control) -> None:
        """Remembers the sender of a message that declares us faulty."""
        if control.accuses(self._me):
            self._views[control.sender] = control.view
            if len(self._views) > ACCUSERS_MAX:
                del self._views[next(iter(self._views))]

    def sent(self, control: Control) -> bool:
        """Whether the message is of a machine that has declared us faulty in the same view."""
        return self._views.get(control.sender) == control.view

    def forget(self, machines: Iterable[Machine]) -> None:
        for machine in machines:
            self._views.pop(machine, None)
