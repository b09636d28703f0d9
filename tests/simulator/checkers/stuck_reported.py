"""A member that cannot send because another has crashed reports it, and names only members that have crashed.

Without a crash no member is blocked in the end: what was sent has been acknowledged by every member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.simulator.checkers.base import Checker, Violation
from transport.lansis import Lansis
from transport.messages import Machine, Service


class StuckReported(Checker):
    def __init__(self) -> None:
        self._crashed: set[str] = set()
        self._last_report: dict[str, tuple[Machine, ...]] = {}

    def crashed(self, node: str) -> None:
        self._crashed.add(node)

    def stuck(self, node: str, laggards: tuple[Machine, ...]) -> None:
        self._last_report[node] = laggards

    def finished(self, live: Mapping[str, Lansis], sent: Mapping[str, Sequence[Service]]) -> None:
        for node, machine in live.items():
            if machine.blocked() is None:
                continue
            if not self._crashed:
                raise Violation(f"{node} is blocked ({machine.blocked()}) though everything has been delivered")
            report = self._last_report.get(node)
            if report is None:
                raise Violation(f"{node} is blocked ({machine.blocked()}) and has not said by whom")
            if alive := {laggard.name for laggard in report} - self._crashed:
                raise Violation(f"{node} blames {sorted(alive)} for what the crash of others has caused")
