"""Waiting for other members: when to ask them for a sign, and when to report that nothing comes."""

from __future__ import annotations

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.delivery import Delivery
from transport.messages import Machine, Milliseconds
from transport.roundtrip import RoundTrip


class Solicitation:
    """When to ask for acknowledgements that may have been lost: later each time, until something moves."""

    def __init__(self, config: TransportConfig, round_trip: RoundTrip) -> None:
        self._config = config
        self._round_trip = round_trip
        self._patience_ms = config.solicit_after_ms
        self.deadline: Milliseconds | None = None

    def is_due(self, now: Milliseconds) -> bool:
        return self.deadline is not None and now >= self.deadline

    def sent(self, now: Milliseconds) -> None:
        self._patience_ms = max(self._patience_ms, min(2.0 * self._patience_ms, self._config.heartbeat_ms))
        self.deadline = now + self._patience_ms

    def watch(self, is_waiting: bool, progress: bool, now: Milliseconds) -> None:
        if not is_waiting:
            self.deadline = None
        elif progress or self.deadline is None:
            self._patience_ms = max(self._config.solicit_after_ms, self._round_trip.bound_ms())
            self.deadline = now + self._patience_ms


class BreakWatch:
    """Who holds up sending or delivery when the same thing has not moved for `stuck_after_ms`. That something
    else moves does not count: one member's packets may flow while another's are stuck."""

    def __init__(self, dag: CausalDag, delivery: Delivery, config: TransportConfig) -> None:
        self._dag = dag
        self._delivery = delivery
        self._stuck_after_ms = config.stuck_after_ms
        self._unstable_then: dict[Machine, int] = {}
        self._delivered_then = 0
        self.deadline: Milliseconds | None = None

    def watch(self, is_blocked: bool, now: Milliseconds) -> tuple[Machine, ...]:
        """Returns the suspects, once in every period in which there are any."""
        if not is_blocked and not self._delivery.undelivered_count:
            self.deadline = None
            return ()
        if self.deadline is not None and now < self.deadline:
            return ()
        suspects = self._suspects(is_blocked) if self.deadline is not None else ()
        self._unstable_then = self._dag.oldest_unstable()
        self._delivered_then = self._delivery.delivered_count
        self.deadline = now + self._stuck_after_ms
        return suspects

    def _suspects(self, is_blocked: bool) -> tuple[Machine, ...]:
        suspects: list[Machine] = []
        if self._delivery.undelivered_count and self._delivery.delivered_count == self._delivered_then:
            # Whoever does not acknowledge may only be waiting for the same members.
            suspects = self._delivery.awaited()
        elif is_blocked:
            unstable = self._dag.oldest_unstable().items()
            stuck = [machine for machine, first in unstable if self._unstable_then.get(machine) == first]
            suspects = self._dag.laggards(stuck)
        return tuple(machine for machine in suspects if machine != self._dag.me)
