"""What `corelkv status --watch` has seen of each node so far: answers, silence, and how fast the lines move.

Pure: `status_watch` asks the nodes, and `status_screen` draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvstore.cli.node_state import NodeState

RATE_SECONDS = 5.0
"""Over how long throughput is averaged. Shorter follows changes sooner; longer shows a steadier number."""


class _Mark(NamedTuple):
    at: float
    green: int
    revision: int


class Rate(NamedTuple):
    """What became green in a second."""

    messages: float
    writes: float
    """Revisions: a transaction counts once, and a write that changes nothing does not count."""


@dataclass(slots=True)
class SeenNode:
    """One node of the roster. Its last answer is kept while it is silent."""

    name: str
    url: str | None
    """Where it answered last, or is asked first."""
    since: float
    """When it was first asked."""
    state: NodeState | None = None
    answered_at: float | None = None
    problem: str = ""
    """Why the last request had no answer; empty if it had one."""
    _told: dict[str, str] = field(default_factory=dict)
    """By name of a node, where that node last said that this one is."""
    _marks: deque[_Mark] = field(default_factory=deque)

    def is_told_at(self, url: str, teller: str) -> None:
        self._told[teller] = url
        self.url = self.url or url

    @property
    def elsewhere(self) -> list[str]:
        """Where else it may be, as the nodes say."""
        return [url for url in dict.fromkeys(self._told.values()) if url != self.url]

    def answered(self, state: NodeState, now: float, url: str | None = None) -> None:
        """It answered at this URL, or where it was asked before."""
        self.url = url or self.url
        if self.state is not None and self.state.incarnation != state.incarnation:
            self._marks.clear()  # what it learned while it was away is not what it works now
        self.state, self.answered_at, self.problem = state, now, ""
        self._marks.append(_Mark(now, state.green, state.revision))
        while len(self._marks) > 2 and self._marks[1].at <= now - RATE_SECONDS:
            self._marks.popleft()

    def failed(self, problem: str) -> None:
        self.problem = problem
        self._marks.clear()

    @property
    def is_answering(self) -> bool:
        return self.state is not None and not self.problem

    def silent_seconds(self, now: float) -> float:
        return now - (self.since if self.answered_at is None else self.answered_at)

    @property
    def rate(self) -> Rate | None:
        """`None` before there are two answers in a row."""
        if len(self._marks) < 2:
            return None
        first, last = self._marks[0], self._marks[-1]
        seconds = max(last.at - first.at, 0.001)
        return Rate((last.green - first.green) / seconds, (last.revision - first.revision) / seconds)

    def summary(self) -> str:
        """One line that changes if and only if something happened."""
        if self.url is None:
            return f"{self.name}: its URL is not known: start nodes with --urls"
        if self.problem or self.state is None:
            return f"{self.name}: no answer: {self.problem or 'it was not asked yet'}"
        state = self.state
        parts = [
            f"{state.label}",
            f"view {state.view} of {','.join(state.members)}",
            f"incarnation {state.incarnation}",
            f"green {state.green}",
            f"yellow {state.yellow}",
            f"red {state.red}",
            f"primary {state.committed}/{state.attempted}",
        ]
        parts += [f"at {self.url}"]
        parts += [f"disk: {state.disk}"] if state.disk != "ok" else []
        parts += [f"warning: {warning}" for warning in state.warnings]
        return f"{self.name}: {', '.join(parts)}"


class Notice(NamedTuple):
    """What must not be overlooked."""

    headline: str
    text: str


@dataclass(slots=True)
class SeenCluster:
    """All nodes of the roster, in its order. `asked` is the node whose URL was given."""

    nodes: Sequence[SeenNode]
    asked: str

    def heard_urls(self, teller: str, urls: Mapping[str, str | None]) -> None:
        """Takes in where a node says that all nodes are."""
        for node in self.nodes:
            if url := urls.get(node.name):
                node.is_told_at(url, teller)

    def notice(self, now: float) -> Notice | None:
        """Returns what is wrong with the node that was asked."""
        node = next(node for node in self.nodes if node.name == self.asked)
        if not node.is_answering:
            if node.state is None and not node.problem:
                return None  # it was asked a moment ago
            silent = f"no answer for {node.silent_seconds(now):.1f} s ({node.problem})"
            return Notice(f"NODE {node.name} DOES NOT ANSWER", f"{silent}. Below is what the others say.")
        assert node.state is not None
        if node.state.is_primary:
            return None
        headline = f"NODE {node.name} IS NOT IN A PRIMARY COMPONENT"
        if node.state.disk != "ok":
            return Notice(headline, f"It is away and refuses writes: {node.state.disk}")
        alone = ",".join(node.state.members)
        return Notice(
            headline,
            f"It is {node.state.label}, in a view of {alone}. What it accepts now is red: durable, but its place "
            "in the order is open until this component meets a majority.",
        )
