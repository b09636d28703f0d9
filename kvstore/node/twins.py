"""Two processes of one name: which of them stops.

Peers take the older incarnation of a name for dead, and cannot tell two of the same incarnation apart. So a
process that hears another one of its own name decides by itself whether to stop, and needs no answer. The newer
incarnation goes on. Of two of the same incarnation, one that has other members in its view does."""

from __future__ import annotations

from transport import Machine, View


class TwinNode(Exception):
    """Another process uses this node's name. The message says what to do."""


def must_stop(me: Machine, view: View, sender: Machine) -> bool:
    """Whether this machine has to stop, because a datagram of this sender has arrived from elsewhere."""
    if sender.name != me.name or sender.incarnation < me.incarnation:
        return False
    return sender.incarnation > me.incarnation or len(view.members) == 1
