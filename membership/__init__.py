"""Which machines are connected: the Transis membership, which forms views through faults, partitions and merges.

`Group` is the machine, over one `Lansis` per view; `Membership` is what the layer above may rely on, whichever
membership is below it.
"""

from membership.config import MembershipConfig
from membership.effects import (
    ChangeStarted,
    MembershipEffect,
    MembershipEvent,
    Refused,
    Unicast,
    ViewChanged,
)
from membership.group import Group
from membership.interface import Membership
from membership.stages import CHANGE_CAUSES

__all__ = [
    "Group",
    "Membership",
    "MembershipConfig",
    "MembershipEffect",
    "ChangeStarted",
    "Refused",
    "Unicast",
    "ViewChanged",
    "MembershipEvent",
    "CHANGE_CAUSES",
]
