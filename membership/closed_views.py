"""Transports of views that are over, kept for survivors that are not as far and still ask for their messages."""

from __future__ import annotations

from membership.config import MembershipConfig
from transport import NEVER, Lansis, Machine, Milliseconds, Nack, Packet, TransportEffect, ViewId


class ClosedViews:
    """The transports of the last few views, each kept for a limited time."""

    def __init__(self, config: MembershipConfig) -> None:
        self._config = config
        self._closed: dict[ViewId, tuple[Lansis, Milliseconds]] = {}

    def __contains__(self, view: ViewId | None) -> bool:
        return view in self._closed

    def __len__(self) -> int:
        return len(self._closed)

    def add(self, lansis: Lansis, now: Milliseconds) -> None:
        """Keeps the transport of a view that has just ended, unless it had no other member that could ask."""
        if len(lansis.view.members) > 1:
            self._closed[lansis.view.id] = (lansis, now + self._config.closed_view_ms)
            while len(self._closed) > self._config.closed_views_max:
                del self._closed[next(iter(self._closed))]

    def clear(self) -> None:
        self._closed.clear()

    def answer(self, nack: Nack, now: Milliseconds) -> None:
        """Schedules answers to a request for messages, in every kept view that has them."""
        for lansis, _ in self._closed.values():
            lansis.answer(nack, now)

    def heard_answer(self, packet: Packet, transmitter: Machine, now: Milliseconds) -> None:
        """Notes that another machine has retransmitted a packet of a kept view, so that we need not."""
        self._closed[packet.view][0].heard_answer(packet, transmitter, now)

    def answers_due(self, now: Milliseconds) -> list[TransportEffect]:
        """Returns the answers to send now, and drops the views whose time is over."""
        effects: list[TransportEffect] = []
        for view, (lansis, until) in list(self._closed.items()):
            effects.extend(lansis.answers_due(now))
            if now >= until:
                del self._closed[view]
        return effects

    def next_deadline(self) -> Milliseconds:
        if not self._closed:  # the usual case
            return NEVER
        return min([lansis.answers_deadline() for lansis, _ in self._closed.values()])
