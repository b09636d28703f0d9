"""Whether a message has its place in the primary component in which it was sent, told from the order alone.

While a primary component lasts, only messages that were sent in its view are added to the order. So if there are
only messages of its own view between what its sender knew as green (`Basis.line`) and a message, none of them is
from the other side of a partition. If there is another one, the component had ended before the message got its
place: it merged, as red messages do, and is judged by what its sender knew.

What is compared is the view in which a message left, not that in which it was submitted: a message that was
submitted in one view may leave in the next."""

from __future__ import annotations

from typing import NamedTuple

from kvstore.store.state import Basis
from transport import ViewId


class Run(NamedTuple):
    """The messages at the end of an order that were all sent in one view, with no other between them."""

    view: ViewId
    start: int
    """The position of the first of them."""

    def followed_by(self, view: ViewId, position: int) -> Run:
        """Returns the last run of the order when it has another message, of this view and at this position."""
        return self if view == self.view else Run(view, position)

    def judged_by(self, basis: Basis | None) -> Basis | None:
        """Returns the basis of the last message of this run if the message merged; None if it has its place in the
        primary component in which it was sent, where nothing is concurrent with it."""
        if basis is None or (basis.line is not None and self.start <= basis.line):
            return None
        return basis


EMPTY_ORDER = Run(ViewId(0, "", 0), 0)
"""The run of an order without messages."""
