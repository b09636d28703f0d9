"""A node's answer to `/v1/status`, read once for every command that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class NotAStatus(Exception):
    """The answer is not that of a node."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """In bytes; all zero if the node did not say."""

    used: int = 0
    map: int = 0
    free: int = 0
    file_system: int = 0


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node says of itself. `green` and `yellow` are lines: counts of messages from the queue's start."""

    node: str
    state: str
    view: str
    members: tuple[str, ...]
    incarnation: int | None
    is_primary: bool
    is_voter: bool
    green: int
    yellow: int
    red: int
    """How many messages are behind the yellow line."""
    revision: int
    committed: int
    attempted: int
    held_writes: int
    disk: str
    """`ok`, or why the node is away from the others."""
    disk_use: DiskUse
    warnings: tuple[str, ...]
    is_disturbed: bool
    learning: str
    """How far the node is with taking over what it lacks, in words; empty if it does not."""
    details: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer."""

    @classmethod
    def of(cls, content: Any) -> NodeState:
        """Raises `NotAStatus`. Fields that older nodes do not have are given what they mean there."""
        try:
            return cls(
                node=str(content["node"]),
                state=str(content["state"]),
                view=str(content["view"]["id"]),
                members=tuple(map(str, content["view"]["members"])),
                incarnation=content.get("incarnation"),
                is_primary=bool(content.get("primary", content["state"] == "primary")),
                is_voter=bool(content.get("voter", True)),
                green=int(content["green"]["line"]),
                yellow=int(content["yellow"]["line"]),
                red=int(content["red"]),
                revision=int(content["green"]["revision"]),
                committed=int(content.get("last_committed_primary", 0)),
                attempted=int(content.get("last_attempted_primary", 0)),
                held_writes=int(content.get("held_writes", 0)),
                disk=str(content.get("disk", "ok")),
                disk_use=_disk_use(content.get("disk_used", {})),
                warnings=tuple(map(str, content.get("warnings", ()))),
                is_disturbed=bool(content.get("chaos", False)),
                learning=_learning(content.get("learning")),
                details=content,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotAStatus(f"the answer is not a node's status ({error!r}): is it a corelkv node?") from None

    @property
    def end(self) -> int:
        """How many messages the queue has."""
        return self.yellow + self.red

    @property
    def label(self) -> str:
        """The state in words, with what else decides what the node's answers are worth."""
        if self.disk != "ok":
            return "away"
        learning = f", {self.learning}" if self.learning else ""
        return self.state.replace("_", " ") + learning + ("" if self.is_voter else ", no vote")


def _learning(content: Mapping[str, Any] | None) -> str:
    """Returns "learning 43 %", or how else it is with that."""
    if content is None:
        return ""
    if content["phase"] == "asking":
        return f"asks {content['source']} for what it lacks" if content["source"] else "cannot learn: see its log"
    return f"learning {min(100 * int(content['bytes']) // max(int(content['total_bytes']), 1), 99)} %"


def _disk_use(content: Mapping[str, Any]) -> DiskUse:
    names = {"used": "used_bytes", "map": "map_bytes", "free": "free_bytes", "file_system": "file_system_bytes"}
    return DiskUse(**{name: int(content.get(field, 0)) for name, field in names.items()})
