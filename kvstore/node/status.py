"""What a node shows of itself, as values: its status, and pages of its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from corel import Corel, Inspected, Phase, Stage
from corel.lmdb_log import DiskUsage
from kvstore.node.learning import LearningStatus
from kvstore.node.snapshot_format import LineageEntry
from transport import Machine, View


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of a node at one moment."""

    me: Machine
    weights: Mapping[str, int]
    """All nodes of the roster, with their votes."""
    view: View
    stage: Stage
    phase: Phase
    is_primary: bool
    """Whether writes through this node can become green."""
    is_open: bool
    """Whether messages of the log are sent and handled."""
    is_voter: bool
    green_line: int
    applied_line: int
    """How many green messages are applied to the state."""
    revision: int
    yellow_line: int
    red: int
    """How many messages are red."""
    last_committed_primary: int
    last_attempted_primary: int
    held_writes: int
    """How many writes wait to be sent."""
    watchers: int
    """How many feeds of this node are open."""
    oldest_revision: int
    """The oldest revision of which the whole state can be read."""
    log_first: int
    """The first position of the log that can be read."""
    log_bytes: int
    """How large the log is on disk; 0 if the disk has to be opened again."""
    trouble: str | None
    """Why the node is away from the others; None while it takes part."""
    learning: LearningStatus | None
    """How far it is with taking over what it lacks; None if it does not."""
    disk_usage: DiskUsage
    warnings: tuple[str, ...]
    """What needs attention before it becomes trouble; each says what to do."""
    dropped_datagrams: Mapping[str, int]
    """How many datagrams and frames of peers were dropped, by reason."""
    silent_ms: Mapping[str, float]
    """How long ago each node was last heard, of those that were heard since this one started."""
    is_disturbed: bool
    """Whether faults are injected into its network."""
    uptime_s: float
    lineage: tuple[LineageEntry, ...] = ()
    """The generations of the cluster before this one, oldest first."""


class LogEntry(NamedTuple):
    """A message of the log, with its body."""

    inspected: Inspected
    body: bytes


class LogPage(NamedTuple):
    entries: list[LogEntry]
    following: int
    """The position after the last entry, where the next page begins."""


def vote_warnings(log: Corel) -> list[str]:
    """Says why there is no primary component although all nodes are connected."""
    roster, voters = log.roster, log.voters
    is_whole = {member.name for member in log.view.members} == set(roster.weights)
    if log.stage is not Stage.NON_PRIMARY or not is_whole or roster.is_majority(voters):
        return []
    counted = ", ".join(voters) or "none"
    others = ", ".join(sorted(set(roster.weights) - set(voters)))
    return [
        f"All nodes are connected, and those whose votes count ({counted}) are no majority: the disks of {others} "
        "are new, or are copies. Bring back the disks that they had. If these are lost for good, stop all nodes "
        "and use corelkv recover."
    ]
