"""Service levels: what a run must keep to be a success. They come from defaults, a TOML file, and flags.

error_rate = 0.01          # of all requests, at most
p99_ms = 500               # of all requests, at most
lost_writes = 0

["PUT put"]                # one row of Locust's statistics
p99_ms = 800
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadtest.statistics import TOTAL

MEASURES = ("error_rate", "p99_ms", "p50_ms", "requests_per_second", "lost_writes")


class LevelError(ValueError):
    """A service level that cannot be understood. The message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One service level, and what was measured."""

    name: str
    limit: float
    measured: float | None
    """`None` if there was nothing to measure, which keeps no level."""

    @property
    def is_kept(self) -> bool:
        if self.measured is None:
            return False
        if self.name.endswith("requests_per_second"):
            return self.measured >= self.limit
        return self.measured <= self.limit

    def __str__(self) -> str:
        found = "not measured" if self.measured is None else f"{self.measured:g}"
        bound = "at least" if self.name.endswith("requests_per_second") else "at most"
        return f"{'ok    ' if self.is_kept else 'MISSED'} {self.name}: {found} ({bound} {self.limit:g})"


@dataclass(frozen=True, slots=True)
class Levels:
    """Limits by row of the statistics and measure. `requests_per_second` is a least value, all others are most."""

    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def default(cls, with_chaos: bool) -> Levels:
        """While nodes are partitioned and killed, requests in flight there fail, and writes wait until the
        others have noticed."""
        return cls(
            {
                (TOTAL, "error_rate"): 0.02 if with_chaos else 0.001,
                (TOTAL, "p99_ms"): 2_000.0 if with_chaos else 1_000.0,
                (TOTAL, "lost_writes"): 0.0,
            }
        )

    def with_file(self, path: Path) -> Levels:
        try:
            content = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise LevelError(f"cannot read the service levels of {path}: {error}") from None
        found = self
        for name, value in content.items():
            rows = value.items() if isinstance(value, dict) else [(name, value)]
            for measure, limit in rows:
                found = found.with_limit(name if isinstance(value, dict) else TOTAL, measure, limit)
        return found

    def with_flags(self, flags: Sequence[str]) -> Levels:
        """Flags are like `p99_ms=500` or `PUT put:p99_ms=800`."""
        found = self
        for flag in flags:
            name, _, limit = flag.rpartition("=")
            row, _, measure = name.rpartition(":")
            found = found.with_limit(row or TOTAL, measure, limit)
        return found

    def with_limit(self, row: str, measure: str, limit: Any) -> Levels:
        if measure not in MEASURES:
            raise LevelError(f"there is no service level {measure!r}: choose one of {', '.join(MEASURES)}")
        try:
            number = float(limit)
        except (TypeError, ValueError):
            raise LevelError(f"the service level {measure} is a number, not {limit!r}") from None
        return replace(self, limits={**self.limits, (row, measure): number})

    def judge(self, rows: Mapping[str, Mapping[str, Any]], lost_writes: int | None) -> list[Judged]:
        """Compares the limits with the rows of the statistics."""
        found = []
        for (row, measure), limit in self.limits.items():
            name = measure if row == TOTAL else f"{row}: {measure}"
            measured = lost_writes if measure == "lost_writes" else _measured(rows.get(row), measure)
            found.append(Judged(name, limit, measured))
        return found


def _measured(row: Mapping[str, Any] | None, measure: str) -> float | None:
    if row is None or not row["requests"]:
        return None
    if measure == "error_rate":
        return round(float(row["failures"] / row["requests"]), 6)
    return float(row[measure])
