"""COREL's Property 2.1: every machine delivers ordered messages in timestamp order, across views too; and a
message of any service has one timestamp, which no other has."""

from __future__ import annotations

from tests.simulator.checkers.base import Violation
from tests.simulator.checkers.membership import MembershipChecker, Period
from transport.messages import ORDERED, Machine, Message, Timestamp


class TimestampOrder(MembershipChecker):
    def __init__(self) -> None:
        self._last: dict[Machine, Timestamp] = {}
        self._owner: dict[Timestamp, tuple[Machine, int]] = {}
        self._timestamp: dict[tuple[Machine, int], Timestamp] = {}

    def delivered(self, number: int, period: Period, message: Message) -> None:
        key, timestamp = (message.sender, number), message.timestamp
        if self._owner.setdefault(timestamp, key) != key:
            raise Violation(f"{key} and {self._owner[timestamp]} both have timestamp {timestamp}")
        if self._timestamp.setdefault(key, timestamp) != timestamp:
            raise Violation(f"{key} has timestamps {timestamp} and {self._timestamp[key]}")
        if message.service not in ORDERED:
            return
        last = self._last.get(period.machine)
        if last is not None and timestamp <= last:
            raise Violation(f"{period.machine} delivers {message.id} at {timestamp} after {last}")
        self._last[period.machine] = timestamp
