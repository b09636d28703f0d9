"""Locust's statistics, as the summary has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

TOTAL = "all requests"


class Entry(Protocol):
    """One row of Locust's statistics."""

    name: str
    num_requests: int
    num_failures: int
    response_times: dict[int, int]


def statistics_of(entries: Iterable[Entry], total: Entry, seconds: float) -> dict[str, dict[str, Any]]:
    """Returns the figures of all requests together, and those of every row by its name."""
    rows = {entry.name: _row(entry, seconds) for entry in entries}
    return {TOTAL: _row(total, seconds), **dict(sorted(rows.items()))}


def _row(entry: Entry, seconds: float) -> dict[str, Any]:
    times = entry.response_times
    return {
        "requests": entry.num_requests,
        "failures": entry.num_failures,
        "requests_per_second": round(entry.num_requests / seconds, 2) if seconds > 0 else 0.0,
        "p50_ms": percentile(times, 0.5),
        "p95_ms": percentile(times, 0.95),
        "p99_ms": percentile(times, 0.99),
        "max_ms": max(times, default=0),
    }


class _Mark(NamedTuple):
    """What the total was when a phase began."""

    users: int
    second: float
    requests: int
    failures: int
    times: Counter[int]

    @classmethod
    def of(cls, users: int, second: float, total: Entry) -> _Mark:
        return cls(users, second, total.num_requests, total.num_failures, Counter(total.response_times))


class Phases:
    """The figures of each part of a run in which the shape asked for the same number of users. With workers, what
    the master knows of them is some seconds old, and so are the bounds of phases."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []

    def note(self, users: int, second: float, total: Entry) -> None:
        """So many users are wanted now."""
        if not self._marks or self._marks[-1].users != users:
            self._marks.append(_Mark.of(users, second, total))

    def figures(self, second: float, total: Entry) -> list[dict[str, Any]]:
        """Returns the figures of all phases, the last of which ends now."""
        ends = [*self._marks[1:], _Mark.of(0, second, total)]
        return [_phase(begin, end) for begin, end in zip(self._marks, ends, strict=False)]


def _phase(begin: _Mark, end: _Mark) -> dict[str, Any]:
    seconds, times = end.second - begin.second, end.times - begin.times
    requests = end.requests - begin.requests
    return {
        "users": begin.users,
        "second": round(begin.second, 1),
        "seconds": round(seconds, 1),
        "requests": requests,
        "failures": end.failures - begin.failures,
        "requests_per_second": round(requests / seconds, 1) if seconds > 0 else 0.0,
        "p50_ms": percentile(times, 0.5),
        "p99_ms": percentile(times, 0.99),
    }


def percentile(times: Mapping[int, int], share: float) -> int:
    """Returns the response time that so large a share of the requests did not exceed. Locust rounds times above
    100 ms to two digits."""
    left = share * sum(times.values())
    for milliseconds in sorted(times):
        left -= times[milliseconds]
        if left <= 1e-9:
            return milliseconds
    return 0
