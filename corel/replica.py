"""A node's whole protocol stack as one machine: the log over a membership.

It hands to the log what membership reports, and to membership what the log wants sent. The effects that are left
are the driver's to execute: datagrams, writes, and reports to the layer above."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from corel.corel import Corel
from corel.effects import CorelEffect, Mark, Multicast, Solicit
from corel.messages import MessageId
from membership import ChangeStarted, Membership, MembershipEffect, Refused, ViewChanged
from transport import Datagram, Delivered, Machine, Marked, Milliseconds, Received, View, ViewOver

ReplicaEffect: TypeAlias = MembershipEffect | CorelEffect


class Replica:
    """The log and the membership of one node. Call `start` first, then pass in datagrams, ticks and completed
    writes."""

    def __init__(self, group: Membership, log: Corel) -> None:
        self.group = group
        self.log = log

    @property
    def me(self) -> Machine:
        return self.log.me

    @property
    def view(self) -> View:
        return self.group.view

    @property
    def clock(self) -> int:
        return self.group.clock

    def start(self) -> list[ReplicaEffect]:
        return self._from_log(self.log.start())

    def submit(self, body: bytes) -> tuple[MessageId, list[ReplicaEffect]]:
        """Accepts a message and sends it if it may leave now. Raises `TooLarge` or `TooMuch`."""
        message_id = self.log.submit(body)
        return message_id, self._from_log(self.log.send())

    def check_primary(self, number: int) -> list[ReplicaEffect]:
        """Asks whether this is still the primary component; `PrimaryConfirmed` is the answer, if it is."""
        return self._from_log(self.log.check_primary(number))

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[ReplicaEffect]:
        return self._from_group(self.group.receive(datagram, now))

    def port_unreachable(self, machine: Machine, now: Milliseconds) -> None:
        """Notes that this machine's host refused a datagram: no process listens at the machine's address."""
        self.group.port_unreachable(machine, now)

    def tick(self, now: Milliseconds) -> list[ReplicaEffect]:
        effects: list[ReplicaEffect] = []
        if now >= self.group.next_deadline():
            self.group.report_progress(self.log.progress)
            effects = self._from_group(self.group.tick(now))
        if now >= self.log.next_deadline():
            effects += self._from_log(self.log.tick(now))
        return effects

    def persisted(self, token: int) -> list[ReplicaEffect]:
        return self._from_log(self.log.persisted(token))

    def flush(self) -> list[ReplicaEffect]:
        """Writes what has become green, before an orderly stop."""
        return self._from_log(self.log.flush())

    def next_deadline(self) -> Milliseconds:
        return min(self.group.next_deadline(), self.log.next_deadline())

    def _from_group(self, effects: Iterable[MembershipEffect]) -> list[ReplicaEffect]:
        out: list[ReplicaEffect] = []
        for effect in effects:
            if isinstance(effect, Received):
                out += self._from_log(self.log.received(effect.messages))
                if self.log.will_mark:
                    self.group.expect_mark()
            elif isinstance(effect, Delivered):
                out += self._from_log(self.log.delivered(effect.messages, effect.is_closing))
            elif isinstance(effect, Marked):
                out += self._from_log(self.log.marked(effect.machine, effect.marks))
            elif isinstance(effect, ViewChanged):
                out.append(effect)
                out += self._from_log(self.log.view_changed(effect.view))
            elif not isinstance(effect, (ChangeStarted, Refused)):  # the log finds out by itself what was not sent
                out.append(effect)
        return out

    def _from_log(self, effects: Iterable[CorelEffect]) -> list[ReplicaEffect]:
        out: list[ReplicaEffect] = []
        for effect in effects:
            if isinstance(effect, Multicast):
                out += self._multicast(effect)
            elif isinstance(effect, (Mark, Solicit)):
                self._tell(effect)
            else:
                out.append(effect)
        return out

    def _tell(self, effect: Mark | Solicit) -> None:
        """Passes this on to membership, unless that is in the next view already while the log still takes in the
        end of the last one."""
        if effect.view != self.group.view.id:
            return
        if isinstance(effect, Mark):
            self.group.mark(effect.marks)
        else:
            self.group.solicit(effect.machines)

    def _multicast(self, effect: Multicast) -> list[ReplicaEffect]:
        try:
            return list(self.group.multicast(effect.service, effect.payload, effect.view))
        except ViewOver:
            return []  # the recovery of the next view starts over
