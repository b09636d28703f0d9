"""A node's whole protocol stack as one machine: the log over a membership.

It hands to the log what membership reports, and to membership what the log wants sent. What is left are effects
for the driver: datagrams, writes, and what the layer above is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from corel import effects as corel
from corel.corel import Corel
from corel.effects import Mark, Multicast, Solicit
from corel.messages import MessageId
from membership import effects as membership
from membership.effects import ChangeStarted, Refused, ViewChanged
from membership.interface import Membership
from transport.effects import Delivered, Marked, Received
from transport.lansis import ViewOver
from transport.messages import Datagram, Milliseconds

Effect: TypeAlias = membership.Effect | corel.Effect


class Replica:
    """`start` it, then feed it."""

    def __init__(self, group: Membership, log: Corel) -> None:
        self.group = group
        self.log = log

    def start(self) -> list[Effect]:
        return self._from_log(self.log.start())

    def submit(self, body: bytes) -> tuple[MessageId, list[Effect]]:
        """Accepts a message; raises `TooMuch` when too many wait."""
        message_id = self.log.submit(body)
        return message_id, self._from_log(self.log.send())

    def probe(self, number: int) -> list[Effect]:
        """Asks whether this is still the primary component; `Proven` is the answer, if it is."""
        return self._from_log(self.log.probe(number))

    def receive(self, datagram: Datagram, now: Milliseconds) -> list[Effect]:
        return self._from_group(self.group.receive(datagram, now))

    def tick(self, now: Milliseconds) -> list[Effect]:
        effects = self._from_group(self.group.tick(now)) if now >= self.group.next_deadline() else []
        if now >= self.log.next_deadline():
            effects += self._from_log(self.log.tick(now))
        return effects

    def persisted(self, token: int) -> list[Effect]:
        return self._from_log(self.log.persisted(token))

    def flush(self) -> list[Effect]:
        """What is to be written before an orderly stop."""
        return self._from_log(self.log.flush())

    def next_deadline(self) -> Milliseconds:
        return min(self.group.next_deadline(), self.log.next_deadline())

    def _from_group(self, effects: Iterable[membership.Effect]) -> list[Effect]:
        out: list[Effect] = []
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

    def _from_log(self, effects: Iterable[corel.Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Multicast):
                out += self._multicast(effect)
            elif isinstance(effect, (Mark, Solicit)):
                self._tell(effect)
            else:
                out.append(effect)
        return out

    def _tell(self, effect: Mark | Solicit) -> None:
        """Membership may be in the next view already while we still hear of the end of the last one."""
        if effect.view != self.group.view.id:
            return
        if isinstance(effect, Mark):
            self.group.mark(effect.marks)
        else:
            self.group.solicit(effect.machines)

    def _multicast(self, effect: Multicast) -> list[Effect]:
        try:
            return list(self.group.multicast(effect.service, effect.payload, effect.view))
        except ViewOver:
            return []  # the handler of the next view begins anew
