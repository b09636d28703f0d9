"""Waiting for other members: when to solicit their acknowledgements, and when to report that none come."""

from __future__ import annotations

from collections.abc import Iterable

from transport.config import TransportConfig
from transport.dag import CausalDag
from transport.deadlines import Milliseconds
from transport.delivery import Delivery
from transport.messages import Machine
from transport.roundtrip import RoundTrip


class Solicitation:
    """Which members to ask for acknowledgements that may have been lost, and when: after a wait that doubles each
    time, up to the heartbeat, until there is progress."""

    def __init__(self, dag: CausalDag, delivery: Delivery, config: TransportConfig, round_trip: RoundTrip) -> None:
        self._dag = dag
        self._delivery = delivery
        self._config = config
        self._round_trip = round_trip
        self._wait_ms = config.solicit_after_ms
        self._requested: tuple[Machine, ...] = ()
        """The members whose marks the layer above waits for."""
        self.deadline: Milliseconds | None = None

    def request(self, machines: Iterable[Machine]) -> None:
        """Has the next status solicit these members too. The last call before that counts."""
        self._requested = tuple(machines)

    def is_due(self, now: Milliseconds) -> bool:
        return self.deadline is not None and now >= self.deadline

    def take(self, is_blocked: bool, now: Milliseconds) -> tuple[Machine, ...]:
        """Returns the members that the status to be sent now solicits."""
        requested, self._requested = self._requested, ()
        if not self.is_due(now):
            return requested
        self._wait_ms = max(self._wait_ms, min(2.0 * self._wait_ms, self._config.heartbeat_ms))
        self.deadline = now + self._wait_ms
        return tuple(sorted({*requested, *self._awaited(is_blocked)}))

    def watch(self, is_waiting: bool, progress: bool, now: Milliseconds) -> None:
        """Starts the wait anew if there has been progress, and ends it if nothing waits for other members."""
        if not is_waiting:
            self.deadline = None
        elif progress or self.deadline is None:
            self._wait_ms = max(self._config.solicit_after_ms, self._round_trip.bound_ms())
            self.deadline = now + self._wait_ms

    def _awaited(self, is_blocked: bool) -> list[Machine]:
        awaited = dict.fromkeys(self._delivery.awaited())
        if is_blocked:
            awaited.update(dict.fromkeys(self._dag.laggards(self._dag.streams)))
        awaited.pop(self._dag.me, None)
        return list(awaited)


class BreakWatch:
    """Finds the members that hold up sending or delivery, when there has been no progress for `stuck_after_ms`.
    Progress elsewhere does not count: one member's packets may flow while another's are stuck."""

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
            # A member that does not acknowledge may only be waiting for the same members.
            suspects = self._delivery.awaited()
        elif is_blocked:
            unstable = self._dag.oldest_unstable().items()
            stuck = [machine for machine, first in unstable if self._unstable_then.get(machine) == first]
            suspects = self._dag.laggards(stuck)
        return tuple(machine for machine in suspects if machine != self._dag.me)
