"""The failure detector: compares a machine's silence with the usual gaps between its heartbeats, and probes it.

The paper's machines expect to hear from each other regularly, and try a reserved channel before they declare a
fault. Here any datagram counts as being heard; the allowed silence follows the measured gaps between heartbeats.

There is one short cut. The host of a process that has died refuses what is sent to its address, so a machine need
not be silent for as long as is allowed: it counts as faulty when its heartbeat is overdue *and* its address has
refused something since it was last heard. Each alone is worth little. A heartbeat may be late or lost, and a
refusal may be of the process that had the address before; what is heard after a refusal takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable

from membership.config import MembershipConfig
from transport import NEVER, Machine, Milliseconds

_SMOOTHING = 0.125
_DEVIATION_SMOOTHING = 0.25
_PROBES_MIN = 2
_PROBE_FROM = 0.5
"""Probes count as unanswered if they were sent after this part of the allowed silence. Earlier ones give the
machine a chance to be heard, and its host one to refuse them."""
_TOGETHER_FROM = 0.8
"""When one machine has been silent for too long, others count as silent after this part of their allowed silence:
machines that vanish together should leave in one view, not one heartbeat later in another."""


class _Watched:
    __slots__ = ("deviation_ms", "gap_ms", "heard_at", "presence_at", "probed_at", "unanswered", "unreachable_at")

    def __init__(self, now: Milliseconds, presence_ms: float) -> None:
        self.heard_at = now
        self.presence_at = now
        self.gap_ms = presence_ms
        self.deviation_ms = 0.0
        self.probed_at = float("-inf")
        self.unanswered = 0
        self.unreachable_at = float("-inf")


class FailureDetector:
    """Watches for silence of the machines it is given."""

    def __init__(self, config: MembershipConfig, now: Milliseconds) -> None:
        self._config = config
        self._watched: dict[Machine, _Watched] = {}
        self._looked_at = now
        self.deadline: Milliseconds = now
        """When to look next. Hearing a machine could only put this off, so it is not computed anew for that."""

    def watch_only(self, machines: Iterable[Machine], now: Milliseconds) -> None:
        """Watches these machines and no others. The silence of a new one is counted from now on."""
        presence_ms = self._config.presence_ms
        self._watched = {m: self._watched.get(m) or _Watched(now, presence_ms) for m in machines}
        self._set_deadline()

    def watched(self) -> Iterable[Machine]:
        return self._watched.keys()

    def heard(self, machine: Machine, now: Milliseconds) -> None:
        watched = self._watched.get(machine)
        if watched is not None and now > watched.heard_at:
            watched.heard_at = now
            watched.unanswered = 0

    def heard_presence(self, machine: Machine, now: Milliseconds) -> None:
        """Notes a heartbeat: the gap since the last one shows how regularly the network carries them."""
        watched = self._watched.get(machine)
        if watched is not None:
            error = now - watched.presence_at - watched.gap_ms
            watched.deviation_ms += _DEVIATION_SMOOTHING * (abs(error) - watched.deviation_ms)
            watched.gap_ms += _SMOOTHING * error
            watched.presence_at = now

    def probe_answered(self, machine: Machine) -> None:
        watched = self._watched.get(machine)
        if watched is not None:
            watched.unanswered = 0

    def port_unreachable(self, machine: Machine, now: Milliseconds) -> None:
        """Notes that the machine's host refused something that was sent to it."""
        watched = self._watched.get(machine)
        if watched is not None:
            watched.unreachable_at = now
            self._set_deadline()

    def is_unreachable(self, machine: Machine) -> bool:
        """Whether the machine's host has refused something since the machine was last heard."""
        watched = self._watched.get(machine)
        return watched is not None and watched.unreachable_at > watched.heard_at

    def allowed_ms(self, machine: Machine) -> Milliseconds:
        """How long this machine may be silent before it counts as faulty."""
        watched = self._watched.get(machine)
        if watched is None:
            return self._config.suspect_after_ms
        habit_ms = 3.0 * watched.gap_ms + 4.0 * watched.deviation_ms
        return min(max(self._config.suspect_after_ms, habit_ms), self._config.suspect_after_ms_max)

    def overdue_ms(self, machine: Machine) -> Milliseconds:
        """How long this machine may be silent before its heartbeat is overdue."""
        latest_ms = self.allowed_ms(machine) * _PROBE_FROM
        watched = self._watched.get(machine)
        if watched is None:
            return latest_ms
        gap_ms = max(watched.gap_ms, self._config.presence_ms)  # heartbeats come sooner while a change is pending
        habit_ms = self._config.overdue_gaps * gap_ms + watched.deviation_ms
        return min(habit_ms, latest_ms)

    def look(self, now: Milliseconds) -> tuple[list[Machine], list[Machine]]:
        """Returns the machines that are to be declared faulty, and those to be probed now."""
        if now - self._looked_at > self._config.pause_ms:
            for machine, watched in self._watched.items():
                watched.heard_at = max(watched.heard_at, now - self.allowed_ms(machine) * _PROBE_FROM)
                watched.presence_at = now
                watched.unanswered = 0
                watched.unreachable_at = float("-inf")
        self._looked_at = now
        silent = [machine for machine in self._watched if self._is_silent(machine, 1.0)]
        if silent:
            silent = [machine for machine in self._watched if self._is_silent(machine, _TOGETHER_FROM)]
        probed = self._to_probe(silent, now)
        self._set_deadline()
        return silent, probed

    def _set_deadline(self) -> None:
        often_ms = self._config.pause_ms / 2.0
        due = [self._due_at(machine, watched) for machine, watched in self._watched.items()]
        self.deadline = min([self._looked_at + often_ms, *due])

    def _due_at(self, machine: Machine, watched: _Watched) -> Milliseconds:
        """When the machine has to be probed, or is silent."""
        return min(self._probe_at(machine, watched), self._silent_at(machine, watched, 1.0))

    def _is_silent(self, machine: Machine, part: float) -> bool:
        watched = self._watched[machine]
        if self._looked_at - watched.presence_at > self._config.mute_after_ms:
            return True
        return self._looked_at >= self._silent_at(machine, watched, part)

    def _silent_at(self, machine: Machine, watched: _Watched, part: float) -> Milliseconds:
        """When the machine counts as silent if nothing is heard of it, as far as can be said now."""
        if self.is_unreachable(machine):
            return watched.heard_at + self.overdue_ms(machine)
        if watched.unanswered >= _PROBES_MIN:
            return watched.heard_at + self.allowed_ms(machine) * part
        return NEVER

    def _probe_at(self, machine: Machine, watched: _Watched) -> Milliseconds:
        return max(watched.heard_at + self.overdue_ms(machine), watched.probed_at + self._config.probe_ms)

    def _to_probe(self, silent: list[Machine], now: Milliseconds) -> list[Machine]:
        probed = []
        for machine, watched in self._watched.items():
            if machine not in silent and now >= self._probe_at(machine, watched):
                watched.probed_at = now
                if now >= watched.heard_at + self.allowed_ms(machine) * _PROBE_FROM:
                    watched.unanswered += 1
                probed.append(machine)
        return probed
