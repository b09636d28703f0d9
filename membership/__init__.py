"""Which machines are connected: the Transis membership, which forms views through faults, partitions and merges.

`Group` is the machine, over one `Lansis` per view; `Membership` is what the layer above may rely on, whichever
membership is below it.
"""

from membership.config import MembershipConfig
from membership.effects import (
    ChangeStarted,
    LeftBehind,
    MembershipEffect,
    MembershipEvent,
    Refused,
    Unicast,
    ViewChanged,
)
from membership.group import Group
from membership.interface import Membership
from membership.messages import Progress
from membership.stages import CHANGE_CAUSES

__all__ = [
    "Group",
    "Membership",
    "MembershipConfig",
    "MembershipEffect",
    "Progress",
    "ChangeStarted",
    "LeftBehind",
    "Refused",
    "Unicast",
    "ViewChanged",
    "MembershipEvent",
    "CHANGE_CAUSES",
]
