"""What a follower knows of clusters, and what it warns of: plain values, which one batch hands to the next.

A condition is told of twice: when it begins, and when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

BEHIND_MESSAGES = 10_000
"""A node whose green line is so far behind the longest one is told of."""

SILENT_MS = 300_000.0
"""A node whose last record is so much older than another's, and that has not stopped in order, is told of."""

HORIZON_POSITIONS = 4_000_000
"""How many green positions are kept to compare them with nodes that are behind. What a node is further behind than
that is not compared: the audit does that."""

WAITING_MAX = 1_000_000
"""How many messages are waited for, to tell how long they took; beyond that the oldest are given up."""

_LOOK = "look at these nodes (corelkv status) and at the network between them"


@dataclass(frozen=True, slots=True)
class NodePicture:
    """What is known of a node."""

    incarnation: int = 0
    monotonic_ms: float = 0.0
    wall_ms: float = 0.0
    green: int = 0
    yellow: int = 0
    length: int = 0
    view: str = ""
    members: tuple[str, ...] = ()
    stage: str = ""
    committed: int = 0
    roster: tuple[str, ...] = ()
    is_stopped: bool = False

    @property
    def red(self) -> int:
        """How many messages are neither green nor yellow."""
        return max(0, self.length - max(self.green, self.yellow))

    def updated(self, facts: Mapping[str, Any]) -> NodePicture:
        """With NODE_FACTS of another batch. Files that were copied may come in another order than they were
        written: then what they say is older than what is known, but for what became green."""
        green = max(self.green, facts["green"] or 0)
        if (facts["incarnation"], facts["monotonic_ms"]) < (self.incarnation, self.monotonic_ms):
            return replace(self, green=green, yellow=max(self.yellow, green), length=max(self.length, green))
        kept = ("incarnation", "monotonic_ms", "wall_ms", "yellow", "length", "view", "stage", "committed")
        told: dict[str, Any] = {name: facts[name] for name in kept if facts[name] is not None}
        told |= {name: tuple(facts[name]) for name in ("members", "roster") if facts[name] is not None}
        after = replace(self, **told, green=green, is_stopped=bool(facts["stopped"]))
        return replace(after, yellow=max(after.yellow, green), length=max(after.length, green))


class Alert(NamedTuple):
    """A condition that began, or is over."""

    cluster: str
    kind: str
    subject: str
    """Which nodes, or where in the order."""
    is_over: bool
    wall_ms: float
    text: str
    advice: str


@dataclass(slots=True)
class Picture:
    """Everything that is known after a batch."""

    nodes: dict[tuple[str, str], NodePicture] = field(default_factory=dict)
    """By cluster and name."""
    files: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The number of the last journal file, by cluster, node and incarnation."""
    active: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Conditions that have begun, by cluster, kind and subject, with their texts."""

    def clusters(self) -> list[str]:
        return sorted({cluster for cluster, _ in self.nodes})

    def of(self, cluster: str) -> dict[str, NodePicture]:
        return {node: one for (of, node), one in sorted(self.nodes.items()) if of == cluster}

    def bounds(self) -> dict[str, int]:
        """For each cluster, from which position on its order is kept: all known nodes have told of what is before
        it, or are too far behind."""
        bounds = {}
        for cluster in self.clusters():
            greens = [one.green for one in self.of(cluster).values()]
            bounds[cluster] = max(min(greens), max(greens) - HORIZON_POSITIONS)
        return bounds

    def incarnations(self) -> dict[tuple[str, str], int]:
        return {key: one.incarnation for key, one in self.nodes.items()}

    def update(self, facts: Iterable[Mapping[str, Any]]) -> None:
        for one in facts:
            key = (one["cluster"], one["node"])
            self.nodes[key] = self.nodes.get(key, NodePicture()).updated(one)

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [[*key, asdict(one)] for key, one in sorted(self.nodes.items())],
            "files": [[*key, number] for key, number in sorted(self.files.items())],
            "active": [[*key, text] for key, text in sorted(self.active.items())],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Picture:
        nodes = {
            (cluster, node): NodePicture(
                **{**one, "members": tuple(one["members"]), "roster": tuple(one["roster"])}
            )
            for cluster, node, one in content["nodes"]
        }
        files = {(cluster, node, incarnation): number for cluster, node, incarnation, number in content["files"]}
        return cls(nodes, files, {(one[0], one[1], one[2]): one[3] for one in content["active"]})


def conditions(picture: Picture) -> Iterator[tuple[str, str, str, str, str]]:
    """What is worth a warning now: cluster, kind, subject, text and advice of each condition."""
    for cluster in picture.clusters():
        nodes = {name: one for name, one in picture.of(cluster).items() if not one.is_stopped}
        if nodes:
            for kind, subject, text, advice in _of_cluster(nodes):
                yield cluster, kind, subject, text, advice


def passing_partitions(picture: Picture, facts: Iterable[Mapping[str, Any]]) -> Iterator[Alert]:
    """Partitions that began and were over within one batch, so that the picture after it does not show them."""
    for one in facts:
        cluster, name = one["cluster"], one["node"]
        node, fewest = picture.nodes[cluster, name], one["fewest"]
        if fewest is None or set(fewest) >= set(node.roster) or set(node.members) < set(node.roster):
            continue
        if (cluster, "partition", name) not in picture.active:
            absent = set(node.roster) - set(fewest)
            text = f"{name} was not connected to {_listed(absent)} for a while"
            yield Alert(cluster, "partition", name, False, one["wall_ms"], text, _LOOK)
            yield Alert(cluster, "partition", name, True, one["wall_ms"], text, "")


def _of_cluster(nodes: Mapping[str, NodePicture]) -> Iterator[tuple[str, str, str, str]]:
    newest = max(one.wall_ms for one in nodes.values())
    longest = max(one.green for one in nodes.values())
    for name, one in nodes.items():
        absent = sorted(set(one.roster) - set(one.members)) if one.members else []
        if absent:
            text = f"{name} is connected to {_listed(set(one.members) - {name})}, not to {_listed(absent)}"
            yield "partition", name, text, _LOOK
        if newest - one.wall_ms > SILENT_MS:
            text = f"{name} has journaled nothing for {(newest - one.wall_ms) / 1000:.0f} s"
            yield "silent", name, text, "see whether it runs, and whether its journal's disk is full"
        if longest - one.green > BEHIND_MESSAGES:
            text = f"{name} is {longest - one.green:,} green messages behind"
            yield (
                "behind",
                name,
                text,
                "it catches up when it is connected; if it is, see whether its disk is slow",
            )
    stages = {one.stage for one in nodes.values()} - {""}
    if stages and "primary" not in stages:
        text = "no node is in a primary component: writes are accepted as red, and wait"
        yield "no_primary", "", text, "connect a majority of the roster"


def told_changes(picture: Picture, wall_ms: float) -> list[Alert]:
    """Returns what has begun or is over since the last call, and keeps what is active in the picture. What
    contradicts the order is never over."""
    now = {
        (cluster, kind, subject): (text, advice) for cluster, kind, subject, text, advice in conditions(picture)
    }
    begun = [
        Alert(*key, False, wall_ms, text, advice)
        for key, (text, advice) in now.items()
        if key not in picture.active
    ]
    over = [Alert(*key, True, wall_ms, text, "") for key, text in picture.active.items() if key not in now]
    picture.active = {key: picture.active.get(key, text) for key, (text, _) in now.items()}
    return [*begun, *over]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"
