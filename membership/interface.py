"""What the layer above may rely on, whichever membership is below it.

The Transis membership (`group.Group`) is one implementation. A client-server membership for wide-area networks, or
one that only ever forms primary partitions, would be others: `corel/` uses `Membership`, `Progress` and the
effects, and nothing else of the package.

The order of effects is the contract:

- `ChangeStarted` comes before every `ViewChanged`: nothing that is accepted from then on is sent in the old view.
- Between two `ViewChanged`, `Delivered` carries messages of the first one only.
- `ViewChanged(view)` comes after all messages of the old view that its survivors (`view.transitional`) have.
- View ids ascend at every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from membership.effects import MembershipEffect
from membership.messages import Progress
from transport import Datagram, FlowFigures, Machine, Milliseconds, Service, View, ViewId


class Membership(Protocol):
    """A group of machines as one of them sees it: which machines are in it, and messages to all of them."""

    me: Machine

    @property
    def view(self) -> View:
        """The view that was last reported, or the one that the machine began with."""

    @property
    def clock(self) -> int:
        """The highest clock that anything sent so far can have."""

    @property
    def counters(self) -> Counter[str]:
        """What has been counted since the start, of the transport too."""

    @property
    def flow(self) -> FlowFigures:
        """How full the window and the queue before it are."""

    def is_changing(self) -> bool:
        """Whether the view is ending."""

    def multicast(self, service: Service, payload: bytes, view: ViewId | None = None) -> list[MembershipEffect]:
        """Accepts a message. If a view is given, the message is bound to it, and `ViewOver` is raised if it is too
        late for that."""

    def mark(self, marks: tuple[int, ...]) -> None:
        """Tells the members how far the layer above has got with each member's messages in the current view, in
        the members' order. They learn of it by `Marked`."""

    def expect_mark(self) -> None:
        """Announces that `mark` will be called soon: acknowledgements that are due until then may wait for it."""

    def solicit(self, machines: Iterable[Machine]) -> None:
        """Asks members for their marks, which may have been lost."""

    def report_progress(self, progress: Progress) -> None:
        """Tells other machines, with the next heartbeats, how far the layer above has got here. Machines that are
        out of reach of each other do not join; `LeftBehind` says that this machine is the one behind."""

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[MembershipEffect]: ...

    def port_unreachable(self, machine: Machine, now: Milliseconds) -> None:
        """Notes that this machine's host refused a datagram because no process listens at the machine's address:
        a hint that it is dead, until it is heard again."""

    def tick(self, now: Milliseconds) -> list[MembershipEffect]: ...

    def next_deadline(self) -> Milliseconds: ...
