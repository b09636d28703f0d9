"""Locust's statistics, as the summary has them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

HTTP_METHODS = ("GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")
"""What counts for the service levels. The other rows are times to green and how late feeds are."""
TOTAL = "all requests"
WINDOW_SECONDS = 5.0


class Entry(Protocol):
    """One row of Locust's statistics."""

    name: str
    method: str
    num_requests: int
    num_failures: int
    response_times: dict[int, int]


def statistics_of(entries: Iterable[Entry], seconds: float) -> dict[str, dict[str, Any]]:
    """Returns the figures of every row by its name, and those of all HTTP requests together."""
    found = {}
    all_times: Counter[int] = Counter()
    requests = failures = 0
    for entry in entries:
        found[entry.name] = _row(entry.num_requests, entry.num_failures, entry.response_times, seconds)
        if entry.method in HTTP_METHODS:
            all_times.update(entry.response_times)
            requests += entry.num_requests
            failures += entry.num_failures
    return {TOTAL: _row(requests, failures, all_times, seconds), **dict(sorted(found.items()))}


def _row(requests: int, failures: int, times: Mapping[int, int], seconds: float) -> dict[str, Any]:
    return {
        "requests": requests,
        "failures": failures,
        "requests_per_second": round(requests / seconds, 2) if seconds > 0 else 0.0,
        "p50_ms": percentile(times, 0.5),
        "p95_ms": percentile(times, 0.95),
        "p99_ms": percentile(times, 0.99),
        "max_ms": max(times, default=0),
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


class Observed(NamedTuple):
    """What the last seconds were like."""

    requests_per_second: float
    p99_ms: float


class Window:
    """HTTP requests of the last seconds. Locust's own figures of them include its rows that are no requests."""

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self._seconds = seconds
        self._seen: deque[tuple[float, Counter[int]]] = deque()
        """What there had been by when, from the beginning of the window on."""

    def look(self, entries: Iterable[Entry], now: float) -> Observed:
        """To be called about once a second, with all rows and the clock."""
        times: Counter[int] = Counter()
        for entry in entries:
            if entry.method in HTTP_METHODS:
                times.update(entry.response_times)
        self._seen.append((now, times))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._seconds:
            self._seen.popleft()
        began, before = self._seen[0]
        if now <= began:
            return Observed(0.0, 0.0)
        new = times - before
        return Observed(new.total() / (now - began), percentile(new, 0.99))
