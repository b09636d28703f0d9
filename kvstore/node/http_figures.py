"""What the API counts of its requests. The API fills it; it is here because a node's summary shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from kvstore.histogram import Histogram
from kvstore.node.message_times import SECONDS

CLIENT_CLOSED = 499
"""The status under which requests are counted whose client had gone before the answer; nginx made it known."""


class Route(NamedTuple):
    """A call of the API: never what a client wrote, which could be anything."""

    method: str
    template: str


class RouteFigures:
    """The requests of one call."""

    __slots__ = ("seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.seconds = Histogram(SECONDS)


class HttpFigures:
    """The requests of one node."""

    def __init__(self) -> None:
        self.routes: dict[Route, RouteFigures] = {}
        self.refusals: Counter[str] = Counter()
        """Connections and requests that were refused before they reached a call, by error code."""
        self.queues: dict[str, tuple[Callable[[], int], int]] = {}
        """What the API bounds: a function that returns how much there is, and how much there may be."""

    def route(self, method: str, template: str) -> RouteFigures:
        """Returns the figures of a call, whose method and template must be among a bounded number."""
        return self.routes.setdefault(Route(method, template), RouteFigures())

    @property
    def requests(self) -> int:
        return sum(sum(figures.statuses.values()) for figures in self.routes.values())

    @property
    def errors(self) -> int:
        """How many requests this node failed to serve (5xx)."""
        return sum(
            count
            for figures in self.routes.values()
            for status, count in figures.statuses.items()
            if status >= 500
        )
