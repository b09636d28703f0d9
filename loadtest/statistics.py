"""Locust's statistics, as the summary has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

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


def percentile(times: Mapping[int, int], share: float) -> int:
    """Returns the response time that so large a share of the requests did not exceed. Locust rounds times above
    100 ms to two digits."""
    left = share * sum(times.values())
    for milliseconds in sorted(times):
        left -= times[milliseconds]
        if left <= 1e-9:
            return milliseconds
    return 0
