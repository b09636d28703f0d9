"""What a node does in its component: the stages of Figs. 2 and 3, and the phases within them."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """What a node does in its component."""

    RECOVERING = "recovering"
    """The members exchange states and messages."""
    ESTABLISHING = "establishing"
    """The members are a majority, on their way to a primary component."""
    PRIMARY = "primary"
    NON_PRIMARY = "non_primary"
    """There is no primary component. Mostly the members have recovered and are no majority: messages are
    exchanged, and stay red. If their states contradict each other, no messages are exchanged in this view."""


class Phase(StrEnum):
    """What exactly a node waits for within its stage, in words for people and journals."""

    STATES = "waiting for states"
    PRIORITY_MESSAGES = "waiting for priority messages"
    RED_MESSAGES = "merging red messages"
    ATTEMPTS = "waiting for attempts"
    COMMITS = "waiting for commits"
    PRIMARY = "primary"
    NON_PRIMARY = "non_primary"
    CONTRADICTION = "waiting for a contradicting node to leave"


class Cause(StrEnum):
    """Why a stage was entered or a message refused, or what led to another event of the journal."""

    VIEW_CHANGED = "view_changed"
    MAJORITY = "majority"
    NO_MAJORITY = "no_majority"
    COMMITTED_BY_ALL = "committed_by_all"
    CONTRADICTION = "contradiction"
    ORDERS_DIFFER = "orders_differ"
    OUT_OF_PLACE = "out_of_place"
    UNDECODABLE = "undecodable"
    RECOVERED = "recovered"
    STATES = "states"


TRANSITIONS: dict[Stage, tuple[Stage, ...]] = {
    Stage.RECOVERING: (Stage.RECOVERING, Stage.ESTABLISHING, Stage.NON_PRIMARY),
    Stage.ESTABLISHING: (Stage.RECOVERING, Stage.PRIMARY, Stage.NON_PRIMARY),
    Stage.PRIMARY: (Stage.RECOVERING,),
    Stage.NON_PRIMARY: (Stage.RECOVERING,),
}
"""Every change of stage there is; any other is a broken invariant. `docs/architecture.md` draws them."""
