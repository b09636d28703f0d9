"""Transports of views that are over, kept for survivors that are not as far: they still ask for messages."""

from __future__ import annotations

from membership.config import MembershipConfig
from transport.effects import Effect
from transport.lansis import Lansis
from transport.messages import Machine, Milliseconds, Nack, Packet, ViewId

_NEVER = float("inf")


class ClosedViews:
    """The last few, each for a while."""

    def __init__(self, config: MembershipConfig) -> None:
        self._config = config
        self._closed: dict[ViewId, tuple[Lansis, Milliseconds]] = {}

    def __contains__(self, view: ViewId | None) -> bool:
        return view in self._closed

    def __len__(self) -> int:
        return len(self._closed)

    def add(self, lansis: Lansis, now: Milliseconds) -> None:
        if len(lansis.view.members) > 1:
            self._closed[lansis.view.id] = (lansis, now + self._config.closed_view_ms)
            while len(self._closed) > self._config.closed_views_max:
                del self._closed[next(iter(self._closed))]

    def clear(self) -> None:
        self._closed.clear()

    def answer(self, nack: Nack, now: Milliseconds) -> None:
        for lansis, _ in self._closed.values():
            lansis.answer(nack, now)

    def heard_answer(self, packet: Packet, transmitter: Machine, now: Milliseconds) -> None:
        self._closed[packet.view][0].heard_answer(packet, transmitter, now)

    def answers_due(self, now: Milliseconds) -> list[Effect]:
        effects: list[Effect] = []
        for view, (lansis, until) in list(self._closed.items()):
            effects.extend(lansis.answers_due(now))
            if now >= until:
                del self._closed[view]
        return effects

    def next_deadline(self) -> Milliseconds:
        if not self._closed:  # as nearly always
            return _NEVER
        return min([lansis.answers_deadline() for lansis, _ in self._closed.values()])
