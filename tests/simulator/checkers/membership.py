"""The events that a checker of the membership sees, and the history of every machine, which the run keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from transport.messages import Machine, Message, Service, View


@dataclass(slots=True)
class Period:
    """One machine's time in one view."""

    machine: Machine
    view: View
    before: View | None
    ordered: list[Message] = field(default_factory=list)
    """The agreed and safe messages delivered in it, in the order of delivery."""
    causal: set[tuple[Machine, int]] = field(default_factory=set)
    after: View | None = None


class MembershipChecker:
    """Ignores every event: each checker overrides what it needs."""

    def installed(self, old: Period | None, new: Period) -> None:
        """A machine has a new view; `old` is complete. Without an old one the machine has just started."""

    def multicast(self, number: int, period: Period, service: Service) -> None:
        """A machine's application has multicast its message of this number."""

    def delivered(self, number: int, period: Period, message: Message) -> None:
        """The message of this number was delivered in the period, which does not include it yet."""

    def finished(self, last: dict[str, Period], is_whole: bool) -> None:
        """The run is over. `last` are the periods of the machines that live; `is_whole` whether all are
        connected."""
