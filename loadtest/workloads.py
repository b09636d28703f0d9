"""What YCSB's users do: the core workloads A to F as shares of operations, and the keys they do it to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from loadtest.distributions import DISTRIBUTIONS, Distribution

SCAN_KEYS_MAX = 100
"""A scan reads 1 to this many keys, as in YCSB."""


class Action(StrEnum):
    READ = "read"
    UPDATE = "update"
    INSERT = "insert"
    SCAN = "scan"
    READ_MODIFY_WRITE = "read_modify_write"


@dataclass(frozen=True, slots=True)
class Mix:
    """A workload: the share of each action, in per cent, and how keys are chosen."""

    name: str
    shares: dict[Action, int]
    distribution: str = "zipfian"

    def draw(self, rng: Random) -> Action:
        return rng.choices(list(self.shares), list(self.shares.values()))[0]


MIXES = {
    "a": Mix("update heavy", {Action.READ: 50, Action.UPDATE: 50}),
    "b": Mix("read mostly", {Action.READ: 95, Action.UPDATE: 5}),
    "c": Mix("read only", {Action.READ: 100}),
    "d": Mix("read latest", {Action.READ: 95, Action.INSERT: 5}, "latest"),
    "e": Mix("short ranges", {Action.SCAN: 95, Action.INSERT: 5}),
    "f": Mix("read-modify-write", {Action.READ: 50, Action.READ_MODIFY_WRITE: 50}),
}
"""YCSB's core workloads."""


class Keys:
    """The keys of one process: `records` that were loaded before the run, and those that its users have inserted
    since. Keys that other processes insert are not known here."""

    def __init__(self, records: int, worker: str) -> None:
        self._records = records
        self._worker = worker
        self._inserted = 0

    def __len__(self) -> int:
        return self._records + self._inserted

    def name(self, number: int) -> str:
        if number < self._records:
            return record_key(number)
        return f"ycsb/new/{self._worker}/{number - self._records:08}"

    def draw(self, distribution: Distribution) -> str:
        return self.name(distribution.draw(len(self)))

    def insert(self) -> str:
        """Returns a new key. It may be drawn for a read before it is written: then it is not found, which is an
        answer too."""
        self._inserted += 1
        return self.name(len(self) - 1)


def record_key(number: int) -> str:
    """The key of one of the records that are loaded before the run."""
    return f"ycsb/{number:08}"


def distribution_of(mix: Mix, rng: Random) -> Distribution:
    return DISTRIBUTIONS[mix.distribution](rng)


def value_of(rng: Random, length: int) -> str:
    """A value that begins with the wall clock in milliseconds, from which a watcher computes how late it comes."""
    return f"{time.time_ns() // 1_000_000:013} ".ljust(length, rng.choice("abcdefghijklmnop"))


def lateness_ms(value: str) -> float | None:
    """Returns how long ago a value was made, or `None` if it does not say."""
    head = value[:13]
    return time.time() * 1000.0 - int(head) if len(head) == 13 and head.isdigit() else None
