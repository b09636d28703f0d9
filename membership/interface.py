"""What a layer above may rely on, whichever membership is below.

The Transis membership (`group.Group`) is one implementation. A client-server membership for wide-area networks, or
one that only ever forms primary partitions, would be others: `corel/` imports this module and the effects it
names, nothing else of the package.

The order of effects is the contract:

- `ChangeStarted` comes before any `ViewChanged`: from here on nothing that is accepted is sent in the old view.
- Between two `ViewChanged`, `Delivered` carries messages of the first one only.
- `ViewChanged(view)` comes after all messages of the old view that its survivors (`view.transitional`) have.
- View ids ascend at every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from membership.effects import Effect
from transport.messages import Datagram, Machine, Milliseconds, Service, View, ViewId


class Membership(Protocol):
    """A group of machines as seen by one of them: who is in it, and messages to all of it."""

    me: Machine

    @property
    def view(self) -> View:
        """The view that was last reported, or the one it began with."""

    def is_changing(self) -> bool:
        """Whether the view is ending."""

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[Effect]:
        """Accepts a message; for the given view only, if there is one (`ViewOver` if it is too late for that)."""

    def mark(self, marks: tuple[int, ...]) -> None:
        """Tells the members how far this layer above has got with each member's messages in the current view, in
        the members' order: they are told by `Marked`."""

    def expect_mark(self) -> None:
        """There will be more to tell by `mark` in a moment: what is to be said meanwhile may wait for it."""

    def solicit(self, machines: Iterable[Machine]) -> None:
        """Asks members for their marks, which may have been lost."""

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[Effect]: ...

    def tick(self, now: Milliseconds) -> list[Effect]: ...

    def next_deadline(self) -> Milliseconds: ...
